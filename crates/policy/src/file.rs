//! The raw structs of a policy file: shapes only. `compile` checks their values.
//!
//! A field of type [`Node`] takes more than one shape; `compile` decides which one it has.

mod case;
mod cors;
mod cost;
mod descriptors;
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
use tollgate_wire::{method_override::MethodOverride, target::EncodedSlash};
use tollgate_yaml::{Choice, Entries, Later, Node, Spanned, schema_of};

pub(super) use self::{
    case::{RawCase, RawExpect, RawGiven, RawResponse},
    cors::RawCors,
    cost::{RawCostSource, RawReportedCost, RawReserve, RawUnit, RawWeights},
    descriptors::{RawDescriptor, RawDescriptorEntry, RawDescriptorRule},
    identity::{
        RawApiKeys, RawCaller, RawForwardClaims, RawIdentity, RawIntrospection, RawIssuer,
        RawTierTable,
    },
    keywords::{AuthMode, Mode, OnStoreFull, PreflightMode, RefundedCallers, WindowStart},
    limit::{RawLimit, RawOverride, RawRefund},
    measure::{RawMeasure, RawRefill},
    responses::RawResponses,
    route::{RawAcceptedTokens, RawHeaderEdits, RawRoute},
    upstream::{
        RawEjection, RawHealthCheck, RawQueue, RawRetries, RawServer, RawUpstream,
        RawUpstreamPaths, RawUpstreamTls,
    },
};

/// The JSON Schema of a policy file.
pub fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| schema_of::<RawPolicy>("Policy of Tollgate"));
    &SCHEMA
}

/// Who the callers are, what the limits are, and which route charges which limit. Values may name
/// environment variables: `${NAME}` or `${NAME:-default}`; `$${` stands for the text `${`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "policy")]
pub(super) struct RawPolicy {
    /// Version of the format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub(super) version: Spanned<u32>,
    /// The hosts that the policy applies to, such as `api.example.com` or `*.example.com`. Left
    /// out: every host.
    #[serde(default)]
    #[schemars(extend("examples" = [["api.example.com"]]))]
    pub(super) hosts: Vec<Spanned<String>>,
    /// Where requests go, by names of your choice: `api: { servers: [http://127.0.0.1:9000] }`.
    #[schemars(extend("minProperties" = 1))]
    #[schemars(extend("examples" = [{ "api": { "servers": ["http://127.0.0.1:9000"] } }]))]
    pub(super) upstreams: Spanned<Entries<RawUpstream>>,
    /// How callers are identified.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "callers": [{ "name": "anonymous", "key": "client.ip" }] }]))]
    pub(super) identity: RawIdentity,
    /// Classes of callers that may have different rates, such as `free` and `pro`. Left out: all
    /// callers are in one class.
    #[schemars(extend("examples" = [{ "default": "free", "names": ["free", "pro"] }]))]
    pub(super) tiers: Option<RawTiers>,
    /// The limits, by names of your choice: clients see them as `x-ratelimit-resource`.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "core": { "per": "caller", "rate": "5000/hour" } }]))]
    pub(super) limits: Entries<RawLimit>,
    /// Other rates for single callers, or for single values of what a limit counts by, each with a
    /// reason. The first override of a limit that matches a request applies.
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
    /// Keys that limits count by, `jwt.<claim>`, `header.<name>` or `cookie.<name>`, of which the
    /// access log has only hashes.
    #[serde(default)]
    #[schemars(with = "Vec<shape::PrivateKey>", extend("examples" = [["jwt.email"]]))]
    pub(super) private: Vec<Node>,
    /// How paths of requests are normalized.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "encoded_slash": "reject" }]))]
    pub(super) paths: RawPaths,
    /// How fields are treated by which servers take a POST for another method, such as
    /// `X-HTTP-Method-Override`. `drop`: they are not forwarded; `match`: the request is judged by
    /// the method that they name, and forwarded with them; `ignore`: they are forwarded, and mean
    /// nothing here. Default: drop.
    pub(super) method_override: Option<Spanned<Choice<MethodOverride>>>,
    /// Whether pages of other origins may read responses (CORS), for every route without `cors` of
    /// its own. Left out: the upstreams decide.
    pub(super) cors: Option<Spanned<RawCors>>,
    /// Which requests are charged to which limits. The first route that matches a request applies.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [[{ "match": { "path": "/**" }, "limits": ["core"] }]]))]
    pub(super) routes: Spanned<Vec<Spanned<RawRoute>>>,
    /// Which limits the descriptors are charged to that Envoy's rate limit filter sends. The first
    /// entry that is for a descriptor applies.
    #[serde(default)]
    #[schemars(extend("examples" = [[{ "domain": "edge", "when": { "key": ["user", "path"] }, "limits": ["core"] }]]))]
    pub(super) rls: Vec<Spanned<RawDescriptorRule>>,
    /// What responses of this proxy contain: limit headers, the status of a denial, the status
    /// endpoint.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "headers": "github" }]))]
    pub(super) responses: RawResponses,
    /// Requests with their expected results. `tollgate check` runs them with a clock of its own.
    #[serde(default)]
    #[schemars(extend("examples" = [[{ "given": { "path": "/" }, "expect": { "status": 200 } }]]))]
    pub(super) tests: Vec<Spanned<RawCase>>,
}

/// Classes of callers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tiers section")]
pub(super) struct RawTiers {
    /// The tier of callers that have none, or one that is not listed.
    #[schemars(length(min = 1))]
    pub(super) default: Spanned<String>,
    /// All tiers: up to 64 letters, digits, `-` and `_` each.
    #[schemars(inner(length(min = 1)))]
    pub(super) names: Vec<Spanned<String>>,
}

/// How paths of requests are normalized.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "paths section")]
pub(super) struct RawPaths {
    /// How an escaped slash (`%2F`) in a path is treated. `reject`: the request is refused with
    /// 400; `keep`: it is part of its segment and forwarded unchanged; `decode`: it is a slash. An
    /// escaped backslash is always refused. Default: reject.
    pub(super) encoded_slash: Option<Spanned<Choice<EncodedSlash>>>,
}

/// Fields that the format reserves and this version does not support: refused, never ignored.
pub(super) const LATER: &[Later] = &[Later { section: "limit", fields: &["precision"] }];
