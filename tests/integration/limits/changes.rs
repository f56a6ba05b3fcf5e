//! How a change of a limit affects the counts. Here the limit changes with the caller's tier. For
//! a counter this equals a changed policy, since counters hold no limits.

use serde_json::json;

use super::{MICROSECOND, reset_after};
use crate::support::{
    HOUR, MINUTE, Policy, Proxy, Response, SECOND, Upstream, algorithms, get, token_with,
};

/// Asks as alice, who is in this tier now.
fn ask(proxy: &Proxy, tier: &str) -> Response {
    proxy.send(get("/").token(&token_with(&json!({ "sub": "alice", "plan": tier }))))
}

#[test]
fn raised_limit_holds_at_once_and_the_window_stays() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("{ free: 2/hour, pro: 5/hour, default: 9/hour }");
    let proxy = Proxy::start(&policy);
    let reset = reset_after(3600);
    for _ in 0..2 {
        ask(&proxy, "free").assert_status(200);
    }
    ask(&proxy, "free").assert_status(429);
    proxy.advance(MINUTE);
    ask(&proxy, "pro").assert_status(200).assert_limit(["5", "2", "3", &reset, "core"]);
}

#[test]
fn lowered_limit_denies_until_the_window_ends_and_forgets_nothing() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("{ free: 2/hour, pro: 5/hour, default: 9/hour }");
    let proxy = Proxy::start(&policy);
    let reset = reset_after(3600);
    for _ in 0..4 {
        ask(&proxy, "pro").assert_status(200);
    }
    ask(&proxy, "free").assert_status(429).assert_limit(["2", "0", "4", &reset, "core"]);
    // Raised again, it is as if it had never been lowered.
    ask(&proxy, "pro").assert_status(200).assert_limit(["5", "0", "5", &reset, "core"]);
    proxy.advance(HOUR);
    ask(&proxy, "free").assert_status(200).assert_field("x-ratelimit-used", "1");
}

#[test]
fn every_algorithm_keeps_what_was_used() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let rates = "{ free: 3/hour, pro: 10/hour, internal: 20/hour, anonymous: 0/hour }";
        let policy = format!("rate: {rates}, algorithm: {algorithm}");
        let proxy = Proxy::start(&Policy::before(&upstream).core(&policy));
        for _ in 0..4 {
            ask(&proxy, "pro").assert_status(200);
        }
        let raised = ask(&proxy, "internal");
        raised.assert_status(200).assert_field("x-ratelimit-limit", "20");
        assert_eq!(raised.number("x-ratelimit-remaining"), 15, "{algorithm}");
        let lowered = ask(&proxy, "free");
        lowered.assert_status(429).assert_field("x-ratelimit-limit", "3");
        assert_eq!(lowered.number("x-ratelimit-remaining"), 0, "{algorithm}");
        let restored = ask(&proxy, "pro");
        assert_eq!(restored.number("x-ratelimit-remaining"), 4, "{algorithm}");
    }
}

#[test]
fn debt_drains_at_the_new_rate() {
    let upstream = Upstream::start();
    let policy = "rate: { free: 10/second, pro: 100/second, default: 1/second }, burst: 10, \
                  algorithm: gcra";
    for (tier, wait) in [("pro", SECOND / 100), ("internal", SECOND), ("free", SECOND / 10)] {
        let proxy = Proxy::start(&Policy::before(&upstream).core(policy));
        for _ in 0..10 {
            ask(&proxy, "free").assert_status(200);
        }
        ask(&proxy, tier).assert_status(429).assert_field("retry-after", "1");
        proxy.advance(wait - MICROSECOND);
        assert_eq!(ask(&proxy, tier).status, 429, "{tier} before {wait:?}");
        proxy.advance(MICROSECOND);
        assert_eq!(ask(&proxy, tier).status, 200, "{tier} after {wait:?}");
    }
}

#[test]
fn changed_burst_keeps_the_debt() {
    let upstream = Upstream::start();
    for measure in
        ["rate: 1/hour, algorithm: gcra, burst", "rate: 1/hour, algorithm: token_bucket, capacity"]
    {
        let room = "{ free: 10, pro: 20, default: 3 }";
        let proxy = Proxy::start(&Policy::before(&upstream).core(&format!("{measure}: {room}")));
        for _ in 0..4 {
            ask(&proxy, "free").assert_status(200);
        }
        ask(&proxy, "internal").assert_status(429).assert_field("x-ratelimit-remaining", "0");
        ask(&proxy, "pro").assert_status(200).assert_field("x-ratelimit-remaining", "15");
    }
}

#[test]
fn another_window_or_algorithm_is_another_counter() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("{ free: 2/hour, pro: 2/minute, default: 9/day }");
    let proxy = Proxy::start(&policy);
    for tier in ["free", "pro"] {
        for _ in 0..2 {
            ask(&proxy, tier).assert_status(200);
        }
        ask(&proxy, tier).assert_status(429);
    }
    proxy.advance(MINUTE);
    ask(&proxy, "pro").assert_status(200).assert_field("x-ratelimit-used", "1");
    ask(&proxy, "free").assert_status(429);
}

#[test]
fn fewer_at_once_wait_for_those_that_are_there() {
    let (asked, go) = Default::default();
    let upstream = Upstream::held(&asked, &go);
    let policy = Policy::before(&upstream).core("concurrent: { pro: 3, default: 1 }");
    let proxy = Proxy::start(&policy);
    let pro = token_with(&json!({ "sub": "alice", "plan": "pro" }));
    let mut held = [(); 2].map(|()| {
        let mut client = proxy.connect();
        client.write(get("/").token(&pro).to_bytes());
        client
    });
    upstream.wait_for(2);
    ask(&proxy, "free").assert_status(429).assert_field("x-ratelimit-used", "2");
    go.open();
    for client in &mut held {
        client.read().assert_status(200);
    }
    ask(&proxy, "free").assert_status(200);
}
