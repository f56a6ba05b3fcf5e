//! The raw `identity` section: how callers are identified.

use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use tollgate_identity::{Deviation, InvalidToken, KeyHints, OtherSchemes, Scheme, TokenPlace};
use tollgate_yaml::{Choice, Entries, Node, Spanned};

use super::shape::{self, shapes};

/// How callers are identified.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "identity section")]
pub(crate) struct RawIdentity {
    /// Issuers whose tokens are accepted.
    #[serde(default)]
    #[schemars(extend("examples" = [[{ "issuer": "https://id.example.com/", "discover": true }]]))]
    pub(crate) jwt: Vec<Spanned<RawIssuer>>,
    /// The authorization server that validates opaque tokens (RFC 7662).
    #[schemars(extend("examples" = [{ "url": "https://id.example.com/introspect", "client_id": "tollgate", "client_secret_env": "INTROSPECTION_SECRET" }]))]
    pub(crate) introspection: Option<Spanned<RawIntrospection>>,
    /// API keys, which this proxy knows by their digests.
    #[schemars(extend("examples" = [{ "file": "../keys/api.yaml" }]))]
    pub(crate) api_keys: Option<Spanned<RawApiKeys>>,
    /// Kinds of callers. The first whose key a request has applies.
    #[serde(default)]
    #[schemars(extend("examples" = [[{ "name": "user", "key": "jwt.sub" }]]))]
    pub(crate) callers: Vec<Spanned<RawCaller>>,
    /// Whether it is meant that callers of several issuers or kinds may have the same
    /// `X-Tollgate-Subject` at an upstream. `tollgate check` warns of it otherwise. Default: false.
    #[serde(default)]
    pub(crate) shared_subjects: bool,
    /// How an invalid token is treated on a route where one is optional: `reject` refuses the
    /// request, `anonymous` treats it as one without a token. Default: reject.
    pub(crate) invalid_token: Option<Spanned<Choice<InvalidToken>>>,
    /// Where tokens are read from besides `Authorization`, and whether they are forwarded.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "cookie": "session" }]))]
    pub(crate) token: RawToken,
    /// Claims of a valid token that are forwarded to the upstream. Clients cannot set these
    /// headers.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "headers": { "x-user-email": "jwt.email" } }]))]
    pub(crate) forward_claims: RawForwardClaims,
}

/// An issuer of tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "jwt issuer")]
pub(crate) struct RawIssuer {
    /// Its name, for routes. Default: the issuer itself.
    #[schemars(length(min = 1))]
    pub(crate) name: Option<Spanned<String>>,
    /// The exact `iss` of its tokens, such as https://id.example.com/; `none` if its tokens have no
    /// `iss`; with `tenants`, a claim in braces stands for the tenant.
    #[schemars(extend("examples" = ["https://id.example.com/"]))]
    pub(crate) issuer: Spanned<String>,
    /// The tenants whose tokens are accepted, by the claim in braces in `issuer`, or `any`.
    #[schemars(with = "Option<shape::Tenants>")]
    pub(crate) tenants: Option<Node>,
    /// Where requests carry its tokens: `authorization`, `header`, `cookie` or `query`. Left out:
    /// at any place of `token`.
    #[serde(default)]
    #[schemars(extend("examples" = [["cookie"]]))]
    pub(crate) from: Vec<Spanned<Choice<TokenPlace>>>,
    /// Tokens must be for one of these (`aud`). Left out: any audience.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    pub(crate) audience: Vec<Spanned<String>>,
    /// Whether it is meant that its tokens are taken whatever they are for, such as those without
    /// `aud`. `tollgate check` warns of it otherwise. Default: false.
    pub(crate) any_audience: Option<Spanned<bool>>,
    /// Signature algorithms that are accepted, one for each kind of key: `[RS256, ES256]`.
    #[serde(default)]
    #[schemars(extend("examples" = [["RS256"]]))]
    pub(crate) algorithms: Vec<Spanned<String>>,
    /// Tolerance for clock skew. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(crate) leeway: Option<Spanned<String>>,
    /// Tokens must be younger than this by their `iat`.
    #[schemars(extend("examples" = ["1h"]))]
    pub(crate) max_age: Option<Spanned<String>>,
    /// The lifetime of tokens, from `iat` to `exp`, must not be longer than this.
    #[schemars(extend("examples" = ["24h"]))]
    pub(crate) max_lifetime: Option<Spanned<String>>,
    /// Accepted values of the header's `typ`, such as `at+jwt`. Left out: any.
    #[serde(default)]
    #[schemars(extend("examples" = [["at+jwt"]]))]
    pub(crate) types: Vec<Spanned<String>>,
    /// How a token is treated whose header carries or links a key (`jwk`, `jku`, `x5u`, `x5c`,
    /// `x5t`): `reject` or `ignore`. Such a key is never used. Default: reject.
    pub(crate) key_hints: Option<Spanned<Choice<KeyHints>>>,
    /// What the keys and tokens of this issuer may have against the specifications: `jwks_padding`,
    /// `jwks_base64`, `spiffe_use`, `token_padding`. Default: nothing.
    #[serde(default)]
    #[schemars(extend("examples" = [["spiffe_use"]]))]
    pub(crate) lenient: Vec<Spanned<Choice<Deviation>>>,
    /// Claims that are required, with this value or one of these: `{ azp: [web, app] }`. Without a
    /// value: any value.
    #[serde(default)]
    #[schemars(with = "Entries<shape::ClaimValue>")]
    #[schemars(extend("examples" = [{ "azp": "web" }]))]
    pub(crate) required_claims: Entries<Node>,
    /// Other names of claims: `{ sub: oid }` reads `oid` where the policy says `jwt.sub`.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "sub": "oid" }]))]
    pub(crate) claim_names: Entries<Spanned<String>>,
    /// PEM file with public keys, from this file's folder.
    #[schemars(extend("examples" = ["../keys/public.pem"]))]
    pub(crate) public_key_file: Option<Spanned<String>>,
    /// File with a JSON Web Key Set, from this file's folder.
    #[schemars(extend("examples" = ["../keys/jwks.json"]))]
    pub(crate) jwks_file: Option<Spanned<String>>,
    /// Where the issuer publishes its JSON Web Key Set.
    #[schemars(extend("examples" = ["https://id.example.com/jwks.json"]))]
    pub(crate) jwks_url: Option<Spanned<String>>,
    /// Whether the URL of the keys is found by OpenID Connect Discovery. Default: false.
    pub(crate) discover: Option<Spanned<bool>>,
    /// File with a secret that is shared with the issuer, from this file's folder.
    #[schemars(extend("examples" = ["../keys/secret"]))]
    pub(crate) secret_file: Option<Spanned<String>>,
    /// Environment variable with a secret that is shared with the issuer.
    #[schemars(extend("examples" = ["JWT_SECRET"]))]
    pub(crate) secret_env: Option<Spanned<String>>,
    /// PEM file with the authorities that sign the certificate of the issuer's server. Left out:
    /// the public ones.
    #[schemars(extend("examples" = ["../keys/ca.pem"]))]
    pub(crate) ca_file: Option<Spanned<String>>,
    /// Whether keys may be fetched without TLS from another machine. Default: false.
    #[serde(default)]
    pub(crate) allow_http: bool,
    /// How long fetched keys are used before they are fetched again. Default: 10m.
    #[schemars(extend("examples" = ["10m"]))]
    pub(crate) cache: Option<Spanned<String>>,
    /// The shortest time between two fetches because of an unknown key id. Default: 30s.
    #[schemars(extend("examples" = ["30s"]))]
    pub(crate) cooldown: Option<Spanned<String>>,
    /// How long a fetch may take. Default: 5s.
    #[schemars(extend("examples" = ["5s"]))]
    pub(crate) timeout: Option<Spanned<String>>,
    /// How long keys are used beyond `cache` while the issuer cannot be reached. Default: 1h.
    #[schemars(extend("examples" = ["1h"]))]
    pub(crate) max_stale: Option<Spanned<String>>,
}

/// An authorization server that validates opaque tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "introspection section")]
pub(crate) struct RawIntrospection {
    /// Its name, for routes. Default: introspection.
    #[schemars(length(min = 1))]
    pub(crate) name: Option<Spanned<String>>,
    /// The URL of its introspection endpoint.
    #[schemars(extend("examples" = ["https://id.example.com/introspect"]))]
    pub(crate) url: Spanned<String>,
    /// The client id of this proxy at the server.
    #[schemars(length(min = 1))]
    pub(crate) client_id: Spanned<String>,
    /// Environment variable with the client secret of this proxy.
    #[schemars(extend("examples" = ["INTROSPECTION_SECRET"]))]
    pub(crate) client_secret_env: Option<Spanned<String>>,
    /// File with the client secret of this proxy.
    #[schemars(extend("examples" = ["../keys/introspection"]))]
    pub(crate) client_secret_file: Option<Spanned<String>>,
    /// PEM file with the authorities that sign the server's certificate. Left out: the public ones.
    #[schemars(extend("examples" = ["../keys/ca.pem"]))]
    pub(crate) ca_file: Option<Spanned<String>>,
    /// Whether it may be queried without TLS on another machine. Default: false.
    #[serde(default)]
    pub(crate) allow_http: bool,
    /// Tokens must be for one of these (`aud`). Left out: any audience.
    #[serde(default)]
    #[schemars(inner(length(min = 1)))]
    pub(crate) audience: Vec<Spanned<String>>,
    /// How long its response about a token is cached, at most. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    pub(crate) cache: Option<Spanned<String>>,
    /// How long it may take to respond, and how long a token may wait for a free query. Default:
    /// 2s.
    #[schemars(extend("examples" = ["2s"]))]
    pub(crate) timeout: Option<Spanned<String>>,
    /// Claims that are required, with this value or one of these: `{ client_id: web }`.
    #[serde(default)]
    #[schemars(with = "Entries<shape::ClaimValue>")]
    #[schemars(extend("examples" = [{ "client_id": "web" }]))]
    pub(crate) required_claims: Entries<Node>,
    /// Other names of claims: `{ sub: username }` reads `username` where the policy says `jwt.sub`.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "sub": "username" }]))]
    pub(crate) claim_names: Entries<Spanned<String>>,
}

/// API keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "api_keys section")]
pub(crate) struct RawApiKeys {
    /// Their name, for routes. Default: api_keys.
    #[schemars(length(min = 1))]
    pub(crate) name: Option<Spanned<String>>,
    /// File with the keys' digests, as `tollgate key` writes them.
    #[schemars(extend("examples" = ["../keys/api.yaml"]))]
    pub(crate) file: Spanned<String>,
    /// The header that carries a key. Default: x-api-key.
    #[schemars(extend("examples" = ["x-api-key"]))]
    pub(crate) header: Option<Spanned<String>>,
    /// Schemes by which `Authorization` may carry a key, too: `bearer`, `token`, or `basic`, with
    /// the key as the password. With a scheme that is also for tokens, a value in the form of a key
    /// is taken as a key. Left out: none.
    #[serde(default)]
    #[schemars(extend("examples" = [["token"]]))]
    pub(crate) schemes: Vec<Spanned<Choice<Scheme>>>,
}

/// A kind of caller.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "caller")]
pub(crate) struct RawCaller {
    /// Its name, for logs and messages, such as `user`.
    #[schemars(length(min = 1))]
    pub(crate) name: Spanned<String>,
    /// What identifies a caller: `jwt.<claim>`, `api_key.<field>` or `client.ip`; or, of a
    /// certificate that a listener with `client_ca_file` has verified, `client_certificate.subject`
    /// (as in `CN=robot,O=Example`) or `client_certificate.san` (its first URI, DNS or email name),
    /// which need no token, also where `auth` is `required`.
    #[schemars(regex(
        pattern = r"^(client\.ip|client_certificate\.(subject|san)|(jwt|api_key)\..+)$"
    ))]
    #[schemars(extend("examples" = ["jwt.sub"]))]
    pub(crate) key: Spanned<String>,
    /// The caller's tier: its name, or where that is found, `jwt.<claim>` or `api_key.<field>`; or
    /// a table, `{ from: jwt.roles, map: { admin: internal, staff: pro } }`. Left out: the default
    /// tier.
    #[schemars(with = "Option<Tier>", extend("examples" = ["jwt.plan"]))]
    pub(crate) tier: Option<Node>,
    /// For `client.ip`: IPv6 addresses with the same prefix of this length are one caller. Default:
    /// 64, one customer's network.
    #[schemars(range(min = 32, max = 128))]
    pub(crate) ipv6_prefix: Option<Spanned<u8>>,
}

/// A tier by the value of a claim.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "tier section")]
pub(crate) struct RawTierTable {
    /// The claim, `jwt.<claim>` or `api_key.<field>`: a text, or a list of texts.
    #[schemars(extend("examples" = ["jwt.roles"]))]
    pub(crate) from: Spanned<String>,
    /// Tiers by values of the claim. The first entry that matches applies.
    #[schemars(extend("examples" = [{ "admin": "internal" }]))]
    pub(crate) map: Entries<Spanned<String>>,
    /// The tier for all other values. Left out: the default of `tiers`.
    #[schemars(extend("examples" = ["free"]))]
    pub(crate) default: Option<Spanned<String>>,
}

/// Where tokens are read from.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "token section")]
pub(crate) struct RawToken {
    /// Schemes by which `Authorization` carries a token: `bearer`, `token`, as clients of GitHub
    /// write, or `basic`, with the token as the password. Default: `[bearer]`.
    #[schemars(extend("examples" = [["bearer", "token"]]))]
    pub(crate) schemes: Option<Vec<Spanned<Choice<Scheme>>>>,
    /// The name of a header beside `Authorization`.
    #[schemars(extend("examples" = ["x-token"]))]
    pub(crate) header: Option<Spanned<String>>,
    /// The name of a cookie.
    #[schemars(extend("examples" = ["session"]))]
    pub(crate) cookie: Option<Spanned<String>>,
    /// The name of a query parameter. It is removed before forwarding and logging.
    #[schemars(extend("examples" = ["access_token"]))]
    pub(crate) query: Option<Spanned<String>>,
    /// Whether a valid token is forwarded to the upstream. Default: false.
    #[serde(default)]
    pub(crate) forward: bool,
    /// How an `Authorization` field without a token is treated, where one is optional: `drop`
    /// removes it, `forward` forwards it to the upstream. Default: drop.
    pub(crate) other_schemes: Option<Spanned<Choice<OtherSchemes>>>,
}

/// Claims of a valid token that are forwarded to the upstream.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "forward_claims section")]
pub(crate) struct RawForwardClaims {
    /// A header for each claim: `{ x-user-email: jwt.email }`.
    #[serde(default)]
    #[schemars(extend("examples" = [{ "x-user-email": "jwt.email" }]))]
    pub(crate) headers: Entries<Spanned<String>>,
    /// The name of a header for all claims: the payload's JSON in base64url.
    #[schemars(extend("examples" = ["x-user-claims"]))]
    pub(crate) payload: Option<Spanned<String>>,
}

shapes! {
    /// A caller's tier.
    Tier = "tier", |generator| json_schema!({
        "anyOf": [{ "type": "string" }, generator.subschema_for::<RawTierTable>()],
    });
}
