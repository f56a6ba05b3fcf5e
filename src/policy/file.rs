//! The policy file as it is written: shapes only. What it means is checked in `compile`.
//!
//! Fields of type [`Node`] take more than one shape; `compile` tells them apart.

mod case;
mod cors;
mod identity;
mod limit;
mod responses;
mod route;
mod shape;
mod upstream;

use schemars::{JsonSchema, Schema};
use serde::Deserialize;

use crate::yaml::{Entries, Later, Spanned, schema_of};

pub(super) use self::{
    case::{RawCase, RawExpect, RawGiven, RawResponse},
    cors::RawCors,
    identity::{
        RawApiKeys, RawCaller, RawForwardClaims, RawIdentity, RawIntrospection, RawIssuer, RawToken,
    },
    limit::{RawLimit, RawMeasure, RawOverride, RawRefill, RawRefund, RawToldCost},
    responses::RawResponses,
    route::{RawHeaderEdits, RawRoute},
    upstream::{RawEjection, RawHealthCheck, RawRetries, RawServer, RawUpstream, RawUpstreamTls},
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
    /// What paths of requests stand for.
    #[serde(default)]
    pub(super) paths: RawPaths,
    /// Whether pages of other origins may read responses: for every route that does not say it
    /// itself. Left out: what upstreams say.
    pub(super) cors: Option<Spanned<RawCors>>,
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

/// Classes of callers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tiers section")]
pub(super) struct RawTiers {
    /// The tier of callers that name none, or one that is not listed.
    pub(super) default: Spanned<String>,
    /// All tiers: up to 64 letters, digits, `-` and `_` each.
    pub(super) names: Vec<Spanned<String>>,
}

/// What paths of requests stand for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "paths section")]
pub(super) struct RawPaths {
    /// What an escaped slash (`%2F`) in a path is. `reject`: the request is refused with 400;
    /// `keep`: a part of its segment, and forwarded as it is; `decode`: a slash. An escaped backslash
    /// is always refused. Default: reject.
    #[schemars(extend("enum" = ["reject", "keep", "decode"]))]
    pub(super) encoded_slash: Option<Spanned<String>>,
}

/// Fields that the format has and this version does not act on: refused, never ignored.
pub(super) const LATER: &[Later] = &[Later { section: "limit", fields: &["precision"] }];
