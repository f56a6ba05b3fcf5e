//! Claims in objects, claims that are called like URLs, and tiers by what a list of roles has.

use serde_json::{Value, json};

use crate::support::{ISSUER, Policy, Proxy, Request, Upstream, get, token_with};

fn with(claims: &Value) -> Request {
    get("/").token(&token_with(claims))
}

#[test]
fn nested_claims_and_urls_work_wherever_a_claim_is_named() {
    let upstream = Upstream::start();
    let issuer = format!(
        "{{ name: main, issuer: \"{ISSUER}\", algorithms: [HS256], secret_env: TEST_SECRET, \
         required_claims: {{ https://acme.test/app.kind: web, realm.enabled: true }}, \
         claim_names: {{ team: https://acme.test/app.team }} }}"
    );
    let policy = Policy::before(&upstream)
        .issuers(&[&issuer])
        .callers(&["{ name: user, key: jwt.https://acme.test/id, tier: jwt.realm.plan }"])
        .identity(&[
            "forward_claims: { headers: { x-org: jwt.https://acme.test/org, x-team: jwt.team } }",
        ])
        .limits(&[
            "core: { per: caller, rate: { pro: 9/hour, default: 3/hour } }",
            "org: { per: jwt.https://acme.test/org, rate: 5/hour }",
            "app: { per: jwt.https://acme.test/app.team, rate: 6/hour }",
        ])
        .routes(&[
            "{ match: { path: /org }, auth: required, limits: [org] }",
            "{ match: { path: /app }, auth: required, limits: [app] }",
            "{ match: { path: /** }, auth: required, limits: [core] }",
        ])
        .section(
            "overrides:\n  \
             - { jwt.https://acme.test/org: bigcorp, limit: org, rate: 50/hour, why: a contract }\n  \
             - { jwt.https://acme.test/app.team: red, limit: app, rate: 60/hour, why: a trial }",
        );
    let proxy = Proxy::start(&policy);
    let claims = json!({
        "https://acme.test/id": "alice",
        "https://acme.test/org": "bigcorp",
        "https://acme.test/app": { "kind": "web", "team": "red" },
        "realm": { "enabled": true, "plan": "pro" },
    });
    for (path, limit) in [("/", "9"), ("/org", "50"), ("/app", "60")] {
        let request = get(path).token(&token_with(&claims));
        proxy.send(request).assert_status(200).assert_field("x-ratelimit-limit", limit);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("x-tollgate-subject"), Some("alice"), "{path}");
        assert_eq!(seen.one("x-tollgate-tier"), Some("pro"), "{path}");
        assert_eq!(seen.one("x-org"), Some("bigcorp"), "{path}");
        assert_eq!(seen.one("x-team"), Some("red"), "{path}");
    }
    let mut other = claims.clone();
    other["https://acme.test/app"]["kind"] = "cli".into();
    proxy.send(with(&other)).assert_status(401);
}

#[test]
fn table_gives_the_tier_of_the_first_role_that_a_token_has() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .callers(&[
            "{ name: user, key: jwt.sub, tier: { from: jwt.realm_access.roles, map: { admin: internal, staff: pro } } }",
        ])
        .routes(&["{ match: { path: /** }, auth: required }"]);
    let proxy = Proxy::start(&policy);
    for (roles, tier) in [
        (json!(["staff", "admin"]), "internal"),
        (json!(["other", "staff"]), "pro"),
        (json!("staff"), "pro"),
        (json!(["other"]), "free"),
        (json!(["internal"]), "free"),
        (json!([]), "free"),
    ] {
        proxy.send(with(&json!({ "sub": "a", "realm_access": { "roles": roles } })));
        assert_eq!(upstream.last().fields.one("x-tollgate-tier"), Some(tier), "{roles}");
    }
    proxy.send(with(&json!({ "sub": "a" }))).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-tollgate-tier"), Some("free"));
}
