//! Other rates for single values of what a limit counts by: which callers have them, and which do
//! not.

use serde_json::json;

use crate::support::{ISSUER, Policy, Proxy, Redis, Request, Upstream, get, token_with};

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

/// All of these limits on all routes, with these overrides.
fn policy(upstream: &Upstream, limits: &[&str], overrides: &[&str]) -> Policy {
    let lines: String = overrides.iter().map(|line| format!("\n  - {line}")).collect();
    Policy::before(upstream).on_all_routes(limits).section(&format!("overrides:{lines}"))
}

fn of(org: serde_json::Value) -> Request {
    get("/").token(&token_with(&json!({ "sub": "a", "org": org })))
}

#[track_caller]
fn assert_limits(proxy: &Proxy, request: Request, expected: &str) {
    proxy.send(request).assert_status(200).assert_field("x-ratelimit-limit", expected);
}

#[test]
fn claim_has_another_rate() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(
        &upstream,
        &["org: { per: jwt.org, rate: 5/hour }"],
        &[
            "{ jwt.org: bigcorp, limit: org, rate: 50/hour, why: a contract }",
            "{ jwt.org: 42, limit: org, rate: 60/hour, why: a contract }",
        ],
    ));
    assert_limits(&proxy, of("bigcorp".into()), "50");
    assert_limits(&proxy, of("BigCorp".into()), "5");
    assert_limits(&proxy, of(42.into()), "60");
    // A text is another value than a number.
    assert_limits(&proxy, of("42".into()), "5");
    // Headers are no claims.
    assert_limits(&proxy, of("small".into()).field("jwt.org", "bigcorp"), "5");
    proxy.get("/").assert_status(200).assert_no_limit();
}

#[test]
fn counter_stays_when_an_override_comes_and_goes() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let limits = &["org: { per: jwt.org, rate: 5/hour }"][..];
    let without = Policy::before(&upstream).on_all_routes(limits);
    let with = policy(
        &upstream,
        limits,
        &["{ jwt.org: bigcorp, limit: org, rate: 50/hour, why: a contract }"],
    );
    for proxy in [Proxy::start(&without), Proxy::with_redis(&redis.settings(), &without)] {
        for (policy, limit, used) in
            [(&without, "5", "1"), (&with, "50", "2"), (&without, "5", "3")]
        {
            proxy.install(&[policy]);
            let response = proxy.send(of("bigcorp".into()));
            response.assert_status(200).assert_field("x-ratelimit-limit", limit);
            response.assert_field("x-ratelimit-used", used);
        }
    }
}

#[test]
fn first_override_that_is_for_a_request_applies_until_its_end() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(
        &upstream,
        &["org: { per: jwt.org, rate: 5/hour }"],
        &[
            "{ caller: \"user:b\", limit: org, rate: 8/hour, why: one of them }",
            "{ caller: \"user:a\", jwt.org: bigcorp, limit: org, rate: 9/hour, until: 2026-09-21, why: a move }",
            "{ jwt.org: bigcorp, limit: org, rate: 50/hour, why: a contract }",
        ],
    ));
    let by = |sub: &str, org: &str| get("/").token(&token_with(&json!({ "sub": sub, "org": org })));
    assert_limits(&proxy, by("b", "bigcorp"), "8");
    assert_limits(&proxy, by("b", "other"), "8");
    assert_limits(&proxy, by("a", "bigcorp"), "9");
    assert_limits(&proxy, by("a", "other"), "5");
    assert_limits(&proxy, by("c", "bigcorp"), "50");
    proxy.advance(24 * HOUR);
    assert_limits(&proxy, of("bigcorp".into()), "50");
}

#[test]
fn claim_of_another_issuer_is_not_meant() {
    let upstream = Upstream::start();
    let other = "https://other.example/";
    let limits = &["org: { per: jwt.org, rate: 5/hour }"];
    let own = ["{ jwt.org: bigcorp, issuer: main, limit: org, rate: 50/hour, why: a contract }"];
    let policy = policy(&upstream, limits, &own).and_issuer("other", other);
    let proxy = Proxy::start(&policy);
    let by = |iss: &str| {
        get("/").token(&token_with(&json!({ "sub": "a", "org": "bigcorp", "iss": iss })))
    };
    assert_limits(&proxy, by(ISSUER), "50");
    assert_limits(&proxy, by(other), "5");
}

#[test]
fn address_or_network_has_another_rate() {
    let upstream = Upstream::start();
    let policy = policy(
        &upstream,
        &["ip: { per: client.ip, rate: 5/hour, ipv6_prefix: 56 }"],
        &[
            "{ client.ip: 192.0.2.1, limit: ip, rate: 6/hour, why: an office }",
            "{ client.ip: 10.0.0.0/8, limit: ip, rate: 7/hour, why: our own }",
            "{ client.ip: \"2001:db8::9\", limit: ip, rate: 8/hour, why: a customer }",
        ],
    );
    let settings = "workers: 1\ntrusted_proxies: [127.0.0.1]";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    for (address, limit) in [
        ("192.0.2.1", "6"),
        ("::ffff:192.0.2.1", "6"),
        ("192.0.2.2", "5"),
        ("10.200.0.1", "7"),
        // All of the network that is counted as one.
        ("2001:db8:0:ff::1", "8"),
        ("2001:db8:0:100::1", "5"),
        ("10.0.0.1, 198.51.100.1", "5"),
    ] {
        assert_limits(&proxy, get("/").from(address), limit);
    }
}

#[test]
fn parts_of_a_request_have_another_rate() {
    let upstream = Upstream::start();
    let limits =
        ["all: { per: [host, path, path.id, method, header.x-org, cookie.team], rate: 5/hour }"];
    let policy = Policy::before(&upstream)
        .limits(&limits)
        .routes(&["{ match: { path: \"/{id}/**\" }, limits: [all] }"])
        .section(
            "overrides:\n  \
             - { path.id: octo, method: POST, limit: all, rate: 6/hour, why: x }\n  \
             - { path.id: octo, limit: all, rate: 7/hour, why: x }\n  \
             - { path: /exports/**, limit: all, rate: 8/hour, why: x }\n  \
             - { host: \"*.example.org\", limit: all, rate: 9/hour, why: x }\n  \
             - { header.x-org: big, limit: all, rate: 10/hour, why: x }\n  \
             - { cookie.team: \"1\", limit: all, rate: 11/hour, why: x }",
        );
    let proxy = Proxy::start(&policy);
    let with = |request: Request| request.field("x-org", "a").field("cookie", "team=2");
    let other = Request::new("POST", "/octo");
    for (request, limit) in [
        (with(other), "6"),
        (with(get("/octo/x")), "7"),
        (with(get("/Octo/x")), "5"),
        (with(get("/exports/2026")), "8"),
        (with(get("/x").host("a.example.org")), "9"),
        (get("/x").field("x-org", "big").field("cookie", "team=2"), "10"),
        (get("/x").field("x-org", "a").field("cookie", "team=1"), "11"),
        (with(get("/x")), "5"),
    ] {
        assert_limits(&proxy, request, limit);
    }
}
