//! Clients that take their time: each is given some, and does not affect others.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use tollgate_upstream::downstream::Fault;

use crate::support::{
    Client, PATIENCE, Policy, Proxy, Upstream, eventually,
    frames::{
        CONTINUATION, DATA, END_STREAM, Frames, GET, GOAWAY, HEADERS, POST, PREFACE, RST_STREAM,
        SETTINGS, block, frame, get_on, head, window_update,
    },
    get,
};

const SHORT: &str = "workers: 1\ntimeouts: { head: 300ms, keep_alive: 400ms, http2_idle: 400ms, \
                     request_body: 300ms, response: 300ms }";

fn proxy(upstream: &Upstream) -> Proxy {
    Proxy::with_settings(SHORT, &[&Policy::before(upstream)])
}

#[test]
fn silent_client_is_closed() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    let mut client = proxy.connect();
    client.assert_closed();
    eventually("it is gone", || (proxy.connections() == 0).then_some(()));
}

#[test]
fn slow_head_is_a_408() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for begun in ["GET", "GET / HTTP/1.1\r\nhost: a", "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n"] {
        let mut client = proxy.connect();
        client.write(begun);
        let response = client.read();
        response
            .assert_status(408)
            .assert_field("connection", "close")
            .assert_field("content-type", "application/json; charset=utf-8");
        assert!(response.field("x-request-id").is_some());
        client.assert_closed();
    }
    assert_eq!(proxy.faults().total(Fault::SlowHead), 3);
    // Also of a later request.
    let mut client = proxy.connect();
    client.send(&get("/")).assert_status(200);
    client.write("GET / HTTP/1.1\r\n");
    client.read().assert_status(408);
    let log = proxy.into_log();
    assert_eq!(log.matches(" 408 ").count(), 4, "{log}");
}

#[test]
fn head_that_trickles_in_is_a_408() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").unwrap();
    let mut answer = Vec::new();
    // A byte each time that nothing comes.
    let is_closed = (0..1000).any(|_| {
        let mut bytes = [0; 1000];
        match stream.read(&mut bytes) {
            Ok(0) => true,
            Ok(read) => {
                answer.extend(&bytes[..read]);
                false
            }
            Err(_) => {
                let _ = stream.write_all(b"x");
                false
            }
        }
    });
    assert!(
        is_closed && answer.starts_with(b"HTTP/1.1 408 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[test]
fn idle_connection_is_closed() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    let mut client = proxy.connect();
    client.send(&get("/")).assert_status(200);
    client.assert_closed();
    let mut frames = Frames::open(proxy.address());
    frames.assert_alive(1);
    assert_eq!(frames.read_end(), Some(0), "the connection ends without an error");
}

#[test]
fn body_without_progress_is_a_408() {
    let upstream = Upstream::scripted_at_head(|exchange| exchange.wait_for_close());
    let proxy = proxy(&upstream);
    for begun in [
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
    ] {
        let mut client = proxy.connect();
        client.write(begun);
        client.read().assert_status(408).assert_field("connection", "close");
        client.assert_closed();
    }
    let mut frames = Frames::open(proxy.address());
    frames.write([head(1, 0, &POST), frame(DATA, 0, 1, "hello")].concat());
    assert_eq!(frames.read_status(1), Some(408));
}

/// An upstream that answers with more than any buffer holds.
fn plenty() -> Upstream {
    Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
        for _ in 0..100 {
            exchange.write(vec![b'x'; 1_000_000]);
        }
        exchange.close();
    })
}

#[test]
fn response_that_is_not_read_is_broken_off() {
    let upstream = plenty();
    let proxy = proxy(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    let is_broken_off = || (proxy.faults().total(Fault::SlowReader) == 1).then_some(());
    eventually("it is broken off", is_broken_off);
    let log = proxy.into_log();
    assert!(log.contains(" aborted"), "{log}");
}

#[test]
fn stream_that_is_granted_no_room_is_reset_and_no_other() {
    let upstream = plenty();
    let proxy = proxy(&upstream);
    let mut frames = Frames::open(proxy.address());
    // The window of 64 KiB is used up by the first stream, and then enlarged for the connection
    // only.
    frames.write([get_on(1), window_update(0, 1 << 20)].concat());
    let end = frames.read_until(|frame| matches!(frame.kind, RST_STREAM | GOAWAY)).unwrap();
    assert_eq!((end.kind, end.stream), (RST_STREAM, 1));
    assert_eq!(proxy.faults().total(Fault::SlowReader), 1);
    frames.write(get_on(3));
    assert_eq!(frames.read_status(3), Some(200));
}

#[test]
fn client_without_any_window_is_ended() {
    let upstream = plenty();
    let proxy = proxy(&upstream);
    let mut frames = Frames::open_with(proxy.address(), &[(4, 0)]);
    for stream in [1, 3, 5] {
        frames.write(get_on(stream));
    }
    for _ in 0..3 {
        assert!(frames.read_until(|frame| frame.kind == RST_STREAM).is_some());
    }
}

#[test]
fn head_that_is_never_whole_ends_an_http2_connection() {
    let upstream = Upstream::silent();
    let proxy = proxy(&upstream);
    let begun = frame(HEADERS, END_STREAM, 3, block(&GET));
    for (begun, case) in [
        (begun.clone(), "no continuation"),
        ([begun.clone(), frame(CONTINUATION, 0, 3, [])].concat(), "an empty continuation"),
        (begun[..20].to_vec(), "half a frame"),
    ] {
        let mut frames = Frames::open(proxy.address());
        // Beside a request that takes its time.
        frames.write([get_on(1), begun].concat());
        frames.read_end();
        assert!(proxy.faults().total(Fault::SlowHead) > 0, "{case}");
    }
}

#[test]
fn http2_client_that_only_says_so_is_closed() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream);
    for begun in [&PREFACE[..10], PREFACE, &[PREFACE, &frame(SETTINGS, 0, 0, [])].concat()] {
        let mut frames = Frames::connect(proxy.address());
        frames.write(begun);
        frames.read_end();
    }
    eventually("all have gone", || (proxy.connections() == 0).then_some(()));
}

#[test]
fn good_client_is_served_beside_many_slow_ones() {
    let upstream = Upstream::scripted_at_head(|exchange| match exchange.request.method.as_str() {
        "POST" => exchange.wait_for_close(),
        _ => exchange.answer_ok(),
    });
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut held: Vec<Client> = Vec::new();
    let mut streams: Vec<Frames> = Vec::new();
    for _ in 0..30 {
        held.push(proxy.connect());
        for begun in ["GET / HT", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx"] {
            let mut client = proxy.connect();
            client.write(begun);
            held.push(client);
        }
        let mut frames = Frames::open_with(proxy.address(), &[(4, 0)]);
        frames.write([get_on(1), frame(HEADERS, END_STREAM, 3, block(&GET))].concat());
        streams.push(frames);
    }
    for _ in 0..100 {
        let started = std::time::Instant::now();
        proxy.get("/").assert_status(200);
        assert!(started.elapsed() < PATIENCE);
    }
    assert_eq!(held.len() + streams.len(), 120);
}
