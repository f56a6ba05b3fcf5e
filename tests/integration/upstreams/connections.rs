//! Connections to servers: how long they are kept, and who notices that they are gone.

use std::sync::Arc;

use h2::server::Builder;
use tokio::sync::Notify;

use super::{
    before, before_urls,
    fakes::{Fake, Stream},
    until,
};
use crate::support::{Proxy, Signal, Upstream, get, post};

/// Answers, and says this of the connection.
fn promising(keep_alive: &'static str) -> Upstream {
    Upstream::answering(format!(
        "HTTP/1.1 200 OK\r\nkeep-alive: {keep_alive}\r\ncontent-length: 2\r\n\r\nok"
    ))
}

#[test]
fn connection_is_not_kept_for_longer_than_the_server_keeps_it() {
    for (keep_alive, connections) in
        [("timeout=1", 3), ("timeout=0, max=5", 3), ("timeout=60", 1), ("max=5", 1)]
    {
        let upstream = promising(keep_alive);
        let proxy = Proxy::start(&before(&[&upstream], ""));
        for _ in 0..3 {
            proxy.get("/").assert_status(200).assert_no_field("keep-alive");
        }
        assert_eq!(upstream.connections(), connections, "{keep_alive}");
    }
}

#[test]
fn connection_is_not_kept_for_longer_than_the_policy_says() {
    let gone = Signal::default();
    let upstream = {
        let gone = gone.clone();
        Upstream::scripted(move |exchange| {
            exchange.answer_ok();
            exchange.wait_for_close();
            gone.open();
        })
    };
    let proxy = Proxy::start(&before(&[&upstream], "keep_alive: 200ms"));
    proxy.get("/").assert_status(200);
    gone.wait();
}

#[test]
fn connection_that_the_server_closes_is_let_go_before_it_is_needed() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.answer_ok();
        exchange.close();
    });
    let proxy = Proxy::start(&before(&[&upstream], "max_connections: 1, queue: { size: 0 }"));
    // Were it kept, there would be no room for another; a request that may not be repeated would
    // fail.
    for _ in 0..3 {
        until("it is answered", || proxy.send(post("/", "x")).status == 200);
    }
}

#[test]
fn requests_at_the_same_time_have_connections_of_their_own() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let proxy = Proxy::start(&before(&[&upstream], ""));
    let mut held = proxy.connect();
    held.write(get("/held").revalidating().to_bytes());
    asked.wait();
    proxy.get("/").assert_status(200);
    go.open();
    held.read().assert_status(304);
    assert_eq!(upstream.connections(), 2);
}

/// Answers, and signals when the connection is closed.
fn signalling_its_end(closed: &Signal) -> Upstream {
    let closed = closed.clone();
    Upstream::scripted(move |exchange| {
        exchange.answer_ok();
        exchange.wait_for_close();
        closed.open();
    })
}

#[test]
fn kept_connection_is_closed_when_a_reload_removes_its_upstream() {
    let closed = Signal::default();
    let removed = signalling_its_end(&closed);
    let other = Upstream::start();
    let proxy = Proxy::start(&before(&[&removed], "keep_alive: 1h"));
    proxy.get("/").assert_status(200);
    // In HTTP/2, it is another upstream, whatever its name.
    let server = Fake::http2(&Builder::new(), |stream: Stream| async move {
        stream.answer(200, "ok");
    });
    proxy.install(&[&before_urls(&[&server.url()], "protocol: h2, keep_alive: 1h")]);
    closed.wait();
    proxy.get("/").assert_status(200);
    proxy.install(&[&before(&[&other], "keep_alive: 1h")]);
    until("it is closed", || server.seen.closed() == 1);
    proxy.get("/").assert_status(200);
    assert_eq!((server.seen.count(), other.count()), (1, 1));
}

#[test]
fn kept_connection_is_closed_when_a_reload_removes_its_server() {
    let closed = Signal::default();
    let removed = signalling_its_end(&closed);
    let stays = Upstream::start();
    let proxy = Proxy::start(&before(&[&removed], "keep_alive: 1h"));
    proxy.get("/").assert_status(200);
    proxy.install(&[&before(&[&stays], "keep_alive: 1h")]);
    closed.wait();
    for _ in 0..3 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!((removed.count(), stays.count(), stays.connections()), (1, 3, 1));
}

#[test]
fn connection_in_use_is_closed_after_its_exchange_when_a_reload_removes_its_server() {
    for is_upstream in [false, true] {
        let begun = Signal::default();
        let go = Signal::default();
        let closed = Signal::default();
        let removed = {
            let begun = begun.clone();
            let go = go.clone();
            let closed = closed.clone();
            Upstream::scripted(move |exchange| {
                exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhe");
                begun.open();
                go.wait();
                exchange.write("re");
                exchange.wait_for_close();
                closed.open();
            })
        };
        let other = Fake::http2(&Builder::new(), |stream: Stream| async move {
            stream.answer(200, "ok");
        });
        let stays = Upstream::start();
        let proxy = Proxy::start(&before(&[&removed], "keep_alive: 1h"));
        let mut client = proxy.connect();
        client.write(get("/").to_bytes());
        begun.wait();
        proxy.install(&[&match is_upstream {
            true => before_urls(&[&other.url()], "protocol: h2"),
            false => before(&[&stays], "keep_alive: 1h"),
        }]);
        proxy.wait_for_tick();
        proxy.get("/").assert_status(200);
        go.open();
        assert_eq!(client.read().text(), "here");
        closed.wait();
    }
}

#[test]
fn stream_in_use_keeps_its_connection_when_a_reload_removes_its_server() {
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let removed = Fake::http2(&Builder::new(), move |stream: Stream| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            stream.answer(200, "ok");
        }
    });
    let stays = Fake::http2(&Builder::new(), |stream: Stream| async move {
        stream.answer(200, "ok");
    });
    let policy = |server: &Fake| before_urls(&[&server.url()], "protocol: h2, keep_alive: 1h");
    let proxy = Proxy::start(&policy(&removed));
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    until("it was asked", || removed.seen.count() == 1);
    proxy.install(&[&policy(&stays)]);
    proxy.wait_for_tick();
    proxy.get("/").assert_status(200);
    assert_eq!((stays.seen.count(), removed.seen.closed()), (1, 0));
    go.notify_one();
    client.read().assert_status(200);
    until("it is closed", || removed.seen.closed() == 1);
}
