//! The raw structs of routes.

use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use tollgate_keyword::Keyword;
use tollgate_yaml::{Entries, Node, Size, Spanned};

use super::{
    AuthMode,
    shape::{self, shapes},
};

/// A route.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "route")]
pub(crate) struct RawRoute {
    /// Which requests it matches.
    #[serde(rename = "match")]
    #[schemars(extend("examples" = [{ "path": "/**" }]))]
    pub(crate) matcher: RawMatch,
    /// What metrics call the route. Left out: its path.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("examples" = ["search"]))]
    pub(crate) name: Option<Spanned<String>>,
    /// Client addresses and networks that it admits: `[10.0.0.0/8, 192.0.2.1]`. All others are
    /// refused with 403. Left out: all are admitted.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(crate) allow: Option<Spanned<Vec<Spanned<String>>>>,
    /// Client addresses and networks that it refuses with 403, also if `allow` has them.
    #[serde(default)]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(crate) deny: Vec<Spanned<String>>,
    /// Whether a valid token is needed: `required`, `optional` or `none`; or which ones are taken,
    /// `{ required: [main], audience: [reviews] }`. Default: optional.
    #[schemars(with = "Option<RouteAuth>")]
    pub(crate) auth: Option<Node>,
    /// Scopes that a token must have, all of them. Without them a request is refused with 403.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    pub(crate) scopes: Vec<Spanned<String>>,
    /// Names of the limits to charge, up to 8, the primary one first: all of them are charged, or
    /// none is.
    #[serde(default)]
    #[schemars(length(max = 8))]
    #[schemars(inner(length(min = 1)))]
    pub(crate) limits: Vec<Spanned<String>>,
    /// The name of the upstream to forward to. It may be left out if there is one only.
    #[schemars(length(min = 1))]
    pub(crate) upstream: Option<Spanned<String>>,
    /// What a request costs here, for all its limits: a number; by method, `{ GET: 1, default: 5
    /// }`; or as the response reports it, `{ reserve: 10, from_response_header: x-query-cost }`.
    /// Left out: the cost of each limit.
    #[schemars(with = "Option<super::cost::Cost>")]
    pub(crate) cost: Option<Node>,
    /// The largest size of a request's body: a number of bytes, or with a unit, such as 10MiB. A
    /// larger one is answered with 413. Left out: any size.
    #[schemars(with = "Option<Size>", extend("examples" = ["10MiB", 1048576]))]
    pub(crate) max_body: Option<Node>,
    /// Whether pages of other origins may read responses (CORS), or `off`. Left out: the policy's
    /// `cors`.
    #[schemars(with = "Option<shape::RouteCors>")]
    pub(crate) cors: Option<Node>,
    /// Protocols that a request may switch to; an empty list: none. Never another version of HTTP.
    /// Default: websocket.
    #[schemars(extend("examples" = [["websocket"]]))]
    pub(crate) upgrades: Option<Vec<Spanned<String>>>,
    /// Removed from the path before a request is forwarded, by whole segments: with `/v1`,
    /// `/v1/users` is forwarded as `/users`.
    #[schemars(extend("examples" = ["/v1"]))]
    pub(crate) strip_prefix: Option<Spanned<String>>,
    /// Put in front of the path before a request is forwarded, after `strip_prefix`: `/internal`.
    #[schemars(extend("examples" = ["/internal"]))]
    pub(crate) add_prefix: Option<Spanned<String>>,
    /// Changes to the header fields of a request before it is forwarded.
    #[schemars(extend("examples" = [{ "set": { "x-environment": "production" } }]))]
    pub(crate) request_headers: Option<RawHeaderEdits>,
    /// Changes to the header fields of an upstream's response.
    #[schemars(extend("examples" = [{ "remove": ["server"] }]))]
    pub(crate) response_headers: Option<RawHeaderEdits>,
}

/// Header fields that are removed, set and added, in that order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "header edits")]
pub(crate) struct RawHeaderEdits {
    /// Replaces all fields of that name: `x-environment: production`.
    #[serde(default)]
    #[schemars(with = "Entries<shape::HeaderText>")]
    #[schemars(extend("examples" = [{ "x-environment": "production" }]))]
    pub(crate) set: Entries<Node>,
    /// Added to the fields of that name.
    #[serde(default)]
    #[schemars(with = "Entries<shape::HeaderText>")]
    #[schemars(extend("examples" = [{ "x-environment": "production" }]))]
    pub(crate) add: Entries<Node>,
    /// Removed.
    #[serde(default)]
    #[schemars(extend("examples" = [["server"]]))]
    pub(crate) remove: Vec<Spanned<String>>,
}

/// Which requests a route matches.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "match section")]
pub(crate) struct RawMatch {
    /// One of the policy's hosts. Left out: all of them.
    #[schemars(extend("examples" = ["api.example.com"]))]
    pub(crate) host: Option<Spanned<String>>,
    /// The path: literal (`/login`), with a parameter for a segment (`/repos/{owner}`), with `*`
    /// for any segment or for any text within one (`/report-*`), or `**` at its end for all paths
    /// below.
    #[schemars(extend("examples" = ["/repos/{owner}/**"]))]
    pub(crate) path: Spanned<String>,
    /// The methods, in capitals. Left out: all.
    #[serde(default)]
    #[schemars(extend("examples" = [["GET"]]))]
    pub(crate) methods: Vec<Spanned<String>>,
    /// Client addresses and networks: `[10.0.0.0/8, 192.0.2.1]`. Requests from other addresses do
    /// not match, and the next route is tried. Left out: all addresses.
    #[schemars(length(min = 1))]
    #[schemars(extend("examples" = [["10.0.0.0/8"]]))]
    pub(crate) from: Option<Spanned<Vec<Spanned<String>>>>,
}

/// Which tokens a route takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "auth section")]
pub(crate) struct RawAcceptedTokens {
    /// Only with a good token of one of these issuers. Left out, without `optional` either: of any.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub(crate) required: Option<Spanned<Vec<Spanned<String>>>>,
    /// With a good token of one of these issuers, or with none.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub(crate) optional: Option<Spanned<Vec<Spanned<String>>>>,
    /// Tokens must be for one of these (`aud`). Left out: what their issuer takes.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    pub(crate) audience: Vec<Spanned<String>>,
    /// Claims that a token must have, with this value or one of these: `{ azp: [web, app] }`.
    /// Without them a request is refused with 403.
    #[serde(default)]
    #[schemars(with = "Entries<shape::ClaimValue>")]
    #[schemars(extend("examples" = [{ "azp": "web" }]))]
    pub(crate) required_claims: Entries<Node>,
}

shapes! {
    /// Who gets in.
    RouteAuth = "auth", |generator| {
        let modes: Vec<&str> = AuthMode::KEYWORDS.iter().map(|(keyword, _)| *keyword).collect();
        json_schema!({
            "anyOf": [
                { "type": "string", "enum": modes },
                generator.subschema_for::<RawAcceptedTokens>(),
            ],
        })
    };
}
