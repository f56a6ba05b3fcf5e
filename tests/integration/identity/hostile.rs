//! What made-up tokens cost: the address that shows them, and nobody else.

use serde_json::json;

use crate::support::{Authority, HOUR, Policy, Proxy, Upstream, get};

/// Opaque tokens, which the authority is asked about; five failures an hour an address.
fn asking(authority: &Authority, upstream: &Upstream) -> Policy {
    let introspection = format!(
        "introspection: {{ url: \"{}\", client_id: tollgate, client_secret_env: TEST_SECRET }}",
        authority.url("/introspect")
    );
    Policy::before(upstream)
        .identity(&[&introspection])
        .limits(&["guesses: { per: client.ip, rate: 5/hour, count_when: { status: [401] } }"])
        .routes(&[
            "{ match: { path: /guarded }, auth: required, limits: [guesses] }",
            "{ match: { path: /** }, auth: required, limits: [] }",
        ])
}

#[test]
fn nobody_is_asked_about_tokens_of_an_address_that_has_used_up_its_limit() {
    let (authority, upstream) = (Authority::start(), Upstream::start());
    let proxy = Proxy::start(&asking(&authority, &upstream));
    for number in 0..50 {
        let status = if number < 5 { 401 } else { 429 };
        let made_up = format!("made-up-{number}");
        proxy.send(get("/guarded").token(&made_up)).assert_status(status);
    }
    // The one after the last that could be paid for shows that there is no more.
    let asked = authority.count("/introspect");
    assert!((5..=6).contains(&asked), "{asked}");

    // When the address can pay again, its good tokens are good, and cost nothing.
    authority.know_token("good", json!({ "active": true, "sub": "7" }));
    proxy.advance(HOUR);
    let answer = proxy.send(get("/guarded").token("good"));
    answer.assert_status(200).assert_field("x-ratelimit-remaining", "5");
}

#[test]
fn token_that_was_just_found_bad_is_not_asked_about_again() {
    let (authority, upstream) = (Authority::start(), Upstream::start());
    let proxy = Proxy::start(&asking(&authority, &upstream));
    for _ in 0..20 {
        proxy.send(get("/").token("made-up")).assert_status(401);
    }
    assert_eq!(authority.count("/introspect"), 1);
    // It may be good soon.
    authority.know_token("made-up", json!({ "active": true, "sub": "7" }));
    proxy.advance(HOUR);
    proxy.send(get("/").token("made-up")).assert_status(200);
}

#[test]
fn answer_is_believed_for_a_while_and_asked_for_again() {
    let (authority, upstream) = (Authority::start(), Upstream::start());
    let proxy = Proxy::start(&asking(&authority, &upstream));
    authority.know_token("opaque", json!({ "active": true, "sub": "7", "scope": "read" }));
    for _ in 0..20 {
        proxy.send(get("/").token("opaque")).assert_status(200);
        assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some("7"));
    }
    assert_eq!(authority.count("/introspect"), 1);
    // Revoked: noticed when the answer has grown old.
    authority.forget_token("opaque");
    proxy.send(get("/").token("opaque")).assert_status(200);
    proxy.advance(HOUR);
    proxy.send(get("/").token("opaque")).assert_status(401);
}
