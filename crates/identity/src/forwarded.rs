//! Headers that carry claims of a verified token to the upstream. Clients cannot set them.

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::Claims;

/// The headers, and the claims that they carry.
#[derive(Clone, Debug, Default)]
pub struct ForwardedClaims {
    /// A header for each claim: the name of the header, and the claim's name or dotted path.
    pub headers: Vec<(HeaderName, Box<str>)>,
    /// A header with the whole payload.
    pub payload: Option<HeaderName>,
}

/// The longest payload that is forwarded, which fits that of the longest token. The introspection
/// response for an opaque token may be longer, and is then not forwarded.
const MAX_PAYLOAD_BYTES: usize = 8192;

/// The longest value of one header. Upstreams refuse large heads, so a longer claim would lock out
/// its user.
const MAX_VALUE_BYTES: usize = 4096;

impl ForwardedClaims {
    /// The headers for these claims, with `payload` as their payload in base64url. A claim has no
    /// header if it is absent, is not text, a number or a boolean, or cannot be a header value.
    pub(super) fn of(&self, claims: &Claims, payload: &str) -> Box<[(HeaderName, HeaderValue)]> {
        let by_claim = self
            .headers
            .iter()
            .filter_map(|(name, claim)| Some((name.clone(), header_value(claims.lookup(claim)?)?)));
        let whole = self.payload.as_ref().and_then(|name| {
            if payload.len() > MAX_PAYLOAD_BYTES {
                tracing::warn!(bytes = payload.len(), header = %name, "a payload is too long to forward");
                return None;
            }
            Some((name.clone(), HeaderValue::from_str(payload).ok()?))
        });
        by_claim.chain(whole).collect()
    }

    /// The names of the headers.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().map(|(name, _)| name).chain(&self.payload)
    }
}

/// A claim as a header value, without characters that could end the field or be trimmed from it.
fn header_value(value: &Value) -> Option<HeaderValue> {
    let text = match value {
        Value::String(text) => text.clone(),
        // A floating-point number may have lost digits, and has several spellings.
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
            let headers = forwarded.of(&claims, "e30");
            let value = headers.first().map(|(_, value)| str::from_utf8(value.as_bytes()).unwrap());
            assert_eq!(value, expected, "{claim}");
        }
    }
}
