//! What pages of other origins may ask, and read.

use crate::support::{HOUR, MINUTE, Policy, Proxy, Request, Upstream, get, options};

const PAGE: &str = "https://app.example.com";

/// Routes that take a token and have no room, with this in the `cors` section.
fn proxy(upstream: &Upstream, fields: &str) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&["core: { per: caller, rate: { anonymous: 0/hour, default: 1/hour } }"])
        .routes(&[
            "{ match: { path: /open, methods: [GET] }, limits: [core] }",
            "{ match: { path: /closed, methods: [PUT] }, auth: required, limits: [core] }",
        ])
        .section(&format!("cors: {{ origins: [\"{PAGE}\"]{fields} }}"));
    Proxy::start(&policy)
}

fn preflight(target: &str, method: &str, origin: &str) -> Request {
    options(target)
        .field("origin", origin)
        .field("access-control-request-method", method)
        .field("access-control-request-headers", "authorization, x-a")
}

#[test]
fn page_may_read_why_it_was_denied() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, ", credentials: true");
    for (request, status) in [
        (get("/open").field("origin", PAGE), 429),
        (Request::new("PUT", "/closed").field("origin", PAGE), 401),
    ] {
        let denied = proxy.send(request);
        denied
            .assert_status(status)
            .assert_field("access-control-allow-origin", PAGE)
            .assert_field("access-control-allow-credentials", "true")
            .assert_field("vary", "origin");
        let exposed = denied.field("access-control-expose-headers").unwrap_or_default();
        for name in ["X-RateLimit-Remaining", "Retry-After", "X-Request-Id"] {
            assert!(exposed.contains(name), "{exposed}");
        }
    }
}

#[test]
fn page_of_another_origin_may_not() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "");
    for origin in ["https://evil.example", "null", "https://app.example.com.evil.example"] {
        let denied = proxy.send(get("/open").field("origin", origin));
        denied.assert_status(429).assert_no_field("access-control-allow-origin");
    }
    proxy.get("/open").assert_status(429).assert_no_field("access-control-allow-origin");
}

#[test]
fn answers_of_the_upstream_are_its_own_affair() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "");
    let answer = proxy.send(get("/open").by("alice").field("origin", PAGE));
    answer.assert_status(200).assert_no_field("access-control-allow-origin");
}

#[test]
fn preflight_is_a_request_like_any_other_by_default() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "");
    proxy.send(preflight("/closed", "PUT", PAGE)).assert_status(404);
}

#[test]
fn preflight_passes_without_a_token_and_is_charged_to_no_caller() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, ", preflight: pass");
    for _ in 0..3 {
        let answer = proxy.send(preflight("/closed", "PUT", PAGE));
        answer.assert_status(200).assert_no_limit();
        proxy.send(preflight("/open", "GET", PAGE)).assert_status(200).assert_no_limit();
    }
    assert_eq!((upstream.count(), &*upstream.last().method), (6, "OPTIONS"));
}

#[test]
fn what_only_looks_like_a_preflight_does_not_pass() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, ", preflight: pass");
    for request in [
        options("/closed").field("origin", PAGE),
        options("/closed").field("access-control-request-method", "PUT"),
        preflight("/closed", "DELETE", PAGE),
        preflight("/closed", "PUT", "https://evil.example"),
        preflight("/closed", "PUT", PAGE).field("content-length", "5"),
    ] {
        let mut client = proxy.connect();
        client.write([&request.to_bytes(), &b"hello"[..]].concat());
        client.read().assert_status(404);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn preflight_is_answered_here() {
    let upstream = Upstream::start();
    let listed = ", preflight: answer, methods: [GET, PUT], headers: [authorization], max_age: 10m";
    for (fields, methods, headers, max_age) in [
        (listed, "GET, PUT", "authorization", Some("600")),
        (", preflight: answer", "PUT", "authorization, x-a", None),
    ] {
        let proxy = proxy(&upstream, fields);
        let answer = proxy.send(preflight("/closed", "PUT", PAGE));
        answer
            .assert_status(204)
            .assert_field("access-control-allow-origin", PAGE)
            .assert_field("access-control-allow-methods", methods)
            .assert_field("access-control-allow-headers", headers)
            .assert_no_limit();
        assert_eq!(answer.field("access-control-max-age"), max_age);
        let other = proxy.send(preflight("/closed", "PUT", "https://evil.example"));
        other
            .assert_status(204)
            .assert_no_field("access-control-allow-origin")
            .assert_no_field("access-control-allow-methods");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn address_that_is_refused_is_refused_its_preflight() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .section("deny: [127.0.0.1]")
        .section("cors: { origins: [\"*\"], preflight: answer }");
    let proxy = Proxy::start(&policy);
    let denied = proxy.send(preflight("/", "GET", PAGE));
    denied.assert_status(403);
    let denied = proxy.send(get("/").field("origin", PAGE));
    denied.assert_status(403).assert_field("access-control-allow-origin", "*");
}

#[test]
fn page_may_read_how_its_caller_stands() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("5/hour")
        .section("cors: { origins: [\"*\"], preflight: pass }");
    let proxy = Proxy::start(&policy);
    proxy.send(preflight("/rate_limit", "GET", PAGE)).assert_status(204);
    let standings = proxy.send(get("/rate_limit").field("origin", PAGE));
    standings.assert_status(200).assert_field("access-control-allow-origin", "*");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn preflight_that_passes_is_charged_to_its_address() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["address: { per: client.ip, rate: 3/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [address] }"])
        .section(&format!("cors: {{ origins: [\"{PAGE}\"], preflight: pass }}"));
    let proxy = Proxy::start(&policy);
    for remaining in ["2", "1", "0"] {
        let passed = proxy.send(preflight("/", "PUT", PAGE));
        passed.assert_status(200).assert_field("x-ratelimit-remaining", remaining);
    }
    let denied = proxy.send(preflight("/", "PUT", PAGE));
    denied
        .assert_status(429)
        .assert_field("x-ratelimit-resource", "address")
        .assert_field("access-control-allow-origin", PAGE);
    assert_eq!(upstream.count(), 3);
    proxy.advance(HOUR);
    proxy.send(preflight("/", "PUT", PAGE)).assert_status(200);
}

#[test]
fn preflight_gets_back_what_does_not_count() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["guesses: { per: client.ip, rate: 1/hour, count_when: { status: [401] } }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [guesses] }"])
        .section(&format!("cors: {{ origins: [\"{PAGE}\"], preflight: pass }}"));
    let proxy = Proxy::start(&policy);
    for _ in 0..3 {
        proxy.send(preflight("/", "PUT", PAGE)).assert_status(200);
    }
}

#[test]
fn address_has_a_bound_of_preflights_whatever_the_limits_are() {
    let upstream = Upstream::start();
    // One that is no bound: each path has a counter of its own.
    let policy = Policy::before(&upstream)
        .limits(&["paths: { per: [client.ip, path], rate: 5/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [paths] }"])
        .section(&format!("cors: {{ origins: [\"{PAGE}\"], preflight: pass }}"));
    let settings = "workers: 1\ntrusted_proxies: [127.0.0.1]";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    let ask = |number, address: &str| {
        preflight(&format!("/{number}"), "PUT", PAGE).from(address).to_bytes()
    };
    let mut client = proxy.connect();
    for number in 0..1_000 {
        client.write(ask(number, "203.0.113.9"));
        client.read().assert_status(200);
    }
    client.write(ask(1_000, "203.0.113.9"));
    let denied = client.read();
    denied.assert_status(429).assert_field("retry-after", "60");
    denied.assert_field("access-control-allow-origin", PAGE);
    client.write(ask(1_001, "198.51.100.1"));
    client.read().assert_status(200);
    proxy.advance(MINUTE);
    client.write(ask(1_002, "203.0.113.9"));
    client.read().assert_status(200);
    assert_eq!(upstream.count(), 1_002);
}

#[test]
fn page_may_read_how_its_caller_stands_though_no_route_has_the_path() {
    let upstream = Upstream::start();
    for preflights in ["", ", preflight: pass", ", preflight: answer"] {
        let policy = Policy::before(&upstream)
            .limits(&["core: { per: caller, rate: 5/hour }"])
            .routes(&["{ match: { path: /api/** }, limits: [core] }"])
            .section(&format!("cors: {{ origins: [\"{PAGE}\"], credentials: true{preflights} }}"));
        let proxy = Proxy::start(&policy);
        let answer = proxy.send(preflight("/rate_limit", "GET", PAGE));
        answer
            .assert_status(204)
            .assert_field("access-control-allow-origin", PAGE)
            .assert_field("access-control-allow-credentials", "true")
            .assert_field("access-control-allow-methods", "GET")
            .assert_field("access-control-allow-headers", "authorization, x-a");
        let standings = proxy.send(get("/rate_limit").by("alice").field("origin", PAGE));
        standings.assert_status(200).assert_field("access-control-allow-origin", PAGE);
        let refused = proxy.send(get("/rate_limit").token("bad").field("origin", PAGE));
        refused.assert_status(401).assert_field("access-control-allow-origin", PAGE);

        let other = preflight("/rate_limit", "GET", "https://evil.example");
        proxy.send(other).assert_status(204).assert_no_field("access-control-allow-origin");
        let standings = proxy.send(get("/rate_limit").field("origin", "https://evil.example"));
        standings.assert_status(200).assert_no_field("access-control-allow-origin");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn page_may_read_how_its_caller_stands_though_its_route_has_cors_off() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 5/hour }"])
        .routes(&["{ match: { path: /** }, limits: [core], cors: off }"])
        .section(&format!("cors: {{ origins: [\"{PAGE}\"] }}"));
    let proxy = Proxy::start(&policy);
    proxy.send(preflight("/rate_limit", "GET", PAGE)).assert_status(204);
    let standings = proxy.send(get("/rate_limit").field("origin", PAGE));
    standings.assert_field("access-control-allow-origin", PAGE);
    // It says nothing about other paths, or other methods.
    proxy.send(preflight("/other", "GET", PAGE)).assert_no_field("access-control-allow-origin");
    proxy
        .send(preflight("/rate_limit", "PUT", PAGE))
        .assert_no_field("access-control-allow-origin");
}
