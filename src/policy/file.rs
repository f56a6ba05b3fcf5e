//! The policy file as it is written: shapes only. What it means is checked in `compile`.
//!
//! Fields of type [`Node`] take more than one shape; `compile` tells them apart.

mod case;
mod identity;
mod shape;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;

use crate::yaml::{Entries, Later, Node, Spanned, schema_of};

pub(super) use self::{
    case::{RawCase, RawExpect, RawGiven, RawResponse},
    identity::{
        RawApiKeys, RawCaller, RawForwardClaims, RawIdentity, RawIntrospection, RawIssuer, RawToken,
    },
};

/// The JSON Schema of a policy file.
pub fn schema() -> Schema {
    schema_of::<RawPolicy>("Policy of Tollgate")
}

/// Who is calling, what the limits are, and which route charges which. Values may name environment
/// variables: `${NAME}` or `${NAME:-default}`; `$${` stands for the text `${`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "policy")]
pub(super) struct RawPolicy {
    /// Version of the format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub(super) version: Spanned<u32>,
    /// Hosts that the policy is for, such as `api.example.com` or `*.example.com`. Left out: every
    /// host.
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Where requests go, by names of your choice: `api: { servers: [http://127.0.0.1:9000] }`.
    #[schemars(extend("minProperties" = 1))]
    pub(super) upstreams: Spanned<Entries<RawUpstream>>,
    /// Who is calling, and how that is found out.
    #[serde(default)]
    pub(super) identity: RawIdentity,
    /// Classes of callers that limits tell apart, such as `free` and `pro`. Left out: all callers
    /// are alike.
    pub(super) tiers: Option<RawTiers>,
    /// The limits, by names of your choice: clients see them as `x-ratelimit-resource`.
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
    /// Which request takes which limits. The first route that matches wins.
    #[schemars(length(min = 1))]
    pub(super) routes: Spanned<Vec<Spanned<RawRoute>>>,
    /// What clients are told: headers, the status of a denial, where to ask.
    #[serde(default)]
    pub(super) responses: RawResponses,
    /// Requests, and what is to become of them. `tollgate check` runs them with a clock of its own.
    #[serde(default)]
    pub(super) tests: Vec<Spanned<RawCase>>,
}

/// A group of servers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "upstream")]
pub(super) struct RawUpstream {
    /// The address of its server: `http://host:port`. One for now.
    #[schemars(length(min = 1, max = 1))]
    pub(super) servers: Spanned<Vec<Spanned<String>>>,
    /// How long a connection may take to be made, up to a day. Default: 2s.
    pub(super) connect_timeout: Option<Spanned<String>>,
    /// How long the head of a response may take, up to a day. Default: 60s.
    pub(super) response_timeout: Option<Spanned<String>>,
    /// How long a body may make no progress, up to a day. Default: 60s.
    pub(super) idle_timeout: Option<Spanned<String>>,
}

/// Classes of callers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tiers section")]
pub(super) struct RawTiers {
    /// The tier of callers that name none, or one that is not listed.
    pub(super) default: Spanned<String>,
    /// All tiers: up to 64 letters, digits, `-` and `_` each.
    pub(super) names: Vec<Spanned<String>>,
}

/// A limit: what it is counted per, how much and how, and when it counts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "limit")]
pub(super) struct RawLimit {
    /// What it is counted per: a key or a list of up to 8 keys. A key is one of `caller`,
    /// `client.ip`, `host`, `path`, `path.<parameter>`, `method`, `jwt.<claim>`, `header.<name>`,
    /// `cookie.<name>`.
    #[schemars(with = "shape::Per")]
    pub(super) per: Node,
    /// For `client.ip`: IPv4 addresses with the same first bits are one. Default: 32, each on its
    /// own.
    #[schemars(range(min = 8, max = 32))]
    pub(super) ipv4_prefix: Option<Spanned<u8>>,
    /// For `client.ip`: IPv6 addresses with the same first bits are one. Default: 64, one
    /// customer's network.
    #[schemars(range(min = 32, max = 128))]
    pub(super) ipv6_prefix: Option<Spanned<u8>>,
    /// What becomes of a request that lacks what is counted by, such as the header: `skip` does not
    /// count it, `deny` refuses it. Default: skip.
    #[schemars(extend("enum" = ["skip", "deny"]))]
    pub(super) on_missing: Option<Spanned<String>>,

    // The fields of [`RawMeasure`].
    /// How much in which time: `5000/hour`, a list of up to 4 such that all hold, or `unlimited`;
    /// for all, or by tier: `{ anonymous: 60/hour, default: 5000/hour }`.
    #[schemars(with = "Option<shape::Rates>")]
    pub(super) rate: Option<Node>,
    /// How it is counted. `fixed_window`: so many in each window; `sliding_window`: the same
    /// without bursts at its ends; `sliding_log`: exact, remembering each request; `token_bucket`:
    /// a bucket that fills again; `gcra`: evenly spaced; `concurrency`: requests at once, with
    /// `concurrent`. Default: fixed_window, or concurrency if there is `concurrent`.
    #[schemars(extend("enum" = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "concurrency"]))]
    pub(super) algorithm: Option<Spanned<String>>,
    /// For `fixed_window`: where windows begin. `first_request`: with the first request; `epoch`:
    /// at multiples of their length since 1970; `calendar`: with the hour, the day, the month.
    /// Default: first_request.
    #[schemars(extend("enum" = ["first_request", "epoch", "calendar"]))]
    pub(super) align: Option<Spanned<String>>,
    /// For `align: calendar`: whose calendar, such as Europe/Berlin. Default: UTC.
    pub(super) timezone: Option<Spanned<String>>,
    /// For `gcra`: how many may come at once; for all, or by tier. Default: the number of the rate.
    #[schemars(with = "Option<shape::Counts>")]
    pub(super) burst: Option<Node>,
    /// For `token_bucket`: what the bucket holds; for all, or by tier. Default: the number of the
    /// rate. With `refill` it is needed, and may be `unlimited`.
    #[schemars(with = "Option<shape::Units>")]
    pub(super) capacity: Option<Node>,
    /// For `token_bucket`, in place of `rate`: what is added to the bucket, `{ amount: 10,
    /// interval: 1s }`.
    #[schemars(with = "Option<shape::Refill>")]
    pub(super) refill: Option<Node>,
    /// For `token_bucket`: whether who asks an empty bucket waits anew. Default: false.
    pub(super) strict: Option<Spanned<bool>>,
    /// In place of `rate`: how many requests at once, or `unlimited`; for all, or by tier.
    #[schemars(with = "Option<shape::Units>")]
    pub(super) concurrent: Option<Node>,
    /// For `concurrent`: when a request that never ends stops counting, 1s to 24h. Default: 60s.
    pub(super) lease: Option<Spanned<String>>,
    /// For `concurrent`: when who was denied should ask again, in whole seconds, 1s to 1h. Default:
    /// 1s.
    pub(super) retry_after: Option<Spanned<String>>,

    /// What a request costs: a number; by method, `{ GET: 1, default: 5 }`; or what the response
    /// tells, `{ reserve: 10, from_response_header: x-query-cost }`. Default: 1.
    #[schemars(with = "Option<shape::Cost>")]
    pub(super) cost: Option<Node>,
    /// Which requests are given back what they cost. Default: those answered 304 whose sender
    /// showed a good token.
    pub(super) refund: Option<Spanned<RawRefund>>,
    /// Which responses count. Left out: all.
    pub(super) count_when: Option<Spanned<RawCountWhen>>,
    /// `enforce`: deny what does not fit. `shadow`: count and tell, and never deny. Default:
    /// enforce.
    #[schemars(extend("enum" = ["enforce", "shadow"]))]
    pub(super) mode: Option<Spanned<String>>,
    /// So many of a hundred callers, always the same ones, are denied what does not fit. Default:
    /// 100.
    #[schemars(range(min = 0, max = 100))]
    pub(super) enforce_percent: Option<Spanned<u8>>,
    /// What becomes of a request if the store does not answer. `local`: it is decided in the
    /// process; `open`: as if there were no such limit; `closed`: it is refused. Default: local.
    #[schemars(extend("enum" = ["local", "open", "closed"]))]
    pub(super) on_store_error: Option<Spanned<String>>,
    /// Another measure, tried out beside this one: what it would deny is counted and told, and
    /// never denied. What it does not say is as the limit says.
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
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "candidate")]
pub(super) struct RawMeasure {
    /// How much in which time: `5000/hour`, a list of up to 4 such that all hold, or `unlimited`;
    /// for all, or by tier: `{ anonymous: 60/hour, default: 5000/hour }`.
    #[schemars(with = "Option<shape::Rates>")]
    pub(super) rate: Option<Node>,
    /// How it is counted. `fixed_window`: so many in each window; `sliding_window`: the same
    /// without bursts at its ends; `sliding_log`: exact, remembering each request; `token_bucket`:
    /// a bucket that fills again; `gcra`: evenly spaced; `concurrency`: requests at once, with
    /// `concurrent`. Default: fixed_window, or concurrency if there is `concurrent`.
    #[schemars(extend("enum" = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "concurrency"]))]
    pub(super) algorithm: Option<Spanned<String>>,
    /// For `fixed_window`: where windows begin. `first_request`: with the first request; `epoch`:
    /// at multiples of their length since 1970; `calendar`: with the hour, the day, the month.
    /// Default: first_request.
    #[schemars(extend("enum" = ["first_request", "epoch", "calendar"]))]
    pub(super) align: Option<Spanned<String>>,
    /// For `align: calendar`: whose calendar, such as Europe/Berlin. Default: UTC.
    pub(super) timezone: Option<Spanned<String>>,
    /// For `gcra`: how many may come at once; for all, or by tier. Default: the number of the rate.
    #[schemars(with = "Option<shape::Counts>")]
    pub(super) burst: Option<Node>,
    /// For `token_bucket`: what the bucket holds; for all, or by tier. Default: the number of the
    /// rate. With `refill` it is needed, and may be `unlimited`.
    #[schemars(with = "Option<shape::Units>")]
    pub(super) capacity: Option<Node>,
    /// For `token_bucket`, in place of `rate`: what is added to the bucket, `{ amount: 10,
    /// interval: 1s }`.
    #[schemars(with = "Option<shape::Refill>")]
    pub(super) refill: Option<Node>,
    /// For `token_bucket`: whether who asks an empty bucket waits anew. Default: false.
    pub(super) strict: Option<Spanned<bool>>,
    /// In place of `rate`: how many requests at once, or `unlimited`; for all, or by tier.
    #[schemars(with = "Option<shape::Units>")]
    pub(super) concurrent: Option<Node>,
    /// For `concurrent`: when a request that never ends stops counting, 1s to 24h. Default: 60s.
    pub(super) lease: Option<Spanned<String>>,
    /// For `concurrent`: when who was denied should ask again, in whole seconds, 1s to 1h. Default:
    /// 1s.
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "refill section")]
pub(super) struct RawRefill {
    /// How much is added.
    #[schemars(with = "shape::Count")]
    pub(super) amount: Node,
    /// How often it is added, such as 500ms or 1m.
    pub(super) interval: Spanned<String>,
}

/// Which requests are given back what they cost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "refund section")]
pub(super) struct RawRefund {
    /// Statuses (`304`) and classes of them (`5xx`) that are given back. Default: 304. An empty
    /// list: none.
    #[schemars(with = "Option<Vec<shape::Status>>")]
    pub(super) status: Option<Vec<Node>>,
    /// Who is given back: `authenticated`, only who showed a good token, or `all`. Left out: 304 is
    /// for the authenticated, other statuses are for all.
    #[schemars(extend("enum" = ["authenticated", "all"]))]
    pub(super) callers: Option<Spanned<String>>,
}

/// Which responses count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "count_when section")]
pub(super) struct RawCountWhen {
    /// Statuses (`401`) and classes of them (`4xx`) that count.
    #[schemars(with = "Vec<shape::Status>", length(min = 1))]
    pub(super) status: Spanned<Vec<Node>>,
}

/// A cost that the response tells.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "cost section")]
pub(super) struct RawToldCost {
    /// What is charged until the response comes. Default: 1.
    #[schemars(with = "Option<shape::Count>")]
    pub(super) reserve: Option<Node>,
    /// The response header with the cost. Clients do not see it.
    pub(super) from_response_header: Spanned<String>,
}

/// Another rate for one caller. What it does not say is as the limit says for tiers that it does
/// not name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "override")]
pub(super) struct RawOverride {
    /// Who: the name of an entry of `callers` and which one, such as `user:42`.
    pub(super) caller: Spanned<String>,
    /// The name of the limit.
    pub(super) limit: Spanned<String>,
    /// In place of the limit's: `50000/hour`, a list of such, or `unlimited`.
    #[schemars(with = "Option<shape::Rates>")]
    pub(super) rate: Option<Node>,
    /// In place of the limit's: how many may come at once.
    #[schemars(with = "Option<shape::Counts>")]
    pub(super) burst: Option<Node>,
    /// In place of the limit's: what the bucket holds.
    #[schemars(with = "Option<shape::Units>")]
    pub(super) capacity: Option<Node>,
    /// In place of the limit's: how many requests at once.
    #[schemars(with = "Option<shape::Units>")]
    pub(super) concurrent: Option<Node>,
    /// When it ends: the last day (`2026-12-31`, in UTC), or an instant (`2026-12-31T18:00:00Z`).
    pub(super) until: Spanned<String>,
    /// The reason, for the people who find it later.
    #[schemars(length(min = 1))]
    pub(super) why: Spanned<String>,
}

/// A route.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "route")]
pub(super) struct RawRoute {
    /// Which requests take it.
    #[serde(rename = "match")]
    pub(super) matcher: RawMatch,
    /// Whether a good token is needed: `required`, `optional` or `none`; of certain issuers only,
    /// `{ required: [main] }`. Default: optional.
    #[schemars(with = "Option<shape::Auth>")]
    pub(super) auth: Option<Node>,
    /// Scopes that a token must have, all of them. Without them a request is refused with 403.
    #[serde(default)]
    pub(super) scopes: Vec<Spanned<String>>,
    /// Names of the limits to charge, up to 8, the primary one first: all of them are taken, or
    /// none.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub(super) limits: Vec<Spanned<String>>,
    /// The name of the upstream to forward to. It may be left out if there is one only.
    pub(super) upstream: Option<Spanned<String>>,
    /// What a request costs here, for all its limits: a number; by method, `{ GET: 1, default: 5
    /// }`; or what the response tells, `{ reserve: 10, from_response_header: x-query-cost }`. Left
    /// out: what each limit says.
    #[schemars(with = "Option<shape::Cost>")]
    pub(super) cost: Option<Node>,
}

/// Which requests take a route.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "match section")]
pub(super) struct RawMatch {
    /// One host, of those that the policy is for. Left out: all of them.
    pub(super) host: Option<Spanned<String>>,
    /// The path: as it is (`/login`), with a parameter for a segment (`/repos/{owner}`), with `*`
    /// for any segment or `**` at its end for all that is below.
    pub(super) path: Spanned<String>,
    /// The methods, in capitals. Left out: all.
    #[serde(default)]
    pub(super) methods: Vec<Spanned<String>>,
}

/// What clients are told.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "responses section")]
pub(super) struct RawResponses {
    /// Which limit headers responses have: `github` (x-ratelimit-*), `ietf` (RateLimit and
    /// RateLimit-Policy), `both` or `none`. Default: github.
    #[schemars(extend("enum" = ["github", "ietf", "both", "none"]))]
    pub(super) headers: Option<Spanned<String>>,
    /// The status of a denial: 429, or 403 as GitHub has it. Default: 429.
    #[schemars(extend("enum" = [429, 403]))]
    pub(super) denied_status: Option<Spanned<u16>>,
    /// Where the API's limits are explained; denials name it.
    pub(super) documentation_url: Option<Spanned<String>>,
    /// The protection space that is named to clients without a good token. Default: tollgate.
    pub(super) realm: Option<Spanned<String>>,
    /// Where callers can ask how they stand, or `off`. Default: /rate_limit.
    pub(super) rate_limit_path: Option<Spanned<String>>,
    /// Up to so much is added to `Retry-After`, so that not all come back at once, 0s to 60s.
    /// Default: 0s.
    pub(super) jitter: Option<Spanned<String>>,
    /// Whether responses name the limits in shadow mode that would have denied. Default: false.
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
