//! Introspection of opaque tokens (RFC 7662): only their issuer can read them.
//!
//! A response that says "not active" makes a token bad. Every other failure is ours or the
//! server's, and never makes a token bad.

mod shared_calls;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use serde_json::Value;
use thiserror::Error;

use self::shared_calls::{SharedCalls, TokenQuery};
use super::{
    Claims,
    claims::parse_object,
    fetch::{FetchError, Fetcher, IssuerServer, Permit, PermitError},
    token_error::MAX_TOKEN_BYTES,
};

/// Introspects tokens at one server.
#[derive(Debug)]
pub struct Introspector {
    /// The server.
    pub server: IssuerServer,
    /// The credentials of this proxy at the server; never printed.
    authorization: HeaderValue,
    calls: SharedCalls,
}

/// What the server responds about a token.
#[derive(Clone, Debug, PartialEq)]
pub enum IntrospectionResponse {
    /// It is active, with these claims. Its audience and its times are still to be checked.
    Active(Claims),
    /// It is not active, or not for this proxy; the server gives no reason.
    Inactive,
}

/// Why introspection failed. The token may be good.
#[derive(Clone, Debug, Error)]
pub enum IntrospectionError {
    /// No response of status 200.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A response that is not strict JSON.
    #[error("the response is not a JSON object without repeated names")]
    Malformed,
    /// A response without a usable `active`.
    #[error("the response has no `active` that is true or false")]
    NoActiveMember,
    /// The token was not introspected: its client has its share of calls under way.
    #[error("too many introspection calls for one client at once")]
    ClientLimit,
}

impl From<PermitError> for IntrospectionError {
    fn from(error: PermitError) -> Self {
        match error {
            PermitError::ClientLimit => IntrospectionError::ClientLimit,
            PermitError::ServerLimit => FetchError::Busy.into(),
        }
    }
}

impl Introspector {
    /// Introspects at `server`, with the credentials of the client `id`.
    pub fn new(server: IssuerServer, id: &str, secret: &str) -> Introspector {
        Introspector { server, authorization: basic(id, secret), calls: SharedCalls::default() }
    }

    /// Introspects a token that a client has shown; `client` is the client's keyed hash. Requests
    /// with the same token at the same time share one call. A client has a share of all calls, and
    /// waits for a permit as long as the server may take to respond.
    ///
    /// Bytes that cannot be a token are not sent; they count as not active.
    ///
    /// # Errors
    /// [`IntrospectionError`]
    pub async fn introspect(
        &self,
        fetcher: &Fetcher,
        client: u128,
        token: &[u8],
    ) -> Result<IntrospectionResponse, IntrospectionError> {
        let Some(token) = readable(token) else { return Ok(IntrospectionResponse::Inactive) };
        let mut digest_of_token = [0; 32];
        digest_of_token.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let server = self.server.clone();
        let authorization = self.authorization.clone();
        let form = format!("token={}&token_type_hint=access_token", urlencoded(token));
        let sender = fetcher.clone();
        let call = move |permit: Permit| {
            let sender = sender.clone();
            let server = server.clone();
            let authorization = authorization.clone();
            let form = form.clone();
            async move { read(&sender.post_form(permit, &server, authorization, form).await?) }
        };
        let limiter = &fetcher.limiter_at(&self.server);
        let query = TokenQuery {
            token: digest_of_token,
            client,
            limiter,
            permit_timeout: self.server.timeout,
        };
        self.calls.share(fetcher, query, call).await
    }
}

/// The text of a token: visible ASCII (RFC 6750 section 2.1 allows less), of bounded length.
fn readable(token: &[u8]) -> Option<&str> {
    let is_readable = !token.is_empty()
        && token.len() <= MAX_TOKEN_BYTES
        && token.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(token).ok().filter(|_| is_readable)
}

fn read(response: &[u8]) -> Result<IntrospectionResponse, IntrospectionError> {
    let members = parse_object(response).map_err(|_| IntrospectionError::Malformed)?;
    match members.get("active") {
        Some(Value::Bool(true)) => Ok(IntrospectionResponse::Active(members.into())),
        Some(Value::Bool(false)) => Ok(IntrospectionResponse::Inactive),
        _ => Err(IntrospectionError::NoActiveMember),
    }
}

/// Credentials of a client, each part urlencoded first (RFC 6749 section 2.3.1).
fn basic(id: &str, secret: &str) -> HeaderValue {
    let pair = format!("{}:{}", urlencoded(id), urlencoded(secret));
    let text = format!("Basic {}", STANDARD.encode(pair));
    // Base64 is always a valid header value, so the other arm is never taken.
    let mut value =
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

/// `text` as in `application/x-www-form-urlencoded`.
fn urlencoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn introspector() -> Introspector {
        let server =
            IssuerServer::parse("https://id.example.com/introspect", false, None, Duration::MAX);
        Introspector::new(server.unwrap(), "api", "s3cret")
    }

    #[test]
    fn only_a_boolean_makes_a_token_active_or_not() {
        let active = read(br#"{"active":true,"sub":"7"}"#).unwrap();
        let IntrospectionResponse::Active(claims) = active else { panic!("{active:?}") };
        assert_eq!(claims.get("sub"), Some(&Value::from("7")));
        assert_eq!(
            read(br#"{"active":false,"sub":"7"}"#).unwrap(),
            IntrospectionResponse::Inactive
        );
        for response in [
            r#"{}"#,
            r#"{"active":"true"}"#,
            r#"{"active":1}"#,
            r#"{"active":null}"#,
            r#"{"active":[true]}"#,
            r#"{"Active":true}"#,
            r#"{"a":{"active":true}}"#,
        ] {
            let error = read(response.as_bytes()).unwrap_err();
            assert!(matches!(error, IntrospectionError::NoActiveMember), "{response}: {error:?}");
        }
        for response in [
            "",
            "true",
            "[]",
            r#"{"active":true,"active":false}"#,
            r#"{"active":true} x"#,
            "<html>",
        ] {
            let error = read(response.as_bytes()).unwrap_err();
            assert!(matches!(error, IntrospectionError::Malformed), "{response}: {error:?}");
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
    fn printed_introspector_has_no_secret() {
        let text = format!("{:?}", introspector());
        assert!(
            !text.contains("s3cret") && !text.contains(&STANDARD.encode("api:s3cret")),
            "{text}"
        );
    }
}
