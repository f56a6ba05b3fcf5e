//! Asking about opaque tokens (RFC 7662): only their issuer can say what they are.
//!
//! "Not active" is an answer; everything else that is not "active" is a failure of ours or of the
//! server's, never taken for a bad token.

mod flights;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use serde_json::Value;
use thiserror::Error;

use self::flights::{Flights, Question};
use super::{
    Claims,
    claims::parse_object,
    fetch::{Endpoint, FetchError, Fetcher, NoTurn, Turn},
    jwt::MAX_TOKEN_BYTES,
};

/// Asks one server about tokens.
#[derive(Debug)]
pub struct Introspector {
    endpoint: Endpoint,
    /// Who we are to it; never shown.
    authorization: HeaderValue,
    flights: Flights,
}

/// What the server says about a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Introspected {
    /// It is good, and says this. Whether it is for us, and for how long, is for the asker to check.
    Active(Claims),
    /// It is not, or not for us; nobody says why.
    Inactive,
}

/// Why nothing is known about a token. It may be good.
#[derive(Clone, Debug, Error)]
pub enum IntrospectionError {
    /// No answer of status 200.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// An answer that is not strict JSON.
    #[error("the answer is not a JSON object without repeated names")]
    Malformed,
    /// An answer that does not answer.
    #[error("the answer has no `active` that is true or false")]
    NotSaid,
    /// It was not asked about, for the client has its share of questions under way.
    #[error("too many questions of one client at once")]
    Crowded,
}

impl From<NoTurn> for IntrospectionError {
    fn from(why: NoTurn) -> Self {
        match why {
            NoTurn::Share => IntrospectionError::Crowded,
            NoTurn::Taken => FetchError::Busy.into(),
        }
    }
}

impl Introspector {
    /// Asks `endpoint`, to which this proxy is the client `id` with a password.
    pub fn new(endpoint: Endpoint, id: &str, secret: &str) -> Introspector {
        Introspector { endpoint, authorization: basic(id, secret), flights: Flights::default() }
    }

    /// Who is asked.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks about a token for a client, of which that is the keyed hash. All who ask about the same
    /// token at a time share one call; a client has a share of all calls, and waits for its turn as
    /// long as the server may take to answer.
    ///
    /// What no token looks like is not sent: it is not active.
    ///
    /// # Errors
    /// [`IntrospectionError`]
    pub async fn ask(
        &self,
        fetcher: &Fetcher,
        client: u128,
        token: &[u8],
    ) -> Result<Introspected, IntrospectionError> {
        let Some(token) = readable(token) else { return Ok(Introspected::Inactive) };
        let mut name = [0; 32];
        name.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let (endpoint, authorization) = (self.endpoint.clone(), self.authorization.clone());
        let form = format!("token={}&token_type_hint=access_token", urlencoded(token));
        let asker = fetcher.clone();
        let call = move |turn: Turn| {
            let (asker, endpoint) = (asker.clone(), endpoint.clone());
            let (authorization, form) = (authorization.clone(), form.clone());
            async move { read(&asker.post_form(turn, &endpoint, authorization, form).await?) }
        };
        let turns = &fetcher.turns_at(&self.endpoint);
        let question = Question { name, client, turns, patience: self.endpoint.timeout };
        self.flights.share(fetcher, question, call).await
    }
}

/// A token that could be one: visible ASCII (RFC 6750 section 2.1 allows less), and bounded.
fn readable(token: &[u8]) -> Option<&str> {
    let could_be = !token.is_empty()
        && token.len() <= MAX_TOKEN_BYTES
        && token.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(token).ok().filter(|_| could_be)
}

fn read(answer: &[u8]) -> Result<Introspected, IntrospectionError> {
    let members = parse_object(answer).map_err(|_| IntrospectionError::Malformed)?;
    match members.get("active") {
        Some(Value::Bool(true)) => Ok(Introspected::Active(members.into())),
        Some(Value::Bool(false)) => Ok(Introspected::Inactive),
        _ => Err(IntrospectionError::NotSaid),
    }
}

/// Credentials of a client, each part urlencoded first (RFC 6749 section 2.3.1).
fn basic(id: &str, secret: &str) -> HeaderValue {
    let pair = format!("{}:{}", urlencoded(id), urlencoded(secret));
    let text = format!("Basic {}", STANDARD.encode(pair));
    // Base64 is always a header value.
    let mut value =
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

/// `text` as in `application/x-www-form-urlencoded`.
fn urlencoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => {
                encoded.push(byte.into());
            }
            b' ' => encoded.push('+'),
            _ => {
                encoded.push('%');
                for digit in [byte >> 4, byte & 0xf] {
                    encoded
                        .extend(char::from_digit(digit.into(), 16).map(|c| c.to_ascii_uppercase()));
                }
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn introspector() -> Introspector {
        let endpoint =
            Endpoint::parse("https://id.example.com/introspect", false, None, Duration::MAX);
        Introspector::new(endpoint.unwrap(), "api", "s3cret")
    }

    #[test]
    fn only_a_boolean_makes_a_token_active_or_not() {
        let active = read(br#"{"active":true,"sub":"7"}"#).unwrap();
        let Introspected::Active(claims) = active else { panic!("{active:?}") };
        assert_eq!(claims.get("sub"), Some(&Value::from("7")));
        assert_eq!(read(br#"{"active":false,"sub":"7"}"#).unwrap(), Introspected::Inactive);
        for answer in [
            r#"{}"#,
            r#"{"active":"true"}"#,
            r#"{"active":1}"#,
            r#"{"active":null}"#,
            r#"{"active":[true]}"#,
            r#"{"Active":true}"#,
            r#"{"a":{"active":true}}"#,
        ] {
            let error = read(answer.as_bytes()).unwrap_err();
            assert!(matches!(error, IntrospectionError::NotSaid), "{answer}: {error:?}");
        }
        for answer in [
            "",
            "true",
            "[]",
            r#"{"active":true,"active":false}"#,
            r#"{"active":true} x"#,
            "<html>",
        ] {
            let error = read(answer.as_bytes()).unwrap_err();
            assert!(matches!(error, IntrospectionError::Malformed), "{answer}: {error:?}");
        }
    }

    #[test]
    fn only_what_could_be_a_token_is_sent() {
        let longest = vec![b'a'; MAX_TOKEN_BYTES];
        for token in [&b"a"[..], b"2YotnFZFEjr1zCsicMWpAA", b"a-._~+/=!\"#$%&'", &longest] {
            assert!(readable(token).is_some());
        }
        let too_long = vec![b'a'; MAX_TOKEN_BYTES + 1];
        for token in [&b""[..], b"a b", b"a\r\nb", b"\0", b"\x7f", "\u{e9}".as_bytes(), &too_long] {
            assert!(readable(token).is_none(), "{token:?}");
        }
    }

    #[test]
    fn forms_and_credentials_are_urlencoded() {
        for (text, expected) in [
            ("abcXYZ019*-._", "abcXYZ019*-._"),
            ("a b", "a+b"),
            ("a+b&c=d%", "a%2Bb%26c%3Dd%25"),
            ("~/:", "%7E%2F%3A"),
            ("\u{e9}\0", "%C3%A9%00"),
        ] {
            assert_eq!(urlencoded(text), expected);
        }
        // The pair is split at its first colon, so none may be left in the name.
        let value = basic("a:b", "p w");
        assert_eq!(value.to_str().unwrap(), format!("Basic {}", STANDARD.encode("a%3Ab:p+w")));
    }

    #[test]
    fn nothing_printed_tells_the_secret() {
        let text = format!("{:?}", introspector());
        assert!(
            !text.contains("s3cret") && !text.contains(&STANDARD.encode("api:s3cret")),
            "{text}"
        );
    }
}
