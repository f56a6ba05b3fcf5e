//! A token that programs share, at a listener for HTTP.

use std::fs;

use serde_json::json;

use super::{Proxy, policy};
use crate::support::{Request, get, post};

const TOKEN: &str = "a-token-for-the-programs";

/// A listener with a token, and these fields.
fn proxy(fields: &str) -> (tempfile::TempDir, Proxy) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let settings = format!(
        "workers: 1\ndecisions: [{{ address: 127.0.0.1:0, protocol: http, token_file: {}, {fields} \
         }}]",
        file.display()
    );
    (folder, Proxy::with_settings(&settings, &[&policy()]))
}

fn charge() -> Request {
    let charges = json!([{ "limit": "peak", "key": "a" }]);
    post("/v1/charge", json!({ "charges": charges }).to_string()).by_program()
}

#[test]
fn program_with_the_token_is_served_and_no_other_is() {
    let (_folder, proxy) = proxy("hosts: []");
    let none = proxy.ask(charge());
    none.assert_status(401).assert_field("www-authenticate", "Bearer realm=\"tollgate\"");
    none.assert_field("content-type", "application/problem+json; charset=utf-8");
    let wrong = proxy.ask(charge().token("another-token-of-mine"));
    wrong.assert_status(401).assert_field("www-authenticate", "Bearer error=\"invalid_token\"");
    proxy.ask(charge().token(TOKEN)).assert_status(200);
    let standing = || get("/v1/standing?limit=peak&key=a").by_program();
    proxy.ask(standing()).assert_status(401);
    let standing = proxy.ask(standing().token(TOKEN));
    assert_eq!(standing.assert_status(200).json()["standings"][0]["used"], 1);
}

#[test]
fn wrong_tokens_of_an_address_are_bounded() {
    let (_folder, proxy) = proxy("hosts: []");
    for _ in 0..3 {
        proxy.ask(charge().token("another-token-of-mine")).assert_status(401);
    }
    // Also the right one: it must not show that the others were wrong.
    proxy.ask(charge().token(TOKEN)).assert_status(429).assert_field("retry-after", "1");
}

#[test]
fn token_says_nothing_about_proxies_that_ask() {
    // The fields that they send are the client's.
    let (_folder, proxy) = proxy("askers: [127.0.0.1/32]");
    let asked = get("/decide/forward")
        .field("x-forwarded-method", "GET")
        .field("x-forwarded-host", "a.example")
        .field("x-forwarded-uri", "/")
        .field("x-forwarded-for", "192.0.2.1");
    proxy.ask(asked).assert_status(200);
}

#[test]
fn askers_bound_who_may_send_the_token() {
    let (_folder, proxy) = proxy("askers: [192.0.2.0/24]");
    proxy.ask(charge().token(TOKEN)).assert_status(403);
}
