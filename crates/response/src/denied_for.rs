//! Which rejections are denials, and why, by the names that the log has for statistics.

use super::rejection::Rejection;

/// Why the proxy denies a request that is in good form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// A limit has no room.
    Limit,
    /// The policy or the route refuses the client's address, or the policy the caller.
    Deny,
    /// There are no valid credentials, or they cannot be verified.
    Auth,
    /// The token lacks a scope.
    Scope,
    /// The request lacks a key that a limit counts by.
    MissingKey,
    /// The store could not decide about a limit.
    Store,
}

impl DenialReason {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            DenialReason::Limit => "limit",
            DenialReason::Deny => "deny",
            DenialReason::Auth => "auth",
            DenialReason::Scope => "scope",
            DenialReason::MissingKey => "missing_key",
            DenialReason::Store => "store",
        }
    }
}

impl Rejection {
    /// Why the request is denied; none if this is no denial but an error: of the request's form or
    /// size, of the upstream, or of this proxy.
    pub fn denied_for(&self) -> Option<DenialReason> {
        match self {
            Rejection::Primary(_) | Rejection::Secondary(_) => Some(DenialReason::Limit),
            Rejection::Denied | Rejection::Address(_) => Some(DenialReason::Deny),
            Rejection::Identity(_) | Rejection::Certificate(_) => Some(DenialReason::Auth),
            Rejection::Scope(_) | Rejection::Claim(_) => Some(DenialReason::Scope),
            Rejection::MissingKey(_) => Some(DenialReason::MissingKey),
            Rejection::Store(_) => Some(DenialReason::Store),
            Rejection::Framing(_)
            | Rejection::Question(_)
            | Rejection::Target(_)
            | Rejection::Connection(_)
            | Rejection::Alias(_)
            | Rejection::MethodOverride(_)
            | Rejection::AmbiguousKey(_)
            | Rejection::Method
            | Rejection::NoRoute
            | Rejection::Loop
            | Rejection::Misdirected(_)
            | Rejection::BodyTooLarge
            | Rejection::Upstream(_)
            | Rejection::HeadTimeout
            | Rejection::Member(_)
            | Rejection::NoStreamUsage
            | Rejection::Query(_)
            | Rejection::Message(_)
            | Rejection::Internal => None,
        }
    }
}
