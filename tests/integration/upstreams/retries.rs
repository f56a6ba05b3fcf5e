//! What is tried again, where, and how often.

use super::before;
use crate::support::{Policy, Proxy, Request, Upstream, get, post};

/// Reads requests and closes.
fn closing() -> Upstream {
    Upstream::scripted(|exchange| exchange.close())
}

#[test]
fn request_that_was_never_sent_goes_to_another_server() {
    for request in [get("/"), post("/", "hello"), Request::new("PATCH", "/")] {
        let dead = Upstream::refusing();
        let upstream = Upstream::start();
        let proxy = Proxy::start(&before(&[&dead, &upstream], ""));
        // Without a bound: a request that was not sent costs nothing.
        for count in 1..=12 {
            proxy.send(request.clone()).assert_status(200);
            assert_eq!(upstream.count(), count);
        }
    }
}

#[test]
fn repeatable_request_goes_to_another_server() {
    let broken = closing();
    let upstream = Upstream::start();
    let proxy = Proxy::start(&before(&[&broken, &upstream], "balance: round_robin"));
    for _ in 0..3 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(upstream.count(), 3);
    assert!(broken.count() > 0);
}

#[test]
fn request_that_must_not_be_repeated_is_sent_once() {
    for request in [post("/", "x"), post("/", ""), Request::new("PATCH", "/")] {
        let broken = closing();
        let upstream = Upstream::start();
        let proxy = Proxy::start(&before(&[&broken, &upstream], "balance: round_robin"));
        let statuses: Vec<u16> = (0..4).map(|_| proxy.send(request.clone()).status).collect();
        assert_eq!(broken.count() + upstream.count(), 4, "{statuses:?}");
        let bad = statuses.iter().filter(|status| **status == 502).count();
        assert_eq!(bad, broken.count());
    }
}

#[test]
fn response_that_has_begun_is_not_tried_again() {
    let half = "HTTP/1.1 200 OK\r\ncontent-le";
    let broken = || {
        Upstream::scripted(move |exchange| {
            exchange.write(half);
            exchange.close();
        })
    };
    let one = broken();
    let other = broken();
    let proxy = Proxy::start(&before(&[&one, &other], ""));
    proxy.get("/").assert_status(502);
    assert_eq!(one.count() + other.count(), 1);
}

#[test]
fn statuses_that_the_policy_names_are_tried_again() {
    let busy = || Upstream::answering("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy");
    let one = busy();
    let upstream = Upstream::start();
    let fields = "balance: round_robin, retries: { status: [503] }";
    let proxy = Proxy::start(&before(&[&one, &upstream], fields));
    for _ in 0..3 {
        proxy.get("/").assert_status(200);
    }
    // What comes last is what the client gets.
    let one = busy();
    let other = busy();
    let proxy = Proxy::start(&before(&[&one, &other], fields));
    let response = proxy.get("/");
    response.assert_status(503);
    assert_eq!(response.text(), "busy");
    assert_eq!(one.count() + other.count(), 2);
    // A body cannot be had twice.
    proxy.send(post("/", "x")).assert_status(503);
    assert_eq!(one.count() + other.count(), 3);
}

#[test]
fn request_is_tried_as_often_as_the_policy_says() {
    for (retries, count) in [("off", 1), ("{ attempts: 1 }", 2), ("{ attempts: 3 }", 4)] {
        let broken = closing();
        let proxy = Proxy::start(&before(&[&broken], &format!("retries: {retries}")));
        proxy.get("/").assert_status(502);
        assert_eq!(broken.count(), count, "{retries}");
    }
}

#[test]
fn server_that_fails_everything_gets_a_fifth_more_at_most() {
    const REQUESTS: usize = 300;
    let broken = closing();
    let proxy = Proxy::start(&before(&[&broken], ""));
    let mut client = proxy.connect();
    for _ in 0..REQUESTS {
        client.send(&get("/")).assert_status(502);
    }
    let retries = broken.count() - REQUESTS;
    // A few are for nothing, now and then.
    assert!((30..=REQUESTS / 5 + 12).contains(&retries), "{retries} retries");
}

#[test]
fn retried_request_is_charged_once() {
    let broken = closing();
    let upstream = Upstream::start();
    let policy: Policy = before(&[&broken, &upstream], "balance: round_robin").rate("10/hour");
    let proxy = Proxy::start(&policy);
    for used in ["1", "2", "3"] {
        proxy.get("/").assert_status(200).assert_field("x-ratelimit-used", used);
    }
}

#[test]
fn hung_server_is_not_asked_again() {
    let hung = Upstream::silent();
    let proxy = Proxy::start(&before(&[&hung], "response_timeout: 200ms"));
    proxy.get("/").assert_status(504);
    assert_eq!(hung.count(), 1);
    // Another one is.
    let upstream = Upstream::start();
    let fields = "response_timeout: 2s, balance: round_robin";
    let proxy = Proxy::start(&before(&[&hung, &upstream], fields));
    proxy.get("/").assert_status(200);
    proxy.get("/").assert_status(200);
}
