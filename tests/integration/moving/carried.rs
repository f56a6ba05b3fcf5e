//! What the next store has counted while it was mirrored, and what it missed: a caller who is moved
//! then has the true count.

use tollgate_settings::MoveMode;

use super::{MEMORY, in_redis, move_callers, proxy, used};
use crate::support::{MINUTE, Policy, Proxy, Redis, Upstream, eventually, forms_of_algorithms};

/// A limit that only the store decides: the process never decides in its place.
fn policy(upstream: &Upstream, algorithm: &str) -> Policy {
    // No window of the calendar ends while a test runs by the servers' own clocks.
    let rate = match algorithm.rsplit_once("align: ") {
        Some((_, "calendar")) => "500/year",
        Some(_) => "500/365d",
        None => "500/day",
    };
    let fields = format!("rate: {rate}, algorithm: {algorithm}, on_store_error: closed");
    Policy::before(upstream).core(&fields)
}

/// Asks so many times, and waits until the next store has been asked too if it is mirrored: first
/// about one request, since what comes while its counter is carried over may count twice there.
fn ask(proxy: &Proxy, times: u64) -> u64 {
    let first = ask_together(proxy, 1);
    if times > 1 { ask_together(proxy, times - 1) } else { first }
}

fn ask_together(proxy: &Proxy, times: u64) -> u64 {
    let counts = &proxy.stores().counts;
    let is_mirrored = proxy.stores().moving.plan() == Some((100, MoveMode::Mirror));
    let before = counts.mirrored.get();
    let last_used = (0..times).fold(0, |_, _| used(proxy, "alice"));
    if is_mirrored {
        eventually("the next store has answered", || {
            (counts.mirrored.get() == before + times).then_some(())
        });
    }
    last_used
}

fn mirror_callers(proxy: &Proxy, percent: u8) {
    proxy.stores().moving.set(percent, MoveMode::Mirror);
}

/// Each way to move, and each way to count.
fn each_way(test: impl Fn(&Proxy, &str)) {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    for algorithm in forms_of_algorithms() {
        let policy = policy(&upstream, algorithm);
        for (way, current, next) in [
            ("memory to redis", MEMORY, &*in_redis(&first)),
            ("redis to memory", &in_redis(&first), MEMORY),
            ("redis to redis", &in_redis(&first), &in_redis(&second)),
            ("redis to redis by their own clocks", &first.own_clock(), &second.own_clock()),
        ] {
            first.command(&["FLUSHALL"]);
            second.command(&["FLUSHALL"]);
            test(&proxy(current, next, &policy), &format!("{way}, {algorithm}"));
        }
    }
}

trait OwnClock {
    /// The store, by the clock of the server.
    fn own_clock(&self) -> String;
}

impl OwnClock for Redis {
    fn own_clock(&self) -> String {
        format!("redis: {{ {} }}", self.settings())
    }
}

#[test]
fn what_was_mirrored_is_counted_once() {
    each_way(|proxy, way| {
        mirror_callers(proxy, 100);
        assert_eq!(ask(proxy, 400), 400, "{way}");
        move_callers(proxy, 100);
        assert_eq!(ask(proxy, 11), 411, "{way}");
        assert_eq!(proxy.stores().counts.disagreed.get(), 0, "{way}");
    });
}

#[test]
fn what_was_not_mirrored_is_not_lost() {
    each_way(|proxy, way| {
        assert_eq!(ask(proxy, 5), 5, "{way}");
        mirror_callers(proxy, 100);
        assert_eq!(ask(proxy, 5), 10, "{way}");
        // For a while the next store is not asked.
        mirror_callers(proxy, 0);
        assert_eq!(ask(proxy, 400), 410, "{way}");
        move_callers(proxy, 100);
        assert_eq!(ask(proxy, 1), 411, "{way}");
    });
}

#[test]
fn what_was_missed_is_brought_while_it_is_mirrored_too() {
    each_way(|proxy, way| {
        mirror_callers(proxy, 100);
        assert_eq!(ask(proxy, 10), 10, "{way}");
        mirror_callers(proxy, 0);
        assert_eq!(ask(proxy, 50), 60, "{way}");
        mirror_callers(proxy, 100);
        assert_eq!(ask(proxy, 40), 100, "{way}");
        move_callers(proxy, 100);
        assert_eq!(ask(proxy, 11), 111, "{way}");
    });
}

#[test]
fn entries_of_a_log_leave_one_by_one_wherever_it_is() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let fields = "rate: 50/hour, algorithm: sliding_log, on_store_error: closed";
    let policy = Policy::before(&upstream).core(fields);
    for (way, current, next) in [
        ("memory to redis", MEMORY, &*in_redis(&first)),
        ("redis to memory", &in_redis(&first), MEMORY),
        ("redis to redis", &in_redis(&first), &in_redis(&second)),
    ] {
        first.command(&["FLUSHALL"]);
        let proxy = proxy(current, next, &policy);
        for minute in 1..=30 {
            match minute {
                5 => mirror_callers(&proxy, 100),
                10 => mirror_callers(&proxy, 0),
                20 => move_callers(&proxy, 100),
                _ => {}
            }
            assert_eq!(ask(&proxy, 1), minute, "{way}");
            proxy.advance(MINUTE);
        }
        proxy.advance(30 * MINUTE);
        for minute in 1..30 {
            // One has left, and one has come.
            assert_eq!(ask(&proxy, 1), 30, "{way}, {minute}");
            proxy.advance(MINUTE);
        }
    }
}
