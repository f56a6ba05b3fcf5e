//! The policy file as it is written: shapes only. What it means is checked in `compile`.
//!
//! Fields of type [`Node`] take more than one shape; `compile` tells them apart.

mod case;
mod identity;

use serde::Deserialize;

use crate::yaml::{Entries, Later, Node, Spanned};

pub(super) use self::{
    case::{RawCase, RawExpect, RawGiven, RawResponse},
    identity::{
        RawApiKeys, RawCaller, RawForwardClaims, RawIdentity, RawIntrospection, RawIssuer, RawToken,
    },
};

/// A policy file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "policy")]
pub(super) struct RawPolicy {
    /// Version of the format.
    pub(super) version: Spanned<u32>,
    /// Hosts that the policy is for; left out: every host.
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Where requests go, by name.
    pub(super) upstreams: Spanned<Entries<RawUpstream>>,
    /// Who is calling.
    #[serde(default)]
    pub(super) identity: RawIdentity,
    /// Classes of callers that limits tell apart.
    pub(super) tiers: Option<RawTiers>,
    /// The limits, by name.
    #[serde(default)]
    pub(super) limits: Entries<RawLimit>,
    /// Other rates for single callers, each with an end and a reason.
    #[serde(default)]
    pub(super) overrides: Vec<Spanned<RawOverride>>,
    /// Addresses, networks and callers (`user:42`) that are charged nothing.
    #[serde(default)]
    pub(super) exempt: Vec<Spanned<String>>,
    /// Addresses, networks and callers (`user:42`) that are refused.
    #[serde(default)]
    pub(super) deny: Vec<Spanned<String>>,
    /// Which request takes which limits; the first match wins.
    pub(super) routes: Spanned<Vec<Spanned<RawRoute>>>,
    /// What clients are told.
    #[serde(default)]
    pub(super) responses: RawResponses,
    /// Requests, and what is to become of them: run by `tollgate check`.
    #[serde(default)]
    pub(super) tests: Vec<Spanned<RawCase>>,
}

/// A group of servers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "upstream")]
pub(super) struct RawUpstream {
    /// `http://host:port`.
    pub(super) servers: Spanned<Vec<Spanned<String>>>,
    /// How long a connection may take to be made; 2s.
    pub(super) connect_timeout: Option<Spanned<String>>,
    /// How long the response head may take; 60s.
    pub(super) response_timeout: Option<Spanned<String>>,
    /// How long a body may make no progress; 60s.
    pub(super) idle_timeout: Option<Spanned<String>>,
}

/// Classes of callers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "tiers section")]
pub(super) struct RawTiers {
    /// The tier of callers that name none, or one that is not listed.
    pub(super) default: Spanned<String>,
    /// All tiers.
    pub(super) names: Vec<Spanned<String>>,
}

/// A limit: what it is counted per, how much and how ([`RawMeasure`]), and when it counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "limit")]
pub(super) struct RawLimit {
    /// What it is counted per: a key or a list of keys. A key is one of `caller`, `client.ip`,
    /// `host`, `path`, `path.<parameter>`, `method`, `jwt.<claim>`, `header.<name>`,
    /// `cookie.<name>`.
    pub(super) per: Node,
    /// For `client.ip`: IPv4 addresses with the same prefix are one; 32.
    pub(super) ipv4_prefix: Option<Spanned<u8>>,
    /// For `client.ip`: IPv6 addresses with the same prefix are one; 64.
    pub(super) ipv6_prefix: Option<Spanned<u8>>,
    /// What becomes of a request that lacks what is counted by: `skip` (the default) or `deny`.
    pub(super) on_missing: Option<Spanned<String>>,

    // The fields of [`RawMeasure`].
    pub(super) rate: Option<Node>,
    pub(super) algorithm: Option<Spanned<String>>,
    pub(super) align: Option<Spanned<String>>,
    pub(super) timezone: Option<Spanned<String>>,
    pub(super) burst: Option<Node>,
    pub(super) capacity: Option<Node>,
    pub(super) refill: Option<Node>,
    pub(super) strict: Option<Spanned<bool>>,
    pub(super) concurrent: Option<Node>,
    pub(super) lease: Option<Spanned<String>>,
    pub(super) retry_after: Option<Spanned<String>>,

    /// What a request costs; 1. See [`RawRoute::cost`].
    pub(super) cost: Option<Node>,
    /// Which requests are given back what they cost; 304 if the sender showed a good token.
    pub(super) refund: Option<Spanned<RawRefund>>,
    /// Which responses count; left out: all.
    pub(super) count_when: Option<Spanned<RawCountWhen>>,
    /// `enforce` (the default), or `shadow`: count and tell, and never deny.
    pub(super) mode: Option<Spanned<String>>,
    /// So many of a hundred callers, always the same, are denied what does not fit; 100.
    pub(super) enforce_percent: Option<Spanned<u8>>,
    /// What becomes of a request if the store does not answer: `local` (the default), decided in the
    /// process; `open`, as if there were no such limit; `closed`, refused.
    pub(super) on_store_error: Option<Spanned<String>>,
    /// Another measure, tried out beside this one.
    pub(super) candidate: Option<Spanned<RawMeasure>>,
}

/// How much, and how it is counted: what a limit, a candidate and an override have in common.
///
/// What depends on the caller's tier can be written once for all tiers or by tier, with `default`
/// for the tiers that are not named: `{ anonymous: 60/hour, default: 5000/hour }`.
///
/// ```yaml
/// { rate: 5000/hour }                                             # fixed_window
/// { rate: [10/second, 5000/hour] }                                # both at once
/// { rate: 100_000/month, align: calendar, timezone: Europe/Berlin }
/// { rate: 30/minute, algorithm: sliding_window }                  # or sliding_log
/// { rate: 30/minute, algorithm: gcra, burst: 10 }
/// { rate: 10/second, algorithm: token_bucket, capacity: 50 }      # 10 more each second, up to 50
/// { refill: { amount: 10, interval: 1s }, algorithm: token_bucket, capacity: { free: 50, default: 200 } }
/// { concurrent: 20, lease: 60s }
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename = "candidate")]
pub(super) struct RawMeasure {
    /// By tier: `5000/hour`, a list of such, or `unlimited`.
    pub(super) rate: Option<Node>,
    /// `fixed_window` (the default), `sliding_window`, `sliding_log`, `token_bucket`, `gcra`;
    /// `concurrency`, which goes with `concurrent`.
    pub(super) algorithm: Option<Spanned<String>>,
    /// `fixed_window`: where windows begin. `first_request` (the default), `epoch`, `calendar`.
    pub(super) align: Option<Spanned<String>>,
    /// `align: calendar`: whose calendar; UTC.
    pub(super) timezone: Option<Spanned<String>>,
    /// `gcra`, by tier: how much may come at once; the rate's number.
    pub(super) burst: Option<Node>,
    /// `token_bucket`, by tier: what the bucket holds; the rate's number. With `refill` it is needed,
    /// and may be `unlimited`.
    pub(super) capacity: Option<Node>,
    /// `token_bucket`, in place of `rate`: what is added, a [`RawRefill`].
    pub(super) refill: Option<Node>,
    /// `token_bucket`: who asks an empty bucket waits anew; false.
    pub(super) strict: Option<Spanned<bool>>,
    /// In place of `rate`, by tier: how many requests at once, or `unlimited`.
    pub(super) concurrent: Option<Node>,
    /// `concurrent`: when a request that never ends stops counting; 60s.
    pub(super) lease: Option<Spanned<String>>,
    /// `concurrent`: when who was denied should ask again; 1s.
    pub(super) retry_after: Option<Spanned<String>>,
}

impl RawLimit {
    /// How much, and how it is counted.
    pub(super) fn measure(&self) -> RawMeasure {
        RawMeasure {
            algorithm: self.algorithm.clone(),
            rate: self.rate.clone(),
            align: self.align.clone(),
            timezone: self.timezone.clone(),
            burst: self.burst.clone(),
            capacity: self.capacity.clone(),
            refill: self.refill.clone(),
            strict: self.strict,
            concurrent: self.concurrent.clone(),
            lease: self.lease.clone(),
            retry_after: self.retry_after.clone(),
        }
    }
}

/// What is added to a bucket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "refill section")]
pub(super) struct RawRefill {
    /// How much.
    pub(super) amount: Node,
    /// How often.
    pub(super) interval: Spanned<String>,
}

/// Which requests are given back what they cost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "refund section")]
pub(super) struct RawRefund {
    /// Statuses (`304`) and classes of them (`5xx`); 304. Empty: none.
    pub(super) status: Option<Vec<Node>>,
    /// `authenticated`: only if the sender showed a good token; `all`. Left out: 304 is for the
    /// authenticated, other statuses for all.
    pub(super) callers: Option<Spanned<String>>,
}

/// Which responses count.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "count_when section")]
pub(super) struct RawCountWhen {
    /// Statuses (`401`) and classes of them (`4xx`).
    pub(super) status: Spanned<Vec<Node>>,
}

/// A cost that the response tells.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "cost section")]
pub(super) struct RawToldCost {
    /// What is charged until the response comes; 1.
    pub(super) reserve: Option<Node>,
    /// The response header with the cost; clients do not see it.
    pub(super) from_response_header: Spanned<String>,
}

/// Another rate for one caller. What it does not say is as the limit says for tiers that it does
/// not name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "override")]
pub(super) struct RawOverride {
    /// `user:42`: the name of an entry of `callers`, and which one.
    pub(super) caller: Spanned<String>,
    /// The limit's name.
    pub(super) limit: Spanned<String>,
    /// See [`RawMeasure`].
    pub(super) rate: Option<Node>,
    /// See [`RawMeasure`].
    pub(super) burst: Option<Node>,
    /// See [`RawMeasure`].
    pub(super) capacity: Option<Node>,
    /// See [`RawMeasure`].
    pub(super) concurrent: Option<Node>,
    /// The last day (`2026-12-31`, in UTC), or an instant (`2026-12-31T18:00:00Z`).
    pub(super) until: Spanned<String>,
    /// The reason, for people.
    pub(super) why: Spanned<String>,
}

/// A route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "route")]
pub(super) struct RawRoute {
    /// Which requests take it.
    #[serde(rename = "match")]
    pub(super) matcher: RawMatch,
    /// `required`, `optional` (the default), `none`; or one of the first two with names of issuers.
    pub(super) auth: Option<Node>,
    /// Scopes that a token must have, all of them; without them it is 403.
    #[serde(default)]
    pub(super) scopes: Vec<Spanned<String>>,
    /// Limits to charge, the primary one first.
    #[serde(default)]
    pub(super) limits: Vec<Spanned<String>>,
    /// Where to forward to; may be left out if there is one upstream.
    pub(super) upstream: Option<Spanned<String>>,
    /// What a request costs here: a number; by method, `{ GET: 1, default: 5 }` (`default`: 1); or
    /// what the response says, `{ reserve: 10, from_response_header: x-query-cost }`. Left out: what
    /// each limit says.
    pub(super) cost: Option<Node>,
}

/// Which requests take a route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "match section")]
pub(super) struct RawMatch {
    /// One host, of those that the policy is for.
    pub(super) host: Option<Spanned<String>>,
    /// A path pattern.
    pub(super) path: Spanned<String>,
    /// Methods; left out: all.
    #[serde(default)]
    pub(super) methods: Vec<Spanned<String>>,
}

/// What clients are told.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename = "responses section")]
pub(super) struct RawResponses {
    /// `github` (the default), `ietf`, `both` or `none`.
    pub(super) headers: Option<Spanned<String>>,
    /// 429 (the default) or 403.
    pub(super) denied_status: Option<Spanned<u16>>,
    /// Where the API's limits are explained.
    pub(super) documentation_url: Option<Spanned<String>>,
    /// The protection space named to clients without a good token; `tollgate`.
    pub(super) realm: Option<Spanned<String>>,
    /// Where callers can ask how they stand, or `off`; /rate_limit.
    pub(super) rate_limit_path: Option<Spanned<String>>,
    /// Up to so much is added to `Retry-After`; 0s.
    pub(super) jitter: Option<Spanned<String>>,
    /// Whether responses name the limits in shadow mode that would have denied; false.
    #[serde(default)]
    pub(super) shadow_header: bool,
}

/// Fields that the format has and this version does not act on: refused, never ignored.
pub(super) const LATER: &[Later] = &[
    Later { section: "policy", fields: &["paths"] },
    Later {
        section: "upstream",
        fields: &[
            "balance",
            "health_check",
            "ejection",
            "tls",
            "protocol",
            "weights",
            "retries",
            "max_connections",
            "queue",
        ],
    },
    Later { section: "limit", fields: &["precision"] },
    Later {
        section: "route",
        fields: &[
            "max_body",
            "cors",
            "paths",
            "strip_prefix",
            "add_prefix",
            "request_headers",
            "response_headers",
        ],
    },
];
