//! What the upstream is told about a good token, in headers that no client can set.

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::Claims;

/// The headers, and what they hold.
#[derive(Clone, Debug, Default)]
pub struct ForwardedClaims {
    /// A header for each claim: its name, and the claim's name or dotted path.
    pub headers: Vec<(HeaderName, Box<str>)>,
    /// A header with the whole payload.
    pub payload: Option<HeaderName>,
}

/// The longest payload that is told whole: that of the longest token. What is said about an opaque
/// token may be longer, and is not told then.
const MAX_PAYLOAD_BYTES: usize = 8192;

/// The longest value of one header: upstreams refuse larger heads, and so one long claim would keep
/// its user out.
const MAX_VALUE_BYTES: usize = 4096;

impl ForwardedClaims {
    /// The headers for these claims, whose payload is `payload` in base64url. A claim that is absent,
    /// that is no text, number or truth value, or that no header can hold has none.
    pub(super) fn of(&self, claims: &Claims, payload: &str) -> Box<[(HeaderName, HeaderValue)]> {
        let by_claim = self
            .headers
            .iter()
            .filter_map(|(name, claim)| Some((name.clone(), header_value(claims.lookup(claim)?)?)));
        let whole = self.payload.as_ref().and_then(|name| {
            if payload.len() > MAX_PAYLOAD_BYTES {
                tracing::warn!(bytes = payload.len(), header = %name, "a payload is too long to tell");
                return None;
            }
            Some((name.clone(), HeaderValue::from_str(payload).ok()?))
        });
        by_claim.chain(whole).collect()
    }

    /// The names of the headers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().map(|(name, _)| name).chain(&self.payload)
    }
}

/// A claim as the value of a header. Nothing that could end the field, or hide in it.
fn header_value(value: &Value) -> Option<HeaderValue> {
    let text = match value {
        Value::String(text) => text.clone(),
        // Others have lost digits, or may be written in several ways.
        Value::Number(number) if !number.is_f64() => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let is_usable = !text.is_empty()
        && text.len() <= MAX_VALUE_BYTES
        && text.trim() == text
        && !text.chars().any(char::is_control);
    is_usable.then(|| HeaderValue::from_bytes(text.as_bytes()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_headers_if_they_can_be() {
        let claims = Claims::parse(
            br#"{"email":"a@b.c","age":42,"admin":true,"none":null,"list":[1],"realm":{"plan":"pro"},
                 "evil":"a\r\nx-admin: 1","nul":"a\u0000","empty":"","name":"J\u00fcrgen",
                 "padded":" lead","huge":12345678901234567890123}"#,
        )
        .unwrap();
        for (claim, expected) in [
            ("email", Some("a@b.c")),
            ("age", Some("42")),
            ("admin", Some("true")),
            ("realm.plan", Some("pro")),
            ("name", Some("J\u{fc}rgen")),
            ("padded", None),
            ("huge", None),
            ("none", None),
            ("list", None),
            ("realm", None),
            ("evil", None),
            ("nul", None),
            ("empty", None),
            ("absent", None),
        ] {
            let name = HeaderName::from_static("x-claim");
            let forwarded = ForwardedClaims { headers: vec![(name, claim.into())], payload: None };
            let told = forwarded.of(&claims, "e30");
            let told = told.first().map(|(_, value)| str::from_utf8(value.as_bytes()).unwrap());
            assert_eq!(told, expected, "{claim}");
        }
    }
}
