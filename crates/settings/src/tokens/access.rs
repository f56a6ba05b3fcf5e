//! Who may ask for what: the bearer token of a request, against those that are good.

use std::{net::IpAddr, time::Instant};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{CurrentTokens, Permission};

/// Why a request is refused, as its sender reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// There is none.
    #[error("a token is needed: send `authorization: Bearer …`")]
    NoToken,
    /// It is none of those that are good.
    #[error("the token is not valid")]
    WrongToken,
    /// Its address has sent too many wrong ones.
    #[error("too many wrong tokens came from this address: ask again in a second")]
    TooManyTries,
    /// It allows less.
    #[error("this token allows only to read: send the other one to act")]
    OnlyReads,
}

impl TokenRefusal {
    /// Status, and the field that goes with it (RFC 6750, section 3).
    pub fn answer(self) -> (StatusCode, HeaderName, &'static str) {
        let (status, value) = match self {
            //= rfc6750#section-3
            //# This scheme MUST be followed by one or more auth-param values
            TokenRefusal::NoToken => (StatusCode::UNAUTHORIZED, "Bearer realm=\"tollgate\""),
            TokenRefusal::WrongToken => {
                (StatusCode::UNAUTHORIZED, "Bearer error=\"invalid_token\"")
            }
            TokenRefusal::OnlyReads => {
                (StatusCode::FORBIDDEN, "Bearer error=\"insufficient_scope\"")
            }
            TokenRefusal::TooManyTries => {
                return (StatusCode::TOO_MANY_REQUESTS, header::RETRY_AFTER, "1");
            }
        };
        (status, header::WWW_AUTHENTICATE, value)
    }
}

impl CurrentTokens {
    /// Whether a request from `peer` with these headers may do what needs `needed`.
    ///
    /// # Errors
    /// Why not.
    pub fn check(
        &self,
        needed: Permission,
        headers: &HeaderMap,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(), TokenRefusal> {
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let token = match (fields.next(), fields.next()) {
            (None, _) => return Err(TokenRefusal::NoToken),
            (Some(field), None) => bearer(field),
            (Some(_), Some(_)) => None,
        };
        // Before the token is looked at: a right one must not show that the others were wrong.
        if !self.failures.may_try(peer, now) {
            return Err(TokenRefusal::TooManyTries);
        }
        match token.and_then(|token| self.permission(token)) {
            Some(permission) if permission >= needed => Ok(()),
            Some(_) => Err(TokenRefusal::OnlyReads),
            None => {
                self.failures.note(peer, now);
                Err(TokenRefusal::WrongToken)
            }
        }
    }
}

/// The token of `Authorization: Bearer …`. The name of a scheme may be in either case (RFC 9110,
/// section 11.1).
fn bearer(field: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = field.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
