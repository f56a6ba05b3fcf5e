//! Routes that need scopes, and issuers that must say certain things.

use serde_json::json;

use super::{REALM, assert_refused, invalid_token};
use crate::support::{ISSUER, Policy, Proxy, Upstream, get, token_with};

fn scoped(upstream: &Upstream) -> Policy {
    Policy::before(upstream).limits(&["core: { per: caller, rate: 100/hour }"]).routes(&[
        "{ match: { path: /read }, scopes: [read], limits: [core] }",
        "{ match: { path: /write }, auth: required, scopes: [read, write], limits: [core] }",
        "{ match: { path: /** }, limits: [core] }",
    ])
}

#[test]
fn token_without_the_scopes_is_403_and_says_which() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&scoped(&upstream));
    let reader = token_with(&json!({ "sub": "7", "scope": "profile read" }));
    proxy.send(get("/read").token(&reader)).assert_status(200);
    let refused = proxy.send(get("/write").token(&reader));
    let challenge = format!(
        "{REALM}, error=\"insufficient_scope\", error_description=\"The token does not grant the \
         scopes that this needs\", scope=\"read write\""
    );
    refused
        .assert_status(403)
        .assert_field("www-authenticate", &challenge)
        .assert_field("cache-control", "no-store")
        // Asking costs the caller, who is known, as much as any other request.
        .assert_field("x-ratelimit-used", "2");
    assert_eq!(upstream.count(), 1);

    for scopes in [json!("read write"), json!(["write", "read"])] {
        let writer = token_with(&json!({ "sub": "8", "scope": scopes }));
        proxy.send(get("/write").token(&writer)).assert_status(200);
    }
    let without = token_with(&json!({ "sub": "9" }));
    proxy.send(get("/read").token(&without)).assert_status(403);
    proxy.send(get("/elsewhere").token(&without)).assert_status(200);
}

#[test]
fn scopes_need_a_token() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&scoped(&upstream));
    assert_refused(&proxy.get("/read"), 401, REALM);
    proxy.get("/elsewhere").assert_status(200);
}

#[test]
fn issuers_have_rules_of_their_own() {
    let upstream = Upstream::start();
    let issuer = |name: &str, fields: &str| {
        format!(
            "{{ name: {name}, issuer: \"https://{name}.example/\", secret_env: TEST_SECRET, {fields} }}"
        )
    };
    let issuers = [
        issuer("strict", "audience: [api], required_claims: { azp: [web, app], verified: true }"),
        issuer("odd", "claim_names: { sub: oid, plan: realm.plan, scope: scp }"),
        issuer("short", "max_lifetime: 1h, key_hints: ignore, types: [at+jwt]"),
    ];
    let issuers: Vec<&str> = issuers.iter().map(String::as_str).collect();
    let policy = Policy::before(&upstream).issuers(&issuers).routes(&[
        "{ match: { path: /odd }, auth: { required: [odd] }, scopes: [read], limits: [] }",
        "{ match: { path: /** }, auth: required, limits: [] }",
    ]);
    let proxy = Proxy::start(&policy);
    let token = |name: &str, claims: serde_json::Value| {
        let mut claims = claims;
        claims["iss"] = format!("https://{name}.example/").into();
        token_with(&claims)
    };

    let good = json!({ "sub": "7", "azp": "app", "verified": true });
    proxy.send(get("/").token(&token("strict", good))).assert_status(200);
    for bad in [
        json!({ "sub": "7", "azp": "app" }),
        json!({ "sub": "7", "azp": "other", "verified": true }),
        json!({ "sub": "7", "azp": "app", "verified": "true" }),
    ] {
        let refused = proxy.send(get("/").token(&token("strict", bad)));
        assert_refused(&refused, 401, &invalid_token("A required token claim is missing"));
    }

    let odd = json!({ "sub": "ignored", "oid": "42", "realm": { "plan": "pro" }, "scp": "read" });
    proxy.send(get("/odd").token(&token("odd", odd))).assert_status(200);
    let seen = upstream.last();
    assert_eq!(seen.fields.one("x-tollgate-subject"), Some("42"));
    assert_eq!(seen.fields.one("x-tollgate-tier"), Some("pro"));
    // Another issuer's token, and one without a subject.
    let other = json!({ "sub": "7", "azp": "app", "verified": true });
    proxy.send(get("/odd").token(&token("strict", other))).assert_status(401);
    proxy.send(get("/").token(&token("odd", json!({ "sub": "7" })))).assert_status(401);
    proxy
        .send(get("/").token(&token_with(&json!({ "sub": "7", "iss": ISSUER }))))
        .assert_status(401);
    // A type that is expected is needed.
    let untyped = token("short", json!({ "sub": "7", "iat": 3_999_999_000_u64 }));
    let refused = proxy.send(get("/").token(&untyped));
    assert_refused(&refused, 401, &invalid_token("The token type is not accepted"));
}

#[test]
fn claim_that_a_route_requires_is_403_and_named_in_the_log() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: /app }, auth: { required_claims: { azp: [web, app] } }, limits: [] }",
    ]);
    let proxy = Proxy::start(&policy);
    let with = |azp: &str| get("/app").token(&token_with(&json!({ "sub": "42", "azp": azp })));
    proxy.send(with("web")).assert_status(200);
    let refused = proxy.send(with("other"));
    refused.assert_status(403);
    let challenge = refused.field("www-authenticate").unwrap();
    assert!(challenge.contains("The token lacks a claim that this needs"), "{challenge}");
    assert_eq!(upstream.count(), 1);
    proxy.wait_until_logged("the token lacks a claim that the route requires: \\\"azp\\\" is not \\\"web\\\", \\\"app\\\"");
}
