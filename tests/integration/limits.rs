//! How much passes, and when more does. Time moves only when a test moves it.

mod abandoned;
mod algorithms;
mod all_or_nothing;
mod budgets;
mod changes;
mod concurrency;
mod costs;
mod count_when;
mod graphql;
mod keys;
mod made_up;
mod messages;
mod overrides;
mod payers;
mod refunds;
mod shadow;
mod windows;

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use proptest::{
    prelude::Rng,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::json;

use crate::support::{HOUR, Policy, Proxy, SECOND, START, Upstream, get, post, token_with};

const MICROSECOND: Duration = Duration::from_micros(1);

/// The second in which a window that is opened now has ended, as responses report it.
fn reset_after(seconds: u64) -> String {
    (START.as_micros().div_ceil(1_000_000) + seconds).to_string()
}

#[test]
fn exactly_the_limit_passes_whatever_the_number_of_threads() {
    const LIMIT: u32 = 100;
    const REQUESTS: u32 = 160;
    for threads in [1, 2, 8] {
        let upstream = Upstream::start();
        let policy = Policy::before(&upstream).rate(&format!("{LIMIT}/hour"));
        let proxy = Proxy::with_settings(&format!("workers: {threads}"), &[&policy]);
        let passed = AtomicU32::new(0);
        let denied = AtomicU32::new(0);
        let start = Barrier::new(threads);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut client = proxy.connect();
                    start.wait();
                    for _ in 0..REQUESTS / threads as u32 {
                        match client.send(&get("/").by("alice")).status {
                            200 => passed.fetch_add(1, Ordering::Relaxed),
                            429 => denied.fetch_add(1, Ordering::Relaxed),
                            status => panic!("status {status}"),
                        };
                    }
                });
            }
        });
        assert_eq!(passed.into_inner(), LIMIT, "{threads} threads");
        assert_eq!(denied.into_inner(), REQUESTS - LIMIT, "{threads} threads");
        assert_eq!(upstream.count(), LIMIT as usize, "{threads} threads");
    }
}

#[test]
fn every_count_is_reported_once() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("100/hour");
    let proxy = Proxy::with_settings("workers: 2", &[&policy]);
    let ask = || {
        let mut client = proxy.connect();
        let used = |_| client.send(&get("/")).field("x-ratelimit-used").unwrap().parse().unwrap();
        (0..25).map(used).collect::<Vec<u32>>()
    };
    let mut all = thread::scope(|scope| {
        let clients = [(); 4].map(|()| scope.spawn(ask));
        clients.map(|client| client.join().unwrap()).concat()
    });
    all.sort_unstable();
    assert_eq!(all, (1..=100).collect::<Vec<u32>>());
}

#[test]
fn window_is_opened_by_its_first_request_and_reported_with_each() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("3/hour"));
    let reset = reset_after(3600);
    for (remaining, used) in [("2", "1"), ("1", "2"), ("0", "3")] {
        let response = proxy.get_as("alice");
        response.assert_status(200).assert_limit(["3", remaining, used, &reset, "core"]);
        response.assert_no_field("retry-after");
    }
    let denied = proxy.get_as("alice");
    denied
        .assert_status(429)
        .assert_limit(["3", "0", "3", &reset, "core"])
        .assert_field("retry-after", "3600");
    assert_eq!(upstream.count(), 3);
}

#[test]
fn window_reopens_at_its_end_and_not_a_microsecond_before() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    proxy.get_as("alice").assert_status(200);
    proxy.advance(HOUR - MICROSECOND);
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
    proxy.advance(MICROSECOND);
    proxy.get_as("alice").assert_status(200).assert_limit([
        "1",
        "0",
        "1",
        &reset_after(7200),
        "core",
    ]);
}

#[test]
fn retry_after_is_rounded_up_and_enough() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    proxy.get_as("alice").assert_status(200);
    for elapsed in [0, 1, 999_999, 1_000_000, 1_500_000, 3_000_000_000] {
        let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
        proxy.get_as("alice").assert_status(200);
        proxy.advance(Duration::from_micros(elapsed));
        let denied = proxy.get_as("alice");
        let seconds: u64 = denied.field("retry-after").unwrap().parse().unwrap();
        assert_eq!(seconds, (3_600_000_000 - elapsed).div_ceil(1_000_000), "after {elapsed} µs");
        proxy.advance(Duration::from_secs(seconds));
        proxy.get_as("alice").assert_status(200);
    }
}

#[test]
fn reset_does_not_wobble_within_a_window() {
    const REQUESTS: u64 = 1000;
    let config = Config { rng_seed: RngSeed::Fixed(2), ..Default::default() };
    let mut random = TestRunner::new(config).new_rng();
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("900/hour"));
    let mut client = proxy.connect();
    let step = HOUR.as_micros() as u64 / REQUESTS;
    for number in 0..REQUESTS {
        let response = client.send(&get("/").by("alice"));
        response.assert_status(if number < 900 { 200 } else { 429 });
        response.assert_field("x-ratelimit-reset", &reset_after(3600));
        proxy.advance(Duration::from_micros(random.next_u64() % step));
    }
}

#[test]
fn denied_request_consumes_nothing() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("2/minute"));
    for _ in 0..2 {
        proxy.get_as("alice").assert_status(200);
    }
    for _ in 0..5 {
        proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-used", "2");
        proxy.advance(SECOND);
    }
    proxy.advance(Duration::from_secs(55));
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "1");
}

#[test]
fn callers_have_counters_of_their_own() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    proxy.get_as("alice").assert_status(200);
    proxy.get_as("alice").assert_status(429);
    proxy.get_as("bob").assert_status(200);
    proxy.get("/").assert_status(200);
    proxy.get("/").assert_status(429);
}

#[test]
fn all_limits_of_a_route_are_taken_or_none() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 10/hour }",
            "place: { per: client.ip, rate: 3/hour }",
            "page: { per: path, rate: 5/hour }",
        ])
        .routes(&[
            "{ match: { path: /all, methods: [GET] }, limits: [core, place, page] }",
            "{ match: { path: /all, methods: [POST] }, limits: [page] }",
            "{ match: { path: /core }, limits: [core] }",
        ]);
    let proxy = Proxy::start(&policy);
    let all = |sub: &str| proxy.send(get("/all").by(sub));
    for used in ["1", "2", "3"] {
        all("alice").assert_status(200).assert_field("x-ratelimit-used", used);
    }
    // The address has no more, so neither user nor page is charged, again and again.
    for _ in 0..4 {
        all("alice").assert_status(429).assert_field("x-ratelimit-resource", "place");
        all("bob").assert_status(429).assert_field("x-ratelimit-resource", "place");
    }
    proxy.send(get("/core").by("alice")).assert_field("x-ratelimit-used", "4");
    proxy.send(get("/core").by("bob")).assert_field("x-ratelimit-used", "1");
    proxy.send(post("/all", "")).assert_status(200).assert_field("x-ratelimit-used", "4");
}

#[test]
fn limits_of_several_keys_stay_all_or_nothing_in_parallel() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 20/hour }",
            "place: { per: client.ip, rate: 30/hour }",
        ])
        .routes(&[
            "{ match: { path: /both }, limits: [core, place] }",
            "{ match: { path: /core }, limits: [core] }",
        ]);
    let proxy = Proxy::with_settings("workers: 2", &[&policy]);
    let passed = AtomicU32::new(0);
    thread::scope(|scope| {
        for sub in ["alice", "bob", "alice", "bob"] {
            let proxy = &proxy;
            let passed = &passed;
            scope.spawn(move || {
                let mut client = proxy.connect();
                for _ in 0..25 {
                    let is_passed = client.send(&get("/both").by(sub)).status == 200;
                    passed.fetch_add(is_passed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 30);
    // What both users were charged is what passed, and nothing of what the address was denied.
    let charged = |sub: &str| -> u32 {
        let response = proxy.send(get("/core").by(sub));
        let used: u32 = response.field("x-ratelimit-used").unwrap().parse().unwrap();
        used - u32::from(response.status == 200)
    };
    assert_eq!(charged("alice") + charged("bob"), 30);
}

#[test]
fn rate_of_zero_denies_always_and_promises_nothing() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    for _ in 0..2 {
        let denied = proxy.get_as("alice");
        denied.assert_status(429).assert_no_field("retry-after");
        denied.assert_limit(["0", "0", "0", &reset_after(3600), "core"]);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn unlimited_tier_has_no_limit_and_no_headers() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("{ anonymous: 1/hour, free: 2/hour, pro: 3/hour, internal: unlimited }");
    let proxy = Proxy::start(&policy);
    for (plan, limit) in [("free", "2"), ("pro", "3"), ("unheard-of", "2")] {
        let token = token_with(&json!({ "sub": plan, "plan": plan }));
        let response = proxy.send(get("/").token(&token));
        response.assert_status(200).assert_field("x-ratelimit-limit", limit);
    }
    proxy.get("/").assert_status(200).assert_field("x-ratelimit-limit", "1");
    let token = token_with(&json!({ "sub": "root", "plan": "internal" }));
    for _ in 0..5 {
        proxy.send(get("/").token(&token)).assert_status(200).assert_no_limit();
    }
}

#[test]
fn secondary_limit_still_counts_when_the_primary_one_does_not_apply() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: { internal: unlimited, default: 5/hour } }",
            "place: { per: client.ip, rate: 1/hour }",
        ])
        .routes(&["{ match: { path: /** }, limits: [core, place] }"]);
    let proxy = Proxy::start(&policy);
    let token = token_with(&json!({ "sub": "root", "plan": "internal" }));
    proxy
        .send(get("/").token(&token))
        .assert_status(200)
        .assert_field("x-ratelimit-resource", "place");
    proxy.send(get("/").token(&token)).assert_status(429);
}

#[test]
fn policies_do_not_share_limits_of_one_name() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1/hour");
    let one = policy.clone().hosts("[one.example.com]");
    let other = policy.hosts("[other.example.com]");
    let proxy = Proxy::with_settings("workers: 1", &[&one, &other]);
    for host in ["one.example.com", "other.example.com"] {
        proxy.send(get("/").host(host)).assert_status(200);
        proxy.send(get("/").host(host)).assert_status(429);
    }
}

#[test]
fn full_store_turns_new_callers_away_and_serves_those_it_knows() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("3/hour");
    let proxy = Proxy::with_settings("workers: 1\nstore: { memory: { max_keys: 2 } }", &[&policy]);
    proxy.get_as("alice").assert_status(200);
    proxy.get_as("bob").assert_status(200);
    for _ in 0..2 {
        let refused = proxy.get_as("carol");
        refused
            .assert_status(503)
            .assert_field("retry-after", "1")
            .assert_field("cache-control", "no-store")
            .assert_no_limit();
        assert_eq!(refused.json()["message"], "The service is busy. Try again later.");
    }
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "2");
    proxy.get_as("bob").assert_status(200).assert_field("x-ratelimit-used", "2");
    assert_eq!(upstream.count(), 4);
}

#[test]
fn ended_windows_make_room() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("3/hour");
    let proxy = Proxy::with_settings("workers: 1\nstore: { memory: { max_keys: 1 } }", &[&policy]);
    proxy.get_as("alice").assert_status(200);
    proxy.get_as("bob").assert_status(503);
    proxy.advance(HOUR);
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "1");
}
