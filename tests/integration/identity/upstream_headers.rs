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
