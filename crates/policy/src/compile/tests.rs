//! What policies mean, down to numbers and counter ids. The messages about bad ones are in
//! `tests/policies/bad`.

mod edge;
mod facts;
mod issuers;
mod measures;
mod mistakes;

use std::time::Duration;

use http::{Method, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::{
    Allowance, CallerName, Cost, Enforcement, HeaderProfile, KeyPart, OnMissing, Responses,
    Statuses,
};

const SECOND: Duration = Duration::from_secs(1);

fn try_load(text: &str) -> Result<Policy, Vec<Problem>> {
    let secret = "a secret that is long enough for it";
    load(Path::new("api.yaml"), text, &Sources::system().with_variable("SECRET", secret))
}

/// A policy with the sections in `text`, those that it must have, and callers of two kinds.
fn policy(text: &str) -> Policy {
    let all = format!(
        "version: 1\n\
         upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
         identity:\n  jwt: [{{ issuer: me, algorithms: [HS256], secret_env: SECRET }}]\n  \
         callers: [{{ name: user, key: jwt.sub }}, {{ name: anonymous, key: client.ip }}]\n\
         tiers: {{ default: free, names: [anonymous, free, pro] }}\n\
         routes: [{{ match: {{ path: \"/{{id}}/**\" }}, limits: [{}] }}]\n{text}\n",
        if text.contains("core:") { "core" } else { "" }
    );
    try_load(&all).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

/// The limit with these fields, per caller.
fn limit(fields: &str) -> Limit {
    policy(&format!("limits: {{ core: {{ per: caller, {fields} }} }}")).limits.remove(0)
}

#[test]
fn costs_are_by_method_and_one_where_nothing_is_said() {
    let cost = |fields: &str| limit(&format!("rate: 900/minute{fields}")).cost;
    assert_eq!(cost(""), Cost::ONE);
    assert_eq!(cost(", cost: 5").of(&Method::GET), 5);
    let by_method = cost(", cost: { GET: 0, POST: 7 }");
    assert_eq!([Method::GET, Method::POST, Method::PUT].map(|m| by_method.of(&m)), [0, 7, 1]);
    let cost_by_response = cost(", cost: { from_response_header: X-Query-Cost }");
    assert_eq!(cost_by_response.default, 1);
    assert_eq!(cost_by_response.header().unwrap(), "x-query-cost");
    assert_eq!(cost(", cost: { reserve: 0, from_response_header: x-cost }").default, 0);
}

#[test]
fn cost_that_no_method_of_the_route_has_need_not_fit() {
    let route = |methods: &str| {
        try_load(&format!(
            "version: 1\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             identity: {{ callers: [{{ name: anonymous, key: client.ip }}] }}\n\
             limits: {{ core: {{ per: caller, rate: [3/second, 0/hour], cost: {{ GET: 3, default: 5 }} }} }}\n\
             routes: [{{ match: {{ path: /**{methods} }}, limits: [core] }}]\n"
        ))
    };
    assert!(route(", methods: [GET]").is_ok());
    assert!(route(", methods: [GET, POST]").is_err());
    assert!(route("").is_err());
}

#[test]
fn refunds_go_to_whom_the_limit_says() {
    /// Whether everybody, and whether the authenticated are given back a response's cost.
    fn given(fields: &str, status: u16) -> [bool; 2] {
        let refund = limit(fields).refund;
        let status = StatusCode::from_u16(status).unwrap();
        [&refund.everybody, &refund.authenticated].map(|set: &Statuses| set.contains(status))
    }
    for (fields, status, expected) in [
        ("rate: 5/s", 304, [false, true]),
        ("rate: 5/s", 200, [false, false]),
        ("rate: 5/s, refund: { status: [] }", 304, [false, false]),
        ("rate: 5/s, refund: { status: [304, 5xx] }", 304, [false, true]),
        ("rate: 5/s, refund: { status: [304, 5xx] }", 599, [true, false]),
        ("rate: 5/s, refund: { status: [304, 5xx] }", 499, [false, false]),
        ("rate: 5/s, refund: { status: [3xx], callers: all }", 304, [true, false]),
        ("rate: 5/s, refund: { status: [502], callers: authenticated }", 502, [false, true]),
        ("rate: 5/s, refund: { callers: all }", 304, [true, false]),
        ("rate: 5/s, count_when: { status: [401] }", 304, [false, false]),
        ("concurrent: 5", 304, [false, false]),
    ] {
        assert_eq!(given(fields, status), expected, "{fields} {status}");
    }
    let count_when = limit("rate: 5/s, count_when: { status: [401, 1xx] }").count_when.unwrap();
    assert!(count_when.contains(StatusCode::UNAUTHORIZED));
    assert!(count_when.contains(StatusCode::CONTINUE));
    assert!(!count_when.contains(StatusCode::OK));
}

#[test]
fn enforcement_is_for_everybody_unless_the_limit_says_otherwise() {
    for (fields, expected) in [
        ("", Enforcement::AllCallers),
        (", mode: enforce", Enforcement::AllCallers),
        (", mode: shadow", Enforcement::Shadow),
        (", enforce_percent: 0", Enforcement::Percent(0)),
        (", mode: enforce, enforce_percent: 25", Enforcement::Percent(25)),
        (", enforce_percent: 100", Enforcement::AllCallers),
    ] {
        assert_eq!(limit(&format!("rate: 5/s{fields}")).enforcement, expected, "{fields}");
    }
}

#[test]
fn keys_are_made_of_parts() {
    let per = |per: &str| {
        policy(&format!("limits: {{ core: {{ {per}, rate: 5/s }} }}")).limits.remove(0).per
    };
    let parts =
        per("per: [caller, client.ip, host, path, path.id, method, claim.org.id, cookie.s]");
    assert_eq!(
        parts.parts,
        [
            KeyPart::Caller,
            KeyPart::ClientIp,
            KeyPart::Host,
            KeyPart::Path,
            KeyPart::PathParameter("id".into()),
            KeyPart::Method,
            KeyPart::Claim("org.id".into()),
            KeyPart::Cookie("s".into()),
        ]
    );
    assert_eq!((parts.ipv4_prefix, parts.ipv6_prefix, parts.on_missing), (32, 64, OnMissing::Skip));
    let key = per("per: header.X-Api-Key, on_missing: deny");
    assert_eq!(key.parts, [KeyPart::Header(http::HeaderName::from_static("x-api-key"))]);
    assert_eq!(key.on_missing, OnMissing::Deny);
    let all = per("per: all, on_missing: share");
    assert_eq!((all.parts.as_slice(), all.on_missing), (&[KeyPart::All][..], OnMissing::Share));
    let network = per("per: client.ip, ipv4_prefix: 24, ipv6_prefix: 56");
    assert_eq!((network.ipv4_prefix, network.ipv6_prefix), (24, 56));
}

#[test]
fn lists_hold_networks_and_callers_as_requests_name_them() {
    let policy = policy(
        "exempt: [10.0.0.0/8, \"::ffff:192.0.2.1\", \"::ffff:198.51.100.0/120\", \"2001:db8::/32\"]\n\
         deny: [\"user:42\", \"anonymous:192.0.2.1\", \"anonymous:2001:db8:1:2:3::4\"]",
    );
    let networks: Vec<String> = policy.exempt.networks.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "192.0.2.1/32", "198.51.100.0/24", "2001:db8::/32"]);
    for (kind, value) in
        [("user", "42"), ("anonymous", "192.0.2.1"), ("anonymous", "2001:db8:1:2::")]
    {
        let name =
            CallerName { kind: kind.into(), value: value.into(), issuer: None, tenant: None };
        assert!(policy.deny.callers.contains(&name), "{value}");
    }
}

#[test]
fn core_is_the_limit_called_so_or_the_first_that_is_charged() {
    let with = |limits: &str, route: &str| {
        let text = format!(
            "version: 1\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             identity: {{ callers: [{{ name: anonymous, key: client.ip }}] }}\n\
             limits: {{ {limits} }}\nroutes:\n  - {{ match: {{ path: / }} }}\n  \
             - {{ match: {{ path: /** }}, limits: [{route}] }}\n"
        );
        try_load(&text).unwrap_or_else(|problems| panic!("{}", problems[0])).core
    };
    let [a, b, core] =
        ["a", "b", "core"].map(|name| format!("{name}: {{ per: caller, rate: 5/s }}"));
    assert_eq!(with(&format!("{a}, {core}"), "a"), Some(1));
    assert_eq!(with(&format!("{a}, {b}"), "b, a"), Some(1));
    assert_eq!(with(&a, ""), None);
}

#[test]
fn responses_say_where_callers_stand_unless_turned_off() {
    let responses = |fields: &str| policy(&format!("responses: {{ {fields} }}")).responses;
    let Responses { headers, rate_limit_path, jitter, shadow_header, .. } = responses("");
    assert_eq!(headers, HeaderProfile::Github);
    assert_eq!(rate_limit_path.as_deref(), Some("/rate_limit"));
    assert_eq!((jitter, shadow_header), (Duration::ZERO, false));
    assert_eq!(responses("rate_limit_path: off").rate_limit_path, None);
    assert_eq!(responses("rate_limit_path: /a/b").rate_limit_path.as_deref(), Some("/a/b"));
    assert_eq!(responses("headers: ietf").headers, HeaderProfile::Ietf);
    assert_eq!(responses("headers: both").headers, HeaderProfile::Both);
    assert_eq!(responses("jitter: 5s").jitter, 5 * SECOND);
}

/// Fields of limits and what may stand in them, right or wrong.
fn any_field() -> impl Strategy<Value = String> {
    let fields = prop::sample::select(vec![
        "rate",
        "algorithm",
        "align",
        "timezone",
        "burst",
        "capacity",
        "refill",
        "strict",
        "concurrent",
        "lease",
        "retry_after",
        "cost",
        "refund",
        "count_when",
        "mode",
        "enforce_percent",
        "candidate",
        "ipv4_prefix",
        "on_missing",
    ]);
    let values = prop::sample::select(vec![
        "5/second",
        "[5/second, 6/hour]",
        "{ free: 5/s, default: unlimited }",
        "5/month",
        "gcra",
        "token_bucket",
        "sliding_window",
        "sliding_log",
        "calendar",
        "epoch",
        "UTC",
        "5",
        "0",
        "4294967295",
        "-1",
        "1.5",
        "true",
        "60s",
        "{ GET: 1 }",
        "{ status: [304, 5xx] }",
        "{ rate: 5/s }",
        "{ concurrent: 5 }",
        "{ amount: 5, interval: 1s }",
        "[]",
        "{}",
        "~",
        "shadow",
        "unlimited",
        "{ reserve: 2, from_response_header: x }",
        "2147483647/366d",
    ]);
    (fields, values).prop_map(|(field, value)| format!("{field}: {value}"))
}

proptest! {
    /// Whatever is written is either a policy whose every tier has an answer, or has a problem.
    #[test]
    fn prop_limits_of_any_fields_load_whole_or_not_at_all(
        fields in prop::collection::vec(any_field(), 0..6),
    ) {
        let text = format!(
            "version: 1\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             identity: {{ callers: [{{ name: anonymous, key: client.ip }}] }}\n\
             tiers: {{ default: free, names: [free, pro] }}\n\
             limits: {{ core: {{ per: client.ip, {} }} }}\n\
             routes: [{{ match: {{ path: /** }}, limits: [core] }}]\n",
            fields.join(", ")
        );
        match try_load(&text) {
            Err(problems) => prop_assert!(!problems.is_empty()),
            Ok(policy) => {
                let limit = &policy.limits[0];
                prop_assert_eq!(limit.rates.len(), 2);
                prop_assert!(matches!(limit.candidate.len(), 0 | 2));
                for tier in &limit.rates {
                    let names: Vec<&str> = tier.iter().map(|a: &Allowance| &*a.name).collect();
                    prop_assert!(names.last().is_none_or(|last| *last == "core"));
                }
            }
        }
    }
}
