//! Whatever is refused is refused in the same words, and written down.

use crate::support::{Policy, Proxy, Upstream};

/// Everything that is refused before there is a request, with its status.
const REFUSED: [(&str, u16); 16] = [
    ("GET / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nhost: a\r\nx y: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nhost: a\r\nx: \u{1}\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nhost: a\r\n folded\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n: a\r\n\r\n", 400),
    ("GET / HTTP/3.0\r\nhost: a\r\n\r\n", 400),
    ("GET /<script> HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ("GET /#a HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ("GET http:// HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ("G(T / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ("PRI * HTTP/2.0\r\n\r\nxx\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
    ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}", 400),
    ("hello\r\n", 400),
    ("{}\r\n\r\n", 400),
];

#[test]
fn refusals_have_one_form() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let target = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(9000));
    let fields = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(100));
    let field = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(17_000));
    let more = [(&*target, 414), (&*fields, 431), (&*field, 431)];
    for (request, status) in REFUSED.into_iter().chain(more) {
        let shown = &request[..request.len().min(100)];
        let mut client = proxy.connect();
        client.write(request);
        let response = client.read();
        assert_eq!(response.status, status, "{shown:?} was answered with\n{response:?}");
        response
            .assert_field("connection", "close")
            .assert_field("content-type", "application/json; charset=utf-8")
            .assert_field("cache-control", "no-store");
        assert_eq!(response.field("x-request-id").map(str::len), Some(32), "{response:?}");
        assert!(response.field("date").is_some_and(|date| date.ends_with(" GMT")), "{response:?}");
        assert!(response.json()["message"].is_string());
        client.assert_closed();
        let line = format!(" {} ", response.field("x-request-id").unwrap());
        proxy.wait_until_logged(&line);
    }
    assert_eq!(upstream.count(), 0);
    let log = proxy.into_log();
    assert_eq!(log.lines().count(), REFUSED.len() + more.len(), "{log}");
    assert!(log.contains(" GET /<script> route=- 400 "), "{log}");
    assert!(!log.contains("HTTP/1.1"), "{log}");
}

#[test]
fn refusal_is_read_however_much_the_client_still_sends() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost : a\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", 400),
    ] {
        for _ in 0..20 {
            let mut client = proxy.connect();
            client.write([request.as_bytes(), &vec![b'x'; 1 << 20]].concat());
            client.read().assert_status(status);
            client.assert_closed();
        }
    }
}

#[test]
fn query_of_a_refused_request_is_not_written_down() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write("GET /a?access_token=secret HTTP/1.1\r\nhost : a\r\n\r\n");
    client.read().assert_status(400);
    let log = proxy.into_log();
    assert!(log.contains(" GET /a ") && !log.contains("secret"), "{log}");
}

#[test]
fn refusal_waits_for_what_was_asked_before() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let good = "POST /good HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    for bad in ["GET / HTTP/1.1\r\nhost : a\r\n\r\n", "\u{16}\u{3}"] {
        let mut client = proxy.connect();
        client.write(format!("{good}{good}{bad}{good}"));
        client.read().assert_status(200);
        client.read().assert_status(200);
        client.read().assert_status(400);
        client.assert_closed();
    }
    assert_eq!(upstream.count(), 4);
}

#[test]
fn limits_of_heads_are_settings() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let limits = "head_bytes: 100KiB, fields: 300, field_bytes: 50KiB, target_bytes: 20KiB";
    let large = Proxy::with_settings(&format!("workers: 1\nlimits: {{ {limits} }}"), &[&policy]);
    let limits = "head_bytes: 2KiB, fields: 10, field_bytes: 1KiB, target_bytes: 300";
    let small = Proxy::with_settings(&format!("workers: 1\nlimits: {{ {limits} }}"), &[&policy]);
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
    for (request, status) in [
        (format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(15_000)), 414),
        (head(&"x: y\r\n".repeat(250)), 431),
        (head(&format!("x: {}\r\n", "y".repeat(40_000))), 431),
        (head(&format!("x: {}\r\n", "y".repeat(900)).repeat(9)), 431),
    ] {
        let ask = |proxy: &Proxy| {
            let mut client = proxy.connect();
            client.write(&request);
            client.read().status
        };
        assert_eq!((ask(&large), ask(&small)), (200, status), "{:.60}", request);
    }
}
