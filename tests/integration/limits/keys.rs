//! What a limit is counted per.

use serde_json::json;

use crate::support::{Policy, Proxy, Request, Upstream, get, post, token_with};

/// One limit of one unit by these keys: whoever is denied shares a counter with one before.
fn one_per(upstream: &Upstream, keys: &str) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&[&format!("one: {{ per: {keys}, rate: 1/hour }}")])
        .routes(&["{ match: { path: /** }, limits: [one] }"]);
    Proxy::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &[&policy])
}

#[test]
fn limit_counts_per_what_it_says() {
    let claim = |claims: serde_json::Value| get("/").token(&token_with(&claims));
    let table: Vec<(&str, Vec<(Request, u16)>)> = vec![
        (
            "path",
            vec![
                (get("/a"), 200),
                (get("/a").by("alice"), 429),
                (get("/x/../a?q"), 429),
                (get("/a/"), 429),
                (get("/A"), 200),
                (get("/b"), 200),
            ],
        ),
        ("method", vec![(get("/a"), 200), (get("/b"), 429), (post("/a", ""), 200)]),
        (
            "[client.ip, path]",
            vec![
                (get("/a").from("203.0.113.1"), 200),
                (get("/a").from("203.0.113.1").by("alice"), 429),
                (get("/a").from("203.0.113.2"), 200),
                (get("/b").from("203.0.113.1"), 200),
            ],
        ),
        (
            "[caller, method]",
            vec![
                (get("/a").by("alice"), 200),
                (get("/b").by("alice"), 429),
                (post("/a", "").by("alice"), 200),
                (get("/a").by("bob"), 200),
            ],
        ),
        (
            "jwt.org",
            vec![
                (claim(json!({ "sub": "alice", "org": "octo" })), 200),
                (claim(json!({ "sub": "bob", "org": "octo" })), 429),
                (claim(json!({ "sub": "bob", "org": "cats" })), 200),
                (claim(json!({ "sub": "bob", "org": 1 })), 200),
                (claim(json!({ "sub": "bob", "org": "1" })), 200),
                (claim(json!({ "sub": "bob", "org": 1 })), 429),
            ],
        ),
        (
            "header.x-key",
            vec![
                (get("/").field("x-key", "a"), 200),
                (get("/").field("X-Key", "a"), 429),
                (get("/").field("x-key", "A"), 200),
                (get("/").field("x-key", "a").field("x-key", "b"), 200),
                (get("/").field("x-key", "b"), 200),
            ],
        ),
    ];
    let upstream = Upstream::start();
    for (keys, requests) in table {
        let proxy = one_per(&upstream, keys);
        for (number, (request, status)) in requests.into_iter().enumerate() {
            let answered = proxy.send(request);
            assert_eq!(answered.status, status, "request {number} per {keys}:\n{answered:?}");
        }
    }
}

#[test]
fn leaving_a_key_out_is_no_way_around_its_limit() {
    let upstream = Upstream::start();
    for keys in ["jwt.org", "header.x-key", "[client.ip, header.x-key]", "[client.ip, jwt.org]"] {
        let proxy = one_per(&upstream, keys);
        assert_eq!(proxy.get("/").status, 200, "per {keys}");
        assert_eq!(proxy.get("/").status, 429, "per {keys}");
        assert_eq!(proxy.get_as("alice").status, 429, "per {keys}");
    }
}
