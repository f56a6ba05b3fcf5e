//! Clients that send or read a little at a time, so that no pause is too long: a least average rate
//! keeps them from holding a server's connections, and does not apply while the client waits for
//! the server.

use std::thread;

use bytes::Bytes;
use h2::server::Builder;
use http::Response;
use tollgate_upstream::downstream::Fault;

use super::{
    before, before_urls,
    fakes::{Fake, Stream},
};
use crate::support::{
    Client, Proxy, Signal, Upstream,
    frames::{DATA, END_STREAM, Frames, RST_STREAM, frame, get_on, head, window_update},
    get,
};

/// Faster than a test sends anything, so that it is the rate that counts and not how busy the
/// machine is; a pause may take as long as there is.
const STRICT: &str = "workers: 1\ntimeouts: { request_body: 1h, response: 1h, \
                      request_body_rate: 1000000, response_rate: 1000000, rate_grace: 300ms }";

/// Far slower than any test, with a grace that is over while the server keeps the client waiting.
const LENIENT: &str = "workers: 1\ntimeouts: { request_body: 1h, response: 1h, \
                       request_body_rate: 1000, response_rate: 1000, rate_grace: 1s }";

/// Ticks that take longer than any grace here.
const LONG: usize = 15;

fn wait_for_long(proxy: &Proxy) {
    (0..LONG).for_each(|_| proxy.wait_for_tick());
}

/// Sends a byte in each tick until there is an answer.
fn trickle(proxy: &Proxy, client: &mut Client, byte: &str) -> u16 {
    for _ in 0..100 {
        proxy.wait_for_tick();
        if client.has_answer() {
            return client.read().status;
        }
        client.write(byte);
    }
    panic!("it may go on for ever");
}

/// Has the server's end of a connection signal when it is closed.
fn held_until_closed(closed: &Signal) -> Upstream {
    let closed = closed.clone();
    Upstream::scripted_at_head(move |exchange| match exchange.request.method.as_str() {
        "GET" => exchange.answer_ok(),
        _ => {
            exchange.wait_for_close();
            closed.open();
        }
    })
}

#[test]
fn body_that_trickles_in_is_a_408_and_lets_go_of_its_connection() {
    for (fields, byte) in
        [("content-length: 100000", "x"), ("transfer-encoding: chunked", "1\r\nx\r\n")]
    {
        let closed = Signal::default();
        let upstream = held_until_closed(&closed);
        let fields_of_upstream = "max_connections: 1, queue: { size: 0 }";
        let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], fields_of_upstream)]);
        let mut client = proxy.connect();
        client.write(format!("POST /slow HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n"));
        upstream.wait_for(1);
        assert_eq!(trickle(&proxy, &mut client, byte), 408, "{fields}");
        client.assert_closed();
        closed.wait();
        assert_eq!(proxy.faults().total(Fault::SlowBody), 1);
        proxy.get("/").assert_status(200);
        let log = proxy.into_log();
        assert!(log.contains(" 408 ") && log.contains("too slowly"), "{log}");
    }
}

#[test]
fn body_that_only_calls_itself_grpc_is_given_no_more_time() {
    let closed = Signal::default();
    let upstream = held_until_closed(&closed);
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    let grpc = "content-type: application/grpc\r\nte: trailers";
    client.write(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n{grpc}\r\n\r\n"));
    trickle(&proxy, &mut client, "x");
    closed.wait();
    assert_eq!(proxy.faults().total(Fault::SlowBody), 1);
}

#[test]
fn body_after_100_continue_may_not_trickle_in_either() {
    let upstream = held_until_closed(&Signal::default());
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    client.write(
        "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9999\r\n\r\n",
    );
    assert_eq!(client.read_head().status, 100);
    assert_eq!(trickle(&proxy, &mut client, "x"), 408);
    client.assert_closed();
}

#[test]
fn what_was_sent_fast_earns_no_long_pause() {
    let upstream = held_until_closed(&Signal::default());
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    let begun = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n";
    client.write([begun.as_bytes(), &vec![b'x'; 20_000_000]].concat());
    assert_eq!(trickle(&proxy, &mut client, "x"), 408);
}

#[test]
fn http2_body_that_trickles_in_ends_its_stream_and_no_other() {
    let upstream = held_until_closed(&Signal::default());
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut frames = Frames::open(proxy.address());
    let post = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    frames.write(head(1, 0, &post));
    for _ in 0..100 {
        if proxy.faults().total(Fault::SlowBody) == 1 {
            break;
        }
        frames.write(frame(DATA, 0, 1, "x"));
        proxy.wait_for_tick();
    }
    assert_eq!(frames.read_status(1), Some(408));
    frames.assert_alive(3);
}

#[test]
fn slow_body_costs_an_http2_server_a_stream_and_no_connection() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        let Stream { mut body, respond, path, number, leave } = stream;
        if path == "/slow" {
            while let Some(Ok(_)) = body.data().await {}
        }
        Stream { body, respond, path, number, leave }.answer(200, "ok");
    });
    let policy = before_urls(&[&server.url()], "protocol: h2");
    let proxy = Proxy::with_settings(STRICT, &[&policy]);
    proxy.get("/").assert_status(200);
    let mut client = proxy.connect();
    client.write("POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n");
    assert_eq!(trickle(&proxy, &mut client, "x"), 408);
    proxy.get("/").assert_status(200);
    assert_eq!(server.seen.connections(), 1);
}

#[test]
fn call_that_streams_says_something_when_it_has_something_to_say() {
    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        let Stream { mut body, mut respond, .. } = stream;
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
        }
        let head = Response::builder().header("content-type", "application/grpc");
        let mut sending = respond.send_response(head.body(()).unwrap(), false).unwrap();
        sending.send_data(Bytes::new(), true).unwrap();
    });
    let policy = before_urls(&[&server.url()], "protocol: h2");
    let proxy = Proxy::with_settings(STRICT, &[&policy]);
    let mut frames = Frames::open(proxy.address());
    let call = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a/b"),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    frames.write(head(1, 0, &call));
    for _ in 0..LONG {
        frames.write(frame(DATA, 0, 1, "x"));
        proxy.wait_for_tick();
    }
    frames.write(frame(DATA, END_STREAM, 1, ""));
    assert_eq!(frames.read_status(1), Some(200));
    assert_eq!(proxy.faults().total(Fault::SlowBody), 0);
}

#[test]
fn upload_that_the_server_keeps_waiting_is_not_the_clients_fault() {
    const BYTES: usize = 32 << 20;
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = {
        let asked = asked.clone();
        let go = go.clone();
        Upstream::scripted_at_head(move |exchange| {
            if exchange.request.method == "POST" {
                asked.open();
                go.wait();
                exchange.read_body();
            }
            exchange.answer_ok();
        })
    };
    let proxy = Proxy::with_settings(LENIENT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    thread::scope(|scope| {
        let uploading = scope.spawn(move || {
            let begun = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {BYTES}\r\n\r\n");
            client.write([begun.as_bytes(), &vec![b'x'; BYTES]].concat());
            client.read().status
        });
        asked.wait();
        wait_for_long(&proxy);
        go.open();
        assert_eq!(uploading.join().unwrap(), 200);
    });
}

#[test]
fn upload_that_waits_for_a_connection_is_not_asked_for_yet() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let policy = before(&[&upstream], "max_connections: 1, queue: { timeout: 60s }");
    let proxy = Proxy::with_settings(LENIENT, &[&policy]);
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    asked.wait();
    let mut waits = proxy.connect();
    waits.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n");
    wait_for_long(&proxy);
    go.open();
    first.read().assert_status(304);
    upstream.wait_for(2);
    waits.write("xx");
    waits.read().assert_status(200);
}

/// Answers with more than any buffer holds, a part at a time.
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
fn response_that_is_read_a_little_at_a_time_is_broken_off() {
    let upstream = plenty();
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head();
    let is_broken_off = (0..100).any(|_| {
        client.read_bytes(1000);
        proxy.wait_for_tick();
        proxy.faults().total(Fault::SlowReader) == 1
    });
    assert!(is_broken_off);
    let log = proxy.into_log();
    assert!(log.contains(" aborted"), "{log}");
}

#[test]
fn stream_that_is_granted_a_little_at_a_time_is_reset_and_no_other() {
    // Parts that are so small that a byte for each would be progress.
    let upstream = Upstream::scripted(|exchange| match exchange.request.target.as_str() {
        "/" => {
            exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            (0..100_000).for_each(|_| exchange.write("1\r\nx\r\n"));
            exchange.close();
        }
        _ => exchange.answer_ok(),
    });
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut frames = Frames::open_with(proxy.address(), &[(4, 0)]);
    frames.write(get_on(1));
    for _ in 0..100 {
        if proxy.faults().total(Fault::SlowReader) == 1 {
            break;
        }
        frames.write(window_update(1, 1));
        proxy.wait_for_tick();
    }
    let end = frames.read_until(|frame| frame.kind == RST_STREAM).unwrap();
    assert_eq!(end.stream, 1);
    let ok = [(":method", "GET"), (":scheme", "http"), (":path", "/ok"), (":authority", "a")];
    frames.write([head(3, END_STREAM, &ok), window_update(3, 100)].concat());
    assert_eq!(frames.read_status(3), Some(200));
}

#[test]
fn stream_of_events_may_be_quiet() {
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            exchange.write(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                 transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
            );
            go.wait();
            exchange.write("9\r\ndata: 2\n\n\r\n0\r\n\r\n");
        })
    };
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    let mut frames = Frames::open(proxy.address());
    client.write(get("/").to_bytes());
    assert_eq!(client.read_head().status, 200);
    assert_eq!(client.read_chunk().unwrap(), b"data: 1\n\n");
    frames.write(get_on(1));
    let is_data = |stream| {
        move |frame: &crate::support::frames::Frame| {
            (frame.kind, frame.stream) == (DATA, stream) && !frame.payload.is_empty()
        }
    };
    assert_eq!(frames.read_until(is_data(1)).unwrap().payload, b"data: 1\n\n");
    wait_for_long(&proxy);
    go.open();
    assert_eq!(client.read_chunk().unwrap(), b"data: 2\n\n");
    assert_eq!(client.read_chunk(), None);
    assert_eq!(frames.read_until(is_data(1)).unwrap().payload, b"data: 2\n\n");
    assert_eq!(proxy.faults().total(Fault::SlowReader), 0);
}

#[test]
fn download_that_the_server_keeps_waiting_goes_on() {
    let go = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n");
            exchange.write(vec![b'x'; 100_000]);
            go.wait();
            exchange.write(vec![b'y'; 100_000]);
        })
    };
    let proxy = Proxy::with_settings(STRICT, &[&before(&[&upstream], "")]);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head();
    client.read_bytes(100_000);
    wait_for_long(&proxy);
    go.open();
    assert!(client.read_bytes(100_000).iter().all(|byte| *byte == b'y'));
}
