//! What a limit is counted per.

use serde_json::json;

use crate::support::{
    ISSUER, Policy, Proxy, Request, Upstream, get, http2, post, token_signed_by, token_with,
};

/// One limit of one unit by these keys: a denied request shares a counter with an earlier one.
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
                (get("/@!$&'()*+,;=:{|}^"), 200),
                (get("/%40%21%24%26%27%28%29%2a%2B%2c%3b%3D%3a%7b%7C%7D%5e"), 429),
                (get("/@%21%24&'()*+,;=:{|}^"), 429),
                (get("/a%20b"), 200),
                (get("/a%20%62"), 429),
                (get("/a+b"), 200),
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
                (claim(json!({ "sub": "bob", "org": ["octo"] })), 429),
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
                (get("/").field("x-key", "a").field("x-key", "b"), 400),
                (get("/").field("x-key", "a").field("x-key", "a"), 400),
                (get("/").field("x-key", "").field("x-key", "a"), 400),
                (get("/").field("x-key", "b"), 200),
            ],
        ),
        (
            "cookie.session",
            vec![
                (get("/").field("cookie", "session=a"), 200),
                (get("/").field("cookie", "theme=dark; session=a; x=y"), 429),
                (get("/").field("cookie", "session=b"), 200),
                (get("/").field("cookie", "session=a; session=b"), 400),
                (get("/").field("cookie", "session=a").field("cookie", "session=c"), 400),
                (get("/").field("cookie", "x=1, session=c"), 400),
                (get("/").field("cookie", "session =a"), 429),
                (get("/").field("cookie", "Session=a"), 429),
                (get("/").field("cookie", "session=\"a\""), 429),
                (get("/").field("cookie", "session=%61"), 429),
                (get("/").field("cookie", "session\u{A0}=c"), 400),
                (get("/").field("cookie", "\u{3000}session=c"), 400),
                (get("/").field("cookie", "session=a; sess%69on=c"), 400),
                (get("/").field("cookie", "session=c\u{A0}"), 400),
                (get("/").field("cookie", "session=d; größe=\u{A0}"), 200),
            ],
        ),
        (
            "host",
            vec![
                (get("/").host("a.example.com"), 200),
                (get("/").host("A.EXAMPLE.com.:80"), 429),
                (get("/").host("b.example.com"), 200),
            ],
        ),
        (
            "jwt.org.id",
            vec![
                (claim(json!({ "sub": "alice", "org": { "id": 7 } })), 200),
                (claim(json!({ "sub": "bob", "org": { "id": 7 } })), 429),
                (claim(json!({ "sub": "bob", "org": { "id": "7" } })), 200),
                (claim(json!({ "sub": "bob", "org": { "id": true } })), 200),
            ],
        ),
        (
            "[jwt.org, header.x-key, host]",
            vec![
                (claim(json!({ "sub": "alice", "org": "a" })).field("x-key", "k"), 200),
                (claim(json!({ "sub": "bob", "org": "a" })).field("x-key", "k"), 429),
                (claim(json!({ "sub": "bob", "org": "a" })).field("x-key", "l"), 200),
                (claim(json!({ "sub": "bob", "org": "b" })).field("x-key", "k"), 200),
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
fn limit_does_not_apply_to_what_lacks_its_key() {
    let claim = |claims: serde_json::Value| get("/").token(&token_with(&claims));
    let table = [
        ("jwt.org", vec![get("/"), get("/").by("alice"), claim(json!({ "sub": "a", "org": "" }))]),
        ("jwt.org", vec![claim(json!({ "sub": "a", "org": ["octo", "cats"] }))]),
        ("jwt.org", vec![claim(json!({ "sub": "a", "org": [["octo"]] }))]),
        ("jwt.org", vec![claim(json!({ "sub": "a", "org": [] }))]),
        ("jwt.org", vec![claim(json!({ "sub": "a", "org": { "id": 1 } }))]),
        ("jwt.org", vec![claim(json!({ "sub": "a", "org": null }))]),
        ("jwt.org.id", vec![claim(json!({ "sub": "a", "org": "octo" }))]),
        ("header.x-key", vec![get("/"), get("/").field("x-key", "")]),
        ("cookie.session", vec![get("/"), get("/").field("cookie", "session=")]),
        ("cookie.session", vec![get("/").field("cookie", "sessions=1; xsession=2")]),
        ("[client.ip, header.x-key]", vec![get("/"), get("/").field("x-key", "")]),
        ("[caller, jwt.org]", vec![get("/"), get("/").by("alice")]),
    ];
    let upstream = Upstream::start();
    for (keys, requests) in table {
        for request in requests {
            let proxy = one_per(&upstream, keys);
            for _ in 0..3 {
                let response = proxy.send(request.clone());
                assert_eq!(response.status, 200, "per {keys}:\n{response:?}");
                response.assert_no_limit();
            }
        }
    }
}

#[test]
fn all_requests_may_share_a_counter() {
    let upstream = Upstream::start();
    let proxy = one_per(&upstream, "all");
    proxy.get("/a").assert_status(200);
    for request in [get("/b").by("alice"), get("/a").from("203.0.113.9"), post("/a", "")] {
        let denied = proxy.send(request.host("other.example"));
        denied.assert_status(429).assert_field("x-ratelimit-resource", "one");
    }
}

#[test]
fn requests_that_lack_a_key_may_share_a_counter() {
    let claim = |claims: serde_json::Value| get("/").token(&token_with(&claims));
    let table = [
        ("header.x-key", get("/"), get("/").field("x-key", ""), get("/").field("x-key", "a")),
        (
            "cookie.session",
            get("/"),
            get("/").field("cookie", "session="),
            get("/").field("cookie", "session=a"),
        ),
        (
            "jwt.org",
            get("/").by("alice"),
            claim(json!({ "sub": "bob", "org": "" })),
            claim(json!({ "sub": "bob", "org": "octo" })),
        ),
        ("[header.x-key, path]", get("/").by("alice"), get("/").from("203.0.113.9"), get("/other")),
        ("[client.ip, header.x-key]", get("/"), get("/").by("alice"), get("/").from("203.0.113.9")),
    ];
    let upstream = Upstream::start();
    for (keys, first, alike, other) in table {
        let proxy = one_per(&upstream, &format!("{keys}, on_missing: share"));
        for (request, status) in [(first, 200), (alike, 429), (other.clone(), 200), (other, 429)] {
            let answered = proxy.send(request);
            assert_eq!(answered.status, status, "per {keys}:\n{answered:?}");
        }
    }
}

#[test]
fn requests_without_a_caller_may_share_a_counter() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .callers(&["{ name: user, key: jwt.sub }"])
        .limits(&["one: { per: caller, rate: 1/hour, on_missing: share }"])
        .routes(&["{ match: { path: /** }, limits: [one] }"]);
    let proxy = Proxy::start(&policy);
    for (request, status) in [
        (get("/"), 200),
        (get("/"), 429),
        (get("/").by("alice"), 200),
        (get("/").by("alice"), 429),
        (get("/").by("bob"), 200),
    ] {
        proxy.send(request).assert_status(status);
    }
}

#[test]
fn lack_of_a_key_may_deny() {
    let upstream = Upstream::start();
    for keys in ["jwt.org", "header.x-key", "cookie.session", "[client.ip, header.x-key]"] {
        let policy = Policy::before(&upstream).on_all_routes(&[
            "core: { per: caller, rate: 9/hour }",
            &format!("one: {{ per: {keys}, rate: 1/hour, on_missing: deny }}"),
        ]);
        let proxy = Proxy::start(&policy);
        for request in [get("/"), get("/").by("alice"), get("/").field("x-key", "")] {
            let refused = proxy.send(request);
            refused
                .assert_status(403)
                .assert_field("cache-control", "no-store")
                .assert_no_field("retry-after")
                .assert_no_limit();
            let message = "The request lacks what limit one counts by.";
            assert_eq!(refused.json()["message"], message, "per {keys}");
        }
        assert_eq!(proxy.used("alice", "core"), 0, "per {keys}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn values_cannot_be_moved_from_one_part_of_a_key_to_another() {
    let two = |a: &str, b: &str| get("/").field("x-a", a).field("x-b", b);
    let upstream = Upstream::start();
    let proxy = one_per(&upstream, "[header.x-a, header.x-b]");
    for (a, b) in [
        ("a", "bc"),
        ("ab", "c"),
        ("bc", "a"),
        ("a_", "bc"),
        ("a", "_bc"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a,bc", "x"),
        ("a", "bc,x"),
    ] {
        proxy.send(two(a, b)).assert_status(200);
        proxy.send(two(a, b)).assert_status(429);
    }
}

#[test]
fn address_that_is_exempt_may_have_two_values_of_a_key() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .on_all_routes(&["one: { per: header.x-key, rate: 1/hour, on_missing: deny }"])
        .section("exempt: [127.0.0.1]");
    let proxy = Proxy::start(&policy);
    for _ in 0..2 {
        let both = get("/").field("x-key", "a").field("x-key", "junk");
        proxy.send(both).assert_status(200).assert_no_limit();
    }
}

#[test]
fn request_with_two_values_of_a_key_is_refused_and_charged_nothing() {
    let upstream = Upstream::start();
    for (keys, first, second) in [
        ("header.x-key", ("x-key", "a"), ("x-key", "junk")),
        ("[client.ip, header.x-key]", ("x-key", "a"), ("x-key", "junk")),
        ("cookie.session", ("cookie", "session=a"), ("cookie", "session=junk")),
    ] {
        let policy = Policy::before(&upstream).on_all_routes(&[
            "core: { per: caller, rate: 9/hour }",
            &format!("one: {{ per: {keys}, rate: 1/hour }}"),
        ]);
        let proxy = Proxy::start(&policy);
        let [alone, both] = [vec![first], vec![first, second]].map(|fields| {
            let add = |request: Request, (name, value): (&str, &str)| request.field(name, value);
            fields.into_iter().fold(get("/").by("alice"), add)
        });
        proxy.send(alone.clone()).assert_status(200);
        proxy.send(alone).assert_status(429);
        let refused = proxy.send(both);
        refused.assert_status(400).assert_no_limit();
        let message = "The request has an ambiguous value of what limit one counts by.";
        assert_eq!(refused.json()["message"], message, "per {keys}");
        assert_eq!(proxy.used("alice", "core"), 1, "per {keys}");
    }
    assert_eq!(upstream.count(), 3);
}

#[test]
fn cookies_that_http2_splits_are_counted_as_one_field() {
    let upstream = Upstream::start();
    let proxy = one_per(&upstream, "cookie.session");
    let request = |cookies: &[&str]| {
        let request = http::Request::get("http://api.example.com/");
        let add =
            |request: http::request::Builder, cookie: &&str| request.header("cookie", *cookie);
        cookies.iter().fold(request, add).body(String::new()).unwrap()
    };
    let requests = vec![
        request(&["a=b", "session=abc"]),
        request(&["a=b; session=abc"]),
        request(&["session=abc", "session=j"]),
    ];
    let responses = http2(proxy.address(), requests);
    let statuses: Vec<u16> = responses.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses, [200, 429, 400]);
}

#[test]
fn user_who_is_called_like_an_address_is_not_that_address() {
    let upstream = Upstream::start();
    let proxy = one_per(&upstream, "caller");
    proxy.send(get("/").from("192.0.2.1")).assert_status(200);
    proxy.send(get("/").from("198.51.100.1").by("192.0.2.1")).assert_status(200);
    proxy.send(get("/").from("192.0.2.1")).assert_status(429);
    proxy.send(get("/").from("198.51.100.1").by("192.0.2.1")).assert_status(429);
}

#[test]
fn key_may_be_as_long_as_a_field() {
    let upstream = Upstream::start();
    let proxy = one_per(&upstream, "[header.x-key, cookie.session, path]");
    let long = "x".repeat(7000);
    let request = |last: &str| {
        let value = format!("{long}{last}");
        get("/").field("x-key", &value).field("cookie", &format!("session={value}"))
    };
    for last in ["a", "b"] {
        proxy.send(request(last)).assert_status(200);
        proxy.send(request(last)).assert_status(429);
    }
}

#[test]
fn addresses_of_one_prefix_are_one() {
    let upstream = Upstream::start();
    let table = [
        ("", "192.0.2.1", "192.0.2.1", true),
        ("", "192.0.2.1", "192.0.2.2", false),
        ("", "192.0.2.1", "::ffff:192.0.2.1", true),
        ("", "2001:db8::1", "2001:db8::ffff:1", true),
        ("", "2001:db8::1", "2001:db8:0:1::1", false),
        (", ipv4_prefix: 24", "192.0.2.1", "192.0.2.254", true),
        (", ipv4_prefix: 24", "192.0.2.1", "192.0.3.1", false),
        (", ipv6_prefix: 48", "2001:db8::1", "2001:db8:0:ffff::1", true),
        (", ipv6_prefix: 48", "2001:db8::1", "2001:db8:1::1", false),
        (", ipv6_prefix: 128", "2001:db8::1", "2001:db8::2", false),
        // An address of one kind is no prefix of the other.
        (", ipv4_prefix: 8, ipv6_prefix: 32", "32.1.2.3", "2001:db8::1", false),
    ];
    for (prefixes, one, other, are_one) in table {
        for keys in ["client.ip", "[client.ip, method]"] {
            let limit = format!("place: {{ per: {keys}{prefixes}, rate: 1/hour }}");
            let policy = Policy::before(&upstream).on_all_routes(&[&limit]);
            let settings = "workers: 1\ntrusted_proxies: [127.0.0.1]";
            let proxy = Proxy::with_settings(settings, &[&policy]);
            proxy.send(get("/").from(one)).assert_status(200);
            let status = proxy.send(get("/").from(other)).status;
            assert_eq!(status == 429, are_one, "{one} and {other} with {limit}");
        }
    }
}

#[test]
fn parts_of_a_path_are_counted_as_the_route_names_them() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["one: { per: [path.owner, path.name], rate: 1/hour }"])
        .routes(&[
            "{ match: { path: \"/repos/{owner}/{name}/**\" }, limits: [one] }",
            "{ match: { path: \"/swapped/{name}/{owner}\" }, limits: [one] }",
        ]);
    let proxy = Proxy::start(&policy);
    for (path, status) in [
        ("/repos/octo/cat", 200),
        ("/repos/octo/cat/issues/1", 429),
        ("/repos/octo/dog", 200),
        ("/repos/octo/../octo/cat", 429),
        ("/repos/%6fcto/cat", 429),
        ("/repos/Octo/cat", 200),
        ("/repos/o@x/c:d", 200),
        ("/repos/o%40x/c:d", 429),
        ("/repos/o@x/c%3ad", 429),
        ("/repos/o%40x/c%3Ad/issues", 429),
        ("/swapped/cat/octo", 429),
        ("/swapped/octo/cat", 200),
    ] {
        assert_eq!(proxy.get(path).status, status, "{path}");
    }
}

#[test]
fn what_two_issuers_say_alike_is_not_the_same() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .and_issuer("partner", "https://partner.example.com/")
        .on_all_routes(&["one: { per: jwt.org, rate: 1/hour }"]);
    let proxy = Proxy::start(&policy);
    for iss in [ISSUER, "https://partner.example.com/"] {
        let token = token_with(&json!({ "sub": "alice", "org": "octo", "iss": iss }));
        proxy.send(get("/").token(&token)).assert_status(200);
        proxy.send(get("/").token(&token)).assert_status(429);
    }
}

#[test]
fn claims_count_only_once_their_signature_is_checked() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .on_all_routes(&["one: { per: jwt.org, rate: 1/hour }"])
        .identity(&["invalid_token: anonymous"]);
    let proxy = Proxy::start(&policy);
    let claims = json!({ "sub": "mallory", "org": "octo" });
    let forged = token_signed_by("a secret that is not the one of this issuer", &claims);
    for _ in 0..3 {
        proxy.send(get("/").token(&forged)).assert_status(200).assert_no_limit();
    }
    // Nothing was charged to the organisation that it named.
    proxy.send(get("/").token(&token_with(&claims))).assert_status(200);
    proxy.send(get("/").token(&token_with(&claims))).assert_status(429);
}
