//! What routes change about requests and responses, and what they do not take.

use crate::support::{Policy, Proxy, Request, Upstream, get, http2, post};

/// One route, for everything, with these fields.
fn proxy(upstream: &Upstream, fields: &str) -> Proxy {
    let route = format!("{{ match: {{ path: /** }}, limits: [], {fields} }}");
    Proxy::start(&Policy::before(upstream).routes(&[&route]))
}

#[test]
fn prefixes_are_taken_off_and_put_on_after_matching() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).routes(&[
        "{ match: { path: /v1/** }, limits: [], strip_prefix: /v1, add_prefix: /api }",
        "{ match: { path: /v2/** }, limits: [], strip_prefix: /v2 }",
        "{ match: { path: /@3/** }, limits: [], strip_prefix: /@3 }",
        "{ match: { path: /** }, limits: [], add_prefix: /rest }",
    ]));
    for (target, expected) in [
        ("/v1/users?a=/v1/%2F", "/api/users?a=/v1/%2F"),
        ("/v1", "/api/"),
        ("/v1/", "/api/"),
        ("/v1//x/../y", "/api/y"),
        ("/v2/x", "/x"),
        ("/v2", "/"),
        ("/v2?q", "/?q"),
        ("/%403/a%40b", "/a%40b"),
        ("/v10/x", "/rest/v10/x"),
        ("http://api.example.com/v2/x", "/x"),
    ] {
        proxy.get(target).assert_status(200);
        assert_eq!(upstream.last().target, expected, "{target}");
    }
}

#[test]
fn fields_of_requests_are_removed_set_and_added() {
    let upstream = Upstream::start();
    let fields = "request_headers: { remove: [x-gone], set: { x-set: one, host: internal.example }, \
                  add: { x-many: two } }";
    let proxy = proxy(&upstream, fields);
    let request = get("/").field("x-gone", "1").field("x-set", "client").field("x-many", "one");
    proxy.send(request).assert_status(200);
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-gone"), None);
    assert_eq!(seen.one("x-set"), Some("one"));
    assert_eq!(seen.all("x-many"), ["one", "two"]);
    assert_eq!(seen.one("host"), Some("internal.example"));
    assert_eq!(seen.one("x-forwarded-host"), Some("api.example.com"));
}

#[test]
fn fields_of_responses_are_changed_where_the_upstream_sends_them() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nserver: x\r\nx-cost: 3\r\ncontent-length: 0\r\n\r\n",
    );
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 10/hour, cost: { reserve: 1, from_response_header: x-cost } }"])
        .routes(&["{ match: { path: /** }, limits: [core], \
                   response_headers: { remove: [server, x-cost], set: { x-frame-options: DENY } } }"]);
    let proxy = Proxy::start(&policy);
    let answer = proxy.get("/");
    answer
        .assert_status(200)
        .assert_no_field("server")
        .assert_field("x-frame-options", "DENY")
        .assert_field("x-ratelimit-used", "3");
    // What is made here is not the upstream's.
    for _ in 0..3 {
        proxy.get("/");
    }
    proxy.get("/").assert_status(429).assert_no_field("x-frame-options");
}

#[test]
fn escaped_slash_is_what_the_policy_says() {
    let upstream = Upstream::start();
    let routes = [
        "{ match: { path: \"/files/{name}\" }, limits: [] }",
        "{ match: { path: /files/a/b }, limits: [], add_prefix: /deep }",
    ];
    let policy = Policy::before(&upstream).routes(&routes);
    Proxy::start(&policy).get("/files/a%2Fb").assert_status(400);
    for (setting, expected) in [("keep", "/files/a%2Fb"), ("decode", "/deep/files/a/b")] {
        let section = format!("paths: {{ encoded_slash: {setting} }}");
        let proxy = Proxy::start(&policy.clone().section(&section));
        proxy.get("/files/a%2fb").assert_status(200);
        assert_eq!(upstream.last().target, expected, "{setting}");
        proxy.get("/files/a%5cb").assert_status(400);
    }
}

const LIMITED: &str = "max_body: 10";

#[test]
fn body_that_says_it_is_too_large_is_refused_before_anything_is_charged() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 1/hour }"])
        .routes(&["{ match: { path: /** }, limits: [core], max_body: 10 }"]);
    let proxy = Proxy::start(&policy);
    let mut client = proxy.connect();
    client.write(post("/", "01234567890").to_bytes());
    client.read().assert_status(413).assert_field("connection", "close");
    client.assert_closed();
    proxy.send(post("/", "0123456789")).assert_status(200);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn body_that_is_too_large_is_not_asked_for() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, LIMITED);
    let mut client = proxy.connect();
    client
        .write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\nexpect: 100-continue\r\n\r\n");
    client.read().assert_status(413);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn body_in_pieces_is_counted_as_it_comes() {
    let upstream = Upstream::scripted_at_head(|exchange| exchange.wait_for_close());
    let proxy = proxy(&upstream, LIMITED);
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    client.write("6\r\n012345\r\n");
    upstream.wait_for(1);
    client.write("6\r\n678901\r\n");
    client.read().assert_status(413).assert_field("connection", "close");
    client.assert_closed();
}

#[test]
fn body_in_pieces_may_be_as_large_as_the_route_takes() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, LIMITED);
    let request = Request::new("POST", "/").field("transfer-encoding", "chunked");
    let mut client = proxy.connect();
    client.write([&request.to_bytes(), &b"4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n"[..]].concat());
    client.read().assert_status(200);
    assert_eq!(upstream.last().body, b"0123456789");
}

#[test]
fn body_of_http_2_is_held_to_the_same() {
    let upstream = Upstream::scripted(|exchange| exchange.answer_ok());
    let proxy = proxy(&upstream, LIMITED);
    let request = |body: &str| {
        let request = http::Request::post("http://api.example.com/");
        request.body(body.to_owned()).unwrap()
    };
    let all = http2(proxy.address(), vec![request("01234567890"), request("0123456789")]);
    let statuses: Vec<u16> = all.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses, [413, 200]);
}
