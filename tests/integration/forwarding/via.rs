//! `Via`, which the settings turn on: what is added to it, and requests that come back.

use crate::support::{Policy, Proxy, Upstream, get, http2};

/// One that calls itself `edge-1`.
fn named(policies: &[&Policy]) -> Proxy {
    Proxy::with_settings("workers: 1\nvia: edge-1", policies)
}

#[test]
fn nothing_is_added_by_default_and_nothing_is_a_loop() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    proxy.get("/").assert_status(200).assert_no_field("via");
    assert_eq!(upstream.last().fields.one("via"), None);
    proxy.send(get("/").field("via", "1.1 edge-1")).assert_status(200).assert_no_field("via");
    assert_eq!(upstream.last().fields.all("via"), ["1.1 edge-1"]);
}

#[test]
fn both_ways_have_the_version_that_was_received() {
    let upstream = Upstream::scripted(|exchange| {
        let version = exchange.request.fields.one("x-want-version").unwrap_or("1.1").to_owned();
        exchange
            .write(format!("HTTP/{version} 200 OK\r\nvia: 1.1 inner\r\ncontent-length: 0\r\n\r\n"));
    });
    let proxy = named(&[&Policy::before(&upstream)]);
    for (version, seen) in [("1.1", "1.1 edge-1"), ("1.0", "1.0 edge-1")] {
        let mut client = proxy.connect();
        let fields = format!("host: a.example\r\nvia: 1.0 outer\r\nx-want-version: {version}");
        client.write(format!("GET / HTTP/{version}\r\n{fields}\r\n\r\n"));
        let response = client.read();
        assert_eq!(response.assert_status(200).fields.all("via"), ["1.1 inner", seen]);
        assert_eq!(upstream.last().fields.all("via"), ["1.0 outer", seen]);
    }
    let request = http::Request::get("http://a.example/").header("via", "1.0 outer");
    let responses = http2(proxy.address(), vec![request.body(String::new()).unwrap()]);
    let all: Vec<_> = responses[0].headers().get_all("via").iter().collect();
    assert_eq!(all, ["1.1 inner", "1.1 edge-1"]);
    assert_eq!(upstream.last().fields.all("via"), ["1.0 outer", "2 edge-1"]);
}

#[test]
fn request_that_was_here_before_is_508_and_charges_nobody() {
    let upstream = Upstream::start();
    let settings = "workers: 1\nvia: edge-1\n\
                    decisions: [{ address: 127.0.0.1:0, protocol: http }]";
    let policy = Policy::before(&upstream).rate("2/hour");
    let proxy = Proxy::with_settings(settings, &[&policy]);
    proxy.get("/").assert_status(200).assert_field("x-ratelimit-remaining", "1");
    let sent = upstream.last().fields;
    let back = sent.all("via").iter().fold(get("/"), |request, via| request.field("via", via));
    for request in [
        back,
        get("/").field("via", "1.0 other (a, b), HTTP/1.1 EDGE-1").field("via", "2 last"),
        get("/").field("via", "1.1 edge-1").field("connection", "via"),
    ] {
        let response = proxy.send(request.field("accept", "application/problem+json"));
        response.assert_status(508).assert_no_limit();
        assert_eq!(response.json()["title"], "Loop Detected");
    }
    assert_eq!(upstream.count(), 1);
    // A name within a comment, or with a port, is another one's.
    let other = get("/").field("via", "1.1 other (edge-1, 1.1 edge-1), 1.1 edge-1:80");
    proxy.send(other).assert_status(200).assert_field("x-ratelimit-remaining", "0");

    let question = get("/decide/forward")
        .field("x-forwarded-method", "GET")
        .field("x-forwarded-proto", "http")
        .field("x-forwarded-host", "api.example.com")
        .field("x-forwarded-uri", "/")
        .field("via", "1.1 edge-1");
    proxy.ask(question.by("42")).assert_status(200);
    let log = proxy.into_log();
    assert_eq!(log.matches("the request has passed this proxy before").count(), 3, "{log}");
}

#[test]
fn route_may_take_it_out_and_upgrades_have_it() {
    let upstream = Upstream::echoing();
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: /chat }, limits: [] }",
        "{ match: { path: /** }, limits: [], request_headers: { remove: [via] }, \
         response_headers: { remove: [via] } }",
    ]);
    let proxy = named(&[&policy]);
    proxy.send(get("/").field("via", "1.1 outer")).assert_status(200).assert_no_field("via");
    assert_eq!(upstream.last().fields.one("via"), None);

    let mut client = proxy.connect();
    let switch = get("/chat").field("connection", "upgrade").field("upgrade", "websocket");
    let switch = switch
        .field("sec-websocket-version", "13")
        .field("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    client.write(switch.to_bytes());
    client.read_head().assert_status(101).assert_field("via", "1.1 edge-1");
    assert_eq!(upstream.last().fields.all("via"), ["1.1 edge-1"]);
}
