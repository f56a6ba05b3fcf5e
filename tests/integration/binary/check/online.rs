//! `tollgate check --online`: what can be reached, and what cannot.

use std::{fs, net::TcpListener};

use super::super::{Folder, POLICY, assert_exit, text};
use crate::support::{Authority, IssuerKey, Redis, Upstream};

/// A folder whose policy and settings name servers of all kinds.
fn folder(upstream: &str, jwks: &str, redis: &str) -> Folder {
    let settings = format!("store: {{ redis: {{ url: \"{redis}\" }} }}");
    let folder = Folder::with_settings(&Upstream::start(), &settings);
    let keys = format!("jwks_url: {jwks}");
    let policy = POLICY
        .replace("UPSTREAM", upstream)
        .replace("secret_file: ../secret", &keys)
        .replace("HS256", "EdDSA");
    fs::write(folder.path().join("policies/api.yaml"), policy).unwrap();
    folder
}

#[test]
fn everything_that_is_configured_is_reached_and_nothing_is_written() {
    let (upstream, authority, redis) = (Upstream::start(), Authority::start(), Redis::start());
    authority.publish(&[&IssuerKey::new("one"), &IssuerKey::new("two")]);
    let folder = folder(&upstream.url(), &authority.url("/jwks"), &redis.url());
    let output = folder.run(&["check", "--online"]);
    assert_exit(&output, 0);
    let said = text(&output.stdout);
    for expected in [
        format!("keys at {}: ok, 2 keys (", authority.url("/jwks")),
        format!("upstream api/api, {}: ok, it is reached at 127.0.0.1:", address(&upstream)),
        format!("Redis 127.0.0.1:{}: ok, it is primary (", redis.port()),
    ] {
        assert!(said.contains(&expected), "{expected}\n{said}");
    }
    assert_eq!(upstream.count(), 0, "no request is sent");

    let json = folder.run(&["check", "--online", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let online = report["online"].as_array().unwrap();
    assert_eq!(online.len(), 3);
    assert!(online.iter().all(|own| own["is_good"] == true), "{online:?}");
    assert_eq!(redis.ask::<i64>(&["DBSIZE"]), 0);
}

#[test]
fn what_cannot_be_reached_is_named_with_the_reason() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (http, redis) = (format!("http://{closed}"), format!("redis://{closed}"));
    let folder = folder(&http, &format!("{http}/jwks"), &redis);
    let output = folder.run(&["check", "--online"]);
    assert_exit(&output, 1);
    let said = text(&output.stdout);
    for expected in [
        format!("keys at {http}/jwks: failed, cannot connect: "),
        format!("upstream api/api, {closed}: failed, {closed}: cannot connect: "),
        format!("Redis {closed}: failed, "),
    ] {
        assert!(said.contains(&expected), "{expected}\n{said}");
    }
    assert_eq!(said.matches("refused").count(), 3, "{said}");
    let error = text(&output.stderr);
    assert!(error.contains("3 of 3 attempts to reach what is configured failed"), "{error}");
    let refused = folder.run(&["check", "--online", "--format", "sarif"]);
    assert_exit(&refused, 64);
}

fn address(upstream: &Upstream) -> String {
    upstream.url().trim_start_matches("http://").to_owned()
}
