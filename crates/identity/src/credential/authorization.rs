//! The schemes of the `Authorization` field: those that carry a credential, and the names of
//! others.

use std::borrow::Cow;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use tollgate_keyword::keywords;

use super::CredentialError;

/// A scheme that carries a token or an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `Bearer`, a space and the token (RFC 6750 section 2.1).
    Bearer,
    /// `token`, a space and the token, as GitHub clients send it.
    Token,
    /// `Basic` (RFC 7617), with the token as the password. The user name is ignored.
    Basic,
}

keywords! { Scheme { Bearer = "bearer", Token = "token", Basic = "basic" } }

/// The names of schemes that may be logged: most of IANA's registry, and some that clients use
/// without registration. No other name is logged, since what looks like a scheme may be a secret.
const NAMES: [&str; 21] = [
    "Basic",
    "Bearer",
    "token",
    "Digest",
    "DPoP",
    "GNAP",
    "HOBA",
    "Mutual",
    "Negotiate",
    "NTLM",
    "OAuth",
    "PrivateToken",
    "SCRAM-SHA-1",
    "SCRAM-SHA-256",
    "vapid",
    "ApiKey",
    "AWS4-HMAC-SHA256",
    "Hawk",
    "JWT",
    "Key",
    "Signature",
];

/// Accepts missing padding, which some clients leave out.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Scheme {
    /// Its name in challenges.
    pub fn name(self) -> &'static str {
        match self {
            //= rfc6750#section-3
            //# All challenges defined by this specification MUST use the auth-scheme value "Bearer"
            Scheme::Bearer => "Bearer",
            Scheme::Token => "Token",
            Scheme::Basic => "Basic",
        }
    }

    /// The value of an `Authorization` field with this token.
    pub fn field_value(self, token: &str) -> String {
        match self {
            Scheme::Bearer | Scheme::Token => format!("{} {token}", self.name()),
            Scheme::Basic => format!("Basic {}", BASE64.encode(format!("token:{token}"))),
        }
    }
}

/// A token or an API key in a field, with its scheme.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemeCredential<'r> {
    pub(super) scheme: Scheme,
    pub(super) token: Cow<'r, [u8]>,
}

/// The credential in a field with one of these schemes. None: it has another scheme.
///
/// # Errors
/// [`CredentialError`] for one of the schemes with a malformed credential.
pub(super) fn read_scheme(
    value: &[u8],
    schemes: impl Iterator<Item = Scheme>,
) -> Result<Option<SchemeCredential<'_>>, CredentialError> {
    for scheme in schemes {
        if let Some(rest) = after_scheme(value, scheme)? {
            let token = match scheme {
                Scheme::Bearer | Scheme::Token => Cow::Borrowed(rest),
                Scheme::Basic if rest.is_empty() => Cow::Borrowed(rest),
                Scheme::Basic => Cow::Owned(password(rest)?),
            };
            return Ok(Some(SchemeCredential { scheme, token }));
        }
    }
    Ok(None)
}

/// The part of a field after the name of the scheme and its spaces. None: it has another scheme.
///
/// # Errors
/// [`CredentialError::Malformed`] for a name that no space follows: a server that accepts a tab, a
/// colon or another kind of space there would read a token that this proxy has not verified.
fn after_scheme(value: &[u8], scheme: Scheme) -> Result<Option<&[u8]>, CredentialError> {
    let name = scheme.name().as_bytes();
    let Some((start, rest)) = value.split_at_checked(name.len()) else { return Ok(None) };
    if !start.eq_ignore_ascii_case(name) {
        return Ok(None);
    }
    if rest.first().is_some_and(|byte| *byte != b' ') {
        return Err(CredentialError::Malformed);
    }
    //= rfc6750#section-2.1
    //# Resource servers MUST support this method
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    Ok(Some(rest.split_at(spaces).1))
}

/// The password of `name:password` in Base64.
fn password(encoded: &[u8]) -> Result<Vec<u8>, CredentialError> {
    let mut pair = BASE64.decode(encoded).map_err(|_| CredentialError::Malformed)?;
    let colon = memchr::memchr(b':', &pair).ok_or(CredentialError::Malformed)?;
    Ok(pair.split_off(colon + 1))
}

/// The name of a field's scheme, and its position among the known names. None: it is not known.
pub(super) fn known_name(value: &[u8]) -> Option<(usize, &'static str)> {
    /// Longer than every known name.
    const MAX_NAME_BYTES: usize = 32;
    let start = value.get(..MAX_NAME_BYTES).unwrap_or(value);
    let end = start.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-');
    let name = start.get(..end.unwrap_or(start.len()))?;
    NAMES.into_iter().enumerate().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// How many names of schemes are known.
pub const KNOWN_SCHEME_NAMES: usize = NAMES.len();

#[cfg(test)]
mod tests {
    use tollgate_keyword::Keyword;

    use super::*;

    #[test]
    fn each_scheme_is_read_as_it_is_written() {
        let all = Scheme::KEYWORDS.iter().map(|(_, scheme)| *scheme);
        for scheme in all.clone() {
            let field = scheme.field_value("a.b:c");
            let expected = SchemeCredential { scheme, token: Cow::from(&b"a.b:c"[..]) };
            assert_eq!(read_scheme(field.as_bytes(), all.clone()), Ok(Some(expected)), "{field}");
            let others = all.clone().filter(|other| *other != scheme);
            assert_eq!(read_scheme(field.as_bytes(), others), Ok(None), "{field}");
        }
    }

    #[test]
    fn password_is_what_follows_the_first_colon() {
        for (pair, expected) in [
            ("a:b", Ok("b")),
            (":b", Ok("b")),
            ("a:b:c", Ok("b:c")),
            ("a:", Ok("")),
            ("ab", Err(CredentialError::Malformed)),
        ] {
            let found = password(BASE64.encode(pair).as_bytes());
            let expected = expected.map(|password| password.as_bytes().to_vec());
            assert_eq!(found, expected, "{pair}");
        }
        assert_eq!(password(b"YT\tpi"), Err(CredentialError::Malformed));
    }

    #[test]
    fn only_known_names_are_returned() {
        for (value, expected) in [
            (&b"Basic YTpi"[..], Some("Basic")),
            (b"TOKEN x", Some("token")),
            (b"digest", Some("Digest")),
            (b"Bearer\tx", Some("Bearer")),
            (b"aws4-hmac-sha256 Credential=x", Some("AWS4-HMAC-SHA256")),
            (b"correct horse battery staple", None),
            (b"eyJhbGciOiJub25lIn0.e30.", None),
            (b"tokens x", None),
            (b"", None),
            (b"\xa0Bearer x", None),
        ] {
            assert_eq!(known_name(value).map(|(_, name)| name), expected, "{value:?}");
        }
    }
}
