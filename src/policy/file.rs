//! The policy file as it is written: shapes only. What it means is checked in `compile`.
//!
//! Fields of type [`Node`] take more than one shape; `compile` tells them apart.

mod case;
mod cors;
mod identity;
mod keywords;
mod limit;
mod measure;
mod responses;
mod route;
mod shape;
mod upstream;

use std::sync::LazyLock;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;

use crate::{
    target::EncodedSlash,
    yaml::{Choice, Entries, Later, Node, Spanned, schema_of},
};

pub(super) use self::{
    case::{RawCase, RawExpect, RawGiven, RawResponse},
    cors::RawCors,
    identity::{
        RawApiKeys, RawCaller, RawForwardClaims, RawIdentity, RawIntrospection, RawIssuer,
        RawTierTable,
    },
    keywords::{
        Algorithm, AuthMode, Mode, OnStoreFull, PreflightMode, RefundedCallers, WindowStart,
    },
    limit::{RawLimit, RawOverride, RawRefund, RawToldCost},
    measure::{RawMeasure, RawRefill},
    responses::{DENIED_STATUSES, RawResponses},
    route::{RawHeaderEdits, RawRoute},
    upstream::{RawEjection, RawHealthCheck, RawRetries, RawServer, RawUpstream, RawUpstreamTls},
};

/// The JSON Schema of a policy file.
pub fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| schema_of::<RawPolicy>("Policy of Tollgate"));
    &SCHEMA
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
    #[schemars(extend("examples" = [["api.example.com"]]))]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Where requests go, by names of your choice: `api: { servers: [http://127.0.0.1:9000] }`.
    #[schemars(extend("minProperties" = 1))]
    #[schemars(extend("examples" = [{ "api": { "servers": ["http://127.0.0.1:9000"] } }]))]
    pub(super) upstreams: Spanned<Entries<RawUpstream>>,
    /// Who is calling, and how that is found out.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "callers": [{ "name": "anonymous", "key": "client.ip" }] }]))]
    pub(super) identity: RawIdentity,
    /// Classes of callers that limits tell apart, such as `free` and `pro`. Left out: all callers
    /// are alike.
    #[schemars(extend("examples" = [{ "default": "free", "names": ["free", "pro"] }]))]
    pub(super) tiers: Option<RawTiers>,
    /// The limits, by names of your choice: clients see them as `x-ratelimit-resource`.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "core": { "per": "caller", "rate": "5000/hour" } }]))]
    pub(super) limits: Entries<RawLimit>,
    /// Other rates for single callers, or for single values of what a limit counts by, each with a
    /// reason. Of those of one limit, the first that is for a request applies.
    #[serde(default)]
    #[schemars(with = "Vec<RawOverride>", extend("examples" = [[{ "caller": "user:42", "limit": "core", "rate": "50000/hour", "until": "2026-12-31", "why": "a migration" }]]))]
    pub(super) overrides: Vec<Node>,
    /// Addresses, networks and callers (`user:42`) that are charged nothing.
    #[serde(default)]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(super) exempt: Vec<Spanned<String>>,
    /// Addresses, networks and callers (`user:42`) that are refused.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.66"]]))]
    pub(super) deny: Vec<Spanned<String>>,
    /// What paths of requests stand for.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "encoded_slash": "reject" }]))]
    pub(super) paths: RawPaths,
    /// Whether pages of other origins may read responses: for every route that does not say it
    /// itself. Left out: what upstreams say.
    pub(super) cors: Option<Spanned<RawCors>>,
    /// Which request takes which limits. The first route that matches wins.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [[{ "match": { "path": "/**" }, "limits": ["core"] }]]))]
    pub(super) routes: Spanned<Vec<Spanned<RawRoute>>>,
    /// What clients are told: headers, the status of a denial, where to ask.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "headers": "github" }]))]
    pub(super) responses: RawResponses,
    /// Requests, and what is to become of them. `tollgate check` runs them with a clock of its own.
    #[serde(default)]
    #[schemars(extend("examples" = [[{ "given": { "path": "/" }, "expect": { "status": 200 } }]]))]
    pub(super) tests: Vec<Spanned<RawCase>>,
}

/// Classes of callers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tiers section")]
pub(super) struct RawTiers {
    /// The tier of callers that name none, or one that is not listed.
    #[schemars(length(min = 1))]
    pub(super) default: Spanned<String>,
    /// All tiers: up to 64 letters, digits, `-` and `_` each.
    #[schemars(inner(length(min = 1)))]
    pub(super) names: Vec<Spanned<String>>,
}

/// What paths of requests stand for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "paths section")]
pub(super) struct RawPaths {
    /// What an escaped slash (`%2F`) in a path is. `reject`: the request is refused with 400;
    /// `keep`: a part of its segment, and forwarded as it is; `decode`: a slash. An escaped backslash
    /// is always refused. Default: reject.
    pub(super) encoded_slash: Option<Spanned<Choice<EncodedSlash>>>,
}

/// Fields that the format has and this version does not act on: refused, never ignored.
pub(super) const LATER: &[Later] = &[Later { section: "limit", fields: &["precision"] }];
