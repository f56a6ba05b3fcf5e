//! Networks that routes name: where they are configured, and which clients they let in.

use crate::support::{Policy, Proxy, Upstream, get, http2, options, post};

/// `/admin` is charged `inside` for clients of some networks, and `outside` for all others.
fn admin(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "inside: { per: client.ip, rate: 1000/hour }",
            "outside: { per: client.ip, rate: 1000/hour }",
        ])
        .routes(&[
            "{ match: { path: /admin/**, from: [10.0.0.0/8, 192.0.2.1, \"2001:db8::/32\"] }, limits: [inside] }",
            "{ match: { path: /** }, limits: [outside] }",
        ])
}

const TRUSTED: &str = "workers: 1\ntrusted_proxies: [127.0.0.1]";

#[test]
fn route_for_a_network_is_taken_from_there_only() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(TRUSTED, &[&admin(&upstream)]);
    for (address, limit) in [
        ("10.1.2.3", "inside"),
        ("192.0.2.1", "inside"),
        ("192.0.2.2", "outside"),
        ("2001:db8::1", "inside"),
        ("2001:db9::1", "outside"),
        // IPv4 in the guise of IPv6 is IPv4.
        ("::ffff:10.1.2.3", "inside"),
        ("::ffff:192.0.2.2", "outside"),
        // Only what the trusted proxy wrote counts.
        ("10.1.2.3, 203.0.113.1", "outside"),
        ("203.0.113.1, 10.1.2.3", "inside"),
    ] {
        let response = proxy.send(get("/admin/users").from(address));
        response.assert_status(200).assert_field("x-ratelimit-resource", limit);
    }
    proxy.get("/admin").assert_field("x-ratelimit-resource", "outside");
}

#[test]
fn untrusted_client_cannot_choose_a_route_for_a_network() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&admin(&upstream));
    for (name, value) in
        [("x-forwarded-for", "10.1.2.3"), ("forwarded", "for=10.1.2.3"), ("x-real-ip", "10.1.2.3")]
    {
        let response = proxy.send(get("/admin").field(name, value));
        response.assert_status(200).assert_field("x-ratelimit-resource", "outside");
    }
}

#[test]
fn own_address_selects_a_route_without_any_proxy() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["local: { per: client.ip, rate: 1000/hour }"])
        .routes(&["{ match: { path: /**, from: [127.0.0.0/8] }, limits: [local] }"]);
    let proxy = Proxy::start(&policy);
    proxy.get("/").assert_status(200).assert_field("x-ratelimit-resource", "local");
    let request = http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    let responses = http2(proxy.address(), vec![request]);
    assert_eq!(responses[0].headers()["x-ratelimit-resource"], "local");
}

#[test]
fn request_that_no_route_takes_from_there_is_a_404() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .routes(&["{ match: { path: /**, from: [10.0.0.0/8] }, limits: [] }"]);
    let proxy = Proxy::with_settings(TRUSTED, &[&policy]);
    proxy.send(get("/").from("10.0.0.1")).assert_status(200);
    proxy.send(get("/").from("11.0.0.1")).assert_status(404);
    assert_eq!(upstream.count(), 1);
}

/// `/in` is for a network without a part of it, `/out` for all but one address.
fn guarded(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&["core: { per: client.ip, rate: 2/hour }"])
        .routes(&[
            "{ match: { path: /in }, allow: [10.0.0.0/8, \"2001:db8::/32\"], deny: [10.6.0.0/16], limits: [core] }",
            "{ match: { path: /out }, deny: [192.0.2.1], limits: [core] }",
        ])
}

#[test]
fn route_refuses_addresses_that_it_does_not_let_in() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(TRUSTED, &[&guarded(&upstream)]);
    for (path, address, status) in [
        ("/in", "10.0.0.1", 200),
        ("/in", "10.6.0.1", 403),
        ("/in", "::ffff:10.6.0.1", 403),
        ("/in", "192.0.2.1", 403),
        ("/in", "2001:db8::1", 200),
        ("/in", "2001:db9::1", 403),
        ("/out", "192.0.2.1", 403),
        ("/out", "192.0.2.2", 200),
    ] {
        let response = proxy.send(get(path).from(address));
        response.assert_status(status);
        if status == 403 {
            assert_eq!(response.json()["message"], "Forbidden", "{path} {address}");
        }
    }
    assert_eq!(upstream.count(), 3);
    let log = proxy.into_log();
    for line in [
        "error=\"the route denies 10.6.0.0/16\"",
        "error=\"the address is not on the route's allow list\"",
        "error=\"the route denies 192.0.2.1\"",
    ] {
        assert!(log.contains(line), "{line} is not in\n{log}");
    }
}

#[test]
fn request_that_a_route_refuses_is_not_charged() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(TRUSTED, &[&guarded(&upstream)]);
    for _ in 0..5 {
        // Not even for a bad token, which is not looked at.
        let request = get("/out").from("192.0.2.1").token("bad");
        proxy.send(request).assert_status(403).assert_no_limit();
    }
    let standings = proxy.standings(get("/rate_limit").from("192.0.2.1"));
    assert_eq!(standings["core"]["used"], 0, "{standings}");
    // The other route still lets it in.
    let other = guarded(&upstream).routes(&["{ match: { path: /** }, limits: [core] }"]);
    proxy.install(&[&other]);
    proxy.send(get("/out").from("192.0.2.1")).assert_field("x-ratelimit-used", "1");
}

#[test]
fn body_of_a_refused_request_is_not_waited_for() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings(TRUSTED, &[&guarded(&upstream)]);
    proxy.send(post("/in", "some body").from("192.0.2.1")).assert_status(403);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn questions_of_browsers_go_by_the_route_for_their_address() {
    let upstream = Upstream::start();
    let page = "https://app.example.com";
    let cors = format!("cors: {{ origins: [\"{page}\"], preflight: answer }}");
    let policy = Policy::before(&upstream).routes(&[
        &format!("{{ match: {{ path: /**, from: [10.0.0.0/8] }}, deny: [10.6.0.0/16], {cors} }}"),
        "{ match: { path: /** }, auth: required }",
    ]);
    let proxy = Proxy::with_settings(TRUSTED, &[&policy]);
    let ask = |address: &str| {
        let question = options("/x").from(address).field("origin", page);
        proxy.send(question.field("access-control-request-method", "PUT"))
    };
    ask("10.0.0.1").assert_status(204).assert_field("access-control-allow-origin", page);
    ask("10.6.0.1").assert_status(403);
    ask("11.0.0.1").assert_status(401).assert_no_field("access-control-allow-origin");
    assert_eq!(upstream.count(), 0);
}
