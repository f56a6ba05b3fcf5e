//! Why a request gets its response here: the one error type of the request path.

use http::HeaderValue;
use tollgate_graphql::Refusal;
use tollgate_identity::IdentityError;
use tollgate_policy::{AddressRefusal, UnfitMember};
use tollgate_store::StoreError;
use tollgate_upstream::{
    ConnectionNamesProtectedField, IdentityAlias, UpstreamError,
    downstream::{Misdirected, NotGood},
};
use tollgate_usage::mcp::MessageError;
use tollgate_wire::{
    Violation, forward_auth::AskError, method_override::OverrideError, target::TargetError,
};

use super::counted::Counted;

/// Why a request gets its response here and not from the upstream.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// The framing is ambiguous, malformed or too large.
    #[error(transparent)]
    Framing(#[from] Violation),
    /// What another proxy asks cannot be decided: that proxy's mistake, not its client's.
    #[error(transparent)]
    Question(#[from] AskError),
    /// The target or the host is invalid.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The `Connection` field names a field that it may not.
    #[error(transparent)]
    Connection(#[from] ConnectionNamesProtectedField),
    /// Another proxy would pass on a field that reads like one which says who the caller is.
    #[error(transparent)]
    Alias(#[from] IdentityAlias),
    /// The request names another method than its own, in a way that servers may read differently.
    #[error(transparent)]
    MethodOverride(#[from] OverrideError),
    /// CONNECT and TRACE are not forwarded.
    #[error("method is not forwarded")]
    Method,
    /// No policy is for this host, or no route of it matches.
    #[error("no route")]
    NoRoute,
    /// This proxy has forwarded the request before.
    #[error("the request has passed this proxy before: it goes in a loop")]
    Loop,
    /// The caller could not be identified.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The certificate that the connection was opened with is no longer valid.
    #[error(transparent)]
    Certificate(#[from] NotGood),
    /// The connection is for another host.
    #[error(transparent)]
    Misdirected(#[from] Misdirected),
    /// The token does not grant all of these scopes, which the route needs.
    #[error("the token lacks a scope of: {0}")]
    Scope(Box<str>),
    /// The token lacks a claim, or has it with another value than the route requires: what is
    /// expected.
    #[error("the token lacks a claim that the route requires: {0}")]
    Claim(Box<str>),
    /// The first limit of the route has no room.
    #[error("denied by limit {}", .0.limit.to_str().unwrap_or_default())]
    Primary(Denial),
    /// Another limit of the route has no room.
    #[error("denied by secondary limit {}", .0.limit.to_str().unwrap_or_default())]
    Secondary(Denial),
    /// The policy refuses this address or this caller.
    #[error("on the policy's deny list")]
    Denied,
    /// The route refuses the client's address.
    #[error(transparent)]
    Address(#[from] AddressRefusal),
    /// The request's body is larger than its route takes.
    #[error("request body too large")]
    BodyTooLarge,
    /// The request has no value of a key that this limit counts by.
    #[error("the request lacks a key that limit {0} counts by")]
    MissingKey(Box<str>),
    /// The request has several values of a key that this limit counts by, or one that can be read
    /// in several ways.
    #[error("the request has an ambiguous value of a key that limit {0} counts by")]
    AmbiguousKey(Box<str>),
    /// A member of the request's body cannot be counted by.
    #[error(transparent)]
    Member(#[from] UnfitMember),
    /// What the GraphQL request costs cannot be told.
    #[error(transparent)]
    Query(#[from] Refusal),
    /// The request wants a stream, and does not ask for its usage, which its limit requires.
    #[error("the stream would not tell its usage: `stream_options.include_usage` is not set")]
    NoStreamUsage,
    /// The messages of the Model Context Protocol in the request's body cannot be counted by.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The store could not decide.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The upstream gave no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The request's head did not arrive in time.
    #[error("request head did not arrive in time")]
    HeadTimeout,
    /// A fault of this proxy.
    #[error("internal error")]
    Internal,
}

/// What a client learns about its denial.
#[derive(Debug)]
pub struct Denial {
    /// The caller, as the message names it.
    pub who: String,
    /// The name of the limit that denied.
    pub limit: HeaderValue,
    /// What that limit counts, if it is requests, one each, or tokens.
    pub counted: Option<Counted>,
    /// Whole seconds to wait; none if waiting does not help.
    pub retry_after: Option<u64>,
    /// How many requests there may be at once, if there were too many.
    pub at_once: Option<u32>,
}

/// How long to wait after a fault that is expected to pass.
const SOON: u64 = 1;

/// How long to wait after causing too many counters: the next minute has room for as many again.
const A_MINUTE: u64 = 60;

impl Rejection {
    /// The limit that denies or refuses the request.
    pub fn limit(&self) -> Option<&str> {
        match self {
            Rejection::Primary(denial) | Rejection::Secondary(denial) => denial.limit.to_str().ok(),
            Rejection::MissingKey(limit) => Some(limit),
            _ => None,
        }
    }

    /// Whether Redis did not decide, and a limit fails closed.
    pub fn is_undecided(&self) -> bool {
        matches!(self, Rejection::Store(StoreError::Unanswered(_)))
    }

    /// Whether the client has broken off its request.
    pub fn is_broken_off(&self) -> bool {
        matches!(self, Rejection::Upstream(error) if error.is_broken_off())
    }

    /// Seconds after which another try makes sense.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Rejection::Primary(denial) | Rejection::Secondary(denial) => denial.retry_after,
            Rejection::Store(StoreError::NoRoom(reason)) if reason.is_clients_fault() => {
                Some(A_MINUTE)
            }
            Rejection::Store(_)
            | Rejection::Identity(IdentityError::Unavailable | IdentityError::TooManyLookups)
            | Rejection::Upstream(
                UpstreamError::Busy | UpstreamError::ShareUsed | UpstreamError::Exhausted(_),
            ) => Some(SOON),
            _ => None,
        }
    }

    /// Whether the connection must not be used again: what follows on it cannot be trusted, or is
    /// refused as well.
    //= rfc9110#section-10.1.1
    //# A server that responds with a final status code before reading the entire request content
    //# SHOULD indicate whether it intends to close the connection
    pub(super) fn closes_connection(&self) -> bool {
        matches!(
            self,
            //= rfc9112#section-6.1
            //# the server MUST close the connection after responding to such a request to avoid the
            //# potential attacks
            //= rfc9112#section-6.3
            //# If the unrecoverable error is in a request message, the server MUST respond with a
            //# 400 (Bad Request) status code and then close the connection
            Rejection::Framing(_)
                | Rejection::Target(_)
                | Rejection::Connection(_)
                | Rejection::Certificate(_)
                | Rejection::HeadTimeout
                | Rejection::BodyTooLarge
                | Rejection::Upstream(
                    UpstreamError::RequestBody(_)
                        | UpstreamError::RequestBodyTooLarge
                        | UpstreamError::RequestBodyTimeout
                        | UpstreamError::RequestBodyTooSlow
                )
        )
    }
}
