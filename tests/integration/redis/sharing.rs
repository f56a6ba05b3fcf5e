//! Several proxies that share one Redis: exact together, whatever their clocks say.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use crate::support::{
    HOUR, MINUTE, Policy, Proxy, Redis, Response, Upstream, algorithms, eventually,
    forms_of_algorithms, get,
};

fn start(count: usize, settings: &str, policy: &Policy) -> Vec<Proxy> {
    (0..count).map(|_| Proxy::with_settings(settings, &[policy])).collect()
}

/// A store whose servers' clock counts.
fn by_redis_clock(redis: &Redis) -> String {
    let redis = redis.settings();
    format!("workers: 1\nstore: {{ redis: {{ {redis} }}, deadline: 10s, fallback_header: true }}")
}

fn assert_decided(response: &Response, status: u16) {
    response.assert_status(status).assert_no_field("x-tollgate-store");
}

#[test]
fn proxies_whose_clocks_differ_share_one_window() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let redis = Redis::start();
        let policy =
            Policy::before(&upstream).core(&format!("rate: 6/hour, algorithm: {algorithm}"));
        let proxies = start(2, &by_redis_clock(&redis), &policy);
        proxies[1].advance(MINUTE);
        let mut resets = Vec::new();
        for used in 1..=6 {
            let response = proxies[used % 2].get_as("alice");
            assert_decided(&response, 200);
            assert_eq!(response.number("x-ratelimit-used"), used as u64, "{algorithm}");
            resets.push(response.number("x-ratelimit-reset"));
        }
        if algorithm == "fixed_window" {
            assert!(resets.iter().all(|reset| *reset == resets[0]), "{resets:?}");
        }
        let denials: Vec<Response> = proxies.iter().map(|proxy| proxy.get_as("alice")).collect();
        for denied in &denials {
            assert_decided(denied, 429);
        }
        let [first, second] = ["retry-after", "x-ratelimit-reset"]
            .map(|name| denials[0].number(name).abs_diff(denials[1].number(name)));
        assert!(first <= 1 && second <= 1, "{algorithm}: {denials:?}");
        for proxy in &proxies {
            assert_eq!(proxy.used("alice", "core"), 6, "{algorithm}");
        }
    }
}

#[test]
fn reported_wait_is_by_the_clock_that_counts() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("1/hour");
    let proxies = start(3, &by_redis_clock(&redis), &policy);
    proxies[1].advance(MINUTE);
    proxies[2].turn_back(24 * HOUR);
    let time = || redis.ask::<(u64, u64)>(&["TIME"]).0;
    assert_decided(&proxies[0].get_as("alice"), 200);
    for proxy in &proxies {
        let before = time();
        let denied = proxy.get_as("alice");
        assert_decided(&denied, 429);
        let after = time();
        let reset = denied.number("x-ratelimit-reset");
        let wait = denied.number("retry-after");
        let waits = reset.saturating_sub(after + 1)..=reset.saturating_sub(before);
        assert!(waits.contains(&wait), "{wait} is not in {waits:?}");
        // A denial that is remembered ages by the proxy's clock.
        assert_eq!(proxy.get_as("alice").number("retry-after"), wait);
    }
}

#[test]
fn leases_of_proxies_whose_clocks_differ_are_one_count() {
    use crate::support::Signal;
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let redis = Redis::start();
    let policy = Policy::before(&upstream)
        .on_all_routes(&["inflight: { per: caller, concurrent: 2, lease: 1h }"]);
    let proxies = start(2, &by_redis_clock(&redis), &policy);
    proxies[1].advance(MINUTE);
    let mut streams: Vec<_> = proxies
        .iter()
        .map(|proxy| {
            let mut client = proxy.connect();
            client.write(get("/").by("alice").to_bytes());
            client.read_head().assert_status(200);
            client
        })
        .collect();
    for proxy in &proxies {
        assert_decided(&proxy.get_as("alice"), 429);
    }
    go.open();
    for stream in &mut streams {
        while stream.read_chunk().is_some() {}
    }
    for proxy in &proxies {
        eventually("both have ended", || (proxy.used("alice", "inflight") == 0).then_some(()));
        assert_decided(&proxy.get_as("alice"), 200);
    }
}

#[test]
fn thousands_of_callers_are_each_limited_exactly_across_four_proxies() {
    const CALLERS: u32 = 10_000;
    const THREADS: u32 = 4;
    const REQUESTS: u32 = 2;
    let begun = std::time::Instant::now();
    let upstream = Upstream::start();
    let redis = Redis::start();
    let settings = format!(
        "trusted_proxies: [127.0.0.1]\naccess_log: {{ format: \"off\" }}\n{}",
        by_redis_clock(&redis)
    );
    let proxies = start(4, &settings, &Policy::before(&upstream).rate("1/hour"));
    let passed: Vec<AtomicU32> = (0..CALLERS).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let proxies = &proxies;
            let passed = &passed;
            scope.spawn(move || {
                let mut clients: Vec<_> = proxies.iter().map(Proxy::connect).collect();
                // All threads ask for all callers at about the same time, each at another proxy.
                for request in (number..CALLERS * REQUESTS).step_by(THREADS as usize) {
                    let caller = request / REQUESTS;
                    let proxy = (request + request / 8) % 4;
                    let address = format!("10.0.{}.{}", caller / 250, caller % 250);
                    let response = clients[proxy as usize].send(&get("/").from(&address));
                    match response.status {
                        200 => _ = passed[caller as usize].fetch_add(1, Ordering::Relaxed),
                        _ => _ = response.assert_status(429),
                    }
                    response.assert_no_field("x-tollgate-store");
                }
            });
        }
    });
    let wrong = passed.iter().filter(|passed| passed.load(Ordering::Relaxed) != 1).count();
    assert_eq!(wrong, 0, "callers who had more or less than their one request");
    assert_eq!(upstream.count(), CALLERS as usize);
    assert_eq!(redis.counters().len(), CALLERS as usize);
    eprintln!("{} requests took {:?}", CALLERS * REQUESTS, begun.elapsed());
}

#[test]
fn what_a_response_puts_right_is_right_in_it_and_at_every_proxy() {
    let upstream = Upstream::as_asked();
    for algorithm in forms_of_algorithms() {
        let redis = Redis::start();
        let fields = format!(
            "rate: 100/hour, algorithm: {algorithm}, \
             cost: {{ reserve: 10, from_response_header: x-cost }}"
        );
        let policy = Policy::before(&upstream).core(&fields);
        let proxies = [(); 2].map(|()| Proxy::with_redis(&redis.settings(), &policy));
        for (request, used) in [
            // Nothing is said: the reserve stands.
            (get("/").by("alice"), 10),
            (get("/").by("alice").costing("3"), 13),
            (get("/").by("alice").costing("10"), 23),
            (get("/").by("alice").costing("25"), 48),
            (get("/").by("alice").costing("0"), 48),
            // Free as a whole.
            (get("/").by("alice").wants(304), 48),
            (get("/").by("alice").wants(304).costing("7"), 48),
        ] {
            let response = proxies[0].send(request);
            response.assert_no_field("x-tollgate-store");
            let reported =
                ["used", "remaining"].map(|name| response.number(&format!("x-ratelimit-{name}")));
            assert_eq!(reported, [used, 100 - used], "{algorithm}");
            for proxy in &proxies {
                eventually("it is so in redis", || {
                    (proxy.used("alice", "core") == used).then_some(())
                });
            }
        }
    }
}

#[test]
fn proxies_that_share_a_secret_share_callers_and_others_do_not() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("10/hour");
    let with = |more: &str| {
        let store = format!("redis: {{ {}, clock: proxy }}, deadline: 10s{more}", redis.settings());
        Proxy::with_store(&store, &policy)
    };
    let used = |proxy: &Proxy| proxy.get_as("alice").number("x-ratelimit-used");
    let secret = ", key_secret_env: TEST_SECRET";
    let first = with(secret);
    let second = with(secret);
    let third = with("");
    assert_eq!([used(&first), used(&second), used(&third)], [1, 2, 1]);
}
