//! Moving callers from one store to another while they are served: no caller gets a fresh window.

mod carried;
mod mirror;
mod receipts;
mod rolling;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use tollgate_settings::MoveMode;

use crate::support::{
    HOUR, MINUTE, Policy, Proxy, Redis, Response, Signal, Upstream, eventually,
    forms_of_algorithms, get,
};

/// Callers are in `current`, and may be moved to `next`.
fn proxy(current: &str, next: &str, policy: &Policy) -> Proxy {
    proxy_with(&format!("current: {{ {current} }}, next: {{ {next} }}"), policy)
}

/// With these fields of the store.
fn proxy_with(store: &str, policy: &Policy) -> Proxy {
    Proxy::with_store(&format!("{store}, mode: move_now, deadline: 10s"), policy)
}

const MEMORY: &str = "memory: {}";

fn in_redis(redis: &Redis) -> String {
    format!("redis: {{ {}, clock: proxy }}", redis.settings())
}

fn on_disk(folder: &tempfile::TempDir) -> String {
    format!("disk: {{ path: {}, flush: 10ms }}", folder.path().join("counters").display())
}

/// From now on so many of a hundred callers are in the next store.
fn move_callers(proxy: &Proxy, percent: u8) {
    proxy.stores().moving.set(percent, MoveMode::MoveNow);
}

fn limit_headers(response: &Response) -> [Option<String>; 5] {
    ["limit", "remaining", "used", "reset", "resource"]
        .map(|name| response.field(&format!("x-ratelimit-{name}")).map(str::to_owned))
}

/// What somebody has used after one more request that the store has decided about.
fn used(proxy: &Proxy, sub: &str) -> u64 {
    let response = proxy.get_as(sub);
    response.assert_no_field("x-tollgate-store");
    response.number("x-ratelimit-used")
}

#[test]
fn caller_who_is_moved_gets_the_same_responses_as_without_the_move() {
    let upstream = Upstream::start();
    for algorithm in forms_of_algorithms() {
        let policy =
            Policy::before(&upstream).core(&format!("rate: 5/hour, algorithm: {algorithm}"));
        let first = Redis::start();
        let second = Redis::start();
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [first_folder, second_folder] = folders.each_ref().map(on_disk);
        for (name, current, next) in [
            ("memory to disk", MEMORY, &*first_folder),
            ("disk to redis", &second_folder, &in_redis(&first)),
            ("memory to redis", MEMORY, &*in_redis(&first)),
            ("redis to memory", &in_redis(&first), MEMORY),
            ("redis to redis", &in_redis(&first), &in_redis(&second)),
        ] {
            first.command(&["FLUSHALL"]);
            let moved = proxy(current, next, &policy);
            let control = Proxy::start(&policy);
            for number in 1..=7 {
                if number == 4 {
                    move_callers(&moved, 100);
                }
                let responses = [&moved, &control].map(|proxy| proxy.get_as("alice"));
                let [actual, expected] = responses.each_ref().map(limit_headers);
                assert_eq!(actual, expected, "request {number}, {name}, {algorithm}");
                let [actual, expected] = responses.each_ref().map(|response| response.status);
                assert_eq!(actual, expected, "request {number}, {name}, {algorithm}");
                responses[0].assert_no_field("x-tollgate-store");
            }
        }
    }
}

#[test]
fn window_ends_when_it_would_have() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).rate("5/hour");
    let proxy = proxy(MEMORY, &in_redis(&redis), &policy);
    let opened = proxy.get_as("alice").number("x-ratelimit-reset");
    proxy.advance(20 * MINUTE);
    assert_eq!(used(&proxy, "alice"), 2);
    move_callers(&proxy, 100);
    proxy.advance(20 * MINUTE);
    assert_eq!(used(&proxy, "alice"), 3);
    assert_eq!(proxy.get_as("alice").number("x-ratelimit-reset"), opened);
    proxy.advance(20 * MINUTE);
    assert_eq!(used(&proxy, "alice"), 1);
}

#[test]
fn caller_whose_window_is_over_takes_nothing_along() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = proxy(MEMORY, &in_redis(&redis), &Policy::before(&upstream).rate("5/hour"));
    for expected in 1..=5 {
        assert_eq!(used(&proxy, "alice"), expected);
    }
    proxy.get_as("alice").assert_status(429);
    proxy.advance(HOUR);
    move_callers(&proxy, 100);
    assert_eq!(used(&proxy, "alice"), 1);
}

#[test]
fn who_starts_with_everybody_moved_finds_what_was_counted() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = Policy::before(&upstream).rate("5/hour");
    let before = Proxy::with_redis(&first.settings(), &policy);
    for expected in 1..=3 {
        assert_eq!(used(&before, "alice"), expected);
    }
    let store = format!(
        "current: {{ {} }}, next: {{ {} }}, percent: 100",
        in_redis(&first),
        in_redis(&second)
    );
    let moved = [(); 2].map(|()| proxy_with(&store, &policy));
    // Each proxy carries her over, and the second one changes nothing by that.
    assert_eq!([used(&moved[0], "alice"), used(&moved[1], "alice")], [4, 5]);
    moved[0].get_as("alice").assert_status(429);
    // The old store is charged too, for the proxies that still decide by it.
    eventually("it is charged too", || (before.used("alice", "core") == 5).then_some(()));
    let after = Proxy::with_redis(&second.settings(), &policy);
    assert_eq!(after.used("alice", "core"), 5);
}

#[test]
fn who_comes_back_has_no_fresh_window() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = Policy::before(&upstream).rate("9/hour");
    for (name, current, next) in [
        ("memory to redis", MEMORY, &*in_redis(&first)),
        ("redis to redis", &in_redis(&first), &in_redis(&second)),
    ] {
        first.command(&["FLUSHALL"]);
        let proxy = proxy(current, next, &policy);
        let reset = proxy.get_as("alice").number("x-ratelimit-reset");
        assert_eq!([used(&proxy, "alice"), used(&proxy, "alice")], [2, 3], "{name}");
        move_callers(&proxy, 100);
        assert_eq!([used(&proxy, "alice"), used(&proxy, "alice")], [4, 5], "{name}");
        move_callers(&proxy, 0);
        let back = proxy.get_as("alice");
        eprintln!("{name} and back: {:?} after 5", back.field("x-ratelimit-used"));
        assert!(back.number("x-ratelimit-used") >= 4, "{name}: {back:?}");
        assert_eq!(back.number("x-ratelimit-reset"), reset, "{name}");
        move_callers(&proxy, 100);
        let again = used(&proxy, "alice");
        eprintln!("{name} once more: {again} after 5 there");
        assert!(again >= 6, "{name}: {again}");
    }
}

#[test]
fn share_of_a_lone_proxy_is_not_what_a_caller_comes_back_to() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let next = in_redis(&redis);
    let store = format!("current: {{ {MEMORY} }}, next: {{ {next} }}, instances: 4");
    let proxy = proxy_with(&store, &Policy::before(&upstream).rate("20/hour"));
    for expected in 1..=8 {
        assert_eq!(used(&proxy, "alice"), expected);
    }
    move_callers(&proxy, 100);
    assert_eq!(used(&proxy, "alice"), 9);
    move_callers(&proxy, 0);
    let back = used(&proxy, "alice");
    assert!(back >= 9, "{back}");
}

#[test]
fn half_of_the_callers_are_half_of_the_callers() {
    const CALLERS: usize = 200;
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = proxy(MEMORY, &in_redis(&redis), &Policy::before(&upstream).rate("4/hour"));
    let callers: Vec<String> = (0..CALLERS).map(|number| format!("caller-{number}")).collect();
    let mut moved = Vec::new();
    for (round, percent) in (1..).zip([0, 50, 50, 100]) {
        move_callers(&proxy, percent);
        for caller in &callers {
            assert_eq!(used(&proxy, caller), round, "{percent}%");
        }
        moved.push(redis.counters().len());
    }
    assert_eq!((moved[0], moved[3]), (0, CALLERS));
    let about_half = CALLERS / 4..=CALLERS * 3 / 4;
    assert!(about_half.contains(&moved[1]) && moved[1] == moved[2], "{moved:?}");
    for caller in &callers {
        proxy.get_as(caller).assert_status(429);
    }
}

#[test]
fn move_under_traffic_admits_no_more_than_the_limit() {
    const THREADS: u32 = 4;
    const LIMIT: u32 = 200;
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = Policy::before(&upstream).rate(&format!("{LIMIT}/hour"));
    for (name, current, next, more) in [
        // What one worker asks of its own memory is never on its way.
        ("memory to redis", MEMORY, &*in_redis(&first), 0),
        ("redis to redis", &in_redis(&first), &in_redis(&second), THREADS),
    ] {
        first.command(&["FLUSHALL"]);
        let proxy = proxy(current, next, &policy);
        let passed = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut client = proxy.connect();
                    loop {
                        let response = client.send(&get("/").by("alice"));
                        response.assert_no_field("x-tollgate-store");
                        if response.status == 429 {
                            break;
                        }
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("traffic flows", || {
                (passed.load(Ordering::Relaxed) >= LIMIT / 4).then_some(())
            });
            move_callers(&proxy, 100);
        });
        let passed = passed.into_inner();
        eprintln!("{name}: {passed} of {LIMIT} passed");
        assert!((LIMIT..=LIMIT + more).contains(&passed), "{name}: {passed}");
    }
}

#[test]
fn no_caller_is_moved_while_a_store_does_not_answer() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = Policy::before(&upstream).core("rate: 9/hour, on_store_error: closed");
    let proxy = proxy(&in_redis(&first), &in_redis(&second), &policy);
    for expected in 1..=3 {
        assert_eq!(used(&proxy, "alice"), expected);
    }
    first.save();
    first.kill();
    move_callers(&proxy, 100);
    // Not even though the next store would have room.
    for _ in 0..3 {
        proxy.get_as("alice").assert_status(503);
    }
    assert_eq!(second.counters().len(), 0);
    first.restart();
    let is_served = || proxy.get_as("bob").status == 200;
    eventually("both are there", || is_served().then_some(()));
    assert_eq!(used(&proxy, "alice"), 4);

    second.save();
    second.kill();
    proxy.get_as("alice").assert_status(503);
    proxy.get_as("carol").assert_status(503);
    move_callers(&proxy, 0);
    proxy.get_as("carol").assert_status(200);
}

#[test]
fn caller_of_a_next_store_that_is_away_is_decided_about_from_where_it_was() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = proxy(MEMORY, &in_redis(&redis), &Policy::before(&upstream).rate("5/hour"));
    for expected in 1..=3 {
        assert_eq!(used(&proxy, "alice"), expected);
    }
    redis.kill();
    move_callers(&proxy, 100);
    for used in ["4", "5"] {
        let response = proxy.get_as("alice");
        response.assert_status(200).assert_field("x-tollgate-store", "local");
        response.assert_field("x-ratelimit-used", used);
    }
    proxy.get_as("alice").assert_status(429);
}

#[test]
fn what_was_charged_before_the_move_is_given_back_where_it_was() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::holding_unchanged(&asked, &go);
    let redis = Redis::start();
    let proxy = proxy(MEMORY, &in_redis(&redis), &Policy::before(&upstream).rate("5/hour"));
    let mut held = proxy.connect();
    held.write(get("/held").revalidating().by("alice").to_bytes());
    asked.wait();
    move_callers(&proxy, 100);
    // The charge was carried over before the refund: she has less left than is due, and not more.
    assert_eq!(used(&proxy, "alice"), 2);
    go.open();
    held.read().assert_status(304);
    let after = used(&proxy, "alice");
    assert!((2..=3).contains(&after), "{after}");
}

#[test]
fn caller_who_goes_back_and_forth_is_charged_for_all_of_it() {
    let upstream = Upstream::start();
    for algorithm in ["fixed_window", "sliding_window", "token_bucket", "gcra"] {
        let fields = format!("rate: 100/hour, algorithm: {algorithm}");
        let redis = Redis::start();
        let proxy = proxy(MEMORY, &in_redis(&redis), &Policy::before(&upstream).core(&fields));
        for (round, percent) in (0..).zip([100, 0, 100, 0]) {
            move_callers(&proxy, percent);
            for request in 1..=5 {
                assert_eq!(used(&proxy, "alice"), round * 5 + request, "{algorithm}, {percent}%");
            }
        }
    }
}

#[test]
fn pending_charges_of_a_store_that_is_away_hold_up_no_other_store() {
    let upstream = Upstream::start();
    let current = Redis::start();
    let next = Redis::start();
    let policy = Policy::before(&upstream).core("rate: 10/hour");
    let proxy = proxy(&in_redis(&current), &in_redis(&next), &policy);
    move_callers(&proxy, 100);
    assert_eq!(used(&proxy, "alice"), 1);
    next.kill();
    let response = proxy.get_as("alice");
    response.assert_status(200).assert_field("x-tollgate-store", "local");
    assert_eq!(proxy.stores().pending(), 1);
    move_callers(&proxy, 0);
    assert_eq!(used(&proxy, "alice"), 1, "the store that she was moved from decides again");
}
