//! When a request in flight stops counting: with its response, however that ends, or in its time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{ONE, begin, proxy};
use crate::{
    limits::MICROSECOND,
    support::{
        HOUR, MINUTE, Policy, Proxy, Request, Signal, Upstream, eventually, get, http2,
        http2_given_up,
    },
};

#[test]
fn request_counts_until_the_end_of_its_response() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxy = proxy(&upstream, ONE);
    let mut stream = begin(&proxy, &get("/").by("alice"));
    stream.read_head().assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(stream.read_chunk().as_deref(), Some(&b"he"[..]));
    proxy.get_as("alice").assert_status(429);
    assert_eq!(proxy.used("alice", "inflight"), 1);
    go.open();
    assert_eq!(stream.read_chunk().as_deref(), Some(&b"llo"[..]));
    assert_eq!(stream.read_chunk(), None);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn who_asks_one_after_the_other_is_never_denied() {
    const LARGE: usize = 1 << 20;
    let large = "x".repeat(LARGE);
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n{large}"),
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{LARGE:x}\r\n{large}\r\n0\r\n\r\n"
        ),
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno".to_owned(),
    ] {
        let start = response.lines().take(2).collect::<Vec<_>>().join(" ");
        let upstream = Upstream::answering(response);
        let proxy = proxy(&upstream, ONE);
        let mut client = proxy.connect();
        for number in 0..30 {
            let kept = client.send(&get("/").by("alice")).status;
            assert_ne!(kept, 429, "request {number} after {start} on one connection");
            let fresh = proxy.get_as("alice").status;
            assert_ne!(fresh, 429, "request {number} after {start} on another connection");
        }
    }
}

#[test]
fn answer_to_head_ends_at_once() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n");
    let proxy = proxy(&upstream, ONE);
    let head = Request::new("HEAD", "/").by("alice");
    let mut client = proxy.connect();
    for _ in 0..30 {
        client.send(&head).assert_status(200);
    }
}

#[test]
fn requests_of_http_2_count_by_stream() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "inflight: { per: client.ip, concurrent: 1 }");
    let request = || http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    let responses = http2(proxy.address(), (0..20).map(|_| request()).collect());
    assert!(responses.iter().all(|response| response.status() == 200), "{responses:?}");
    assert_eq!(proxy.used("alice", "inflight"), 0);
}

#[test]
fn client_that_goes_away_before_the_answer_counts_until_the_server_has_answered() {
    let (asked, go) = (Signal::default(), Signal::default());
    let upstream = Upstream::held(&asked, &go);
    let proxy = proxy(&upstream, ONE);
    let client = begin(&proxy, &get("/").by("alice"));
    upstream.wait_for(1);
    drop(client);
    proxy.wait_until_logged(" 499 ");
    for _ in 0..8 {
        let again = begin(&proxy, &get("/").by("alice"));
        drop(again);
        proxy.get_as("alice").assert_status(429);
    }
    assert_eq!(upstream.count(), 1, "the server works on one request at once");
    go.open();
    eventually("the slot is free", || (proxy.used("alice", "inflight") == 0).then_some(()));
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn client_that_closes_its_side_counts_until_its_response_has_ended() {
    let (asked, go) = (Signal::default(), Signal::default());
    let upstream = Upstream::held(&asked, &go);
    let proxy = proxy(&upstream, ONE);
    let mut client = begin(&proxy, &get("/").by("alice"));
    upstream.wait_for(1);
    client.end();
    proxy.get_as("alice").assert_status(429);
    go.open();
    client.read().assert_status(200);
    client.assert_closed();
    assert_eq!(proxy.used("alice", "inflight"), 0);
}

#[test]
fn client_that_goes_away_while_it_is_answered_counts_no_longer() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhe");
        exchange.wait_for_close();
    });
    let proxy = proxy(&upstream, ONE);
    for number in 1..=3 {
        let mut client = begin(&proxy, &get("/").by("alice"));
        client.read_head().assert_status(200);
        proxy.get_as("alice").assert_status(429);
        drop(client);
        proxy.wait_until_logged_times(" aborted", number);
        assert_eq!(proxy.used("alice", "inflight"), 0);
    }
}

#[test]
fn client_that_goes_away_in_its_upload_counts_no_longer() {
    let asked = Signal::default();
    let upstream = {
        let asked = asked.clone();
        Upstream::scripted_at_head(move |exchange| {
            asked.open();
            exchange.wait_for_close();
        })
    };
    let proxy = proxy(&upstream, ONE);
    let mut client = proxy.connect();
    let upload = Request::new("POST", "/").by("alice").field("content-length", "100");
    client.write(upload.to_bytes());
    client.write("some of it");
    asked.wait();
    proxy.get_as("alice").assert_status(429);
    drop(client);
    proxy.wait_until_logged("POST / route=/** ");
    eventually("the slot is free", || (proxy.used("alice", "inflight") == 0).then_some(()));
}

#[test]
fn stream_of_http_2_that_is_given_up_counts_until_the_server_has_answered() {
    let (asked, go) = (Signal::default(), Signal::default());
    let upstream = Upstream::held(&asked, &go);
    let proxy = Arc::new(proxy(&upstream, "inflight: { per: client.ip, concurrent: 1 }"));
    let request = http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    let is_asked = move || asked.wait();
    let of_log = Arc::clone(&proxy);
    let is_gone = move || of_log.wait_until_logged(" 499 ");
    http2_given_up(proxy.address(), request, (is_asked, is_gone));
    proxy.get("/").assert_status(429);
    go.open();
    eventually("the slot is free", || (proxy.used("alice", "inflight") == 0).then_some(()));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn failure_of_the_upstream_ends_a_request_too() {
    let silent = Upstream::silent();
    let broken = |bytes: &'static str| {
        Upstream::scripted(move |exchange| {
            exchange.write(bytes);
            exchange.close();
        })
    };
    for (upstream, status) in [
        (Upstream::refusing(), 502),
        (silent, 504),
        (broken(""), 502),
        (broken("nonsense\r\n\r\n"), 502),
    ] {
        let policy = Policy::before(&upstream)
            .upstream(&upstream, "response_timeout: 1s")
            .on_all_routes(&[ONE]);
        let proxy = Proxy::start(&policy);
        for _ in 0..3 {
            proxy.get_as("alice").assert_status(status);
        }
        assert_eq!(proxy.used("alice", "inflight"), 0);
    }
}

#[test]
fn response_that_the_upstream_breaks_off_ends_a_request_too() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhe");
        exchange.close();
    });
    let proxy = proxy(&upstream, ONE);
    for number in 1..=3 {
        begin(&proxy, &get("/").by("alice")).read_to_end();
        proxy.wait_until_logged_times(" aborted", number);
    }
    assert_eq!(proxy.used("alice", "inflight"), 0);
}

#[test]
fn long_stream_counts_for_as_long_as_it_lasts() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxy = proxy(&upstream, ONE);
    let mut stream = begin(&proxy, &get("/").by("alice"));
    stream.read_head().assert_status(200);
    for quarter in 1..=16 {
        proxy.advance(MINUTE / 4);
        proxy.wait_for_tick();
        assert_eq!(proxy.get_as("alice").status, 429, "after {quarter} quarters of its lease");
    }
    go.open();
    stream.read_chunk();
    stream.read_chunk();
    assert_eq!(stream.read_chunk(), None);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn lease_that_is_not_renewed_ends_in_its_time() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxy = proxy(&upstream, ONE);
    let mut first = begin(&proxy, &get("/").by("alice"));
    first.read_head().assert_status(200);
    // In one step, so that the worker comes too late to renew it.
    proxy.advance(MINUTE);
    let mut second = begin(&proxy, &get("/").by("alice"));
    second.read_head().assert_status(200);
    proxy.get_as("alice").assert_status(429);

    // The end of the first is not the end of the second.
    let begin_third = || proxy.get_as("alice").status;
    drop(first);
    proxy.wait_until_logged(" aborted");
    assert_eq!(begin_third(), 429);
    go.open();
    second.read_chunk();
    second.read_chunk();
    assert_eq!(second.read_chunk(), None);
    assert_eq!(begin_third(), 200);
}

#[test]
fn lease_that_was_renewed_lasts_as_long_as_a_new_one() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxy = proxy(&upstream, "inflight: { per: caller, concurrent: 1, lease: 1h }");
    let mut stream = begin(&proxy, &get("/").by("alice"));
    stream.read_head().assert_status(200);
    proxy.advance(HOUR / 3);
    proxy.wait_for_tick();
    proxy.advance(HOUR - MICROSECOND);
    proxy.get_as("alice").assert_status(429);
    go.open();
}

#[test]
fn clock_that_goes_back_delays_no_request() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let proxy = proxy(&upstream, ONE);
    let mut held = begin(&proxy, &get("/").by("alice"));
    asked.wait();
    proxy.turn_back(24 * HOUR);
    proxy.get_as("alice").assert_status(429);
    go.open();
    held.read().assert_status(200);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn client_that_closes_while_it_waits_for_the_rest_of_a_response_counts_no_longer() {
    for head in ["content-length: 9\r\n\r\nhe", "transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"] {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.write(format!("HTTP/1.1 200 OK\r\n{head}"));
            exchange.wait_for_close();
        });
        let proxy = proxy(&upstream, ONE);
        let mut client = begin(&proxy, &get("/").by("alice"));
        client.read_head().assert_status(200);
        // All that has come is read, so that closing is no more than an end.
        if head.starts_with("content-length") {
            assert_eq!(client.read_bytes(2), b"he");
        } else {
            assert_eq!(client.read_chunk().as_deref(), Some(&b"he"[..]));
        }
        proxy.get_as("alice").assert_status(429);
        client.end();
        proxy.wait_until_logged(" aborted");
        assert_eq!(proxy.used("alice", "inflight"), 0);
    }
}

/// So many requests of a worker go on without their client; more could take all connections.
#[test]
fn request_past_those_that_go_on_without_a_client_ends_with_its_connection_to_the_server() {
    const MOST: usize = 64;
    let closed = Arc::<AtomicUsize>::default();
    let upstream = {
        let closed = Arc::clone(&closed);
        Upstream::scripted(move |exchange| {
            exchange.wait_for_close();
            closed.fetch_add(1, Ordering::SeqCst);
        })
    };
    let policy =
        Policy::before(&upstream).on_all_routes(&["inflight: { per: caller, concurrent: 100 }"]);
    let proxy = Proxy::with_settings("workers: 1", &[&policy]);
    for number in 1..=MOST + 1 {
        let client = begin(&proxy, &get("/").by("alice"));
        upstream.wait_for(number);
        drop(client);
        proxy.wait_until_logged_times(" 499 ", number);
    }
    eventually("the server sees one end", || (closed.load(Ordering::SeqCst) == 1).then_some(()));
    assert_eq!(proxy.used("alice", "inflight"), MOST as u64);
}
