//! The policy file as it is written: shapes only. What it means is checked in `compile`.
//!
//! Fields of type [`Node`] take more than one shape; `compile` tells them apart.

use serde::Deserialize;

use crate::yaml::{Entries, Later, Node, Spanned};

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
    /// Which request takes which limits; the first match wins.
    pub(super) routes: Spanned<Vec<Spanned<RawRoute>>>,
    /// What clients are told.
    #[serde(default)]
    pub(super) responses: RawResponses,
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

/// Who is calling.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename = "identity section")]
pub(super) struct RawIdentity {
    /// Issuers whose tokens are known.
    #[serde(default)]
    pub(super) jwt: Vec<Spanned<RawIssuer>>,
    /// Ways to name a caller; the first that resolves wins.
    #[serde(default)]
    pub(super) callers: Vec<Spanned<RawCaller>>,
    /// What becomes of a bad token on a route where one is optional.
    pub(super) invalid_token: Option<Spanned<String>>,
    /// Where tokens come from and whether they go on to the upstream.
    #[serde(default)]
    pub(super) token: RawToken,
}

/// An issuer of tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "jwt issuer")]
pub(super) struct RawIssuer {
    /// What routes call it; left out: the issuer itself.
    pub(super) name: Option<Spanned<String>>,
    /// The exact `iss` of its tokens.
    pub(super) issuer: Spanned<String>,
    /// Tokens must be for one of these.
    #[serde(default)]
    pub(super) audience: Vec<Spanned<String>>,
    /// Signature algorithms; one for each kind of key.
    #[serde(default)]
    pub(super) algorithms: Vec<Spanned<String>>,
    /// Tolerance for clocks that disagree; 60s.
    pub(super) leeway: Option<Spanned<String>>,
    /// Tokens must be younger than this by their `iat`.
    pub(super) max_age: Option<Spanned<String>>,
    /// Accepted values of the header's `typ`; left out: any.
    #[serde(default)]
    pub(super) types: Vec<Spanned<String>>,
    /// PEM file with public keys.
    pub(super) public_key_file: Option<Spanned<String>>,
    /// File with a JSON Web Key Set.
    pub(super) jwks_file: Option<Spanned<String>>,
    /// File with a shared secret.
    pub(super) secret_file: Option<Spanned<String>>,
    /// Environment variable with a shared secret.
    pub(super) secret_env: Option<Spanned<String>>,
}

/// A way to name a caller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "caller")]
pub(super) struct RawCaller {
    /// What kind of caller it is, for logs and messages.
    pub(super) name: Spanned<String>,
    /// `jwt.<claim>` or `client.ip`.
    pub(super) key: Spanned<String>,
    /// A tier's name or `jwt.<claim>`; left out: the default tier.
    pub(super) tier: Option<Spanned<String>>,
    /// For `client.ip`: IPv6 addresses with the same prefix are one caller; 64.
    pub(super) ipv6_prefix: Option<Spanned<u8>>,
}

/// Where tokens come from.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename = "token section")]
pub(super) struct RawToken {
    /// A header beside `Authorization`.
    pub(super) header: Option<Spanned<String>>,
    /// A cookie.
    pub(super) cookie: Option<Spanned<String>>,
    /// Whether the upstream sees the token; false.
    #[serde(default)]
    pub(super) forward: bool,
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

/// A limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename = "limit")]
pub(super) struct RawLimit {
    /// What it is counted per: a key or a list of keys.
    pub(super) per: Node,
    /// A rate, or rates by tier.
    pub(super) rate: Node,
    /// How it is counted; `fixed_window`.
    pub(super) algorithm: Option<Spanned<String>>,
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
    /// Limits to charge, the primary one first.
    #[serde(default)]
    pub(super) limits: Vec<Spanned<String>>,
    /// Where to forward to; may be left out if there is one upstream.
    pub(super) upstream: Option<Spanned<String>>,
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
    /// `github` (the default) or `none`.
    pub(super) headers: Option<Spanned<String>>,
    /// 429 (the default) or 403.
    pub(super) denied_status: Option<Spanned<u16>>,
    /// Where the API's limits are explained.
    pub(super) documentation_url: Option<Spanned<String>>,
    /// The protection space named to clients without a good token; `tollgate`.
    pub(super) realm: Option<Spanned<String>>,
}

/// Fields that the format has and this version does not act on: refused, never ignored.
pub(super) const LATER: &[Later] = &[
    Later { section: "policy", fields: &["overrides", "exempt", "deny", "paths", "tests"] },
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
    Later { section: "identity section", fields: &["api_keys", "introspection", "forward_claims"] },
    Later {
        section: "jwt issuer",
        fields: &["jwks_url", "discover", "introspection", "cache", "cooldown", "required_claims"],
    },
    Later { section: "token section", fields: &["query"] },
    Later {
        section: "limit",
        fields: &[
            "align",
            "burst",
            "candidate",
            "capacity",
            "concurrent",
            "cost",
            "count_when",
            "enforce_percent",
            "lease",
            "mode",
            "on_missing",
            "on_store_error",
            "precision",
            "refill",
            "refund",
            "strict",
            "timezone",
        ],
    },
    Later {
        section: "route",
        fields: &[
            "cost",
            "scopes",
            "max_body",
            "cors",
            "paths",
            "strip_prefix",
            "add_prefix",
            "request_headers",
            "response_headers",
        ],
    },
    Later { section: "responses section", fields: &["rate_limit_path", "jitter", "shadow_header"] },
];
