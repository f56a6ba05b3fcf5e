//! Answers that say that Redis cannot decide, of a server that is there.

use std::fs;

use tollgate_store::Unanswered;

use super::{
    is_decided, ten, undecided, used_here, used_in_redis, wait_until_decided, wait_until_undecided,
};
use crate::support::{Policy, Proxy, Redis, Upstream, eventually};

/// A proxy that waits for a second until a server can decide that cannot for the moment.
fn patient(redis: &Redis, policy: &Policy) -> Proxy {
    let store = format!("redis: {{ {}, clock: proxy }}, deadline: 1s", redis.settings());
    Proxy::with_store(&store, policy)
}

/// That alice is decided about here while a server cannot, and that Redis goes on from there when
/// it can.
fn fail_for_a_while(what: &str, begin: impl FnOnce(&Redis), end: impl FnOnce(&Redis)) {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = patient(&redis, &ten(&upstream, ""));
    for used in 1..=2 {
        assert_eq!(used_in_redis(&proxy), used, "{what}");
    }
    begin(&redis);
    for used in 3..=6 {
        assert_eq!(used_here(&proxy), used, "{what}");
    }
    end(&redis);
    wait_until_decided(&proxy);
    assert_eq!(used_in_redis(&proxy), 7, "{what}");
}

#[test]
fn server_that_refuses_decides_again_when_it_no_longer_does() {
    let set = |name: &'static str, value: &'static str| {
        move |redis: &Redis| drop(redis.command(&["CONFIG", "SET", name, value]))
    };
    // Out of memory.
    fail_for_a_while("OOM", set("maxmemory", "1"), set("maxmemory", "0"));
    fail_for_a_while(
        "NOREPLICAS",
        set("min-replicas-to-write", "1"),
        set("min-replicas-to-write", "0"),
    );
    let user = |rule: &'static str| {
        move |redis: &Redis| drop(redis.command(&["ACL", "SETUSER", "default", rule]))
    };
    fail_for_a_while("NOPERM", user("-@scripting"), user("+@all"));
}

#[test]
fn server_that_lost_its_place_decides_again_when_it_has_it_back() {
    // A replica of a primary that is not there keeps what it has.
    let follow = |redis: &Redis| drop(redis.command(&["REPLICAOF", "127.0.0.1", "1"]));
    let lead = |redis: &Redis| drop(redis.command(&["REPLICAOF", "NO", "ONE"]));
    fail_for_a_while("READONLY", follow, lead);
    let follow_strictly = |redis: &Redis| {
        redis.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        follow(redis);
    };
    fail_for_a_while("MASTERDOWN", follow_strictly, lead);
}

#[test]
fn server_that_loads_its_data_decides_when_it_has() {
    fail_for_a_while("LOADING", Redis::restart_loading, Redis::finish_loading);
}

#[test]
fn charges_that_a_full_server_refused_are_written_back_later() {
    let upstream = Upstream::start();
    let redis = Redis::with().max_memory(1).start();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    for used in 1..=4 {
        assert_eq!(used_here(&proxy), used);
    }
    assert_eq!(undecided(&proxy, Unanswered::Refused), 4);
    assert_eq!(proxy.used("alice", "core"), 4, "as they were decided");
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    for used in 5..=6 {
        assert_eq!(used_in_redis(&proxy), used);
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(used_here(&proxy), 7);
    assert_eq!(proxy.used("alice", "core"), 7);
}

#[test]
fn replica_in_place_of_a_primary_decides_nothing() {
    let upstream = Upstream::start();
    let primary = Redis::start();
    let replica = Redis::with().replica_of(primary.port()).start();
    let proxy = patient(&replica, &ten(&upstream, ""));
    for used in 1..=10 {
        assert_eq!(used_here(&proxy), used);
    }
    proxy.get_as("alice").assert_status(429);
    assert_eq!(primary.counters().len(), 0);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    wait_until_decided(&proxy);
    assert_eq!(used_in_redis(&proxy), 10, "she is denied");
}

#[test]
fn closed_limit_stays_closed_whatever_redis_answers() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, "on_store_error: closed"));
    assert_eq!(used_in_redis(&proxy), 1);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..3 {
        proxy.get_as("alice").assert_status(503).assert_field("retry-after", "1");
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(used_in_redis(&proxy), 2);
}

#[test]
fn wrong_password_is_tried_again_until_it_is_right() {
    let upstream = Upstream::start();
    let redis = Redis::with().password("what the server wants").start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "what the proxy has\n").unwrap();
    let settings = format!("{}, password_file: {}", redis.settings(), file.display());
    let proxy = Proxy::with_redis(&settings, &ten(&upstream, ""));
    for used in 1..=3 {
        assert_eq!(used_here(&proxy), used);
    }
    redis.command(&["CONFIG", "SET", "requirepass", "what the proxy has"]);
    wait_until_decided(&proxy);
    assert_eq!(used_in_redis(&proxy), 4);
}

#[test]
fn password_that_is_changed_ends_nothing_that_is_connected() {
    let upstream = Upstream::start();
    let redis = Redis::with().password("first").start();
    let settings = format!("url: redis://:first@127.0.0.1:{}", redis.port());
    let proxy = Proxy::with_redis(&settings, &ten(&upstream, ""));
    assert_eq!(used_in_redis(&proxy), 1);
    redis.command(&["CONFIG", "SET", "requirepass", "second"]);
    assert_eq!(used_in_redis(&proxy), 2);
    // The next connection is refused.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    wait_until_undecided(&proxy);
    redis.command(&["CONFIG", "SET", "requirepass", "first"]);
    wait_until_decided(&proxy);
    assert_eq!(used_in_redis(&proxy), 3);
}

#[test]
fn user_who_may_do_nothing_but_what_the_proxy_needs_will_do() {
    let upstream = Upstream::as_asked();
    let rules = ["tollgate", "on", ">secret", "~tollgate:*", "resetchannels", "-@all"];
    let commands = [
        "+eval",
        "+evalsha",
        "+ping",
        "+get",
        "+set",
        "+time",
        "+zadd",
        "+zrem",
        "+zcount",
        "+zrange",
        "+zrangebyscore",
        "+zremrangebyscore",
        "+zscore",
        "+pexpire",
    ];
    let redis = Redis::with().set("user", &[&rules[..], &commands[..]].concat()).start();
    let settings = format!("url: redis://tollgate:secret@127.0.0.1:{}", redis.port());
    let policy = ten(&upstream, "algorithm: fixed_window");
    let proxy = Proxy::with_redis(&settings, &policy);
    assert_eq!(used_in_redis(&proxy), 1);
    let free = proxy.send(crate::support::get("/").by("alice").wants(304));
    assert!(is_decided(&free));
    eventually("it is given back", || (proxy.used("alice", "core") == 1).then_some(()));
}

#[test]
fn counter_that_is_something_else_is_no_counter() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &ten(&upstream, ""));
    assert_eq!(used_in_redis(&proxy), 1);
    let keys = redis.counters();
    assert_eq!(keys.len(), 1, "{keys:?}");
    // What is there is none of ours: the caller has a fresh counter, and the next one is kept.
    redis.command(&["DEL", &keys[0]]);
    redis.command(&["LPUSH", &keys[0], "nothing of ours"]);
    assert_eq!(used_in_redis(&proxy), 1);
    assert_eq!(used_in_redis(&proxy), 2);
}
