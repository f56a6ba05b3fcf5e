//! Made-up tokens are charged to the address that sends them, and to no other.

use serde_json::json;

use crate::support::{Answer, Authority, HOUR, Policy, Proxy, Signal, Upstream, get};

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
fn issuer_is_not_queried_about_tokens_of_an_address_that_has_used_up_its_limit() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let proxy = Proxy::start(&asking(&authority, &upstream));
    for number in 0..50 {
        let status = if number < 5 { 401 } else { 429 };
        let made_up = format!("made-up-{number}");
        proxy.send(get("/guarded").token(&made_up)).assert_status(status);
    }
    // One more query may be made before the proxy finds that the limit is used up.
    let asked = authority.count("/introspect");
    assert!((5..=6).contains(&asked), "{asked}");

    // When the address has requests left again, its good tokens are accepted, and cost it nothing.
    authority.know_token("good", json!({ "active": true, "sub": "7" }));
    proxy.advance(HOUR);
    let answer = proxy.send(get("/guarded").token("good"));
    answer.assert_status(200).assert_field("x-ratelimit-remaining", "5");
}

#[test]
fn token_that_was_just_found_bad_is_not_asked_about_again() {
    let authority = Authority::start();
    let upstream = Upstream::start();
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
    let authority = Authority::start();
    let upstream = Upstream::start();
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

#[test]
fn asking_how_one_stands_with_a_bad_token_is_not_free() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let policy = asking(&authority, &upstream)
        .limits(&["address: { per: client.ip, rate: 5/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [address] }"]);
    let proxy = Proxy::start(&policy);
    for number in 0..20 {
        let status = if number < 5 { 401 } else { 429 };
        let made_up = format!("made-up-{number}");
        proxy.send(get("/rate_limit").token(&made_up)).assert_status(status);
    }
    assert!(authority.count("/introspect") <= 6, "{}", authority.count("/introspect"));
    // With a good one, or none, it still is.
    proxy.advance(HOUR);
    authority.know_token("good", json!({ "active": true, "sub": "7" }));
    for _ in 0..20 {
        proxy.send(get("/rate_limit").token("good")).assert_status(200);
        proxy.get("/rate_limit").assert_status(200);
    }
}

#[test]
fn bad_tokens_that_count_as_none_are_not_looked_at_for_ever_either() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let introspection = format!(
        "introspection: {{ url: \"{}\", client_id: tollgate, client_secret_env: TEST_SECRET }}",
        authority.url("/introspect")
    );
    let policy = Policy::before(&upstream)
        .identity(&[&introspection, "invalid_token: anonymous"])
        .limits(&["core: { per: caller, rate: { anonymous: 5/hour, default: 100/hour } }"])
        .routes(&["{ match: { path: /** }, auth: optional, limits: [core] }"]);
    let proxy = Proxy::start(&policy);
    for number in 0..40 {
        let status = if number < 5 { 200 } else { 429 };
        proxy.send(get("/").token(&format!("made-up-{number}"))).assert_status(status);
    }
    assert!(authority.count("/introspect") <= 6, "{}", authority.count("/introspect"));
    // Tokens that are known to be good go on, and new ones when the hour is over.
    proxy.advance(HOUR);
    authority.know_token("good", json!({ "active": true, "sub": "7" }));
    proxy.send(get("/").token("good")).assert_status(200).assert_field("x-ratelimit-limit", "100");
}

#[test]
fn active_token_that_is_not_for_us_is_asked_about_once() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let introspection = format!(
        "introspection: {{ url: \"{}\", client_id: tollgate, client_secret_env: TEST_SECRET, \
         audience: [api] }}",
        authority.url("/introspect")
    );
    let policy = Policy::before(&upstream)
        .identity(&[&introspection])
        .routes(&["{ match: { path: /** }, auth: required, limits: [] }"]);
    let proxy = Proxy::start(&policy);
    authority.know_token("theirs", json!({ "active": true, "sub": "7", "aud": "sister" }));
    authority.know_token("no-subject", json!({ "active": true, "aud": "api" }));
    for _ in 0..10 {
        proxy.send(get("/").token("theirs")).assert_status(401);
        proxy.send(get("/").token("no-subject")).assert_status(401);
    }
    assert_eq!(authority.count("/introspect"), 2);
}

#[test]
fn without_issuers_all_tokens_are_asked_about_whatever_they_look_like() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    let policy = asking(&authority, &upstream).issuers(&[]);
    let proxy = Proxy::start(&policy);
    let signed = crate::support::token("7");
    authority.know_token(&signed, json!({ "active": true, "sub": "8" }));
    proxy.send(get("/").token(&signed)).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some("8"));
}

#[test]
fn address_pays_first_for_tokens_that_are_asked_about_all_at_once() {
    const TOKENS: usize = 60;
    let authority = Authority::start();
    let upstream = Upstream::start();
    let policy = asking(&authority, &upstream)
        .limits(&["address: { per: client.ip, rate: 5/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [address] }"]);
    let proxy = Proxy::start(&policy);
    let go = Signal::default();
    authority.answer("/introspect", Answer::Held(go.clone()));
    std::thread::scope(|scope| {
        for number in 0..TOKENS {
            let proxy = &proxy;
            let token = format!("made-up-{number}");
            scope.spawn(move || proxy.send(get("/").token(&token)));
        }
        // Tokens that cause no query are refused meanwhile.
        authority.wait_for("/introspect", 16);
        proxy.wait_until_logged_times(" 429 ", TOKENS - 16 - 5);
        go.open();
    });
    let asked = authority.count("/introspect");
    assert!(asked <= 16 + 5, "{asked}");
}
