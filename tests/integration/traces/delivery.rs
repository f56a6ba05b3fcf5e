//! How spans get to the receiver, and what becomes of them if they do not.

use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_keyword::Keyword;
use tollgate_observe::trace::DropReason;

use super::proxy;
use crate::support::{OtlpReceiver, Policy, Proxy, Signal, Upstream, eventually, get};

/// How many spans were dropped for this reason.
fn dropped(proxy: &Proxy, reason: DropReason) -> u64 {
    proxy.tracer().counts().dropped(reason)
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}

#[test]
fn batch_is_posted_as_the_protocol_says() {
    let receiver = OtlpReceiver::start();
    let upstream = Upstream::start();
    let fields = "sample: 1, headers: { x-api-key: k }";
    let proxied = proxy(&receiver, fields, &Policy::before(&upstream));
    proxied.get("/").assert_status(200);
    receiver.wait_for_path("/");
    let request = receiver.requests().remove(0);
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
    assert_eq!(request.fields.one("content-type"), Some("application/x-protobuf"));
    assert_eq!(request.fields.one("x-api-key"), Some("k"));
    until("spans are counted", || proxied.tracer().counts().exported() == 2);
}

#[test]
fn receiver_that_is_gone_costs_no_request_anything() {
    let upstream = Upstream::start();
    let gone = Upstream::refusing();
    let tracing = format!("otlp: \"{}\", every: 10ms, queue: 10, sample: 1", gone.url());
    let settings = format!("workers: 1\ntracing: {{ {tracing} }}");
    let proxied = Proxy::with_settings(&settings, &[&Policy::before(&upstream)]);
    let mut client = proxied.connect();
    // Each has two spans. A few wait, at most ten are being tried, and all others are dropped.
    for _ in 0..200 {
        client.send(&get("/")).assert_status(200);
    }
    assert!(dropped(&proxied, DropReason::QueueFull) >= 400 - 10 - 10 - 10);
    assert_eq!(proxied.tracer().counts().exported(), 0);
}

#[test]
fn receiver_that_does_not_answer_costs_no_request_anything() {
    let upstream = Upstream::start();
    let receiver = OtlpReceiver::scripted(|exchange| exchange.wait_for_close());
    let fields = "sample: 1, queue: 10, timeout: 60s";
    let proxied = proxy(&receiver, fields, &Policy::before(&upstream));
    proxied.get("/").assert_status(200);
    until("a batch is on its way", || !receiver.requests().is_empty());
    // From here on nothing leaves the queue until the receiver answers, which it does not.
    let mut client = proxied.connect();
    for _ in 0..100 {
        client.send(&get("/")).assert_status(200);
    }
    client.end();
    until("what has no room is dropped", || dropped(&proxied, DropReason::QueueFull) >= 200 - 10);
    assert_eq!(receiver.requests().len(), 1);
}

#[test]
fn batch_is_sent_again_when_the_receiver_asks_for_that() {
    let upstream = Upstream::start();
    let times = AtomicUsize::new(0);
    let receiver =
        OtlpReceiver::scripted(move |exchange| match times.fetch_add(1, Ordering::SeqCst) {
            0 => exchange.write("HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"),
            1 => exchange
                .write("HTTP/1.1 429 Slow down\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"),
            _ => OtlpReceiver::taken(exchange),
        });
    let proxied = proxy(&receiver, "sample: 1", &Policy::before(&upstream));
    proxied.get("/").assert_status(200);
    until("the third time counts", || proxied.tracer().counts().exported() == 2);
    let bodies: Vec<Vec<u8>> = receiver.requests().into_iter().map(|own| own.body).collect();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    for reason in DropReason::all() {
        assert_eq!(dropped(&proxied, reason), 0);
    }
}

#[test]
fn batch_that_is_refused_is_not_sent_again() {
    let upstream = Upstream::start();
    for response in [
        "HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 401 Who\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 307 Elsewhere\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
    ] {
        let receiver = OtlpReceiver::scripted(move |exchange| exchange.write(response));
        let proxied = proxy(&receiver, "sample: 1", &Policy::before(&upstream));
        proxied.get("/").assert_status(200);
        until("it is given up", || dropped(&proxied, DropReason::Refused) == 2);
        assert_eq!(receiver.requests().len(), 1);
    }
}

#[test]
fn spans_that_a_receiver_leaves_out_are_counted() {
    let upstream = Upstream::start();
    // partial_success { rejected_spans: 1, error_message: "no" }
    let receiver = OtlpReceiver::scripted(|exchange| {
        exchange.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 8\r\n\r\n\
              \x0a\x06\x08\x01\x12\x02no",
        );
    });
    // Long enough that both spans are in one batch.
    let settings =
        format!("workers: 1\ntracing: {{ otlp: \"{}\", every: 500ms, sample: 1 }}", receiver.url());
    let proxied = Proxy::with_settings(&settings, &[&Policy::before(&upstream)]);
    proxied.get("/").assert_status(200);
    until("one is refused", || dropped(&proxied, DropReason::Refused) == 1);
    until("one is taken", || proxied.tracer().counts().exported() == 1);
}

#[test]
fn what_waits_is_delivered_at_the_end() {
    let upstream = Upstream::start();
    let receiver = OtlpReceiver::start();
    let settings =
        format!("workers: 1\ntracing: {{ otlp: \"{}\", every: 1m, sample: 1 }}", receiver.url());
    let proxied = Proxy::with_settings(&settings, &[&Policy::before(&upstream)]);
    for _ in 0..3 {
        proxied.get("/").assert_status(200);
    }
    assert!(receiver.spans().is_empty());
    drop(proxied);
    assert_eq!(receiver.wait_for(6).len(), 6);
}

#[test]
fn proxy_ends_while_the_receiver_is_slow() {
    let upstream = Upstream::start();
    let go = Signal::default();
    let held = go.clone();
    let receiver = OtlpReceiver::scripted(move |exchange| {
        held.wait();
        OtlpReceiver::taken(exchange);
    });
    let proxied = proxy(&receiver, "sample: 1", &Policy::before(&upstream));
    proxied.get("/").assert_status(200);
    until("a batch is on its way", || !receiver.requests().is_empty());
    // It returns although the batch is not taken.
    drop(proxied);
    go.open();
}
