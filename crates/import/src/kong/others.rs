//! Plugins that have no counterpart, and what becomes of their routes.

use crate::words;

/// Options of `jwt`, `key-auth` and `acl`.
pub(super) const JWT_OPTIONS: &str = "uri_param_names cookie_names header_names key_claim_name \
    secret_is_base64 claims_to_verify anonymous run_on_preflight maximum_expiration realm";
pub(super) const KEY_OPTIONS: &str = "key_names key_in_header key_in_query key_in_body \
    hide_credentials anonymous run_on_preflight realm";

pub(super) const ACL_OPTIONS: &str = "allow deny whitelist blacklist hide_groups_header \
    include_consumer_groups always_use_authenticated_groups";

/// What refuses, and is not here: its routes are closed.
const GUARDS: [(&str, &str); 6] = [
    (
        "basic-auth hmac-auth ldap-auth ldap-auth-advanced session key-auth-enc",
        "nothing here knows these credentials: write tokens or API keys (`identity`)",
    ),
    (
        "oauth2 oauth2-introspection openid-connect jwt-signer saml vault-auth",
        "write the issuer into `identity.jwt` or `identity.introspection`, and `auth: required`",
    ),
    (
        "mtls-auth header-cert-auth",
        "write `client_ca_file` at the listener, and `client_certificate.subject` as a caller",
    ),
    (
        "aws-lambda azure-functions mocking kafka-upstream confluent redirect",
        "Kong answers these requests itself, or hands them to something that is no upstream",
    ),
    ("pre-function post-function", "code may refuse requests, or change who they are of"),
    ("bot-detection", "nothing here refuses by `User-Agent`"),
];

/// What refuses nothing: it is only named.
const HARMLESS: [(&str, &str); 6] = [
    (
        "prometheus file-log http-log tcp-log udp-log syslog loggly statsd statsd-advanced datadog \
         zipkin opentelemetry kafka-log splunk",
        "logs, metrics and traces are in the settings",
    ),
    ("correlation-id", "the upstream gets X-Request-Id"),
    ("proxy-cache proxy-cache-advanced", "nothing is cached: the upstream gets all requests"),
    (
        "response-transformer response-transformer-advanced exit-transformer",
        "write `response_headers` of its routes; bodies are not changed",
    ),
    (
        "response-ratelimiting ai-rate-limiting-advanced",
        "it counts what responses say, so no limit here is it: looser, by what it refuses there. \
         Write a limit with `cost: { from_response_header: ... }`",
    ),
    ("acme grpc-web grpc-gateway", "the proxy does not do this: its requests go on as they are"),
];

/// Whether what a plugin of a kind does may refuse requests.
pub(super) fn refuses(kind: &str) -> bool {
    !["cors", "request-transformer", "request-transformer-advanced"].contains(&kind)
        && words(kind).1
}

/// What is said of a plugin of a kind, and whether its routes are closed.
pub(super) fn words(kind: &str) -> (&'static str, bool) {
    let find = |table: &[(&str, &'static str)]| {
        table.iter().find(|(kinds, _)| words::has(kinds, kind)).map(|(_, here)| *here)
    };
    match (find(&GUARDS), find(&HARMLESS)) {
        (Some(here), _) => (here, true),
        (_, Some(here)) => (here, false),
        _ => ("this plugin is not known, and may refuse", true),
    }
}
