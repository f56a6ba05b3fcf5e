//! Whether a route needs a token, and which tokens it takes.

use super::{claim_rules::ClaimRules, error::IdentityError, jwt::VerifiedToken};

/// Whether a route looks at tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// It does not; only the upstream reads credentials.
    None,
    /// A token may be missing. An invalid token is refused.
    Optional(AcceptedTokens),
    /// A valid token is required.
    Required(AcceptedTokens),
}

/// Which tokens a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedTokens {
    /// Whose.
    pub issuers: AcceptedIssuers,
    /// What their claims must be, besides what their issuer's rules say. A token for another
    /// audience is not good here; one that lacks a required claim is good, and does not suffice.
    pub claims: ClaimRules,
}

impl AcceptedTokens {
    /// All that the policy takes.
    pub const ALL: AcceptedTokens = AcceptedTokens::of(AcceptedIssuers::All);

    /// All tokens of these issuers.
    pub const fn of(issuers: AcceptedIssuers) -> AcceptedTokens {
        let claims = ClaimRules { audience: Vec::new(), required: Vec::new(), names: Vec::new() };
        AcceptedTokens { issuers, claims }
    }

    /// Checks the issuer and the audience of a verified token. The cache of tokens knows no routes,
    /// so this is checked for each request.
    pub(super) fn check(&self, token: &VerifiedToken) -> Result<(), IdentityError> {
        if !self.issuers.contains(token.issuer) {
            return Err(IdentityError::IssuerNotAccepted);
        }
        if self.claims.audience.is_empty() {
            return Ok(());
        }
        Ok(self.claims.check_audience(&token.claims)?)
    }
}

/// Whose tokens a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptedIssuers {
    /// Every issuer of the policy.
    All,
    /// Only these, by position: first those of
    /// [`IdentityRules::issuers`](super::IdentityRules::issuers), then the introspection endpoint,
    /// then the API keys.
    Only(Vec<usize>),
}

impl AcceptedIssuers {
    /// Whether tokens of the issuer at this position are taken.
    pub fn contains(&self, issuer: usize) -> bool {
        match self {
            AcceptedIssuers::All => true,
            AcceptedIssuers::Only(issuers) => issuers.contains(&issuer),
        }
    }
}
