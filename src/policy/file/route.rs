//! Routes as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shape;
use crate::yaml::{Entries, Node, Size, Spanned};

/// A route.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "route")]
pub(in crate::policy) struct RawRoute {
    /// Which requests take it.
    #[serde(rename = "match")]
    #[schemars(extend("examples" = [{ "path": "/**" }]))]
    pub(in crate::policy) matcher: RawMatch,
    /// Client addresses and networks that it lets in: `[10.0.0.0/8, 192.0.2.1]`. All others are
    /// refused with 403. Left out: all are let in.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(in crate::policy) allow: Option<Spanned<Vec<Spanned<String>>>>,
    /// Client addresses and networks that it refuses with 403, also if `allow` has them.
    #[serde(default)]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(in crate::policy) deny: Vec<Spanned<String>>,
    /// Whether a good token is needed: `required`, `optional` or `none`; of certain issuers only,
    /// `{ required: [main] }`. Default: optional.
    #[schemars(with = "Option<shape::Auth>")]
    pub(in crate::policy) auth: Option<Node>,
    /// Scopes that a token must have, all of them. Without them a request is refused with 403.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    pub(in crate::policy) scopes: Vec<Spanned<String>>,
    /// Names of the limits to charge, up to 8, the primary one first: all of them are taken, or
    /// none.
    #[serde(default)]
    #[schemars(length(max = 8))]
    #[schemars(inner(length(min = 1)))]
    pub(in crate::policy) limits: Vec<Spanned<String>>,
    /// The name of the upstream to forward to. It may be left out if there is one only.
    #[schemars(length(min = 1))]
    pub(in crate::policy) upstream: Option<Spanned<String>>,
    /// What a request costs here, for all its limits: a number; by method, `{ GET: 1, default: 5
    /// }`; or what the response tells, `{ reserve: 10, from_response_header: x-query-cost }`. Left
    /// out: what each limit says.
    #[schemars(with = "Option<shape::Cost>")]
    pub(in crate::policy) cost: Option<Node>,
    /// What a request's body may have at most: a number of bytes, or with a unit, such as 10MiB.
    /// More is answered 413. Left out: any size.
    #[schemars(with = "Option<Size>", extend("examples" = ["10MiB", 1048576]))]
    pub(in crate::policy) max_body: Option<Node>,
    /// Whether pages of other origins may read responses, or `off`. Left out: as the policy's `cors`
    /// says.
    #[schemars(with = "Option<shape::RouteCors>")]
    pub(in crate::policy) cors: Option<Node>,
    /// Protocols that a request may switch to; an empty list: none. Never another version of HTTP.
    /// Default: websocket.
    #[schemars(extend("examples" = [["websocket"]]))]
    pub(in crate::policy) upgrades: Option<Vec<Spanned<String>>>,
    /// Taken off the path before a request is forwarded, by whole segments: with `/v1`, `/v1/users`
    /// is forwarded as `/users`.
    #[schemars(extend("examples" = ["/v1"]))]
    pub(in crate::policy) strip_prefix: Option<Spanned<String>>,
    /// Put in front of the path before a request is forwarded, after `strip_prefix`: `/internal`.
    #[schemars(extend("examples" = ["/internal"]))]
    pub(in crate::policy) add_prefix: Option<Spanned<String>>,
    /// What is changed about the header fields of a request before it is forwarded.
    #[schemars(extend("examples" = [{ "set": { "x-environment": "production" } }]))]
    pub(in crate::policy) request_headers: Option<RawHeaderEdits>,
    /// What is changed about the header fields of an upstream's response.
    #[schemars(extend("examples" = [{ "remove": ["server"] }]))]
    pub(in crate::policy) response_headers: Option<RawHeaderEdits>,
}

/// Header fields that are removed, set and added, in that order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "header edits")]
pub(in crate::policy) struct RawHeaderEdits {
    /// Put in place of all fields of that name: `x-environment: production`.
    #[serde(default)]
    #[schemars(with = "Entries<shape::HeaderText>")]
    #[schemars(extend("examples" = [{ "x-environment": "production" }]))]
    pub(in crate::policy) set: Entries<Node>,
    /// Put beside the fields of that name.
    #[serde(default)]
    #[schemars(with = "Entries<shape::HeaderText>")]
    #[schemars(extend("examples" = [{ "x-environment": "production" }]))]
    pub(in crate::policy) add: Entries<Node>,
    /// Taken out.
    #[serde(default)]
    #[schemars(extend("examples" = [["server"]]))]
    pub(in crate::policy) remove: Vec<Spanned<String>>,
}

/// Which requests take a route.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "match section")]
pub(in crate::policy) struct RawMatch {
    /// One host, of those that the policy is for. Left out: all of them.
    #[schemars(extend("examples" = ["api.example.com"]))]
    pub(in crate::policy) host: Option<Spanned<String>>,
    /// The path: as it is (`/login`), with a parameter for a segment (`/repos/{owner}`), with `*`
    /// for any segment or `**` at its end for all that is below.
    #[schemars(extend("examples" = ["/repos/{owner}/**"]))]
    pub(in crate::policy) path: Spanned<String>,
    /// The methods, in capitals. Left out: all.
    #[serde(default)]
    #[schemars(extend("examples" = [["GET"]]))]
    pub(in crate::policy) methods: Vec<Spanned<String>>,
    /// Client addresses and networks: `[10.0.0.0/8, 192.0.2.1]`. Requests from elsewhere do not take
    /// this route, and the next one is tried. Left out: from everywhere.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(in crate::policy) from: Option<Spanned<Vec<Spanned<String>>>>,
}
