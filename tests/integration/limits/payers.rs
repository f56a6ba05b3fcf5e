//! Which cost each caller is charged: tiers, overrides, and callers that are exempt or refused.

use serde_json::json;

use crate::support::{
    MINUTE, Policy, Proxy, Request, SECOND, Upstream, get, http2, post, token_with,
};

/// A token of somebody in a tier.
fn of_tier(sub: &str, tier: &str) -> Request {
    get("/").token(&token_with(&json!({ "sub": sub, "plan": tier })))
}

/// Behind a proxy that is trusted, so that requests come from the addresses that they say.
fn behind_a_proxy(policy: &Policy) -> Proxy {
    Proxy::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &[policy])
}

#[test]
fn tier_without_a_rate_of_its_own_has_the_default_one() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("{ anonymous: 1/hour, internal: unlimited, default: 7/day }");
    let proxy = Proxy::start(&policy);
    for tier in ["free", "pro", "unheard-of"] {
        let response = proxy.send(of_tier(tier, tier));
        response.assert_status(200).assert_field("x-ratelimit-limit", "7");
    }
    proxy.get("/").assert_status(200).assert_field("x-ratelimit-limit", "1");
    proxy.send(of_tier("root", "internal")).assert_status(200).assert_no_limit();
}

#[test]
fn tiers_may_have_windows_of_their_own() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("{ free: [1/second, 2/hour], pro: 5/minute, default: 1/day }");
    let proxy = Proxy::start(&policy);
    proxy.send(of_tier("a", "free")).assert_status(200).assert_field("x-ratelimit-limit", "2");
    proxy.send(of_tier("a", "free")).assert_status(429).assert_field("x-ratelimit-limit", "1");
    proxy.send(of_tier("b", "pro")).assert_status(200).assert_field("x-ratelimit-limit", "5");
    proxy.send(of_tier("b", "pro")).assert_status(200);
}

/// What alice has been given until the end of the day.
fn overridden(upstream: &Upstream, rate: &str) -> Policy {
    let alice = format!(
        "overrides: [{{ caller: \"user:alice\", limit: core, {rate}, until: 2026-09-21, why: a move }}]"
    );
    Policy::before(upstream).rate("2/day").section(&alice)
}

#[test]
fn override_holds_for_one_caller_until_the_end_of_its_last_day() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&overridden(&upstream, "rate: 4/day"));
    for used in ["1", "2", "3"] {
        let response = proxy.get_as("alice");
        response.assert_status(200).assert_field("x-ratelimit-limit", "4");
        response.assert_field("x-ratelimit-used", used);
    }
    proxy.get_as("bob").assert_status(200).assert_field("x-ratelimit-limit", "2");
    proxy.get_as("Alice").assert_field("x-ratelimit-limit", "2");
    proxy.advance_to("2026-09-21T23:59:59Z");
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-limit", "4");
    proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-limit", "4");
    proxy.advance(SECOND);
    // What she has used is known, and the window the same.
    let denied = proxy.get_as("alice");
    denied.assert_status(429).assert_field("x-ratelimit-limit", "2");
    denied.assert_field("x-ratelimit-used", "4").assert_field("x-ratelimit-remaining", "0");
}

#[test]
fn override_may_end_at_an_instant() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("2/day").section(
        "overrides: [{ caller: \"user:alice\", limit: core, rate: 4/day, \
         until: 2026-09-21T16:30:00+02:00, why: a move }]",
    );
    let proxy = Proxy::start(&policy);
    proxy.advance_to("2026-09-21T14:29:59Z");
    proxy.get_as("alice").assert_field("x-ratelimit-limit", "4");
    proxy.advance(SECOND);
    proxy.get_as("alice").assert_field("x-ratelimit-limit", "2");
}

#[test]
fn override_may_lift_a_limit_or_close_it() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&overridden(&upstream, "rate: unlimited"));
    for _ in 0..5 {
        proxy.get_as("alice").assert_status(200).assert_no_limit();
    }
    let proxy = Proxy::start(&overridden(&upstream, "rate: 0/day"));
    proxy.get_as("alice").assert_status(429).assert_no_field("retry-after");
    proxy.get_as("bob").assert_status(200);
}

#[test]
fn override_names_a_caller_of_its_kind_only() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1/day").section(
        "overrides: [{ caller: \"anonymous:192.0.2.1\", limit: core, rate: 3/day, \
         until: 2026-12-31, why: an office }]",
    );
    let proxy = behind_a_proxy(&policy);
    let limit = |request: Request| proxy.send(request).number("x-ratelimit-limit");
    assert_eq!(limit(get("/").from("192.0.2.1")), 3);
    assert_eq!(limit(get("/").from("::ffff:192.0.2.1")), 3);
    assert_eq!(limit(get("/").from("192.0.2.2")), 1);
    // A user who is called like an address is none.
    assert_eq!(limit(get("/").by("192.0.2.1")), 1);
}

#[test]
fn override_may_change_a_burst_or_how_many_at_once() {
    let upstream = Upstream::start();
    for (fields, own) in [
        ("rate: 30/minute, burst: 2, algorithm: gcra", "burst: 5"),
        ("rate: 1/minute, capacity: 2, algorithm: token_bucket", "capacity: 5"),
        ("concurrent: 2", "concurrent: 5"),
    ] {
        let policy = Policy::before(&upstream).core(fields).section(&format!(
            "overrides: [{{ caller: \"user:alice\", limit: core, {own}, until: 2026-12-31, why: x }}]"
        ));
        let proxy = Proxy::start(&policy);
        proxy.get_as("alice").assert_field("x-ratelimit-limit", "5");
        proxy.get_as("bob").assert_field("x-ratelimit-limit", "2");
    }
}

#[test]
fn exempt_callers_and_addresses_pay_nothing() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .on_all_routes(&[
            "core: { per: caller, rate: 1/hour }",
            "place: { per: client.ip, rate: 5/hour }",
        ])
        .section("exempt: [10.1.0.0/16, 192.0.2.1, \"2001:db8::/32\", \"user:monitor\"]");
    let proxy = behind_a_proxy(&policy);
    for exempt in [
        get("/").from("10.1.2.3"),
        get("/").from("192.0.2.1"),
        get("/").from("::ffff:192.0.2.1"),
        get("/").from("2001:db8:1::9"),
        get("/").from("10.1.2.3").by("alice"),
        get("/").from("203.0.113.1").by("monitor"),
    ] {
        for _ in 0..7 {
            let response = proxy.send(exempt.clone());
            response.assert_status(200).assert_no_limit().assert_no_field("retry-after");
        }
    }
    assert_eq!(upstream.count(), 42);
    for counted in [
        get("/").from("10.2.0.1"),
        get("/").from("192.0.2.2"),
        get("/").from("2001:db9::1"),
        get("/").from("203.0.113.1").by("alice"),
    ] {
        proxy.send(counted.clone()).assert_status(200).assert_field("x-ratelimit-used", "1");
        proxy.send(counted).assert_status(429);
    }
}

#[test]
fn client_does_not_choose_an_exempt_address() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1/hour").section("exempt: [10.0.0.1]");
    let spoofed = |field: &str, value: &str| get("/").field(field, value);
    let direct = Proxy::start(&policy);
    direct.send(spoofed("x-forwarded-for", "10.0.0.1")).assert_status(200);
    direct.send(spoofed("x-forwarded-for", "10.0.0.1")).assert_status(429);
    direct.send(spoofed("x-real-ip", "10.0.0.1")).assert_status(429);
    let behind = behind_a_proxy(&policy);
    let chain = "10.0.0.1, 203.0.113.1";
    behind.send(spoofed("x-forwarded-for", chain)).assert_status(200);
    behind.send(spoofed("x-forwarded-for", chain)).assert_status(429);
    behind.send(spoofed("x-forwarded-for", "203.0.113.1")).assert_status(429);
}

#[test]
fn denied_callers_and_addresses_are_refused_and_pay_nothing() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 9/hour }"])
        .routes(&["{ match: { path: /api }, limits: [core] }"])
        .section(
            "deny: [203.0.113.0/24, \"2001:db8::1\", \"user:mallory\", \"anonymous:192.0.2.9\"]",
        )
        .section("exempt: [203.0.113.7]");
    let proxy = behind_a_proxy(&policy);
    for refused in [
        get("/api").from("203.0.113.1"),
        get("/api").from("203.0.113.7"),
        get("/api").from("::ffff:203.0.113.1"),
        get("/api").from("203.0.113.1").by("alice"),
        get("/api").from("2001:db8::1"),
        get("/api").from("192.0.2.9"),
        get("/api").from("192.0.2.1").by("mallory"),
        get("/rate_limit").from("192.0.2.1").by("mallory"),
        get("/rate_limit").from("203.0.113.1"),
        get("/nowhere").from("203.0.113.1"),
    ] {
        let response = proxy.send(refused);
        response
            .assert_status(403)
            .assert_field("cache-control", "no-store")
            .assert_no_field("retry-after")
            .assert_no_field("x-tollgate-denied-by")
            .assert_no_limit();
        assert_eq!(response.json()["message"], "Forbidden");
    }
    assert_eq!(upstream.count(), 0);
    for served in [
        get("/api").from("203.0.114.1"),
        get("/api").from("192.0.2.9").by("alice"),
        get("/api").from("192.0.2.1").by("Mallory"),
    ] {
        proxy.send(served).assert_status(200).assert_field("x-ratelimit-used", "1");
    }
}

#[test]
fn denied_address_is_refused_on_http_2_too() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("9/hour").section("deny: [127.0.0.0/8]");
    let proxy = Proxy::start(&policy);
    let request = http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    assert_eq!(http2(proxy.address(), vec![request])[0].status(), 403);
    proxy.send(post("/", vec![b'x'; 1 << 20])).assert_status(403);
}

#[test]
fn two_routes_share_a_limit_and_two_limits_share_nothing() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 2/minute }",
            "other: { per: caller, rate: 2/minute }",
        ])
        .routes(&[
            "{ match: { path: /a }, limits: [core] }",
            "{ match: { path: /b, methods: [GET] }, limits: [core] }",
            "{ match: { path: /c }, limits: [other] }",
        ]);
    let proxy = Proxy::start(&policy);
    proxy.get("/a").assert_field("x-ratelimit-used", "1");
    proxy.get("/b").assert_field("x-ratelimit-used", "2");
    proxy.get("/a").assert_status(429);
    proxy.get("/c").assert_status(200).assert_field("x-ratelimit-used", "1");
    proxy.advance(MINUTE);
    proxy.get("/b").assert_field("x-ratelimit-used", "1");
}
