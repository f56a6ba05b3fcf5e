//! Requests whose length or form is ambiguous: a server behind the proxy could read them otherwise,
//! so none may reach it, and nothing that follows on such a connection may either.

use crate::support::{Client, Policy, Proxy, Upstream, get, post};

const NEXT: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

/// Writes `request` on a connection of its own, and expects it to be refused, closed and unseen.
fn assert_refused(proxy: &Proxy, upstream: &Upstream, request: &str, status: u16) {
    let mut client = proxy.connect();
    client.write(request);
    let response = client.read();
    assert_eq!(response.status, status, "{request:?} was answered with\n{response:?}");
    client.assert_closed();
    assert_eq!(upstream.count(), 0, "{request:?} was forwarded");
}

fn refuse_all<'r>(status: u16, requests: impl IntoIterator<Item = &'r str>) {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for request in requests {
        assert_refused(&proxy, &upstream, request, status);
    }
}

fn refuse_fields(status: u16, fields: &[&str]) {
    let requests: Vec<String> = fields
        .iter()
        .map(|fields| format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n0\r\n\r\n{NEXT}"))
        .collect();
    refuse_all(status, requests.iter().map(String::as_str));
}

#[test]
fn two_ways_to_tell_a_length_are_refused() {
    refuse_fields(
        400,
        &[
            "content-length: 5\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 5",
            "Transfer-Encoding: chunked\r\nContent-Length: 0",
            "content-length: 5\r\ntransfer-encoding: identity",
        ],
    );
}

#[test]
fn transfer_encoding_must_be_chunked_once() {
    refuse_fields(
        400,
        &[
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: chunked, gzip",
            "transfer-encoding: chunked, identity",
            "transfer-encoding: gzip",
            "transfer-encoding: xchunked",
            "transfer-encoding: chunked;q=1",
            "transfer-encoding: ,chunked",
            "transfer-encoding:",
            "transfer-encoding: \"chunked\"",
            "transfer-encoding: chunked\u{b}",
        ],
    );
}

#[test]
fn coding_that_is_not_implemented_is_a_501() {
    refuse_fields(
        501,
        &[
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: x, y, chunked",
            "transfer-encoding: identity, chunked",
            "transfer-encoding: identity",
            "Transfer-Encoding: Identity ",
        ],
    );
}

#[test]
fn content_length_must_be_one_plain_number() {
    refuse_fields(
        400,
        &[
            "content-length: 5\r\ncontent-length: 6",
            "content-length: 5\r\ncontent-length: 05",
            "content-length: 5, 5",
            "content-length: +5",
            "content-length: -5",
            "content-length: 5 5",
            "content-length: 0x5",
            "content-length: 5.0",
            "content-length:",
            "content-length: 9223372036854775808",
            "content-length: 18446744073709551614",
            "content-length: 18446744073709551615",
            "content-length: 18446744073709551616",
            "content-length: five",
        ],
    );
}

#[test]
fn content_length_twice_with_the_same_digits_is_one() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi");
    client.read().assert_status(200);
    let seen = upstream.last();
    assert_eq!((seen.fields.one("content-length"), seen.body), (Some("2"), b"hi".to_vec()));
}

#[test]
fn field_lines_must_be_well_formed() {
    refuse_fields(
        400,
        &[
            "x: a\r\n folded",
            "x: a\r\n\tfolded",
            " x: a",
            "x : a",
            "x\t: a",
            ": a",
            "x",
            "x: a\0b",
            "x\0: a",
            "x: a\rb",
            "x: a\nb: c",
            "x y: a",
            "transfer-encoding : chunked",
            "content-length : 5",
            "content-length: 5\ntransfer-encoding: chunked",
        ],
    );
}

#[test]
fn request_line_must_be_well_formed() {
    let requests = [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / x HTTP/1.1",
        " GET / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / http/1.1",
        "G(T / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /#fragment HTTP/1.1",
        "GET /a\\b HTTP/1.1",
        "GET /a\u{7f} HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET /a\0 HTTP/1.1",
    ]
    .map(|line| format!("{line}\r\nhost: a\r\n\r\n{NEXT}"));
    refuse_all(400, requests.iter().map(String::as_str));
}

/// A server behind the proxy could take such a target for another server's name.
#[test]
fn targets_of_other_schemes_and_of_none_are_refused() {
    let targets = [
        "ftp://a/",
        "ws://a/",
        "wss://a/",
        "WS://a/",
        "file:///a",
        "http:/a",
        "http:a",
        "http:",
        "http://",
        "http:///a",
        "://a/",
        ":80",
        "a",
        "a:80",
        "a/b",
        "mailto:a",
        "?a",
    ];
    let requests = targets.map(|target| format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n{NEXT}"));
    refuse_all(400, requests.iter().map(String::as_str));
}

#[test]
fn target_that_begins_with_two_slashes_is_a_path() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for target in ["//b.example/x", "http://api.example.com//b.example/x"] {
        proxy.get(target).assert_status(200);
        let seen = upstream.last();
        assert_eq!(
            (&*seen.target, seen.fields.one("host")),
            ("/b.example/x", Some("api.example.com"))
        );
    }
}

#[test]
fn lines_must_end_in_cr_lf() {
    refuse_all(
        400,
        [
            "GET / HTTP/1.1\nhost: a\n\n",
            "GET / HTTP/1.1\r\nhost: a\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\n",
            "GET / HTTP/1.1\rhost: a\r\r",
        ],
    );
}

#[test]
fn transfer_encoding_in_http_1_0_is_refused() {
    let request = "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    refuse_all(400, [request]);
}

/// Bodies that lenient servers read in different ways.
const BAD_CHUNKS: [&str; 14] = [
    "+5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    "5\r\nhelloworld\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "5;a=b\n\r\nhello\r\n0\r\n\r\n",
    "\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n",
    "5\r\nhello\r\n0\r\n folded: a\r\n\r\n",
];

const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";

#[test]
fn bad_chunk_that_comes_with_its_head_is_refused() {
    let requests = BAD_CHUNKS.map(|body| format!("{CHUNKED}{body}{NEXT}"));
    refuse_all(400, requests.iter().map(String::as_str));
}

#[test]
fn nothing_after_a_bad_chunk_is_read() {
    for body in BAD_CHUNKS {
        let upstream = Upstream::scripted_at_head(|exchange| exchange.wait_for_close());
        let proxy = Proxy::start(&Policy::before(&upstream));
        let mut client = proxy.connect();
        client.write(CHUNKED);
        client.write(body);
        client.write(NEXT);
        let answer = client.read_to_end();
        let answers = String::from_utf8_lossy(&answer).matches("HTTP/1.1 ").count();
        assert!(answers <= 1, "{body:?} was answered with {answers} responses");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{body:?}");
        let targets: Vec<String> = upstream.requests().into_iter().map(|r| r.target).collect();
        assert!(!targets.contains(&"/smuggled".to_owned()), "{body:?} smuggled a request");
    }
}

#[test]
fn chunks_in_every_legal_form_are_read() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for body in [
        "5\r\nhello\r\n0\r\n\r\n",
        "0005\r\nhello\r\n000\r\n\r\n",
        "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n",
        "5\r\nhello\r\n0\r\nx-trailer: a\r\n\r\n",
    ] {
        let mut client = proxy.connect();
        client.write(format!("{CHUNKED}{body}"));
        client.read().assert_status(200);
        assert_eq!(upstream.last().body, b"hello", "{body:?}");
        // In step: the next request is read as one.
        client.send(&get("/next")).assert_status(200);
    }
}

#[test]
fn too_large_heads_are_refused_by_what_is_too_large() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
    let target =
        |length: usize| format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(length - 1));
    let large_field = |length: usize| head(&format!("x: {}\r\n", "y".repeat(length)));
    let fields = |count: usize| head(&"x: y\r\n".repeat(count - 1));
    for (request, status) in [
        (target(8193), 414),
        (target(40_000), 414),
        (large_field(16 * 1024), 431),
        (fields(101), 431),
        (head(&format!("x: {}\r\n", "y".repeat(12_000)).repeat(3)), 431),
    ] {
        assert_refused(&proxy, &upstream, &request, status);
    }
    for request in [target(8192), large_field(15 * 1024), fields(100)] {
        let mut client = proxy.connect();
        client.write(&request);
        client.read().assert_status(200);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::scripted(|exchange| {
        let target = exchange.request.target.clone();
        let length = target.len();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{target}"));
    });
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    let targets: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    let requests = targets.iter().enumerate().map(|(number, target)| match number % 2 {
        0 => get(target).to_bytes(),
        _ => post(target, "body").to_bytes(),
    });
    client.write(requests.collect::<Vec<_>>().concat());
    for target in &targets {
        assert_eq!(&client.read().text(), target);
    }
}

#[test]
fn good_request_before_a_bad_one_is_answered() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write("GET /good HTTP/1.1\r\nhost: a\r\n\r\nGET /bad HTTP/1.1\r\nhost : a\r\n\r\n");
    client.read().assert_status(200);
    client.read().assert_status(400);
    client.assert_closed();
    assert_eq!(upstream.count(), 1);
}

#[test]
fn body_of_a_denied_request_is_not_taken_for_a_request() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    proxy.get("/").assert_status(200);
    for body in [NEXT, &NEXT.repeat(10_000)] {
        let mut client = proxy.connect();
        let last = get("/last").field("connection", "close");
        client.write([post("/", body).to_bytes(), last.to_bytes()].concat());
        client.read().assert_status(429);
        // The connection goes on with the last request, or not at all.
        let rest = String::from_utf8(client.read_to_end()).unwrap();
        assert!(rest.matches("HTTP/1.1 ").count() <= 1, "{rest}");
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn requests_are_read_however_they_are_cut() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    let request = format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\n");
    for byte in request.bytes() {
        client.write([byte]);
    }
    client.read().assert_status(200);
    assert_eq!(upstream.last().body, b"hello");
}

#[test]
fn empty_line_before_a_request_is_forgiven() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write(format!("\r\n{NEXT}"));
    client.read().assert_status(200);
    refuse_all(400, [format!("\r\n\r\n\r\n{NEXT}").as_str()]);
}

#[test]
fn request_after_one_that_closes_is_not_read() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write(format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n{NEXT}"));
    client.read().assert_status(200).assert_field("connection", "close");
    client.assert_closed();
    assert_eq!(upstream.count(), 1);
}

#[test]
fn client_that_leaves_in_the_middle_of_a_head_affects_no_other() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let half = |text: &str| {
        let mut client: Client = proxy.connect();
        client.write(text);
    };
    half("GET / HT");
    half("GET / HTTP/1.1\r\nhost: ");
    half("PRI * HTTP/2.0\r\n\r\nSM");
    half("");
    proxy.get("/").assert_status(200);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn refusal_is_said_in_json_and_names_no_upstream() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write("GET /#fragment HTTP/1.1\r\nhost: a\r\n\r\n");
    let response = client.read();
    response
        .assert_status(400)
        .assert_field("connection", "close")
        .assert_field("content-type", "application/json; charset=utf-8")
        .assert_field("cache-control", "no-store");
    assert_eq!(response.json()["message"], "The request is malformed or too large.");
}
