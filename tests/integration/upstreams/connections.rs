//! Connections to servers: how long they are kept, and who notices that they are gone.

use super::{before, until};
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
    let (asked, go) = (Signal::default(), Signal::default());
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
