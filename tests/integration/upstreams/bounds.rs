//! How many connections a server gets, and how requests are handled when all are in use.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::before;
use crate::support::{Proxy, Signal, Upstream, get};

#[test]
fn request_waits_for_a_connection_and_gets_it() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let proxy = Proxy::start(&before(&[&upstream], "max_connections: 1, queue: { timeout: 10s }"));
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    asked.wait();
    let mut others: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    others.iter_mut().for_each(|client| client.write(get("/").to_bytes()));
    // They are there, since this one came after them; and none has been forwarded.
    proxy.get("/%00").assert_status(400);
    assert_eq!(upstream.count(), 1);
    go.open();
    first.read().assert_status(304);
    for client in &mut others {
        client.read().assert_status(200);
    }
    assert_eq!((upstream.count(), upstream.connections()), (4, 1));
}

#[test]
fn request_over_the_queue_is_a_503_that_says_when_to_come_again() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let policy = before(&[&upstream], "max_connections: 1, queue: { size: 0 }").rate("10/hour");
    let proxy = Proxy::start(&policy);
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    asked.wait();
    let refused = proxy.get("/");
    refused.assert_status(503).assert_field("retry-after", "1");
    refused.assert_field("x-ratelimit-used", "2");
    go.open();
    first.read().assert_status(304);
    proxy.get("/").assert_status(200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn request_that_waits_too_long_is_a_503() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let fields = "max_connections: 1, queue: { timeout: 200ms }";
    let proxy = Proxy::start(&before(&[&upstream], fields));
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    asked.wait();
    proxy.get("/").assert_status(503).assert_field("retry-after", "1");
    go.open();
    first.read().assert_status(304);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn who_leaves_the_queue_leaves_his_place_to_others() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let fields = "max_connections: 1, queue: { size: 1, timeout: 10s }";
    let proxy = Proxy::start(&before(&[&upstream], fields));
    let mut first = proxy.connect();
    first.write(get("/held").revalidating().to_bytes());
    asked.wait();
    let mut leaves = proxy.connect();
    leaves.write(get("/leaves").to_bytes());
    proxy.get("/").assert_status(503);
    drop(leaves);
    // The place is free once the proxy has noticed.
    let mut stays = loop {
        let mut client = proxy.connect();
        client.write(get("/stays").to_bytes());
        proxy.get("/%00").assert_status(400);
        if !client.has_answer() {
            break client;
        }
    };
    go.open();
    first.read().assert_status(304);
    stays.read().assert_status(200);
    assert_eq!(upstream.count(), 2);
}

#[test]
fn unused_connection_of_one_worker_keeps_no_request_of_another_out() {
    let upstream = Upstream::start();
    // Also where no request may wait for a connection that is in use.
    for queue in ["timeout: 10s", "size: 0"] {
        let policy = before(&[&upstream], &format!("max_connections: 1, queue: {{ {queue} }}"));
        let proxy = Proxy::with_settings("workers: 2", &[&policy]);
        let mut clients: Vec<_> = (0..6).map(|_| proxy.connect()).collect();
        for _ in 0..5 {
            for client in &mut clients {
                client.send(&get("/")).assert_status(200);
            }
        }
    }
}

#[test]
fn bound_holds_for_all_workers_together() {
    const MAX: usize = 3;
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let upstream = {
        let now = Arc::clone(&now);
        let most = Arc::clone(&most);
        Upstream::scripted(move |exchange| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            exchange.answer_ok();
        })
    };
    let fields = format!("max_connections: {MAX}, queue: {{ timeout: 10s }}");
    let proxy = Proxy::with_settings("workers: 3", &[&before(&[&upstream], &fields)]);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                for _ in 0..20 {
                    client.send(&get("/")).assert_status(200);
                }
            });
        }
    });
    assert_eq!(upstream.count(), 240);
    assert!(most.load(Ordering::SeqCst) <= MAX);
}

#[test]
fn request_that_waits_gets_a_connection_as_soon_as_a_reload_allows_more() {
    for shares in ["address", "off"] {
        let asked = Signal::default();
        let go = Signal::default();
        let upstream = Upstream::holding_unchanged(&asked, &go);
        let policy = |max: usize| {
            let fields =
                format!("max_connections: {max}, queue: {{ timeout: 60s }}, shares: {shares}");
            before(&[&upstream], &fields)
        };
        let settings = "workers: 1\ntrusted_proxies: [127.0.0.1]";
        let proxy = Proxy::with_settings(settings, &[&policy(1)]);
        let mut first = proxy.connect();
        first.write(get("/held").revalidating().from("192.0.2.1").to_bytes());
        asked.wait();
        // Of another address, and of the same one.
        let mut others: Vec<_> = (1..3).map(|_| proxy.connect()).collect();
        for (client, number) in others.iter_mut().zip(1..) {
            client.write(get("/").from(&format!("192.0.2.{number}")).to_bytes());
        }
        proxy.get("/%00").assert_status(400);
        assert_eq!(upstream.count(), 1);
        proxy.install(&[&policy(3)]);
        for client in &mut others {
            client.read().assert_status(200);
        }
        go.open();
        first.read().assert_status(304);
    }
}
