//! Charges that Redis takes when the request was decided otherwise: they are given back.

use tollgate_store::Unanswered;

use super::{undecided, wait_until_decided};
use crate::support::{Gremlin, Policy, Proxy, Redis, Upstream, eventually, get};

/// A limit of ten an hour by each algorithm.
const LIMITS: [&str; 5] = [
    "fixed: { per: caller, rate: 10/hour, algorithm: fixed_window",
    "sliding: { per: caller, rate: 10/hour, algorithm: sliding_window",
    "log: { per: caller, rate: 10/hour, algorithm: sliding_log",
    "bucket: { per: caller, rate: 10/hour, algorithm: token_bucket",
    "gcra: { per: caller, rate: 10/hour, algorithm: gcra",
];

/// All of them, with this field.
fn policy(upstream: &Upstream, field: &str) -> Policy {
    let limits = LIMITS.map(|limit| format!("{limit}, {field} }}"));
    Policy::before(upstream).on_all_routes(&limits.each_ref().map(String::as_str))
}

/// What alice has used of each limit, as Redis has counted it.
fn used(proxy: &Proxy) -> Vec<u64> {
    let standings = proxy.standings(get("/rate_limit").by("alice"));
    ["fixed", "sliding", "log", "bucket", "gcra"]
        .iter()
        .filter_map(|limit| standings[limit]["used"].as_u64())
        .collect()
}

/// Has a request of alice answered without Redis, which receives its charge later.
fn be_late(field: &str, status: u16) {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let store = format!("redis: {{ url: {} }}, deadline: 500ms", gremlin.url());
    let proxy = Proxy::with_store(&store, &policy(&upstream, field));
    wait_until_decided(&proxy);
    proxy.get_as("alice").assert_status(200);
    assert_eq!(used(&proxy), [1; 5]);

    let before = undecided(&proxy, Unanswered::Timeout);
    gremlin.stall();
    proxy.get_as("alice").assert_status(status);
    assert_eq!(undecided(&proxy, Unanswered::Timeout), before + 1);
    gremlin.behave();
    eventually("what came late is given back", || (used(&proxy) == [1; 5]).then_some(()));
}

#[test]
fn charge_of_a_request_that_was_refused_is_given_back() {
    be_late("on_store_error: closed", 503);
}

#[test]
fn charge_of_a_request_that_was_let_through_is_given_back() {
    be_late("on_store_error: open", 200);
}

#[test]
fn client_that_hangs_up_while_redis_is_asked_is_not_charged() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let store = format!("redis: {{ url: {} }}, deadline: 10s", gremlin.url());
    let proxy = Proxy::with_store(&store, &policy(&upstream, "on_store_error: closed"));
    wait_until_decided(&proxy);
    proxy.get_as("alice").assert_status(200);

    gremlin.stall();
    let mut client = proxy.connect();
    client.write(get("/").by("alice").to_bytes());
    eventually("redis is asked", || gremlin.has_kept().then_some(()));
    drop(client);
    eventually("the proxy has seen it", || (proxy.connections() == 0).then_some(()));
    gremlin.behave();
    eventually("what came late is given back", || (used(&proxy) == [1; 5]).then_some(()));
    assert_eq!(upstream.count(), 2, "those of the stranger and of the first request");
}

#[test]
fn charge_whose_reply_is_lost_stays_and_is_counted_as_unknown() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let store = format!("redis: {{ url: {} }}, deadline: 500ms", gremlin.url());
    let proxy = Proxy::with_store(&store, &policy(&upstream, "on_store_error: closed"));
    wait_until_decided(&proxy);
    proxy.get_as("alice").assert_status(200);
    gremlin.stall();
    proxy.get_as("alice").assert_status(503);
    assert_eq!(proxy.stores().counts.unknown.get(), 0);
    gremlin.cut();
    eventually("it is counted as unknown", || {
        (proxy.stores().counts.unknown.get() == 5).then_some(())
    });
}

#[test]
fn refund_of_what_was_decided_here_reaches_what_redis_took_late() {
    let upstream = Upstream::as_asked();
    let redis = Redis::start();
    let gremlin = Gremlin::before(redis.port());
    let store = format!("redis: {{ url: {} }}, deadline: 500ms", gremlin.url());
    let proxy = Proxy::with_store(&store, &policy(&upstream, "on_store_error: local"));
    wait_until_decided(&proxy);
    proxy.get_as("alice").assert_status(200);
    gremlin.stall();
    let response = proxy.send(get("/").by("alice").revalidating().wants(304));
    response.assert_status(304).assert_field("x-tollgate-store", "local");
    gremlin.behave();
    eventually("what came late is given back", || (used(&proxy) == [1; 5]).then_some(()));
}
