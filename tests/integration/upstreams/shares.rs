//! How connections to a server are shared out among clients, who may not take all of them.

use std::sync::Arc;

use h2::server::Builder;
use tokio::sync::Notify;

use super::{
    before, before_urls,
    fakes::{Fake, Stream},
    until,
};
use crate::support::{
    Client, Policy, Proxy, Request, Signal, Upstream,
    frames::{END_STREAM, Frames, head},
    get,
};

const BEHIND: &str = "workers: 1\ntrusted_proxies: [127.0.0.1]";

const GREEDY: &str = "192.0.2.1";

/// Answers what `/held` is asked for once it may.
fn holding(go: &Signal) -> Upstream {
    let go = go.clone();
    Upstream::scripted_at_head(move |exchange| {
        if exchange.request.target == "/held" {
            go.wait();
        }
        exchange.read_body();
        exchange.answer_ok();
    })
}

/// A policy whose server may have eight connections: one is kept for somebody new.
fn eight(upstream: &Upstream, fields: &str) -> Policy {
    bounded(upstream, 8, fields)
}

fn bounded(upstream: &Upstream, connections: usize, fields: &str) -> Policy {
    let fields = format!("max_connections: {connections}, queue: {{ timeout: 60s }}{fields}");
    before(&[upstream], &fields)
}

/// Asks for what is held, on a connection of its own.
fn ask(proxy: &Proxy, request: Request) -> Client {
    let mut client = proxy.connect();
    client.write(request.to_bytes());
    client
}

fn held(address: &str) -> Request {
    get("/held").from(address)
}

fn read_all(clients: &mut [Client]) {
    for client in clients {
        client.read().assert_status(200);
    }
}

/// What has come is with the server, or waits: this one came after it.
fn settle(proxy: &Proxy) {
    proxy.get("/%00").assert_status(400);
    proxy.wait_for_tick();
}

#[test]
fn one_address_leaves_connections_for_others_and_gets_the_rest_of_its_own_later() {
    let go = Signal::default();
    let upstream = holding(&go);
    let proxy = Proxy::with_settings(BEHIND, &[&bounded(&upstream, 16, "")]);
    let mut greedy: Vec<Client> = (0..16).map(|_| ask(&proxy, held(GREEDY))).collect();
    upstream.wait_for(14);
    settle(&proxy);
    assert_eq!(upstream.count(), 14);
    // A second one gets half of what is left, and there is still room for a third.
    greedy.extend((0..2).map(|_| ask(&proxy, held("192.0.2.2"))));
    upstream.wait_for(15);
    settle(&proxy);
    assert_eq!(upstream.count(), 15);
    for _ in 0..10 {
        proxy.send(get("/").from("192.0.2.3")).assert_status(200);
    }
    go.open();
    for client in &mut greedy {
        client.read().assert_status(200);
    }
    assert_eq!(upstream.count(), 28);
    assert!(upstream.connections() <= 16);
}

#[test]
fn fewer_than_eight_connections_may_all_be_with_one_address() {
    for connections in [1, 2, 4, 7] {
        let go = Signal::default();
        let upstream = holding(&go);
        // It is the address of the connection: no proxy is trusted.
        let proxy = Proxy::with_settings("workers: 1", &[&bounded(&upstream, connections, "")]);
        let mut clients: Vec<Client> =
            (0..connections).map(|_| ask(&proxy, get("/held"))).collect();
        upstream.wait_for(connections);
        // What is beyond waits for one of them.
        clients.push(ask(&proxy, get("/held")));
        settle(&proxy);
        assert_eq!(upstream.count(), connections);
        go.open();
        read_all(&mut clients);
    }
}

#[test]
fn address_that_waits_for_more_fills_no_queue_for_others() {
    let go = Signal::default();
    let upstream = holding(&go);
    let fields = "max_connections: 16, queue: { size: 1, timeout: 60s }";
    let proxy = Proxy::with_settings(BEHIND, &[&before(&[&upstream], fields)]);
    let mut clients: Vec<Client> = (0..13).map(|_| ask(&proxy, held(GREEDY))).collect();
    clients.push(ask(&proxy, held("192.0.2.2")));
    upstream.wait_for(14);
    // One waits, and there is no room for another.
    clients.push(ask(&proxy, held(GREEDY)));
    settle(&proxy);
    proxy.send(get("/").from(GREEDY)).assert_status(503);
    // The other address uses one, and two are free.
    proxy.send(get("/").from("192.0.2.2")).assert_status(200);
    go.open();
    read_all(&mut clients);
}

#[test]
fn connections_that_are_kept_are_shared_out_too() {
    let first = Signal::default();
    let second = Signal::default();
    let upstream = {
        let first = first.clone();
        let second = second.clone();
        Upstream::scripted(move |exchange| {
            match exchange.request.target.as_str() {
                "/first" => first.wait(),
                _ => second.wait(),
            }
            exchange.answer_ok();
        })
    };
    let proxy = Proxy::with_settings(BEHIND, &[&eight(&upstream, "")]);
    // Eight addresses have one each, and leave eight connections behind.
    let ask_first = |number| ask(&proxy, get("/first").from(&format!("192.0.2.{number}")));
    let mut several: Vec<Client> = (10..18).map(ask_first).collect();
    upstream.wait_for(8);
    first.open();
    read_all(&mut several);
    let mut greedy: Vec<Client> =
        (0..20).map(|_| ask(&proxy, get("/second").from(GREEDY))).collect();
    upstream.wait_for(15);
    settle(&proxy);
    assert_eq!((upstream.count(), upstream.connections()), (15, 8));
    second.open();
    read_all(&mut greedy);
    assert_eq!(upstream.connections(), 8);
}

#[test]
fn slow_uploads_of_one_address_keep_no_other_from_a_server() {
    let upstream = Upstream::scripted_at_head(|exchange| match exchange.request.method.as_str() {
        "POST" => exchange.wait_for_close(),
        _ => exchange.answer_ok(),
    });
    let proxy = Proxy::with_settings(BEHIND, &[&eight(&upstream, "")]);
    let uploads: Vec<Client> = (0..12)
        .map(|_| {
            let mut client = proxy.connect();
            client.write(format!(
                "POST /up HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {GREEDY}\r\n\
                 content-length: 99\r\n\r\nx"
            ));
            client
        })
        .collect();
    upstream.wait_for(7);
    settle(&proxy);
    assert_eq!(upstream.count(), 7);
    for _ in 0..10 {
        proxy.send(get("/").from("192.0.2.2")).assert_status(200);
    }
    // Who has gone leaves nothing behind.
    drop(uploads);
    until("all is free", || {
        let mut clients: Vec<Client> = (0..4).map(|_| ask(&proxy, get("/").from(GREEDY))).collect();
        clients.iter_mut().all(|client| client.read().status == 200)
    });
}

#[test]
fn network_of_ipv6_is_one_client() {
    let go = Signal::default();
    let upstream = holding(&go);
    let proxy = Proxy::with_settings(BEHIND, &[&eight(&upstream, "")]);
    let mut clients: Vec<Client> =
        (1..9).map(|number| ask(&proxy, held(&format!("2001:db8::{number}")))).collect();
    upstream.wait_for(7);
    settle(&proxy);
    assert_eq!(upstream.count(), 7);
    proxy.send(get("/").from("2001:db8:0:1::1")).assert_status(200);
    go.open();
    read_all(&mut clients);
}

#[test]
fn streams_of_one_connection_share_what_their_address_may_have() {
    let go = Signal::default();
    let upstream = holding(&go);
    let proxy = Proxy::with_settings(BEHIND, &[&eight(&upstream, "")]);
    let mut frames = Frames::open(proxy.address());
    let get = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/held"),
        (":authority", "a"),
        ("x-forwarded-for", GREEDY),
    ];
    for number in 0..20 {
        frames.write(head(2 * number + 1, END_STREAM, &get));
    }
    upstream.wait_for(7);
    settle(&proxy);
    assert_eq!(upstream.count(), 7);
    proxy.send(crate::support::get("/").from("192.0.2.2")).assert_status(200);
    go.open();
    upstream.wait_for(21);
}

#[test]
fn streams_of_an_http2_server_are_shared_out() {
    let go = Arc::new(Notify::new());
    let held_back = Arc::clone(&go);
    let server = Fake::http2(Builder::new().max_concurrent_streams(8), move |stream: Stream| {
        let held_back = Arc::clone(&held_back);
        async move {
            if stream.path == "/held" {
                held_back.notified().await;
            }
            stream.answer(200, "ok");
        }
    });
    let fields = "protocol: h2, max_connections: 1, queue: { timeout: 60s }";
    let proxy = Proxy::with_settings(BEHIND, &[&before_urls(&[&server.url()], fields)]);
    // The first request finds out how many streams there are.
    proxy.send(get("/").from("192.0.2.2")).assert_status(200);
    let mut greedy: Vec<Client> = (0..10).map(|_| ask(&proxy, held(GREEDY))).collect();
    until("it has its share", || server.seen.count() == 8);
    settle(&proxy);
    assert_eq!(server.seen.count(), 8);
    proxy.send(get("/").from("192.0.2.2")).assert_status(200);
    for client in &mut greedy {
        go.notify_one();
        client.read().assert_status(200);
    }
}

#[test]
fn first_client_gets_all_connections_without_shares() {
    let go = Signal::default();
    let upstream = holding(&go);
    let proxy = Proxy::with_settings(BEHIND, &[&eight(&upstream, ", shares: off")]);
    let mut greedy: Vec<Client> = (0..8).map(|_| ask(&proxy, held(GREEDY))).collect();
    upstream.wait_for(8);
    go.open();
    read_all(&mut greedy);
}

#[test]
fn trusted_proxy_that_names_no_client_is_not_one_itself() {
    let go = Signal::default();
    let upstream = holding(&go);
    let proxy = Proxy::with_settings(BEHIND, &[&eight(&upstream, "")]);
    let mut clients: Vec<Client> = (0..8).map(|_| ask(&proxy, get("/held"))).collect();
    upstream.wait_for(8);
    go.open();
    read_all(&mut clients);
}

#[test]
fn request_beyond_its_share_waits_as_long_as_any_other() {
    let go = Signal::default();
    let upstream = holding(&go);
    let fields = "max_connections: 8, queue: { size: 1, timeout: 200ms }";
    let proxy = Proxy::with_settings(BEHIND, &[&before(&[&upstream], fields)]);
    let mut first: Vec<Client> = (0..7).map(|_| ask(&proxy, held(GREEDY))).collect();
    upstream.wait_for(7);
    proxy.send(get("/").from(GREEDY)).assert_status(503).assert_field("retry-after", "1");
    proxy.send(get("/").from("192.0.2.2")).assert_status(200);
    go.open();
    read_all(&mut first);
    proxy.send(get("/").from(GREEDY)).assert_status(200);
    let log = proxy.into_log();
    assert!(log.contains("the client uses its share of the connections"), "{log}");
}

#[test]
fn tunnels_of_one_address_leave_connections_for_others() {
    let upstream = Upstream::echoing();
    let fields = "max_connections: 8, queue: { size: 0 }";
    let proxy = Proxy::with_settings(BEHIND, &[&before(&[&upstream], fields)]);
    let switch = |address: &str| {
        let request = get("/").from(address).field("connection", "upgrade");
        let mut client = ask(&proxy, request.field("upgrade", "websocket"));
        (client.read_head().status, client)
    };
    let tunnels: Vec<(u16, Client)> = (0..8).map(|_| switch(GREEDY)).collect();
    let statuses: Vec<u16> = tunnels.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [101, 101, 101, 101, 101, 101, 101, 503]);
    assert_eq!(switch("192.0.2.2").0, 101);
    // What has ended is free again.
    drop(tunnels);
    until("another is made", || switch(GREEDY).0 == 101);
}
