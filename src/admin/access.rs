//! Who may ask for what: the bearer token of a request, against those of the settings.

use std::{net::IpAddr, sync::Arc, time::Instant};

use http::{HeaderMap, HeaderValue, header};
use tollgate_settings::{CurrentTokens, Permission};

use super::failures::Failures;

/// The tokens, and the addresses that have sent wrong ones.
pub(super) struct Access {
    /// None: clients need none.
    tokens: Option<Arc<CurrentTokens>>,
    failures: Failures,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("a token is needed: send `authorization: Bearer …`")]
    NoToken,
    #[error("the token is not valid")]
    WrongToken,
    #[error("too many wrong tokens came from this address: ask again in a second")]
    TooManyTries,
    #[error("this token allows only to read: send the other one to act")]
    OnlyReads,
}

impl Access {
    pub(super) fn new(tokens: Option<Arc<CurrentTokens>>) -> Access {
        Access { tokens, failures: Failures::default() }
    }

    /// Whether clients need tokens.
    pub(super) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether a request from `peer` with these headers may do what needs `needed`.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(
        &self,
        needed: Permission,
        headers: &HeaderMap,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let token = match (fields.next(), fields.next()) {
            (None, _) => return Err(Refusal::NoToken),
            (Some(field), None) => bearer(field),
            (Some(_), Some(_)) => None,
        };
        // Before the token is looked at: a right one must not show that the others were wrong.
        if !self.failures.may_try(peer, now) {
            return Err(Refusal::TooManyTries);
        }
        match token.and_then(|token| tokens.permission(token)) {
            Some(permission) if permission >= needed => Ok(()),
            Some(_) => Err(Refusal::OnlyReads),
            None => {
                self.failures.note(peer, now);
                Err(Refusal::WrongToken)
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
