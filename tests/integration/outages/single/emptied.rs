//! A server that comes back with no data: proxies restore what they know, so that no caller has a
//! fresh window.

use super::{wait_until_decided, wait_until_undecided};
use crate::support::{Gremlin, Policy, Proxy, Redis, Upstream, algorithms, eventually};

const LIMIT: u64 = 20;
/// Two proxies of a fleet, whose counters are on this server.
fn fleet(redis: &Redis, upstream: &Upstream, fields: &str) -> [Proxy; 2] {
    let policy = Policy::before(upstream).core(&format!("rate: {LIMIT}/day, {fields}"));
    let store = format!("redis: {{ {} }}, instances: 2, deadline: 500ms", redis.settings());
    let fleet = [(); 2].map(|()| Proxy::with_store(&store, &policy));
    fleet.iter().for_each(wait_until_decided);
    fleet
}

/// How many of these requests of alice pass.
fn admit(proxy: &Proxy, requests: u64) -> u64 {
    (0..requests).map(|_| u64::from(proxy.get_as("alice").status == 200)).sum()
}

/// Waits until this proxy has restored all that it knows to the servers.
fn wait_until_restored(proxy: &Proxy) {
    eventually("it is restored", || (proxy.stores().to_reseed() == 0).then_some(()));
}

#[test]
fn counters_are_restored_to_an_empty_server_before_any_charge() {
    let upstream = Upstream::start();
    for on_store_error in ["local", "open", "closed"] {
        for algorithm in algorithms() {
            let redis = Redis::start();
            let fields = format!("algorithm: {algorithm}, on_store_error: {on_store_error}");
            let fleet = fleet(&redis, &upstream, &fields);
            // Each knows something of her.
            assert_eq!([admit(&fleet[0], 14), admit(&fleet[1], 1)], [14, 1]);
            redis.restart();
            fleet.iter().for_each(wait_until_decided);
            let admitted = admit(&fleet[1], LIMIT) + admit(&fleet[0], LIMIT);
            assert_eq!(admitted, 5, "{algorithm}, {on_store_error}");
        }
    }
}

#[test]
fn counters_of_callers_that_send_no_request_are_restored_too() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let redis = Redis::start();
        let [one, other] = fleet(&redis, &upstream, &format!("algorithm: {algorithm}"));
        assert_eq!(admit(&one, 15), 15);
        redis.restart();
        wait_until_decided(&one);
        wait_until_restored(&one);
        wait_until_decided(&other);
        assert_eq!(other.used("alice", "core"), 15, "{algorithm}");
        assert_eq!(admit(&other, LIMIT), 5, "{algorithm}");
    }
}

#[test]
fn pending_charges_are_added_to_the_restored_counters() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let redis = Redis::start();
        let [one, other] = fleet(&redis, &upstream, &format!("algorithm: {algorithm}"));
        assert_eq!(admit(&one, 8), 8);
        redis.kill();
        wait_until_undecided(&one);
        assert_eq!(admit(&one, 4), 4);
        redis.restart();
        wait_until_decided(&one);
        wait_until_decided(&other);
        super::wait_until_written_back(&one);
        assert_eq!(other.used("alice", "core"), 12, "{algorithm}");
        assert_eq!(admit(&one, LIMIT), 8, "{algorithm}");
    }
}

#[test]
fn server_that_is_emptied_twice_is_restored_twice() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let [one, other] = fleet(&redis, &upstream, "");
    let mut admitted = admit(&one, 9);
    for _ in 0..3 {
        redis.restart();
        wait_until_decided(&one);
        wait_until_decided(&other);
        wait_until_restored(&one);
        wait_until_restored(&other);
        admitted += admit(&other, 2);
    }
    assert_eq!(one.used("alice", "core"), admitted);
}

#[test]
fn secret_that_is_lost_with_the_counters_is_back_before_another_proxy_makes_one() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let [one, _other] = fleet(&redis, &upstream, "");
    assert_eq!(admit(&one, 15), 15);
    redis.restart();
    eventually("the secret is kept again", || {
        let names: Vec<String> = redis.ask(&["KEYS", "*:key-secret"]);
        (!names.is_empty()).then_some(())
    });
    wait_until_decided(&one);
    wait_until_restored(&one);
    let [newcomer, _] = fleet(&redis, &upstream, "");
    assert_eq!(newcomer.used("alice", "core"), 15);
}

#[test]
fn what_an_operator_deletes_stays_deleted() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let policy = Policy::before(&upstream).rate("20/day");
    let proxy = Proxy::with_redis(&format!("url: {}", gremlin.url()), &policy);
    assert_eq!(admit(&proxy, 9), 9);
    redis.command(&["FLUSHALL"]);
    assert_eq!(super::used_in_redis(&proxy), 1);
    assert_eq!(admit(&proxy, 3), 3);
    redis.command(&["FLUSHALL"]);
    // Another connection leads to the same server.
    gremlin.refuse();
    wait_until_undecided(&proxy);
    gremlin.behave();
    wait_until_decided(&proxy);
    assert_eq!(proxy.stores().to_reseed(), 0);
    assert_eq!(proxy.used("alice", "core"), 0);
}

#[test]
fn server_that_tells_nothing_of_itself_may_have_lost_everything() {
    let upstream = Upstream::start();
    let redis =
        Redis::with().set("user", &["few", "on", ">secret", "~*", "+@all", "-info"]).start();
    let policy = Policy::before(&upstream).rate("20/day");
    let url = redis.url().replace("redis://", "redis://few:secret@");
    let proxy = Proxy::with_redis(&format!("url: {url}"), &policy);
    wait_until_decided(&proxy);
    assert_eq!(admit(&proxy, 9), 9);
    redis.restart();
    wait_until_decided(&proxy);
    assert_eq!(super::used_in_redis(&proxy), 10);
}
