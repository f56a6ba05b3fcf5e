//! Proxies whose clocks are wrong, in a Redis that counts by them (`clock: proxy`).

use std::time::Duration;

use crate::support::{Cluster, Policy, Proxy, Redis, Shards, Upstream, algorithms, eventually};

/// A store whose counters go by the clocks of its proxies.
fn by_proxy_clock(redis: &str) -> String {
    format!(
        "workers: 1\nstore: {{ redis: {{ {redis}, clock: proxy }}, deadline: 10s, fallback_header: true }}"
    )
}

/// Proxies whose clocks are so many seconds ahead.
fn start(redis: &Redis, policy: &Policy, seconds: &[i64]) -> Vec<Proxy> {
    start_with(&by_proxy_clock(&redis.settings()), policy, seconds)
}

fn start_with(settings: &str, policy: &Policy, seconds: &[i64]) -> Vec<Proxy> {
    let start = |seconds: &i64| Proxy::with_clock_ahead(*seconds, settings, policy);
    seconds.iter().map(start).collect()
}

#[test]
fn proxies_whose_clocks_are_far_apart_share_a_limit_from_their_first_request_on() {
    let upstream = Upstream::start();
    for seconds in [2, 6, 60, 3600] {
        for algorithm in algorithms() {
            let redis = Redis::start();
            let fields = format!("rate: 20/hour, algorithm: {algorithm}");
            let policy = Policy::before(&upstream).core(&fields);
            let proxies = start(&redis, &policy, &[0, seconds, -seconds]);
            let mut passed = 0;
            for request in 0..60 {
                let response = proxies[request % 3].get_as("alice");
                response.assert_no_field("x-tollgate-store");
                passed += usize::from(response.status == 200);
            }
            assert_eq!(passed, 20, "{algorithm} with clocks {seconds} s off");
        }
    }
}

#[test]
fn callers_of_many_servers_are_limited_alike_by_proxies_whose_clocks_are_apart() {
    let upstream = Upstream::start();
    let shards = Shards::start(3);
    let cluster = Cluster::start();
    let policy = Policy::before(&upstream).core("rate: 3/hour, algorithm: gcra");
    for redis in [shards.settings(), cluster.settings()] {
        let proxies = start_with(&by_proxy_clock(&redis), &policy, &[0, 60, -60]);
        for caller in 0..20 {
            let caller = format!("caller-{caller}");
            let passed = (0..12).filter(|request| {
                let response = proxies[request % 3].get_as(&caller);
                response.assert_no_field("x-tollgate-store");
                response.status == 200
            });
            assert_eq!(passed.count(), 3, "{caller} in {redis}");
        }
    }
}

#[test]
fn clock_that_is_set_wrong_is_overruled_until_it_is_right_again() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).core("rate: 20/hour, algorithm: gcra");
    let proxy = &start(&redis, &policy, &[0])[0];
    // In seconds, and whether Redis' clock counts.
    let is = |seconds: i64, is_overruled: bool| {
        let ahead_micros = seconds * 1_000_000;
        eventually("the clocks were compared", || {
            let skews = proxy.stores().skews();
            let [skew] = &skews[..] else { return None };
            let is_right = skew.ahead_micros.abs_diff(ahead_micros) < 500_000;
            (is_right && skew.is_overruled == is_overruled).then_some(())
        });
        proxy.get_as("alice").assert_no_field("x-tollgate-store");
    };
    is(0, false);
    proxy.advance(Duration::from_secs(60));
    is(60, true);
    proxy.turn_back(Duration::from_secs(62));
    is(-2, true);
    proxy.advance(Duration::from_secs(1));
    is(-1, false);
    assert_eq!(proxy.used("alice", "core"), 4);
}

#[test]
fn calendar_window_ends_by_redis_clock_where_that_counts() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let fields = "rate: 20/hour, algorithm: fixed_window, align: calendar";
    let policy = Policy::before(&upstream).core(fields);
    let time = || redis.ask::<(u64, u64)>(&["TIME"]).0;
    let by_proxy = by_proxy_clock(&redis.settings());
    let by_redis = by_proxy.replace("clock: proxy", "clock: redis");
    for (clock, settings) in [("proxy", &by_proxy), ("redis", &by_redis)] {
        for seconds in [-7200, 0, 7200] {
            let proxy = &start_with(settings, &policy, &[seconds])[0];
            let before = time();
            let reset = proxy.get_as(&format!("{clock}{seconds}")).number("x-ratelimit-reset");
            let ends = [before, time()].map(|time| (time / 3600 + 1) * 3600);
            assert!(ends.contains(&reset), "{reset} is none of {ends:?}: {clock}, {seconds} s");
        }
    }
}

#[test]
fn server_that_does_not_tell_its_time_leaves_the_proxys_clock_in_force() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "default", "-time"]);
    let policy = Policy::before(&upstream).rate("20/hour");
    let proxy = &start(&redis, &policy, &[3600])[0];
    let response = proxy.get_as("alice");
    response.assert_status(200).assert_no_field("x-tollgate-store");
    assert!(proxy.stores().skews().is_empty());
}
