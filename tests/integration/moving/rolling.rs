//! Several proxies that start to move callers at different times: together they admit no more than
//! the limit at any time.

use std::time::Duration;

use tollgate_settings::MoveMode;
use tollgate_store::Obstacle;

use super::{MEMORY, in_redis};
use crate::support::{Cluster, HOUR, Policy, Proxy, Redis, Shards, Upstream, eventually};

const LIMIT: u32 = 200;

fn policy(upstream: &Upstream, algorithm: &str) -> Policy {
    let fields = format!("rate: {LIMIT}/hour, algorithm: {algorithm}, on_store_error: closed");
    Policy::before(upstream).core(&fields)
}

/// A proxy that mirrors no callers yet.
fn proxy(current: &str, next: &str, policy: &Policy) -> Proxy {
    let store = format!("current: {{ {current} }}, next: {{ {next} }}, mode: mirror");
    let proxy = Proxy::with_store(&format!("{store}, deadline: 10s"), policy);
    // Other proxies see it before it serves its first request.
    proxy.get_as("bob").assert_status(200);
    proxy
}

/// Sends a request, and waits until each store that has to count it has done so. Returns whether
/// the request passed.
fn passes(proxy: &Proxy) -> bool {
    let counts = &proxy.stores().counts;
    let before = counts.mirrored.get();
    let response = proxy.get_as("alice");
    response.assert_no_field("x-tollgate-store");
    // A remembered denial queries neither store.
    if response.status == 200 && is_mirrored(proxy) {
        eventually("the other store has answered", || {
            (counts.mirrored.get() > before).then_some(())
        });
    }
    response.status == 200
}

fn is_mirrored(proxy: &Proxy) -> bool {
    let moving = &proxy.stores().moving;
    let percent = moving.plan().map_or(0, |(percent, _)| percent);
    moving.moved() < percent || moving.charges_both()
}

/// How many of so many requests pass, by turns.
fn passed_of(requests: u32, proxies: [&Proxy; 2]) -> u32 {
    (0..requests).map(|number| u32::from(passes(proxies[number as usize % 2]))).sum()
}

fn set(proxy: &Proxy, percent: u8, mode: MoveMode) {
    proxy.stores().moving.set(percent, mode);
}

fn wait_for_obstacle(proxy: &Proxy, what: &str, is_it: impl Fn(&Option<Obstacle>) -> bool) {
    eventually(what, || is_it(&proxy.stores().moving.obstacle()).then_some(()));
}

fn wait_until_moved(proxy: &Proxy) {
    wait_for_obstacle(proxy, "callers are moved", Option::is_none);
    assert_eq!(proxy.stores().moving.moved(), 100);
}

/// Waits until a proxy charges both stores, or no longer.
fn wait_until_charging_both(proxy: &Proxy, is_so: bool) {
    eventually("it is known how others decide", || {
        (proxy.stores().moving.charges_both() == is_so).then_some(())
    });
}

#[test]
fn move_on_one_proxy_only_admits_no_more_than_the_limit() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    for algorithm in ["fixed_window", "sliding_log"] {
        let policy = policy(&upstream, algorithm);
        first.command(&["FLUSHALL"]);
        second.command(&["FLUSHALL"]);
        let proxies = [(); 2].map(|()| proxy(&in_redis(&first), &in_redis(&second), &policy));
        let [mover, other] = &proxies;
        assert_eq!(passed_of(50, [mover, other]), 50);

        // The other one does not even mirror.
        set(mover, 100, MoveMode::Move);
        wait_for_obstacle(mover, "the other is seen", |found| *found == Some(Obstacle::Behind(1)));
        assert_eq!(passed_of(50, [mover, other]), 50, "{algorithm}");
        set(other, 100, MoveMode::Mirror);
        let is_recent = |found: &Option<Obstacle>| matches!(found, Some(Obstacle::Recent(_)));
        wait_for_obstacle(mover, "the window is waited for", is_recent);
        assert_eq!(passed_of(50, [mover, other]), 50, "{algorithm}");
        let passed = passed_of(100, [mover, other]);
        assert_eq!(passed, LIMIT - 150, "{algorithm}");

        // One decides by the one store, and the other by the other.
        proxies.iter().for_each(|proxy| proxy.advance(HOUR));
        wait_until_moved(mover);
        wait_until_charging_both(mover, true);
        assert_eq!(passed_of(2 * LIMIT, [mover, other]), LIMIT, "{algorithm}");

        // Once all others have moved, a move does not wait.
        proxies.iter().for_each(|proxy| proxy.advance(HOUR));
        set(other, 100, MoveMode::Move);
        wait_until_moved(other);
        wait_until_charging_both(mover, false);
        assert_eq!(passed_of(2 * LIMIT, [mover, other]), LIMIT, "{algorithm}");
    }
}

#[test]
fn proxy_that_knows_of_no_next_store_is_waited_for() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = policy(&upstream, "fixed_window");
    let old = Proxy::with_redis(&first.settings(), &policy);
    let mover = proxy(&in_redis(&first), &in_redis(&second), &policy);
    set(&mover, 100, MoveMode::Move);
    wait_for_obstacle(&mover, "the old one is seen", |found| *found == Some(Obstacle::Behind(1)));
    assert_eq!(passed_of(2 * LIMIT, [&mover, &old]), LIMIT);
    drop(old);
    // It has said that it goes.
    wait_until_moved(&mover);
    assert_eq!(mover.used("alice", "core"), u64::from(LIMIT));
}

#[test]
fn move_now_does_not_wait_for_others() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = policy(&upstream, "fixed_window");
    let [mover, other] = [(); 2].map(|()| proxy(&in_redis(&first), &in_redis(&second), &policy));
    assert!(passes(&other));
    set(&mover, 100, MoveMode::Move);
    wait_for_obstacle(&mover, "the other is seen", |found| *found == Some(Obstacle::Behind(1)));
    set(&mover, 100, MoveMode::MoveNow);
    assert_eq!((mover.stores().moving.moved(), mover.stores().moving.obstacle()), (100, None));
    // The store that the other one decides by is charged too.
    wait_until_charging_both(&mover, true);
    assert!(passes(&mover));
    eventually("it is there too", || (other.used("alice", "core") == 2).then_some(()));
}

#[test]
fn what_a_moved_caller_is_given_back_is_given_back_in_both_stores() {
    let upstream = Upstream::as_asked();
    let first = Redis::start();
    let second = Redis::start();
    let policy = policy(&upstream, "fixed_window");
    let [mover, other] = [(); 2].map(|()| proxy(&in_redis(&first), &in_redis(&second), &policy));
    set(&mover, 100, MoveMode::MoveNow);
    wait_until_charging_both(&mover, true);
    assert!(passes(&mover));
    let free = mover.send(crate::support::get("/").by("alice").wants(304));
    free.assert_status(304).assert_field("x-ratelimit-used", "1");
    eventually("it is given back", || {
        (mover.stores().counts.mirrored.get() == 2 && other.used("alice", "core") == 1)
            .then_some(())
    });
    assert_eq!(mover.used("alice", "core"), 1);
}

#[test]
fn move_waits_while_redis_does_not_report_the_other_proxies() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    let policy = policy(&upstream, "fixed_window");
    let mover = proxy(&in_redis(&first), &in_redis(&second), &policy);
    assert!(passes(&mover));
    second.save();
    second.kill();
    set(&mover, 100, MoveMode::Move);
    let is_not_reported =
        |found: &Option<Obstacle>| matches!(found, Some(Obstacle::NotReported(_)));
    wait_for_obstacle(&mover, "it is known that it is away", is_not_reported);
    mover.get_as("alice").assert_status(200);
    second.restart();
    wait_until_moved(&mover);
    eventually("both are there", || (mover.get_as("bob").status == 200).then_some(()));
    assert_eq!(mover.used("alice", "core"), 2);
}

#[test]
fn counters_of_several_processes_are_one_after_they_were_mirrored() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = policy(&upstream, "fixed_window");
    let proxies = [(); 2].map(|()| proxy(MEMORY, &in_redis(&redis), &policy));
    let [mover, other] = &proxies;
    set(mover, 100, MoveMode::Move);
    wait_for_obstacle(mover, "the other is seen", |found| *found == Some(Obstacle::Behind(1)));
    set(other, 100, MoveMode::Mirror);
    let left = |found: &Option<Obstacle>| matches!(found, Some(Obstacle::Recent(_)));
    wait_for_obstacle(mover, "the window is waited for", left);
    proxies.iter().for_each(|proxy| proxy.advance(HOUR - Duration::from_secs(60)));
    eventually("a minute is left", || {
        let is_it =
            mover.stores().moving.obstacle() == Some(Obstacle::Recent(Duration::from_secs(60)));
        is_it.then_some(())
    });
    proxies.iter().for_each(|proxy| proxy.advance(Duration::from_secs(60)));
    wait_until_moved(mover);
    set(other, 100, MoveMode::Move);
    wait_until_moved(other);
    wait_until_charging_both(mover, false);
    assert_eq!(passed_of(2 * LIMIT, [mover, other]), LIMIT);
}

#[test]
fn proxies_of_a_cluster_and_of_shards_see_each_other() {
    let upstream = Upstream::start();
    let next = Redis::start();
    let policy = policy(&upstream, "fixed_window");
    let shards = Shards::start(2);
    let cluster = Cluster::start();
    for current in [shards.settings(), cluster.settings()] {
        next.command(&["FLUSHALL"]);
        let current = format!("redis: {{ {current}, clock: proxy }}");
        let [mover, other] = [(); 2].map(|()| proxy(&current, &in_redis(&next), &policy));
        set(&mover, 100, MoveMode::Move);
        let is_seen = |found: &Option<Obstacle>| *found == Some(Obstacle::Behind(1));
        wait_for_obstacle(&mover, "the other is seen", is_seen);
        assert_eq!(passed_of(2 * LIMIT, [&mover, &other]), LIMIT, "{current}");
    }
}
