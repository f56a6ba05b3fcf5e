//! How many requests at once.

mod leases;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;

use crate::support::{Client, Policy, Proxy, Request, SECOND, Signal, Upstream, get, token_with};

/// Behind `limit`, which is of requests at once.
fn proxy(upstream: &Upstream, limit: &str) -> Proxy {
    Proxy::start(&Policy::before(upstream).on_all_routes(&[limit]))
}

const ONE: &str = "inflight: { per: caller, concurrent: 1, lease: 60s }";

/// Sends a request and does not wait for the answer.
fn begin(proxy: &Proxy, request: &Request) -> Client {
    let mut client = proxy.connect();
    client.write(request.to_bytes());
    client
}

#[test]
fn so_many_pass_at_once_and_the_next_when_one_has_ended() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let proxy = proxy(&upstream, "inflight: { per: caller, concurrent: 3 }");
    let mut held = [(); 3].map(|()| begin(&proxy, &get("/").by("alice")));
    upstream.wait_for(3);
    for _ in 0..2 {
        proxy.get_as("alice").assert_status(429);
    }
    let mut other = begin(&proxy, &get("/").by("bob"));
    upstream.wait_for(4);
    go.open();
    other.read().assert_status(200);
    for client in &mut held {
        client.read().assert_status(200);
    }
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(proxy.used("alice", "inflight"), 0);
    assert_eq!(upstream.count(), 5);
}

#[test]
fn denial_is_a_secondary_one_and_says_when_to_ask_again() {
    for (more, retry_after) in [("", "1"), (", retry_after: 7s", "7")] {
        let asked = Signal::default();
        let go = Signal::default();
        let upstream = Upstream::held(&asked, &go);
        let limit = format!("inflight: {{ per: caller, concurrent: 1{more} }}");
        let policy = Policy::before(&upstream).on_all_routes(&[&limit]);
        let proxy =
            Proxy::start(&policy.responses(&["documentation_url: https://docs.example.com/"]));
        let _held = begin(&proxy, &get("/").by("alice"));
        asked.wait();
        let denied = proxy.get_as("alice");
        denied
            .assert_status(429)
            .assert_field("retry-after", retry_after)
            .assert_field("x-tollgate-denied-by", "inflight")
            .assert_field("x-ratelimit-resource", "inflight")
            .assert_field("x-ratelimit-limit", "1")
            .assert_field("cache-control", "no-store");
        let body = denied.json();
        let message = body["message"].as_str().unwrap();
        let expected = "You have exceeded a secondary rate limit: too many requests at once \
                        (1 at most). Try again in ";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains(&format!("in {retry_after} second")), "{message}");
        let url = "https://docs.example.com/#about-secondary-rate-limits";
        assert_eq!(body["documentation_url"], url);
        go.open();
    }
}

#[test]
fn denial_by_a_used_up_rate_too_names_the_rate() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let policy =
        Policy::before(&upstream).on_all_routes(&[ONE, "core: { per: caller, rate: 1/hour }"]);
    let proxy = Proxy::start(&policy);
    let mut held = begin(&proxy, &get("/").by("alice"));
    asked.wait();
    proxy
        .get_as("alice")
        .assert_status(429)
        .assert_field("x-tollgate-denied-by", "core")
        .assert_field("x-ratelimit-resource", "core")
        .assert_field("retry-after", "3600");
    go.open();
    held.read().assert_status(200);
}

#[test]
fn number_may_differ_by_tier() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let limit = "inflight: { per: caller, \
                 concurrent: { free: 1, internal: unlimited, anonymous: 0, default: 2 } }";
    let proxy = proxy(&upstream, limit);
    let of_tier = |tier: &str| get("/").token(&token_with(&json!({ "sub": tier, "plan": tier })));
    let mut held = Vec::new();
    let mut seen = 0;
    for (tier, passing) in [("free", 1), ("pro", 2), ("internal", 5)] {
        for _ in 0..passing {
            held.push(begin(&proxy, &of_tier(tier)));
            seen += 1;
            upstream.wait_for(seen);
        }
    }
    for tier in ["free", "pro"] {
        proxy.send(of_tier(tier)).assert_status(429).assert_field("retry-after", "1");
    }
    // A limit of no requests at all states no wait.
    proxy.get("/").assert_status(429).assert_no_field("retry-after");
    go.open();
    for client in &mut held {
        client.read().assert_status(200);
    }
}

#[test]
fn many_at_once_are_never_more_than_the_limit_at_the_upstream() {
    const LIMIT: usize = 3;
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
    let limit = format!("inflight: {{ per: caller, concurrent: {LIMIT} }}");
    let policy = Policy::before(&upstream).on_all_routes(&[&limit]);
    let proxy = Proxy::with_settings("workers: 2", &[&policy]);
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                for _ in 0..50 {
                    let is_passed = client.send(&get("/").by("alice")).status == 200;
                    passed.fetch_add(is_passed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= LIMIT, "{most:?} at once");
    assert_eq!(upstream.count(), passed.into_inner());
    assert_eq!(proxy.used("alice", "inflight"), 0);
}

#[test]
fn limit_of_many_at_once_is_exact() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let proxy = proxy(&upstream, "inflight: { per: client.ip, concurrent: 40 }");
    let mut held: Vec<Client> = (0..40).map(|_| begin(&proxy, &get("/"))).collect();
    upstream.wait_for(40);
    proxy.get("/").assert_status(429).assert_field("x-ratelimit-used", "40");
    proxy.advance(SECOND + Duration::from_millis(1));
    proxy.get("/").assert_status(429);
    go.open();
    for client in &mut held {
        client.read().assert_status(200);
    }
    assert_eq!(proxy.used("alice", "inflight"), 0);
}
