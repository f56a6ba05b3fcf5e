//! `mirror`: both stores are charged, the present one decides, and the next one is watched.

use std::sync::Arc;

use tollgate_settings::MoveMode;

use super::{MEMORY, in_redis, used};
use crate::support::{
    Gremlin, Policy, Proxy, Redis, Request, SECOND, Shards, Signal, Upstream, algorithms,
    eventually, get,
};

/// A proxy whose callers are all mirrored, and one that has its counters in the next store alone.
struct Mirror {
    proxy: Proxy,
    next: Proxy,
    redis: Redis,
}

impl Mirror {
    fn new(policy: &Policy) -> Mirror {
        let redis = Redis::start();
        let store = format!("current: {{ {MEMORY} }}, next: {{ {} }}", in_redis(&redis));
        let store = format!("{store}, percent: 100, mode: mirror, deadline: 10s");
        let proxy = Proxy::with_store(&store, policy);
        let next = Proxy::with_redis(&redis.settings(), policy);
        Mirror { proxy, next, redis }
    }

    /// Waits until so many decisions were also asked of the next store, and returns in how many it
    /// disagreed.
    fn disagreed_of(&self, mirrored: u64) -> u64 {
        let counts = &self.proxy.stores().counts;
        eventually("the next store has answered", || {
            (counts.mirrored.get() == mirrored).then_some(())
        });
        counts.disagreed.get()
    }
}

#[test]
fn both_stores_count_alike() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let policy =
            Policy::before(&upstream).core(&format!("rate: 5/hour, algorithm: {algorithm}"));
        let mirror = Mirror::new(&policy);
        for expected in 1..=5 {
            assert_eq!(used(&mirror.proxy, "alice"), expected, "{algorithm}");
        }
        for _ in 0..3 {
            mirror.proxy.get_as("alice").assert_status(429);
            // A denial that is remembered is asked of neither.
            mirror.proxy.advance(SECOND);
        }
        assert_eq!(mirror.disagreed_of(8), 0, "{algorithm}");
        assert_eq!(mirror.next.used("alice", "core"), 5, "{algorithm}");
    }
}

#[test]
fn process_that_mirrors_redis_counts_each_charge_once() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let policy =
            Policy::before(&upstream).core(&format!("rate: 5/hour, algorithm: {algorithm}"));
        let redis = Redis::start();
        let store = format!("current: {{ {} }}, next: {{ {MEMORY} }}", in_redis(&redis));
        let store = format!("{store}, percent: 100, mode: mirror, deadline: 10s");
        let proxy = Proxy::with_store(&store, &policy);
        let counts = &proxy.stores().counts;
        let deny = |mirrored: u64| {
            proxy.get_as("alice").assert_status(429).assert_field("x-ratelimit-used", "5");
            eventually("it was mirrored", || (counts.mirrored.get() == mirrored).then_some(()));
            proxy.advance(SECOND);
        };
        for expected in 1..=5 {
            assert_eq!(used(&proxy, "alice"), expected, "{algorithm}");
        }
        (6..=8).for_each(deny);
        assert_eq!(counts.disagreed.get(), 0, "{algorithm}");
        proxy.stores().moving.set(100, MoveMode::Move);
        let response = proxy.get_as("alice");
        response.assert_status(429).assert_field("x-ratelimit-used", "5");
    }
}

#[test]
fn disagreement_is_counted_and_changes_nothing() {
    let upstream = Upstream::start();
    let mirror = Mirror::new(&Policy::before(&upstream).rate("4/hour"));
    // The next store knows more of alice than the present one.
    for expected in 1..=3 {
        assert_eq!(used(&mirror.next, "alice"), expected);
    }
    for expected in 1..=4 {
        let response = mirror.proxy.get_as("alice");
        response.assert_status(200).assert_no_field("x-tollgate-store");
        assert_eq!(response.number("x-ratelimit-used"), expected);
    }
    // It would have denied three of them.
    assert_eq!(mirror.disagreed_of(4), 3);
    mirror.proxy.get_as("alice").assert_status(429);
    assert_eq!(mirror.disagreed_of(5), 3);
}

#[test]
fn request_that_is_denied_is_paid_for_nowhere() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 100/hour }",
        "search: { per: caller, rate: 1/hour }",
    ]);
    let mirror = Mirror::new(&policy);
    mirror.proxy.get_as("alice").assert_status(200);
    assert_eq!(mirror.disagreed_of(1), 0);
    // The next store has forgotten what would deny her there.
    mirror.redis.command(&["FLUSHALL"]);
    mirror.proxy.get_as("alice").assert_status(429);
    assert_eq!(mirror.disagreed_of(2), 1);
    for limit in ["core", "search"] {
        eventually("it is given back", || (mirror.next.used("alice", limit) == 0).then_some(()));
    }
}

#[test]
fn what_is_put_right_is_put_right_in_both() {
    let gates = [(); 3].map(|()| Signal::default());
    let upstream = {
        let gates = gates.clone();
        Upstream::scripted(move |exchange| {
            gates[exchange.request.target.len() - 1].wait();
            let fields = &exchange.request.fields;
            let status = fields.one("x-want-status").unwrap_or("200").to_owned();
            let cost = fields.one("x-want-cost").map(|cost| format!("x-cost: {cost}\r\n"));
            let cost = cost.unwrap_or_default();
            let length = if status == "304" { "" } else { "content-length: 0\r\n" };
            exchange.write(format!("HTTP/1.1 {status} As asked\r\n{cost}{length}\r\n"));
        })
    };
    let fields = "rate: 100/hour, cost: { reserve: 10, from_response_header: x-cost }";
    let mirror = Mirror::new(&Policy::before(&upstream).core(fields));
    for (number, (caller, request, expected)) in (0..).zip([
        ("alice", get("/").wants(304), 0),
        ("bob", get("/b").costing("3"), 3),
        ("carol", get("/ca").costing("25"), 25),
    ]) {
        let mut client = mirror.proxy.connect();
        client.write(request.by(caller).to_bytes());
        assert_eq!(mirror.disagreed_of(number + 1), 0);
        assert_eq!(mirror.next.used(caller, "core"), 10, "{caller}");
        gates[number as usize].open();
        assert_eq!(client.read().number("x-ratelimit-used"), expected, "{caller}");
        eventually("both have what is right", || {
            (mirror.next.used(caller, "core") == expected).then_some(())
        });
        assert_eq!(mirror.proxy.used(caller, "core"), expected, "{caller}");
    }
}

#[test]
fn response_that_is_faster_than_the_next_store_is_put_right_there_too() {
    let upstream = Upstream::as_asked();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let policy = Policy::before(&upstream).rate("100/hour");
    let next = format!("redis: {{ url: {}, clock: proxy }}", gremlin.url());
    let store = format!("current: {{ {MEMORY} }}, next: {{ {next} }}");
    let store = format!("{store}, percent: 100, mode: mirror, deadline: 10s");
    let proxy = Proxy::with_store(&store, &policy);
    let direct = Proxy::with_redis(&redis.settings(), &policy);
    assert_eq!(used(&proxy, "bob"), 1);
    let has_mirrored = |decisions| {
        eventually("the next store has answered", || {
            (proxy.stores().counts.mirrored.get() == decisions).then_some(())
        });
    };
    has_mirrored(1);
    gremlin.stall();
    let free = proxy.send(get("/").by("alice").wants(304));
    free.assert_status(304).assert_field("x-ratelimit-used", "0");
    gremlin.behave();
    has_mirrored(2);
    eventually("it was given back there", || (direct.used("alice", "core") == 0).then_some(()));
}

#[test]
fn next_store_that_is_away_affects_no_request() {
    let upstream = Upstream::start();
    let mirror =
        Mirror::new(&Policy::before(&upstream).core("rate: 5/hour, on_store_error: closed"));
    assert_eq!(used(&mirror.proxy, "alice"), 1);
    assert_eq!(mirror.disagreed_of(1), 0);
    mirror.redis.kill();
    for expected in 2..=5 {
        assert_eq!(used(&mirror.proxy, "alice"), expected);
    }
    mirror.proxy.get_as("alice").assert_status(429);
}

#[test]
fn decision_that_the_next_store_did_not_make_is_no_agreement() {
    let upstream = Upstream::start();
    let mirror = Mirror::new(&Policy::before(&upstream).rate("5/hour"));
    assert_eq!(used(&mirror.proxy, "alice"), 1);
    assert_eq!(mirror.disagreed_of(1), 0);
    mirror.redis.kill();
    for expected in 2..=5 {
        assert_eq!(used(&mirror.proxy, "alice"), expected);
    }
    // With its worker ends what was still asked of it.
    let stores = Arc::clone(mirror.proxy.stores());
    drop(mirror.proxy);
    assert_eq!(stores.counts.mirrored.get(), 1);
}

#[test]
fn callers_who_are_mirrored_are_moved_from_where_they_are() {
    let upstream = Upstream::start();
    let mirror = Mirror::new(&Policy::before(&upstream).rate("9/hour"));
    for expected in 1..=3 {
        assert_eq!(used(&mirror.proxy, "alice"), expected);
    }
    assert_eq!(mirror.disagreed_of(3), 0);
    mirror.proxy.stores().moving.set(100, MoveMode::MoveNow);
    assert_eq!([used(&mirror.proxy, "alice"), used(&mirror.proxy, "alice")], [4, 5]);
    assert_eq!(mirror.next.used("alice", "core"), 5);
}

#[test]
fn what_another_limit_takes_back_is_not_taken_from_the_next_store() {
    let upstream = Upstream::start();
    let shards = Shards::start(2);
    let redis = Redis::start();
    let closed = |name: &str, per: &str| {
        format!("{name}: {{ per: {per}, rate: 50/hour, on_store_error: closed }}")
    };
    let limits = [closed("core", "caller"), closed("address", "client.ip")];
    let policy =
        Policy::before(&upstream).limits(&limits.each_ref().map(String::as_str)).routes(&[
            "{ match: { path: /**, methods: [GET] }, limits: [core, address] }",
            "{ match: { path: /**, methods: [PUT] }, limits: [core] }",
            "{ match: { path: /**, methods: [DELETE] }, limits: [address] }",
        ]);
    let settings = format!(
        "workers: 1\ntrusted_proxies: [127.0.0.1]\nstore: {{ current: {{ redis: {{ {} }} }}, \
         next: {{ {} }}, percent: 100, mode: mirror, deadline: 3s }}",
        shards.settings(),
        in_redis(&redis)
    );
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let next = Proxy::with_redis(&redis.settings(), &policy);
    let counters = || [0, 1].map(|shard| shards.primary(shard).counters().len());
    let home = |request: &Request| {
        let [before, _] = counters();
        proxy.send(request.clone()).assert_status(200);
        usize::from(counters()[0] == before)
    };
    let used = |expected: u64| {
        // It is asked anew each time.
        let is_so = || {
            next.advance(SECOND);
            next.used("alice", "core") == expected
        };
        eventually("the next store has counted", || is_so().then_some(()));
    };
    let put = Request::new("PUT", "/").by("alice");
    let here = home(&put);
    // What comes while a worker copies a counter may count twice there.
    used(1);
    let address = (1..200)
        .map(|last| format!("203.0.113.{last}"))
        .find(|address| home(&Request::new("DELETE", "/").from(address)) != here)
        .unwrap();
    let both = get("/").by("alice").from(&address);
    for _ in 0..3 {
        proxy.send(both.clone()).assert_status(200);
    }
    used(4);

    let there = 1 - here;
    shards.replica(there).kill();
    shards.primary(there).kill();
    for _ in 0..5 {
        proxy.send(both.clone()).assert_status(503);
    }
    let response = proxy.send(put);
    response.assert_status(200).assert_field("x-ratelimit-used", "5");
    used(5);
}
