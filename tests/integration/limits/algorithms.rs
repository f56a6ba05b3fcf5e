//! What each way of counting lets through, and when.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use super::{MICROSECOND, reset_after};
use crate::support::{
    HOUR, MINUTE, Policy, Proxy, SECOND, START, Upstream, algorithms, get, seconds,
};

/// Four at once, in each way; nothing is used any more after two hours.
const FOUR: [&str; 9] = [
    "rate: 4/minute",
    "rate: 4/minute, align: epoch",
    "rate: 4/hour, align: calendar",
    "rate: 4/minute, algorithm: sliding_window",
    "rate: 4/minute, algorithm: sliding_log",
    "rate: 4/minute, algorithm: token_bucket",
    "refill: { amount: 1, interval: 15s }, capacity: 4, algorithm: token_bucket",
    "rate: 4/minute, algorithm: gcra",
    "rate: 30/minute, burst: 4, algorithm: gcra",
];

fn proxy(upstream: &Upstream, measure: &str) -> Proxy {
    Proxy::start(&Policy::before(upstream).core(measure))
}

/// Uses up four.
fn use_up(proxy: &Proxy) {
    for _ in 0..4 {
        proxy.get_as("alice").assert_status(200);
    }
}

/// How many of so many requests pass.
fn passing(proxy: &Proxy, requests: usize) -> usize {
    let mut client = proxy.connect();
    let statuses = (0..requests).map(|_| client.send(&get("/").by("alice")).status);
    statuses.filter(|status| *status == 200).count()
}

/// Whether there is room for one more counter, once all were looked through for what is over: each
/// request looks through some.
fn finds_room(proxy: &Proxy, sub: &str) -> bool {
    let mut client = proxy.connect();
    (0..300).any(|_| client.send(&get("/").by(sub)).status == 200)
}

#[test]
fn each_counts_up_to_its_limit_and_then_denies() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let proxy = proxy(&upstream, measure);
        for used in 1..=4 {
            let response = proxy.get_as("alice");
            response.assert_status(200).assert_field("x-ratelimit-limit", "4");
            assert_eq!(response.number("x-ratelimit-used"), used, "{measure}");
            assert_eq!(response.number("x-ratelimit-remaining"), 4 - used, "{measure}");
            response.assert_no_field("retry-after").assert_no_field("x-tollgate-denied-by");
        }
        let denied = proxy.get_as("alice");
        denied
            .assert_status(429)
            .assert_field("x-ratelimit-used", "4")
            .assert_field("x-ratelimit-remaining", "0")
            .assert_field("x-tollgate-denied-by", "core");
        proxy.get_as("bob").assert_field("x-ratelimit-used", "1");
    }
}

#[test]
fn exactly_the_limit_passes_when_many_ask_at_once() {
    for measure in FOUR {
        let upstream = Upstream::start();
        let policy = Policy::before(&upstream).core(measure);
        let proxy = Proxy::with_settings("workers: 2", &[&policy]);
        let passed = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| passed.fetch_add(passing(&proxy, 5) as u32, Ordering::Relaxed));
            }
        });
        assert_eq!(passed.into_inner(), 4, "{measure}");
        assert_eq!(upstream.count(), 4, "{measure}");
    }
}

#[test]
fn client_that_waits_for_retry_after_passes_and_a_second_earlier_is_denied() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let proxy = proxy(&upstream, measure);
        use_up(&proxy);
        let wait = Duration::from_secs(proxy.get_as("alice").number("retry-after"));
        proxy.advance(wait - SECOND);
        assert_eq!(proxy.get_as("alice").status, 429, "{measure} a second before {wait:?}");
        proxy.advance(SECOND);
        assert_eq!(proxy.get_as("alice").status, 200, "{measure} after {wait:?}");
    }
}

#[test]
fn asking_while_denied_does_not_prolong_the_wait() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let proxy = proxy(&upstream, measure);
        use_up(&proxy);
        let wait = Duration::from_secs(proxy.get_as("alice").number("retry-after"));
        let asked = wait.as_secs() as u32 * 4;
        for _ in 0..asked.min(240) {
            assert_eq!(proxy.get_as("alice").status, 429, "{measure}");
            proxy.advance(wait / asked.min(240) - MICROSECOND);
        }
        proxy.advance(SECOND);
        assert_eq!(proxy.get_as("alice").status, 200, "{measure} after {wait:?}");
    }
}

#[test]
fn with_nothing_left_the_reset_is_when_one_more_passes() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let proxy = proxy(&upstream, measure);
        let resets: Vec<u64> =
            (0..4).map(|_| proxy.get_as("alice").number("x-ratelimit-reset")).collect();
        let now = START.as_micros();
        let wait = Duration::from_micros(resets[3] * 1_000_000 - now);
        assert!(resets.iter().all(|reset| *reset * 1_000_000 > now), "{measure}: {resets:?}");
        proxy.advance(wait - SECOND);
        assert_eq!(proxy.get_as("alice").status, 429, "{measure} a second before {resets:?}");
        proxy.advance(SECOND);
        assert_eq!(proxy.get_as("alice").status, 200, "{measure} at {resets:?}");
    }
}

#[test]
fn counters_that_are_over_make_room_and_those_that_are_not_stay() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let policy = Policy::before(&upstream).core(measure);
        let settings = "workers: 1\nstore: { memory: { max_keys: 1 } }";
        let proxy = Proxy::with_settings(settings, &[&policy]);
        use_up(&proxy);
        assert!(!finds_room(&proxy, "bob"), "{measure}");
        assert_eq!(proxy.get_as("alice").status, 429, "{measure}");
        proxy.advance(2 * HOUR);
        assert!(finds_room(&proxy, "bob"), "{measure}");
    }
}

#[test]
fn clock_that_goes_to_and_fro_makes_nothing_of_nothing() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let proxy = proxy(&upstream, measure);
        use_up(&proxy);
        for _ in 0..10 {
            proxy.turn_back(3 * SECOND);
            assert_eq!(proxy.get_as("alice").status, 429, "{measure}");
            proxy.advance(3 * SECOND);
        }
        // That took no time, so the wait is no longer.
        proxy.advance(HOUR);
        assert_eq!(proxy.get_as("alice").status, 200, "{measure}");
    }
}

#[test]
fn clock_that_was_wrong_by_a_day_denies_for_no_day() {
    let upstream = Upstream::start();
    for measure in FOUR {
        let proxy = proxy(&upstream, measure);
        use_up(&proxy);
        proxy.turn_back(24 * HOUR);
        proxy.get_as("alice");
        proxy.advance(2 * HOUR);
        assert_eq!(proxy.get_as("alice").status, 200, "{measure}");
    }
}

#[test]
fn windows_of_the_epoch_end_for_all_at_once() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 1/hour, align: epoch");
    let end = seconds("2026-09-21T15:00:00Z").to_string();
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-reset", &end);
    proxy.advance_to("2026-09-21T14:59:59Z");
    proxy.get_as("bob").assert_status(200).assert_field("x-ratelimit-reset", &end);
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
    proxy.advance(SECOND);
    for caller in ["alice", "bob"] {
        proxy.get_as(caller).assert_status(200);
    }
}

/// 42 requests in the last minute and 18 in this one, a quarter of which has passed: 49.5 of 50.
#[test]
fn sliding_window_decides_as_in_the_example_of_cloudflare() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 50/minute, algorithm: sliding_window");
    proxy.advance_to("2026-09-21T15:00:00Z");
    assert_eq!(passing(&proxy, 42), 42);
    proxy.advance_to("2026-09-21T15:01:15Z");
    assert_eq!(passing(&proxy, 20), 18);
    // The window before weighs less by a whole request in 60/42 s; half of one was free.
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
    proxy.advance(Duration::from_micros(714_285));
    proxy.get_as("alice").assert_status(429);
    proxy.advance(MICROSECOND);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn sliding_window_lets_no_double_burst_pass_at_an_edge() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 50/minute, algorithm: sliding_window");
    proxy.advance_to("2026-09-21T15:00:59Z");
    assert_eq!(passing(&proxy, 60), 50);
    proxy.advance(SECOND);
    assert_eq!(passing(&proxy, 60), 0);
}

#[test]
fn sliding_log_forgets_each_request_when_it_is_a_window_old() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 3/minute, algorithm: sliding_log");
    for _ in 0..3 {
        proxy.get_as("alice").assert_status(200);
        proxy.advance(15 * SECOND);
    }
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "15");
    proxy.advance(15 * SECOND);
    proxy.get_as("alice").assert_status(200);
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "15");
    proxy.advance(15 * SECOND - MICROSECOND);
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
    proxy.advance(MICROSECOND);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn bucket_with_a_rate_holds_more_than_it_gains_and_gains_evenly() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 10/second, capacity: 50, algorithm: token_bucket");
    assert_eq!(passing(&proxy, 60), 50);
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
    proxy.advance(Duration::from_millis(99));
    assert_eq!(passing(&proxy, 20), 0);
    proxy.advance(Duration::from_millis(901));
    assert_eq!(passing(&proxy, 20), 10);
    // Half a unit that has come counts for the next one.
    proxy.advance(Duration::from_millis(150));
    assert_eq!(passing(&proxy, 20), 1);
    proxy.advance(Duration::from_millis(50));
    assert_eq!(passing(&proxy, 20), 1);
    proxy.advance(MINUTE);
    assert_eq!(passing(&proxy, 60), 50);
}

#[test]
fn bucket_with_a_refill_holds_more_than_it_gains_and_gains_in_steps() {
    let upstream = Upstream::start();
    let measure = "refill: { amount: 10, interval: 1s }, capacity: 50, algorithm: token_bucket";
    let proxy = proxy(&upstream, measure);
    assert_eq!(passing(&proxy, 60), 50);
    proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
    proxy.advance(Duration::from_millis(999));
    assert_eq!(passing(&proxy, 20), 0);
    proxy.advance(Duration::from_millis(1001));
    assert_eq!(passing(&proxy, 30), 20);
    // Half a step that has passed counts for the next one.
    proxy.advance(Duration::from_millis(1500));
    assert_eq!(passing(&proxy, 30), 10);
    proxy.advance(Duration::from_millis(500));
    assert_eq!(passing(&proxy, 30), 10);
    proxy.advance(MINUTE);
    assert_eq!(passing(&proxy, 60), 50);
}

#[test]
fn bucket_fills_no_sooner_without_requests() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).core("rate: 10/second, capacity: 100, algorithm: token_bucket");
    let settings = "workers: 1\nstore: { memory: { max_keys: 1 } }";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    assert_eq!(passing(&proxy, 100), 100);
    proxy.advance(2 * SECOND);
    assert!(!finds_room(&proxy, "bob"));
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "81");
}

#[test]
fn refill_may_have_any_step() {
    let upstream = Upstream::start();
    let measure = "refill: { amount: 2, interval: 10 minutes }, algorithm: token_bucket, \
                   capacity: { anonymous: 0, free: 5, pro: 9, internal: unlimited }";
    let proxy = proxy(&upstream, measure);
    assert_eq!(passing(&proxy, 10), 5);
    let full = reset_after(600);
    proxy.get_as("alice").assert_limit(["5", "0", "5", &full, "core"]);
    proxy.advance(10 * MINUTE);
    assert_eq!(passing(&proxy, 10), 2);
    proxy.get("/").assert_status(429).assert_no_field("retry-after");
}

#[test]
fn strict_bucket_makes_who_does_not_wait_wait_again() {
    let upstream = Upstream::start();
    let proxy = proxy(
        &upstream,
        "refill: { amount: 1, interval: 10s }, capacity: 2, strict: true, algorithm: token_bucket",
    );
    assert_eq!(passing(&proxy, 2), 2);
    for _ in 0..5 {
        proxy.advance(9 * SECOND);
        proxy.get_as("alice").assert_status(429).assert_field("retry-after", "10");
    }
    proxy.advance(10 * SECOND);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn gcra_spaces_requests_out_once_the_burst_is_used() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 30/minute, burst: 3, algorithm: gcra");
    for (remaining, used, reset) in [("2", "1", 2), ("1", "2", 4), ("0", "3", 2)] {
        // While something is left, the reset is when all is there again.
        let reset = reset_after(reset);
        proxy.get_as("alice").assert_limit(["3", remaining, used, &reset, "core"]);
    }
    for _ in 0..5 {
        proxy.get_as("alice").assert_status(429).assert_field("retry-after", "2");
        proxy.advance(2 * SECOND - MICROSECOND);
        proxy.get_as("alice").assert_status(429).assert_field("retry-after", "1");
        proxy.advance(MICROSECOND);
        proxy.get_as("alice").assert_status(200);
    }
    proxy.advance(6 * SECOND);
    assert_eq!(passing(&proxy, 10), 3);
}

#[test]
fn gcra_keeps_to_rates_that_no_unit_of_time_divides() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "rate: 7/minute, burst: 1, algorithm: gcra");
    // One every 60/7 s, to the microsecond that it takes.
    let every = Duration::from_micros(60_000_000_u64.div_ceil(7));
    for _ in 0..7 {
        proxy.get_as("alice").assert_status(200);
        proxy.advance(every - MICROSECOND);
        proxy.get_as("alice").assert_status(429);
        proxy.advance(MICROSECOND);
    }
}

#[test]
fn burst_and_capacity_may_differ_by_tier() {
    let upstream = Upstream::start();
    for measure in [
        "rate: 30/minute, burst: { anonymous: 1, default: 4 }, algorithm: gcra",
        "rate: 1/minute, capacity: { anonymous: 1, default: 4 }, algorithm: token_bucket",
    ] {
        let proxy = proxy(&upstream, measure);
        use_up(&proxy);
        proxy.get_as("alice").assert_status(429);
        proxy.get("/").assert_status(200).assert_field("x-ratelimit-limit", "1");
        proxy.get("/").assert_status(429);
    }
}

#[test]
fn nothing_passes_a_rate_of_zero_and_no_wait_is_promised() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let proxy = proxy(&upstream, &format!("rate: 0/minute, algorithm: {algorithm}"));
        let denied = proxy.get_as("alice");
        denied.assert_status(429).assert_no_field("retry-after");
        denied.assert_field("x-ratelimit-limit", "0").assert_field("x-ratelimit-used", "0");
    }
    assert_eq!(upstream.count(), 0);
}
