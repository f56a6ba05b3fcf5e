//! What is charged for a request whose sender could not be identified.

use serde_json::json;

use crate::support::{HOUR, Policy, Proxy, Upstream, get, token_signed_by};

/// Limits by caller and by address on one route.
fn limited_by_address(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 100/hour }",
            "login: { per: client.ip, rate: 3/hour }",
        ])
        .routes(&[
            "{ match: { path: /required }, auth: required, limits: [core, login] }",
            "{ match: { path: /core }, auth: optional, limits: [core] }",
        ])
}

#[test]
fn failed_authentication_is_charged_to_the_address_only() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&limited_by_address(&upstream));
    let forged = token_signed_by(&"x".repeat(32), &json!({ "sub": "alice" }));
    for used in ["1", "2", "3"] {
        let refused = proxy.send(get("/required").token(&forged));
        refused
            .assert_status(401)
            .assert_field("x-ratelimit-resource", "login")
            .assert_field("x-ratelimit-used", used);
    }
    proxy
        .send(get("/required").token(&forged))
        .assert_status(429)
        .assert_no_field("www-authenticate");
    // The user that the token claimed to be is not charged.
    proxy.send(get("/core").by("alice")).assert_field("x-ratelimit-used", "1");
    // Neither has the anonymous caller at that address, whose limit is another one.
    proxy.get("/core").assert_field("x-ratelimit-used", "1");
    proxy.advance(HOUR);
    proxy.send(get("/required").token(&forged)).assert_status(401);
}

#[test]
fn missing_token_and_two_tokens_are_charged_to_the_address_too() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&limited_by_address(&upstream));
    proxy.get("/required").assert_status(401).assert_field("x-ratelimit-used", "1");
    let two = get("/required").by("alice").by("alice");
    proxy.send(two).assert_status(400).assert_field("x-ratelimit-used", "2");
    proxy.send(get("/required").by("alice")).assert_status(200);
    // The good request took the last unit of its address.
    proxy.send(get("/required").by("bob")).assert_status(429);
}
