//! Redis is back: its counters are as they were, with what was admitted without it.

use std::time::Instant;

use super::{
    all_undecided, stranger, ten, used_here, used_in_redis, wait_until_decided,
    wait_until_undecided,
};
use crate::support::{Proxy, Redis, Upstream, eventually};

#[test]
fn counters_go_on_where_redis_had_them() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    for used in 1..=3 {
        assert_eq!(used_in_redis(&proxy), used);
    }
    redis.save();
    redis.kill();
    for used in 4..=6 {
        assert_eq!(used_here(&proxy), used);
    }
    redis.restart();
    let back = Instant::now();
    wait_until_decided(&proxy);
    eprintln!("redis decides again {:?} after it answers", back.elapsed());
    assert_eq!(used_in_redis(&proxy), 7);

    // The next outage begins where Redis is now.
    redis.kill();
    assert_eq!(used_here(&proxy), 8);
}

#[test]
fn restart_between_two_requests_keeps_what_was_counted() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    for used in 1..=5 {
        assert_eq!(used_in_redis(&proxy), used);
        redis.save();
        redis.restart();
        wait_until_decided(&proxy);
    }
}

#[test]
fn server_that_comes_late_is_found() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.kill();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    for used in 1..=10 {
        assert_eq!(used_here(&proxy), used);
    }
    redis.restart();
    wait_until_decided(&proxy);
    assert_eq!(used_in_redis(&proxy), 10, "she is denied");
}

#[test]
fn many_outages_leave_each_worker_with_redis() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let store = format!(
        "workers: 3\nstore: {{ redis: {{ {}, clock: proxy }}, deadline: 10s, fallback_header: true }}",
        redis.settings()
    );
    let proxy = Proxy::with_settings(&store, &[&ten(&upstream, "on_store_error: closed")]);
    for _ in 0..3 {
        redis.save();
        redis.kill();
        wait_until_undecided(&proxy);
        redis.restart();
        // Connections go to workers in turn: nine in a row without a miss are all of them.
        eventually("all workers are back", || {
            let before = all_undecided(&proxy);
            (0..9).for_each(|_| drop(stranger(&proxy)));
            (all_undecided(&proxy) == before).then_some(())
        });
    }
}
