//! Whether a route needs a token, and whose tokens it takes.

/// Whether a route looks at tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// It does not; only the upstream reads credentials.
    None,
    /// A token may be missing. An invalid token is refused.
    Optional(AcceptedIssuers),
    /// A valid token is required.
    Required(AcceptedIssuers),
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
