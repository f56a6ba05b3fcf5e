//! Switching to other protocols, and what comes after that.

use std::sync::{Arc, Mutex};

use crate::support::{Client, Exchange, Policy, Proxy, Request, Upstream, eventually, get, post};

/// A request to switch to WebSocket.
fn websocket(target: &str) -> Request {
    get(target)
        .field("connection", "keep-alive, Upgrade")
        .field("upgrade", "websocket")
        .field("sec-websocket-version", "13")
        .field("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// A connection that has become a tunnel.
fn tunnel(proxy: &Proxy, request: &Request) -> Client {
    let mut client = proxy.connect();
    client.write(request.to_bytes());
    client.read_head().assert_status(101).assert_field("upgrade", "websocket");
    client
}

#[test]
fn bytes_pass_both_ways_once_the_server_has_agreed() {
    let upstream = Upstream::echoing();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
    let mut client = proxy.connect();
    client.write(websocket("/chat").by("alice").to_bytes());
    client
        .read_head()
        .assert_status(101)
        .assert_field("connection", "upgrade")
        .assert_field("upgrade", "websocket")
        .assert_field("x-ratelimit-remaining", "9")
        .assert_no_field("content-length");
    for bytes in [&b"\x81\x02hi"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 100_000]] {
        client.write(bytes);
        assert_eq!(client.read_bytes(bytes.len()), bytes);
    }
    let seen = upstream.last();
    assert_eq!(seen.fields.one("connection"), Some("upgrade"));
    assert_eq!(seen.fields.one("upgrade"), Some("websocket"));
    assert_eq!(seen.fields.one("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    assert_eq!(seen.fields.one("x-tollgate-subject"), Some("alice"));
}

#[test]
fn who_is_denied_does_not_get_through() {
    let upstream = Upstream::echoing();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 1/hour }"])
        .routes(&["{ match: { path: /** }, auth: required, limits: [core] }"]);
    let proxy = Proxy::start(&policy);
    proxy.send(websocket("/")).assert_status(401);
    let _client = tunnel(&proxy, &websocket("/").by("alice"));
    let denied = proxy.send(websocket("/").by("alice"));
    denied.assert_status(429).assert_no_field("upgrade");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn bytes_that_come_early_are_carried_once_the_server_has_agreed() {
    let upstream = Upstream::echoing();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for early in [&b"early"[..], b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n", b"\r\n\0"] {
        let mut client = proxy.connect();
        client.write([&websocket("/").to_bytes(), early].concat());
        client.read_head().assert_status(101);
        assert_eq!(client.read_bytes(early.len()), early);
    }
}

#[test]
fn bytes_that_come_early_are_a_request_of_their_own_if_the_server_declines() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write([websocket("/first").to_bytes(), get("/second").to_bytes()].concat());
    client.read().assert_status(200).assert_no_field("upgrade");
    client.read().assert_status(200);
    let targets: Vec<String> =
        upstream.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/first", "/second"]);
    assert!(upstream.last().fields.one("x-request-id").is_some());
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn bytes_that_come_early_and_are_no_request_go_nowhere_if_the_server_declines() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write([&websocket("/").to_bytes(), &b"\x81\x02hi\r\n\r\n"[..]].concat());
    client.read().assert_status(200);
    let rest = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 400 "), "{rest}");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn other_requests_go_on_without_asking_for_another_protocol() {
    let upstream = Upstream::echoing();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let asking = |request: Request, protocol: &str, connection: &str| {
        request.field("upgrade", protocol).field("connection", connection)
    };
    for request in [
        asking(get("/"), "h2c", "upgrade, http2-settings").field("http2-settings", "AAMAAABk"),
        asking(get("/"), "TLS/1.0", "upgrade"),
        asking(get("/"), "websocket", "keep-alive"),
        asking(post("/", "x"), "websocket", "upgrade"),
        asking(Request::new("OPTIONS", "/"), "websocket", "upgrade"),
        get("/").field("upgrade", "websocket"),
    ] {
        proxy.send(request).assert_status(200).assert_no_field("upgrade");
        let seen = upstream.last();
        for name in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(seen.fields.one(name), None, "{name}");
        }
    }
}

#[test]
fn routes_say_what_may_be_switched_to() {
    let upstream = Upstream::echoing();
    let proxy = Proxy::start(&Policy::before(&upstream).routes(&[
        "{ match: { path: /none }, limits: [], upgrades: [] }",
        "{ match: { path: /chat }, limits: [], upgrades: [Chat, websocket] }",
    ]));
    proxy.send(websocket("/none")).assert_status(200);
    let mut client = proxy.connect();
    let request = get("/chat").field("connection", "upgrade").field("upgrade", "x, CHAT");
    client.write(request.to_bytes());
    client.read_head().assert_status(101).assert_field("upgrade", "CHAT");
}

#[test]
fn server_that_switches_to_something_else_is_a_502() {
    for fields in ["upgrade: h2c\r\n", "", "upgrade: websocket, h2c\r\n"] {
        let upstream = Upstream::answering(format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n{fields}\r\n"
        ));
        let proxy = Proxy::start(&Policy::before(&upstream));
        proxy.send(websocket("/")).assert_status(502);
        // The worker goes on.
        proxy.get("/%00").assert_status(400);
    }
}

#[test]
fn server_that_declines_is_heard_out() {
    let body = "x".repeat(100_000);
    let upstream = Upstream::answering(format!(
        "HTTP/1.1 426 Upgrade Required\r\nupgrade: other\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    for _ in 0..2 {
        let response = client.send(&websocket("/"));
        response.assert_status(426).assert_field("upgrade", "other");
        assert_eq!(response.text(), body);
    }
}

/// A proxy that lets each caller have one request in flight.
fn one_at_a_time(upstream: &Upstream) -> Proxy {
    let limit = "inflight: { per: caller, concurrent: 1, lease: 60s }";
    Proxy::start(&Policy::before(upstream).on_all_routes(&[limit]))
}

#[test]
fn tunnel_is_in_flight_until_the_client_leaves() {
    let upstream = Upstream::echoing();
    let proxy = one_at_a_time(&upstream);
    let client = tunnel(&proxy, &websocket("/").by("alice"));
    proxy.get_as("alice").assert_status(429);
    drop(client);
    eventually("the lease has ended", || (proxy.get_as("alice").status == 200).then_some(()));
}

#[test]
fn tunnel_is_in_flight_until_the_server_leaves() {
    let upstream = Upstream::scripted(|exchange| match exchange.request.target.as_str() {
        "/ws" => {
            exchange.write(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                 upgrade: websocket\r\n\r\nbye",
            );
            exchange.close();
        }
        _ => exchange.answer_ok(),
    });
    let proxy = one_at_a_time(&upstream);
    let mut client = tunnel(&proxy, &websocket("/ws").by("alice"));
    assert_eq!(client.read_to_end(), b"bye");
    client.end();
    eventually("the lease has ended", || (proxy.get_as("alice").status == 200).then_some(()));
    let log = proxy.into_log();
    let line = log.lines().find(|line| line.contains(" 101 ")).unwrap_or(&log);
    assert!(line.contains(" down=3 ") && !line.contains("aborted"), "{line}");
}

#[test]
fn end_of_one_side_is_passed_to_the_other_which_may_go_on() {
    let upstream = Upstream::echoing();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = tunnel(&proxy, &websocket("/"));
    client.write("the last word");
    client.end();
    assert_eq!(client.read_to_end(), b"the last word");
    drop(client);
    let log = proxy.into_log();
    let line = log.lines().find(|line| line.contains(" 101 ")).unwrap_or(&log);
    assert!(line.contains(" up=13 down=13 ") && !line.contains("aborted"), "{line}");
}

#[test]
fn tunnels_are_ended_within_the_drain_and_not_cut() {
    let upstream = Upstream::echoing();
    let policy = Policy::before(&upstream).routes(&[CHAT]);
    for (drain, has_time) in [("10ms", false), ("3s", true)] {
        let settings = format!("workers: 1\ndrain: {drain}");
        let mut proxy = Proxy::with_settings(&settings, &[&policy]);
        let mut client = proxy.connect();
        client.write(chat().to_bytes());
        client.read_head().assert_status(101);
        proxy.begin_shutdown();
        if has_time {
            client.write("still here");
            assert_eq!(client.read_bytes(10), b"still here");
        }
        assert_eq!(client.read_to_end(), b"", "{drain}");
        drop(client);
        if has_time {
            assert_eq!(proxy.wait().cut, 0);
        }
    }
}

/// A protocol of which nothing is known.
const CHAT: &str = "{ match: { path: /** }, limits: [], upgrades: [chat, websocket] }";

fn chat() -> Request {
    get("/").field("connection", "upgrade").field("upgrade", "chat")
}

/// Agrees to WebSocket, and has `script` go on.
fn speaking(
    script: impl Fn(&mut Exchange<'_>, &Mutex<Vec<u8>>) + Send + Sync + 'static,
) -> (Upstream, Arc<Mutex<Vec<u8>>>) {
    let received = Arc::<Mutex<Vec<u8>>>::default();
    let theirs = Arc::clone(&received);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\n\r\n",
        );
        script(exchange, &theirs);
        exchange.close();
    });
    (upstream, received)
}

/// A proxy that gives tunnels a third of this to go on.
fn draining_within(drain: &str, upstream: &Upstream) -> Proxy {
    let settings = format!("workers: 1\ndrain: {drain}");
    Proxy::with_settings(&settings, &[&Policy::before(upstream)])
}

/// "Going away" (RFC 6455 section 7.4.1), as servers say it.
const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xe9];

/// The same as clients say it, with the mask taken off.
fn unmasked(close: &[u8]) -> Vec<u8> {
    let [first, second, a, b, _, _, x, y] = close[..] else { panic!("no close: {close:x?}") };
    assert_eq!(second, 0x82, "a client's frame is masked");
    vec![first, 2, x ^ a, y ^ b]
}

/// "hello" in two frames of a message, so that there is something between frames.
const HELLO: &[u8] = b"\x01\x03hel\x80\x02lo";

#[test]
fn both_ends_of_a_websocket_are_notified_that_the_proxy_leaves() {
    let (upstream, received) = speaking(|exchange, received| {
        exchange.write(HELLO);
        *received.lock().unwrap() = exchange.read_bytes(8 + 11);
        // It answers, as it should, and waits for the end.
        exchange.write(GOING_AWAY);
        received.lock().unwrap().extend(exchange.read_to_end());
    });
    let mut proxy = draining_within("3s", &upstream);
    let mut client = tunnel(&proxy, &websocket("/"));
    assert_eq!(client.read_bytes(HELLO.len()), HELLO);
    // A text of five bytes, masked with nothing.
    client.write(b"\x81\x85\0\0\0\0hello");
    proxy.begin_shutdown();
    assert_eq!(client.read_bytes(4), GOING_AWAY);
    client.write(b"\x88\x82\0\0\0\0\x03\xe9");
    assert_eq!(client.read_to_end(), b"");
    drop(client);
    let log = proxy.into_log();
    let received = received.lock().unwrap();
    assert_eq!(&received[..11], b"\x81\x85\0\0\0\0hello");
    assert_eq!(unmasked(&received[11..]), GOING_AWAY);
    let line = log.lines().find(|line| line.contains(" 101 ")).unwrap_or(&log);
    assert!(line.contains(" up=11 down=9 ") && !line.contains("aborted"), "{line}");
}

#[test]
fn frame_that_has_begun_is_finished_before_the_close() {
    let (upstream, received) = speaking(|exchange, received| {
        exchange.write(b"\x82\x0ahalf a");
        // The way up is between two frames, and so this one is late by now.
        *received.lock().unwrap() = exchange.read_bytes(8);
        exchange.write(b"word\x81\x01x");
        exchange.read_to_end();
    });
    let mut proxy = draining_within("3s", &upstream);
    let mut client = tunnel(&proxy, &websocket("/"));
    assert_eq!(client.read_bytes(8), b"\x82\x0ahalf a");
    proxy.begin_shutdown();
    assert_eq!(client.read_to_end(), [&b"word"[..], &GOING_AWAY].concat());
    drop(client);
    proxy.wait();
    assert_eq!(unmasked(&received.lock().unwrap()), GOING_AWAY);
}

#[test]
fn frame_that_is_never_finished_is_not_waited_for_for_long() {
    let (upstream, _) = speaking(|exchange, _| {
        exchange.write(b"\x82\x0ahalf a");
        exchange.read_to_end();
    });
    let mut proxy = draining_within("6s", &upstream);
    let mut client = tunnel(&proxy, &websocket("/"));
    assert_eq!(client.read_bytes(8), b"\x82\x0ahalf a");
    proxy.begin_shutdown();
    assert_eq!(client.read_to_end(), b"");
    drop(client);
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn client_that_does_not_answer_a_close_is_let_go() {
    let upstream = Upstream::echoing();
    let mut proxy = draining_within("6s", &upstream);
    let mut client = tunnel(&proxy, &websocket("/"));
    proxy.begin_shutdown();
    assert_eq!(client.read_to_end(), GOING_AWAY);
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn nothing_is_said_after_a_close_or_in_another_protocol() {
    let (upstream, _) = speaking(|exchange, _| {
        exchange.write(b"\x88\x02\x03\xe8");
        exchange.read_to_end();
    });
    let mut proxy = draining_within("3s", &upstream);
    let mut client = tunnel(&proxy, &websocket("/"));
    assert_eq!(client.read_bytes(4), b"\x88\x02\x03\xe8");
    proxy.begin_shutdown();
    assert_eq!(client.read_to_end(), b"");

    let upstream = Upstream::echoing();
    let policy = Policy::before(&upstream).routes(&[CHAT]);
    let mut proxy = Proxy::with_settings("workers: 1\ndrain: 1s", &[&policy]);
    let mut client = proxy.connect();
    client.write(chat().to_bytes());
    client.read_head().assert_status(101).assert_field("upgrade", "chat");
    proxy.begin_shutdown();
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn tunnel_in_which_nothing_moves_is_closed() {
    let upstream = Upstream::echoing();
    let policy = Policy::before(&upstream);
    let settings = "workers: 1\ntimeouts: { tunnel_idle: 1s }";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    tunnel(&proxy, &websocket("/")).assert_closed();
    proxy.get("/").assert_status(200);
}
