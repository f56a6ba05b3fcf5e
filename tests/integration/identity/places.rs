//! Tokens in the query: off unless the policy says so, and seen only by the proxy.

use super::{INVALID_REQUEST, REALM, assert_refused};
use crate::support::{Policy, Proxy, Upstream, get, http2, token};

fn in_query(upstream: &Upstream) -> Policy {
    Policy::before(upstream).identity(&["token: { query: access_token, forward: true }"]).routes(&[
        "{ match: { path: /open }, auth: none, limits: [] }",
        "{ match: { path: /** }, auth: required, limits: [] }",
    ])
}

#[test]
fn token_in_the_query_counts_only_where_the_policy_looks_for_it() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(
        &Policy::before(&upstream)
            .routes(&["{ match: { path: /** }, auth: required, limits: [] }"]),
    );
    let target = format!("/a?access_token={}", token("7"));
    assert_refused(&proxy.get(&target), 401, REALM);
    let proxy = Proxy::start(&in_query(&upstream));
    proxy.get(&target).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-tollgate-subject"), Some("7"));
}

#[test]
fn upstream_and_log_never_see_it() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&in_query(&upstream));
    let token = token("7");
    for (query, expected) in [
        (format!("access_token={token}"), "/a"),
        (format!("x=1&access_token={token}&y=%20+2"), "/a?x=1&y=%20+2"),
        (format!("access%5Ftoken={token}&z"), "/a?z"),
    ] {
        proxy.get(&format!("/a?{query}")).assert_status(200);
        assert_eq!(upstream.last().target, expected);
    }
    proxy.get(&format!("/open?access_token={token}&x=1")).assert_status(200);
    assert_eq!(upstream.last().target, "/open?x=1");
    proxy.get("/a?access_token=bad").assert_status(401);
    let log = proxy.into_log();
    assert!(!log.contains(&token) && !log.contains("access_token"), "{log}");
}

#[test]
fn token_in_two_places_is_none_at_all() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&in_query(&upstream));
    let token = token("7");
    let twice = get(&format!("/?access_token={token}&access_token={token}"));
    let with_header = get(&format!("/?access_token={token}")).by("7");
    let empty = get("/?access_token=");
    for request in [twice, with_header, empty] {
        assert_refused(&proxy.send(request), 400, INVALID_REQUEST);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn token_in_what_servers_take_for_the_query_is_refused() {
    let upstream = Upstream::start();
    let servers = format!("servers: [\"{}\"], paths: fastify", upstream.url());
    let policy = Policy::before_servers(&servers)
        .identity(&["token: { query: access_token }"])
        .routes(&["{ match: { path: /** }, auth: optional, limits: [] }"]);
    let proxy = Proxy::start(&policy);
    for target in ["/a;access_token=x.y.z", "/a;b=1&access_token=x.y.z", "/a;Access.Token=x?b=1"] {
        assert_refused(&proxy.get(target), 400, INVALID_REQUEST);
        assert_refused(&proxy.send(get(target).by("7")), 400, INVALID_REQUEST);
    }
    assert_eq!(upstream.count(), 0);
    proxy.get("/a;b=access_token").assert_status(200);
    proxy.get("/a%3Baccess_token=x.y.z").assert_status(200);
}

#[test]
fn response_to_a_token_in_the_url_is_kept_by_no_shared_cache() {
    let upstream = Upstream::scripted(|exchange| {
        let said = exchange.request.fields.one("x-want-caching").unwrap_or_default();
        let response =
            format!("HTTP/1.1 200 OK\r\n{said}: public, max-age=60\r\ncontent-length: 0\r\n\r\n");
        exchange.write(response);
    });
    let proxy = Proxy::start(&in_query(&upstream).responses(&["rate_limit_path: /rate_limit"]));
    let token = token("7");
    let by_url = get(&format!("/a?access_token={token}"));
    let silent = by_url.clone().field("x-want-caching", "x-says");
    let public = by_url.field("x-want-caching", "cache-control");
    proxy.send(silent).assert_status(200).assert_field("cache-control", "private");
    proxy.send(public).assert_status(200).assert_field("cache-control", "private, max-age=60");
    let standings = proxy.get(&format!("/rate_limit?access_token={token}"));
    standings.assert_status(200).assert_field("cache-control", "private, no-cache");

    // Whose token caches know, and who has none.
    for request in [get("/a").token(&token), get(&format!("/open?access_token={token}"))] {
        let response = proxy.send(request.field("x-want-caching", "cache-control"));
        response.assert_status(200).assert_field("cache-control", "public, max-age=60");
    }

    let url = format!("http://api.example.com/a?access_token={token}");
    let request = http::Request::get(url).header("x-want-caching", "cache-control");
    let responses = http2(proxy.address(), vec![request.body(String::new()).unwrap()]);
    assert_eq!(responses[0].headers()["cache-control"], "private, max-age=60");
}
