//! The headers that describe a good token to upstreams, and that clients cannot forge.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::support::{Policy, Proxy, Upstream, get, token_with};

fn telling(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .identity(&[
            "forward_claims: { headers: { x-user-email: jwt.email, x-user-realm: jwt.realm.id }, \
                     payload: x-jwt-payload }",
        ])
        .routes(&[
            "{ match: { path: /open }, auth: none, limits: [] }",
            "{ match: { path: /** }, limits: [] }",
        ])
}

#[test]
fn claims_are_sent_in_headers_of_their_own() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&telling(&upstream));
    let claims = json!({ "sub": "7", "email": "a@example.com", "realm": { "id": 5 } });
    // Once verified, and once known.
    for _ in 0..2 {
        proxy.send(get("/").token(&token_with(&claims))).assert_status(200);
        let seen = upstream.last();
        assert_eq!(seen.fields.one("x-user-email"), Some("a@example.com"));
        assert_eq!(seen.fields.one("x-user-realm"), Some("5"));
        let payload = seen.fields.one("x-jwt-payload").unwrap().to_owned();
        let payload: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
        assert_eq!((&payload["sub"], &payload["aud"]), (&json!("7"), &json!("api")));
        assert_eq!(seen.fields.one("authorization"), None);
    }
}

#[test]
fn callers_of_two_issuers_and_kinds_have_names_of_their_own() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).and_issuer("partner", "https://partner.example.com/");
    let callers = [
        "{ name: user, key: jwt.sub }",
        "{ name: app, key: jwt.client_id }",
        "{ name: anonymous, key: client.ip }",
    ];
    let proxy = Proxy::start(&policy.callers(&callers));
    let of_partner = json!({ "iss": "https://partner.example.com/", "sub": "42" });
    for (request, subject, caller) in [
        (get("/").by("42"), Some("42"), "main/user:42"),
        (get("/").token(&token_with(&of_partner)), Some("42"), "partner/user:42"),
        (get("/").token(&token_with(&json!({ "client_id": "42" }))), Some("42"), "main/app:42"),
        (get("/"), None, "anonymous:127.0.0.1"),
    ] {
        let forged = request.field("x-tollgate-caller", "main/user:1");
        proxy.send(forged.field("x_tollgate_caller", "main/user:1")).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("x-tollgate-caller"), Some(caller));
        assert_eq!(seen.one("x_tollgate_caller"), None);
        assert_eq!(seen.one("x-tollgate-subject"), subject, "{caller}");
    }
}

#[test]
fn only_issuer_is_no_part_of_its_callers_names() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for name in ["42", "größe", "a/b:c"] {
        proxy.send(get("/").by(name)).assert_status(200);
        let caller = format!("user:{name}");
        assert_eq!(upstream.last().fields.one("x-tollgate-caller"), Some(&*caller));
    }
}

#[test]
fn what_a_client_writes_there_never_arrives() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&telling(&upstream));
    let spoofed = |target: &str| {
        ["x-user-email", "X-User-Email", "x-jwt-payload", "x_user_email", "x-user-realm"]
            .iter()
            .fold(get(target), |request, name| request.field(name, "mine"))
    };
    for request in [
        spoofed("/"),
        spoofed("/open"),
        spoofed("/").by("7"),
        spoofed("/open").by("7"),
        spoofed("/").by("7").field("connection", "x-user-email"),
    ] {
        proxy.send(request).assert_status(200);
        let seen = upstream.last();
        for name in ["x-user-email", "x-user-realm", "x_user_email"] {
            assert_eq!(seen.fields.one(name), None, "{name}");
        }
        assert_ne!(seen.fields.one("x-jwt-payload"), Some("mine"));
    }
}

#[test]
fn claim_that_could_be_taken_for_something_else_is_left_out() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&telling(&upstream));
    for email in [json!("a\r\nx-admin: 1"), json!("a\u{0}"), json!(["a"]), json!(null), json!({})] {
        proxy
            .send(get("/").token(&token_with(&json!({ "sub": "7", "email": email }))))
            .assert_status(200);
        let seen = upstream.last();
        assert_eq!(seen.fields.one("x-user-email"), None, "{email}");
        assert_eq!(seen.fields.one("x-admin"), None, "{email}");
    }
}
