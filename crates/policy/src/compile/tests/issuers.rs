//! Whose tokens a policy takes.

use tollgate_identity::IssuerClaim;

use super::*;

/// A policy with these issuers, and what else `identity` has.
fn with_issuers(issuers: &str, more: &str) -> Result<Policy, Vec<Problem>> {
    try_load(&format!(
        "version: 1\n\
         upstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
         identity:\n  jwt: [{issuers}]\n  callers: [{{ name: user, key: jwt.user_id }}]\n{more}\
         routes: [{{ match: {{ path: \"/**\" }}, auth: required }}]\n"
    ))
}

fn refused(issuers: &str, more: &str) -> String {
    with_issuers(issuers, more).map(|_| ()).unwrap_err().remove(0).to_string()
}

const KEY: &str = "algorithms: [HS256], secret_env: SECRET";

#[test]
fn issuer_may_have_tokens_without_iss() {
    let policy = with_issuers(&format!("{{ name: django, issuer: none, {KEY} }}"), "").unwrap();
    let issuer = &policy.identity.issuers[0];
    assert_eq!((issuer.claim.clone(), &*issuer.issuer), (IssuerClaim::Absent, "none:django"));
    let discover = "{ name: django, issuer: none, discover: true }";
    assert!(refused(discover, "").contains("nothing to discover"));
}

#[test]
fn issuers_without_iss_that_a_token_cannot_tell_apart_are_refused() {
    let issuers = |one: &str, other: &str| {
        format!(
            "{{ name: a, issuer: none, {KEY}, {one} }}, {{ name: b, issuer: none, {KEY}, {other} }}"
        )
    };
    let places = "  token: { cookie: session }\n";
    for (one, other) in [("", ""), ("from: [authorization, cookie]", "from: [cookie]")] {
        let message = refused(&issuers(one, other), places);
        assert!(message.contains("a token without `iss` may be one of `a` too"), "{message}");
    }
    let apart = issuers("from: [authorization]", "from: [cookie]");
    assert!(with_issuers(&apart, places).is_ok());
    let message = refused(&apart, "");
    assert!(message.contains("no token is read from a cookie"), "{message}");
    let nameless = format!(
        "{{ issuer: none, {KEY}, from: [cookie] }}, {{ issuer: none, {KEY}, from: [query] }}"
    );
    let message = refused(&nameless, "  token: { cookie: session, query: t }\n");
    assert!(message.contains("need names"), "{message}");
}
