//! A verified token, and what the rules of one policy make of it.

use http::{HeaderName, HeaderValue};

use super::{caller::CallerValue, jwt::VerifiedToken};

/// A verified token, with the caller that it names under a policy's rules. The caller is looked up
/// once and cached, since the lookup in the claims costs more than all else about a cached token.
pub struct KnownToken {
    /// The token.
    pub token: VerifiedToken,
    /// None: the rules name no callers by its claims, so the token only grants access.
    pub(super) named: Option<NamedCaller>,
    /// The headers that carry its claims to the upstream.
    pub forwarded: Box<[(HeaderName, HeaderValue)]>,
    /// The generation of the keys that verified it.
    pub(super) generation: u64,
    /// The approximate size of its claims and of the headers for the upstream, as text.
    pub(super) bytes: usize,
}

/// The caller that a token names.
pub(super) struct NamedCaller {
    /// Position of the rule that named it.
    pub(super) rule: usize,
    pub(super) value: CallerValue,
    /// Its whole name, as a header's value; none: it cannot be one.
    pub(super) name: Option<HeaderValue>,
    pub(super) hash: u128,
    /// The version of the secret that it was hashed under.
    pub(super) hashed_under: u32,
    pub(super) tier: usize,
    /// Whether the token names a tier that there is not.
    pub(super) is_tier_unknown: bool,
}
