//! Who is calling. Upstreams see it in `x-tollgate-subject` and `x-tollgate-tier`, clients by
//! `www-authenticate`; and the used count of a limit shows who was charged.

mod address;
mod api_keys;
mod claims;
mod failures;
mod floods;
mod forged;
mod hostile;
mod places;
mod schemes;
mod scopes;
mod upstream_headers;

use serde_json::json;

use crate::support::{
    ISSUER, MINUTE, Policy, Proxy, Response, SECOND, START, Upstream, get, post, token,
    token_signed_by, token_with, unsigned_token,
};

const REALM: &str = "Bearer realm=\"tollgate\"";
const INVALID_REQUEST: &str = "Bearer realm=\"tollgate\", error=\"invalid_request\"";

fn invalid_token(description: &str) -> String {
    format!("{REALM}, error=\"invalid_token\", error_description=\"{description}\"")
}

/// Routes that differ in `auth` alone.
fn guarded(upstream: &Upstream) -> Policy {
    Policy::before(upstream).limits(&["core: { per: caller, rate: 100/hour }"]).routes(&[
        "{ match: { path: /required }, auth: required, limits: [core] }",
        "{ match: { path: /optional }, auth: optional, limits: [core] }",
        "{ match: { path: /none }, auth: none, limits: [core] }",
    ])
}

fn assert_refused(response: &Response, status: u16, challenge: &str) {
    response
        .assert_status(status)
        .assert_field("www-authenticate", challenge)
        .assert_field("content-type", "application/json; charset=utf-8")
        .assert_field("cache-control", "no-store")
        .assert_no_limit();
}

fn seconds_from_start(seconds: u64) -> u64 {
    START.as_micros() / 1_000_000 + seconds
}

#[test]
fn required_token_must_be_there_and_be_good() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let missing = proxy.get("/required");
    assert_refused(&missing, 401, REALM);
    assert_eq!(missing.json()["message"], "Requires authentication");
    let bad = proxy.send(get("/required").token("x.y.z"));
    assert_eq!(bad.json()["message"], "Bad credentials");
    assert_eq!(upstream.count(), 0);

    proxy.send(get("/required").by("alice")).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some("alice"));
}

#[test]
fn optional_token_may_be_missing_but_not_bad() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    proxy.get("/optional").assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-tollgate-subject"), None);
    assert_eq!(seen.one("x-tollgate-tier"), Some("anonymous"));

    let token = token_with(&json!({ "sub": "alice", "plan": "pro" }));
    proxy.send(get("/optional").token(&token)).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-tollgate-subject"), Some("alice"));
    assert_eq!(seen.one("x-tollgate-tier"), Some("pro"));

    proxy.send(get("/optional").token("x.y.z")).assert_status(401);
}

#[test]
fn route_without_auth_looks_at_no_token_and_passes_it_on() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for authorization in ["Bearer x.y.z", "Bearer ", "Basic YTpi"] {
        proxy.send(get("/none").field("authorization", authorization)).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("authorization"), Some(authorization.trim_end()));
        assert_eq!(seen.one("x-tollgate-subject"), None);
    }
}

#[test]
fn each_fault_of_a_token_has_its_fixed_text() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let with = |member: &str, value: serde_json::Value| {
        let mut claims = json!({ "sub": "alice" });
        claims[member] = value;
        token_with(&claims)
    };
    let good = token("alice");
    let (message, signature) = good.rsplit_once('.').unwrap();
    for (token, description) in [
        ("x".into(), "The token is malformed"),
        (message.into(), "The token is malformed"),
        (format!("{message}."), "The token is malformed"),
        (format!("{good}="), "The token is malformed"),
        (format!("{good}.{signature}"), "The token is malformed"),
        (format!("W10.e30.{signature}"), "The token header is malformed"),
        ("a".repeat(8193), "The token is too long"),
        (unsigned_token("alice") + signature, "The token algorithm is not allowed"),
        (
            token_signed_by(&"x".repeat(32), &json!({ "sub": "alice" })),
            "The token signature could not be verified",
        ),
        (with("iss", json!("https://other.example.com/")), "The token issuer is not accepted"),
        (with("aud", json!("other")), "The token is for another audience"),
        (with("aud", json!(["other", "else"])), "The token is for another audience"),
        (with("exp", json!(seconds_from_start(0))), "The token has expired"),
        (with("exp", json!("9999999999")), "A token claim is malformed"),
        (with("exp", json!(-1)), "A token claim is malformed"),
        (with("exp", json!(null)), "A token claim is malformed"),
        (with("nbf", json!(seconds_from_start(60))), "The token is not valid yet"),
        (with("nbf", json!("0")), "A token claim is malformed"),
        (with("iat", json!(seconds_from_start(60))), "The token is not valid yet"),
    ] {
        let refused = proxy.send(get("/required").token(&token));
        assert_refused(&refused, 401, &invalid_token(description));
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn subject_that_cannot_be_a_caller_is_refused() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let long = "x".repeat(257);
    for sub in [json!(""), json!(long), json!("a\nb"), json!(null), json!(["alice"]), json!(true)] {
        let response = proxy.send(get("/required").token(&token_with(&json!({ "sub": sub }))));
        response.assert_status(401);
        let challenge = response.field("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn token_without_a_caller_is_refused() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let response = proxy.send(get("/required").token(&token_with(&json!({}))));
    assert_refused(&response, 401, &invalid_token("the token does not name a caller"));
}

#[test]
fn challenge_names_the_realm_of_the_policy() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream).responses(&["realm: octo api"]));
    assert_refused(&proxy.get("/required"), 401, "Bearer realm=\"octo api\"");
}

#[test]
fn two_credentials_are_a_malformed_request() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).identity(&["token: { header: x-token, cookie: session }"]);
    let proxy = Proxy::start(&policy);
    let token = token("alice");
    let bearer = format!("Bearer {token}");
    let cookie = format!("session={token}");
    for path in ["/required", "/optional"] {
        for fields in [
            &[("authorization", &bearer), ("authorization", &bearer)][..],
            &[("authorization", &bearer), ("x-token", &token)],
            &[("authorization", &bearer), ("cookie", &cookie)],
            &[("x-token", &token), ("cookie", &cookie)],
            &[("x-token", &token), ("x-token", &token)],
            &[("cookie", &format!("{cookie}; {cookie}"))],
            &[("authorization", &"Bearer".to_owned())],
            &[("cookie", &"session=".to_owned())],
        ] {
            let request = fields.iter().fold(get(path), |r, (name, value)| r.field(name, value));
            assert_refused(&proxy.send(request), 400, INVALID_REQUEST);
        }
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn token_may_come_in_a_header_or_a_cookie_that_the_policy_names() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).identity(&["token: { header: x-token, cookie: session }"]);
    let proxy = Proxy::start(&policy);
    let token = token("alice");
    proxy.send(get("/required").field("x-token", &token)).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-token"), None);

    let cookie = format!("a=b; session={token}; c=d");
    proxy.send(get("/required").field("cookie", &cookie)).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("cookie"), Some("a=b; c=d"));
    assert_eq!(seen.one("x-tollgate-subject"), Some("alice"));

    proxy.send(get("/required").field("other", &token)).assert_status(401);
}

#[test]
fn token_is_stripped_unless_the_policy_forwards_it() {
    let upstream = Upstream::start();
    let stripping = Proxy::start(&guarded(&upstream));
    stripping.send(get("/required").by("alice")).assert_status(200);
    assert_eq!(upstream.last().fields.one("authorization"), None);

    let forwarding = Proxy::start(&guarded(&upstream).identity(&["token: { forward: true }"]));
    forwarding.send(get("/required").by("alice")).assert_status(200);
    let bearer = format!("Bearer {}", token("alice"));
    assert_eq!(upstream.last().fields.one("authorization"), Some(bearer.as_str()));
}

#[test]
fn another_scheme_is_no_token_and_none_of_ours() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let basic = |path| get(path).field("authorization", "Basic YTpi");
    assert_refused(&proxy.send(basic("/required")), 401, REALM);
    proxy.send(basic("/optional")).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("authorization"), None);
    assert_eq!(seen.one("x-tollgate-tier"), Some("anonymous"));
    // Where the policy says so, it is the upstream's.
    let proxy = Proxy::start(&guarded(&upstream).identity(&["token: { other_schemes: forward }"]));
    assert_refused(&proxy.send(basic("/required")), 401, REALM);
    proxy.send(basic("/optional")).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("authorization"), Some("Basic YTpi"));
    assert_eq!(seen.one("x-tollgate-tier"), Some("anonymous"));
}

#[test]
fn scheme_is_read_in_any_case() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for scheme in ["bearer", "BEARER", "Bearer  "] {
        let authorization = format!("{scheme} {}", token("alice"));
        let request = get("/required").field("authorization", &authorization);
        proxy.send(request).assert_status(200);
    }
}

#[test]
fn token_in_the_query_is_no_credential() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let target = format!("/required?access_token={}", token("alice"));
    assert_refused(&proxy.get(&target), 401, REALM);
}

#[test]
fn route_takes_only_the_issuers_that_it_names() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).and_issuer("partner", "https://partner.example.com/").routes(&[
            "{ match: { path: /main }, auth: { required: [main] } }",
            "{ match: { path: /partner }, auth: { optional: [partner] } }",
            "{ match: { path: /both }, auth: required }",
        ]);
    let proxy = Proxy::start(&policy);
    let of = |iss: &str| token_with(&json!({ "sub": "alice", "iss": iss }));
    let not_here = invalid_token("the issuer is not accepted here");
    for (path, iss, is_accepted) in [
        ("/main", ISSUER, true),
        ("/main", "https://partner.example.com/", false),
        ("/partner", ISSUER, false),
        ("/partner", "https://partner.example.com/", true),
        ("/both", ISSUER, true),
        ("/both", "https://partner.example.com/", true),
    ] {
        let response = proxy.send(get(path).token(&of(iss)));
        match is_accepted {
            true => drop(response.assert_status(200)),
            false => assert_refused(&response, 401, &not_here),
        }
    }
}

#[test]
fn same_subject_of_two_issuers_is_two_callers() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).and_issuer("partner", "https://partner.example.com/");
    let proxy = Proxy::start(&policy);
    for iss in [ISSUER, "https://partner.example.com/"] {
        let token = token_with(&json!({ "sub": "alice", "iss": iss }));
        let response = proxy.send(get("/required").token(&token));
        response.assert_status(200).assert_field("x-ratelimit-used", "1");
    }
}

#[test]
fn user_named_like_an_address_is_not_that_address() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    proxy.get("/optional").assert_field("x-ratelimit-used", "1");
    proxy.send(get("/optional").by("127.0.0.1")).assert_field("x-ratelimit-used", "1");
}

#[test]
fn all_tokens_of_a_user_are_one_caller() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for (jti, used) in [("a", "1"), ("b", "2"), ("a", "3")] {
        let token = token_with(&json!({ "sub": "alice", "jti": jti }));
        proxy.send(get("/required").token(&token)).assert_field("x-ratelimit-used", used);
    }
}

#[test]
fn caller_may_be_named_by_another_claim() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream).callers(&[
        "{ name: app, key: jwt.client.id }",
        "{ name: user, key: jwt.sub }",
        "{ name: anonymous, key: client.ip }",
    ]);
    let proxy = Proxy::start(&policy);
    for (claims, subject, used) in [
        (json!({ "sub": "alice", "client": { "id": 7 } }), "7", "1"),
        (json!({ "sub": "bob", "client": { "id": "7" } }), "7", "2"),
        (json!({ "sub": "7" }), "7", "1"),
    ] {
        let response = proxy.send(get("/required").token(&token_with(&claims)));
        response.assert_status(200).assert_field("x-ratelimit-used", used);
        assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some(subject));
    }
}

#[test]
fn unknown_tier_is_the_default_one() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for plan in [json!("platinum"), json!(""), json!(7), json!(["pro", "free"])] {
        let token = token_with(&json!({ "sub": "alice", "plan": plan }));
        proxy.send(get("/required").token(&token)).assert_status(200);
        assert_eq!(upstream.last().fields.one("x-tollgate-tier"), Some("free"), "{plan}");
    }
}

#[test]
fn token_that_was_good_expires_on_time() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let token = token_with(&json!({ "sub": "alice", "exp": seconds_from_start(60) }));
    let ask = || proxy.send(get("/required").token(&token));
    ask().assert_status(200);
    proxy.advance(MINUTE - SECOND);
    ask().assert_status(200);
    proxy.advance(SECOND);
    assert_refused(&ask(), 401, &invalid_token("The token has expired"));
}

#[test]
fn token_becomes_good_when_its_time_comes() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    let token = token_with(&json!({ "sub": "alice", "nbf": seconds_from_start(60) }));
    let ask = || proxy.send(get("/required").token(&token));
    assert_refused(&ask(), 401, &invalid_token("The token is not valid yet"));
    proxy.advance(MINUTE);
    ask().assert_status(200);
}

#[test]
fn bad_token_is_taken_for_none_only_if_the_policy_says_so() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream).identity(&["invalid_token: anonymous"]));
    proxy.send(get("/optional").token("x.y.z")).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-tollgate-tier"), Some("anonymous"));
    assert_eq!(seen.one("x-tollgate-subject"), None);
    assert_eq!(seen.one("authorization"), None);
    proxy.send(get("/required").token("x.y.z")).assert_status(401);
}

#[test]
fn client_cannot_name_itself_to_the_upstream() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for request in [get("/optional"), get("/none"), post("/optional", "x").by("alice")] {
        let forged = request
            .field("x-tollgate-subject", "root")
            .field("X-Tollgate-Tier", "internal")
            .field("x-tollgate-else", "x")
            .field("x_tollgate_subject", "root");
        proxy.send(forged).assert_status(200);
        let seen = upstream.last();
        let is_user = seen.method == "POST";
        assert_eq!(seen.fields.one("x-tollgate-subject"), is_user.then_some("alice"));
        let tier = if is_user { "free" } else { "anonymous" };
        assert_eq!(seen.fields.one("x-tollgate-tier"), Some(tier));
        assert!(!seen.fields.names().contains(&"x-tollgate-else".to_owned()));
        assert!(!seen.fields.names().contains(&"x_tollgate_subject".to_owned()));
    }
}
