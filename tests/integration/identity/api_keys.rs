//! API keys as one more kind of caller.

use std::fs;

use tempfile::TempDir;
use tollgate_identity::{MintedKey, NewKey};

use super::{INVALID_REQUEST, REALM, assert_refused, invalid_token};
use crate::support::{HOUR, Policy, Proxy, Upstream, get};

fn mint(id: &str, change: impl FnOnce(&mut NewKey)) -> MintedKey {
    let mut key = NewKey { id: id.into(), ..NewKey::default() };
    change(&mut key);
    key.mint().unwrap()
}

/// A folder with a file of these keys, and a policy that knows them.
fn knowing(upstream: &Upstream, lines: &[&str]) -> (TempDir, Policy) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("keys.yaml");
    fs::write(&file, format!("keys:\n{}\n", lines.join("\n"))).unwrap();
    let policy = Policy::before(upstream)
        .identity(&[&format!("api_keys: {{ file: \"{}\" }}", file.display())])
        .callers(&[
            "{ name: user, key: jwt.sub, tier: jwt.plan }",
            "{ name: machine, key: api_key.owner, tier: api_key.tier }",
        ])
        .limits(&["core: { per: caller, rate: { pro: 100/hour, default: 10/hour } }"])
        .routes(&[
            "{ match: { path: /read }, auth: required, scopes: [read], limits: [core] }",
            "{ match: { path: /people }, auth: { required: [main] }, limits: [core] }",
            "{ match: { path: /machines }, auth: { required: [api_keys] }, limits: [core] }",
            "{ match: { path: /** }, auth: required, limits: [core] }",
        ]);
    (folder, policy)
}

#[test]
fn key_names_a_caller_with_a_tier_and_scopes() {
    let upstream = Upstream::start();
    let reader = mint("reader", |key| {
        (key.owner, key.tier) = (Some("acme".into()), Some("pro".into()));
        key.scopes = vec!["read".into()];
    });
    let other = mint("other", |key| key.owner = Some("acme".into()));
    let (_folder, policy) = knowing(&upstream, &[&reader.line, &other.line]);
    let proxy = Proxy::start(&policy);

    let by = |target: &str, key: &str| proxy.send(get(target).field("x-api-key", key));
    by("/", &reader.key).assert_status(200).assert_field("x-ratelimit-limit", "100");
    let seen = upstream.last();
    assert_eq!(seen.fields.one("x-tollgate-subject"), Some("acme"));
    assert_eq!(seen.fields.one("x-tollgate-tier"), Some("pro"));
    assert_eq!(seen.fields.one("x-api-key"), None);
    // Two keys of one owner are one caller.
    by("/", &other.key)
        .assert_field("x-ratelimit-used", "2")
        .assert_field("x-ratelimit-limit", "10");
    by("/read", &reader.key).assert_status(200);
    by("/read", &other.key).assert_status(403);
    by("/machines", &other.key).assert_status(200);
    by("/people", &other.key).assert_status(401);
    // A user who is called the same is somebody else.
    proxy.get_as("acme").assert_field("x-ratelimit-used", "1");
    proxy.send(get("/machines").by("acme")).assert_status(401);
}

#[test]
fn key_that_is_not_good_is_refused_and_says_little() {
    let upstream = Upstream::start();
    let good = mint("good", |key| key.owner = Some("acme".into()));
    let ended = mint("ended", |key| key.expires = Some("2026-12-31".into()));
    let revoked = mint("revoked", |_| ());
    let line = revoked.line.replace("digest:", "revoked: true, digest:");
    let (_folder, policy) = knowing(&upstream, &[&good.line, &ended.line, &line]);
    let proxy = Proxy::start(&policy);
    let not_valid = invalid_token("The API key is not valid");
    for (key, challenge) in [
        ("good.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &not_valid),
        ("unknown.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &not_valid),
        (&good.key.replace("good.", "ended."), &not_valid),
        ("nonsense", &not_valid),
        (&revoked.key, &invalid_token("The API key is revoked")),
    ] {
        let refused = proxy.send(get("/").field("x-api-key", key));
        assert_refused(&refused, 401, challenge);
    }
    proxy.advance(HOUR * 24 * 365);
    let refused = proxy.send(get("/").field("x-api-key", &ended.key));
    assert_refused(&refused, 401, &invalid_token("The token has expired"));
    proxy.send(get("/").field("x-api-key", &good.key)).assert_status(200);

    // A key is no token, nor the other way round, and both at once are one too many.
    proxy.send(get("/").token(&good.key)).assert_status(401);
    let both = get("/").by("7").field("x-api-key", &good.key);
    assert_refused(&proxy.send(both), 400, INVALID_REQUEST);
    let twice = get("/").field("x-api-key", &good.key).field("x-api-key", &good.key);
    assert_refused(&proxy.send(twice), 400, INVALID_REQUEST);
    assert_refused(&proxy.get("/"), 401, REALM);
    assert_eq!(upstream.count(), 1);
}
