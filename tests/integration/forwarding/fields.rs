//! Header fields: what ends at the proxy, what is set there, and what goes through.

use super::plain;
use crate::support::{Policy, Proxy, Upstream, get, http2, options};

#[test]
fn hop_by_hop_fields_of_a_request_end_at_the_proxy() {
    let upstream = Upstream::start();
    let request = get("/")
        .field("connection", "keep-alive, X-Hop, x-other")
        .field("x-hop", "1")
        .field("x-other", "1")
        .field("keep-alive", "timeout=5")
        .field("proxy-connection", "keep-alive")
        .field("proxy-authorization", "Basic x")
        .field("te", "trailers")
        .field("upgrade", "websocket")
        .field("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA")
        .field("x-kept", "1");
    plain(&upstream).send(request).assert_status(200);
    assert_eq!(
        upstream.last().fields.names(),
        [
            "host",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-kept",
            "x-request-id",
            "x-tollgate-caller",
            "x-tollgate-tier",
        ]
    );
}

#[test]
fn hop_by_hop_fields_of_a_response_end_at_the_proxy() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
         proxy-authenticate: Basic\r\nupgrade: h2c\r\nx-kept: 1\r\ncontent-length: 0\r\n\r\n",
    );
    let response = plain(&upstream).get("/");
    let names = ["content-length", "date", "x-kept", "x-request-id"];
    assert_eq!(response.fields.names(), names, "{response:?}");
}

#[test]
fn options_request_passes_as_many_proxies_as_it_says() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("9/hour"));
    let request = |most: &str| options("/").by("alice").field("max-forwards", most);
    let forwarded = proxy.send(request("3"));
    forwarded.assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(upstream.last().fields.all("max-forwards"), ["2"]);
    let last = proxy.send(request("0"));
    last.assert_status(204).assert_field("x-ratelimit-used", "2");
    assert!(last.field("allow").is_some_and(|methods| methods.contains("OPTIONS")), "{last:?}");
    let over_http2 = http::Request::options("http://api.example.com/").header("max-forwards", "0");
    let responses = http2(proxy.address(), vec![over_http2.body(String::new()).unwrap()]);
    assert_eq!(responses[0].status(), 204);
    assert_eq!(upstream.requests().len(), 1);
    // In other requests it means nothing.
    proxy.send(get("/").by("alice").field("max-forwards", "0")).assert_status(200);
    assert_eq!(upstream.last().fields.all("max-forwards"), ["0"]);
}

#[test]
fn connection_may_not_name_what_belongs_to_the_message() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    for name in [
        "Authorization",
        "host",
        "content-length",
        "cookie",
        "X-Forwarded-For",
        "x-forwarded-proto",
        "forwarded",
        "x-real-ip",
        "x-request-id",
        "x-tollgate-subject",
        "close, x-tollgate-tier",
    ] {
        proxy.send(get("/").field("connection", name)).assert_status(400);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn connection_may_not_name_what_a_request_is_judged_by() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .identity(&["token: { header: x-auth-token, forward: true }"])
        .limits(&["tenant: { per: header.x-tenant, rate: 2/hour }"])
        .routes(&["{ match: { path: /** }, limits: [tenant] }"]);
    let proxy = Proxy::start(&policy);
    for name in ["x-auth-token", "X-Tenant"] {
        let request = get("/").field("x-tenant", "acme").field("connection", name);
        proxy.send(request).assert_status(400);
    }
    assert_eq!(upstream.count(), 0);
    proxy
        .send(get("/").field("x-tenant", "acme").field("connection", "x-other"))
        .assert_status(200);
}

#[test]
fn fields_with_an_underscore_are_dropped() {
    let upstream = Upstream::start();
    let request = get("/").field("x_forwarded_for", "1").field("a_b", "1").field("a-b", "2");
    plain(&upstream).send(request).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("a-b"), Some("2"));
    assert!(!seen.names().iter().any(|name| name.contains('_')));
}

#[test]
fn fields_that_rewrite_a_request_are_dropped() {
    let upstream = Upstream::start();
    let dropped = [
        "x-original-url",
        "x-rewrite-url",
        "x-ratelimit-limit",
        "ratelimit",
        "ratelimit-policy",
        "x-tollgate-subject",
    ];
    let request = dropped.into_iter().fold(get("/"), |r, name| r.field(name, "/admin"));
    plain(&upstream).send(request).assert_status(200);
    let seen = upstream.last().fields;
    for name in dropped {
        assert_eq!(seen.all(name), [""; 0], "{name}");
    }
}

#[test]
fn all_other_fields_go_through_as_they_are() {
    let upstream = Upstream::answering(
        "HTTP/1.1 203 Fine\r\nETag: \"v1\"\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
         link: <a>; rel=next\r\nvia: 1.1 other\r\ncontent-length: 0\r\n\r\n",
    );
    let request = get("/")
        .field("accept", "a, b")
        .field("accept", "c")
        .field("if-none-match", "\"v1\"")
        .field("cookie", "a=b; c=d")
        .field("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let response = plain(&upstream).send(request);
    response.assert_status(203).assert_field("etag", "\"v1\"").assert_field("via", "1.1 other");
    assert_eq!(response.fields.all("set-cookie"), ["a=1", "b=2"]);
    let seen = upstream.last().fields;
    assert_eq!(seen.all("accept"), ["a, b", "c"]);
    assert_eq!(seen.one("if-none-match"), Some("\"v1\""));
    assert_eq!(seen.one("cookie"), Some("a=b; c=d"));
    assert!(seen.one("traceparent").is_some());
}

#[test]
fn upstream_sees_the_client_and_the_host_of_the_request() {
    let upstream = Upstream::start();
    let request = get("/")
        .host("api.example.com:8080")
        .from("203.0.113.1")
        .field("x-forwarded-proto", "https")
        .field("x-forwarded-host", "evil")
        .field("forwarded", "for=203.0.113.1")
        .field("x-real-ip", "203.0.113.1");
    plain(&upstream).send(request).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("host"), Some("api.example.com:8080"));
    assert_eq!(seen.one("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.one("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.one("x-forwarded-host"), Some("api.example.com:8080"));
    assert_eq!(seen.one("forwarded"), None);
    assert_eq!(seen.one("x-real-ip"), None);
}

#[test]
fn word_of_a_trusted_proxy_is_passed_on() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &[&policy]);
    let request = get("/")
        .from("198.51.100.1")
        .from("203.0.113.1")
        .field("x-forwarded-proto", "https")
        .field("x-forwarded-host", "evil");
    proxy.send(request).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-forwarded-for"), Some("198.51.100.1, 203.0.113.1, 127.0.0.1"));
    assert_eq!(seen.one("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.one("x-forwarded-host"), Some("api.example.com"));
}

/// Fields in which servers look for the client's address, and two that come to one of them in
/// servers which make variables of headers.
const ADDRESSES: [&str; 44] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-envoy-external-address",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-nf-client-connection-ip",
    "x-vercel-forwarded-for",
    "x-proxyuser-ip",
    "client-ip",
    "remote-addr",
    "forwarded-for",
    "proxy-client-ip",
    "wl-proxy-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "cloudfront-viewer-address",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "incap-client-ip",
    "x-true-client-ip",
    "x-host",
    "remote-user",
    "x-remote-user",
    "x-webauth-user",
    "x-auth-request-user",
    "client-cert",
    "client-cert-chain",
    "x-client-cert",
    "x-client-dn",
    "ssl-client-cert",
    "x-ssl-client-cert",
    "x-ssl-cipher",
    "x.real.ip",
    "true~client~ip",
];

#[test]
fn client_says_its_address_in_no_field() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: /none }, auth: none, limits: [] }",
        "{ match: { path: /set }, limits: [], request_headers: { set: { x-real-ip: unknown } } }",
        "{ match: { path: /** }, limits: [] }",
    ]);
    let proxy = Proxy::start(&policy);
    let forged = |path| ADDRESSES.iter().fold(get(path), |r, name| r.field(name, "203.0.113.1"));
    for (path, expected) in [("/", None), ("/none", None), ("/set", Some("unknown"))] {
        proxy.send(forged(path)).assert_status(200);
        let seen = upstream.last().fields;
        assert_eq!(seen.one("x-real-ip"), expected, "{path}");
        for name in ADDRESSES.into_iter().filter(|name| *name != "x-real-ip") {
            assert_eq!(seen.one(name), None, "{name}");
        }
        let request = ADDRESSES
            .iter()
            .fold(http::Request::get(format!("http://api.example.com{path}")), |request, name| {
                request.header(*name, "203.0.113.1")
            });
        let responses = http2(proxy.address(), vec![request.body(String::new()).unwrap()]);
        assert_eq!(responses[0].status(), 200);
        assert!(!format!("{:?}", upstream.last().fields).contains("203.0.113.1"));
    }
    for name in &ADDRESSES[..42] {
        proxy.send(get("/").field("connection", name)).assert_status(400);
    }
}

#[test]
fn trusted_proxy_says_the_clients_address_in_any_field() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &[&policy]);
    let request = ADDRESSES.iter().fold(get("/"), |r, name| r.field(name, "203.0.113.1"));
    proxy.send(request).assert_status(200);
    let seen = upstream.last().fields;
    for name in &ADDRESSES[..42] {
        assert_eq!(seen.one(name), Some("203.0.113.1"), "{name}");
    }
}

#[test]
fn forwarded_is_written_if_the_settings_say_so() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_settings("workers: 1\nsend_forwarded: true", &[&policy]);
    proxy.send(get("/").field("forwarded", "for=203.0.113.1")).assert_status(200);
    let expected = "for=127.0.0.1;host=\"api.example.com\";proto=http";
    assert_eq!(upstream.last().fields.one("forwarded"), Some(expected));
}

#[test]
fn ids_of_two_requests_tell_nothing_about_those_between() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    let mut id = || {
        let response = client.send(&get("/"));
        u128::from_str_radix(response.field("x-request-id").unwrap(), 16).unwrap()
    };
    let ids: Vec<u128> = (0..200).map(|_| id()).collect();
    // No part of it is constant, so that ids do not identify workers either.
    let (zeros, ones) = ids.iter().fold((!0, !0), |(zeros, ones), id| (zeros & !id, ones & id));
    assert_eq!((zeros, ones), (0, 0), "{:032x} {:032x}", ids[0], ids[1]);
    let differing: u32 = ids.windows(2).map(|pair| (pair[0] ^ pair[1]).count_ones()).sum();
    assert!((60 * 199..68 * 199).contains(&differing), "{differing} bits differ");
}

#[test]
fn request_id_is_one_for_client_and_upstream() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let response = proxy.send(get("/").field("x-request-id", "theirs"));
        let id = response.field("x-request-id").unwrap().to_owned();
        assert_eq!(upstream.last().fields.one("x-request-id"), Some(id.as_str()));
        assert_eq!(id.len(), 32, "{id}");
        ids.push(id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(proxy.get("/%00").field("x-request-id").is_some());
}

#[test]
fn request_id_of_a_trusted_proxy_is_kept() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nx-request-id: the upstream's own\r\ncontent-length: 0\r\n\r\n",
    );
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &[&policy]);
    let response = proxy.send(get("/").field("x-request-id", "theirs-1"));
    response.assert_field("x-request-id", "theirs-1");
    assert_eq!(upstream.last().fields.one("x-request-id"), Some("theirs-1"));
}

#[test]
fn cookie_crumbs_of_http_2_are_joined() {
    let upstream = Upstream::start();
    let request = http::Request::get("http://api.example.com/")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("cookie", "c=3")
        .body(String::new())
        .unwrap();
    let proxy = plain(&upstream);
    let responses = http2(proxy.address(), vec![request]);
    assert_eq!(responses[0].status(), 200);
    assert_eq!(upstream.last().fields.one("cookie"), Some("a=1; b=2; c=3"));
}
