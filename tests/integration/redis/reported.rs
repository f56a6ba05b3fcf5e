//! Responses report counters in Redis as they report counters in the process.

use crate::support::{Policy, Proxy, Redis, Upstream, eventually, get};

#[test]
fn limit_that_the_response_uses_up_is_reported_with_its_reset() {
    let upstream = Upstream::as_asked();
    let redis = Redis::start();
    let fields = "rate: 10/hour, cost: { reserve: 2, from_response_header: x-cost }";
    let policy = Policy::before(&upstream).core(fields);
    let proxies = [Proxy::start(&policy), Proxy::with_redis(&redis.settings(), &policy)];
    for proxy in &proxies {
        let response = proxy.send(get("/").by("alice").costing("10"));
        response.assert_status(200).assert_field("x-ratelimit-remaining", "0");
        let reset = response.number("x-ratelimit-reset");
        // Settled in Redis a moment later: the standings are queried until they show it.
        eventually("what it has cost is settled", || {
            (proxy.used("alice", "core") == 10).then_some(())
        });
        let denied = proxy.get_as("alice");
        assert_eq!(denied.assert_status(429).number("x-ratelimit-reset"), reset);
    }
}

#[test]
fn limit_that_is_exceeded_does_not_stand_for_all_of_them() {
    let upstream = Upstream::as_asked();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "aa: { per: caller, rate: 5/hour, cost: 0 }",
        "co: { per: caller, rate: 20/hour, cost: { reserve: 1, from_response_header: x-cost } }",
    ]);
    for proxy in [Proxy::start(&policy), Proxy::with_redis(&redis.settings(), &policy)] {
        proxy.send(get("/").by("alice").costing("50")).assert_status(200);
        let standings = eventually("what it has cost is settled", || {
            let standings = proxy.send(get("/rate_limit").by("alice")).json();
            (standings["resources"]["co"]["used"] == 50).then_some(standings)
        });
        assert_eq!(standings["rate"]["limit"], 5, "{standings}");
    }
}

#[test]
fn key_of_another_type_is_no_counter() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    for algorithm in ["fixed_window", "sliding_window", "token_bucket", "gcra"] {
        redis.command(&["FLUSHALL"]);
        let fields = format!("rate: 5/hour, algorithm: {algorithm}");
        let policy = Policy::before(&upstream).core(&fields);
        let proxy = Proxy::with_redis(&redis.settings(), &policy);
        assert_eq!(proxy.get_as("alice").number("x-ratelimit-used"), 1);
        let keys = redis.counters();
        redis.command(&["DEL", &keys[0]]);
        redis.command(&["LPUSH", &keys[0], "mine"]);
        for used in 1..=2 {
            let response = proxy.get_as("alice");
            response.assert_status(200).assert_no_field("x-tollgate-store");
            assert_eq!(response.number("x-ratelimit-used"), used, "{algorithm}");
        }
    }
}
