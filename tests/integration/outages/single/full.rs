//! The process' own store has no room for another counter while it stands in for Redis: the caller
//! passes as if the limit were open, unless the limit says otherwise.

use tollgate_store::NoRoom;

use super::{gone, used_here, used_in_redis, wait_until_decided, wait_until_written_back};
use crate::support::{
    Client, HOUR, Policy, Proxy, Redis, Response, Signal, Upstream, get, http2, token,
};

/// A proxy whose own store has room for so many counters.
fn start(redis: &Redis, max_keys: u32, policy: &Policy) -> Proxy {
    let store = format!(
        "redis: {{ {}, clock: proxy }}, deadline: 10s, memory: {{ max_keys: {max_keys} }}, \
         unverified_keys: {{ per_address: 2 }}",
        redis.settings()
    );
    Proxy::with_store(&store, policy)
}

/// Checks that a request passed without being counted, and that its response says so.
fn assert_passed(response: &Response) {
    response.assert_status(200).assert_no_limit().assert_field("x-tollgate-store", "open");
}

fn passed(proxy: &Proxy) -> u64 {
    proxy.stores().counts.uncounted.get()
}

#[test]
fn new_caller_passes_and_others_are_counted() {
    let upstream = Upstream::start();
    for limit in [
        "rate: 2/hour",
        "rate: 2/hour, align: epoch",
        "rate: 2/hour, algorithm: sliding_window",
        "rate: 2/hour, algorithm: sliding_log",
        "rate: 2/hour, algorithm: token_bucket",
        "rate: 2/hour, algorithm: gcra",
    ] {
        let redis = gone();
        let proxy = start(&redis, 2, &Policy::before(&upstream).core(limit));
        for caller in ["alice", "bob"] {
            proxy.get_as(caller).assert_status(200).assert_field("x-tollgate-store", "local");
        }
        for _ in 0..3 {
            assert_passed(&proxy.get_as("carol"));
        }
        let request = http::Request::get(format!("http://{}/", proxy.address()))
            .header("authorization", format!("Bearer {}", token("dave")));
        let answers = http2(proxy.address(), vec![request.body(String::new()).unwrap()]);
        assert_eq!(answers[0].status(), 200);
        assert_eq!(answers[0].headers()["x-tollgate-store"], "open");
        proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "2");
        proxy.get_as("alice").assert_status(429);
        assert_eq!(passed(&proxy), 4, "{limit}");
        assert_eq!(proxy.stores().counts.no_room(NoRoom::Full), 0, "no request was refused");
        assert_eq!(proxy.stores().pending(), 2, "{limit}: what was not counted is not pending");

        proxy.advance(2 * HOUR);
        proxy.get_as("carol").assert_status(200).assert_field("x-ratelimit-used", "1");
    }
}

#[test]
fn request_in_flight_passes_too() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let policy =
        Policy::before(&upstream).on_all_routes(&["inflight: { per: caller, concurrent: 1 }"]);
    let proxy = start(&gone(), 1, &policy);
    let mut clients: Vec<Client> = Vec::new();
    for caller in ["alice", "bob", "bob"] {
        let mut client = proxy.connect();
        client.write(get("/").by(caller).to_bytes());
        clients.push(client);
        upstream.wait_for(clients.len());
    }
    proxy.get_as("alice").assert_status(429);
    go.open();
    clients[0].read().assert_status(200).assert_field("x-tollgate-store", "local");
    clients[1..].iter_mut().for_each(|client| assert_passed(&client.read()));
    assert_eq!((passed(&proxy), proxy.stores().pending()), (2, 0));
}

#[test]
fn redis_counts_the_caller_again_and_nothing_is_pending() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = Policy::before(&upstream).core("rate: 9/hour");
    let proxy = start(&redis, 2, &policy);
    assert_eq!(used_in_redis(&proxy), 1);
    redis.kill();
    for caller in ["bob", "carol"] {
        proxy.get_as(caller);
    }
    assert_passed(&proxy.get_as("dave"));
    redis.restart();
    wait_until_decided(&proxy);
    proxy.get_as("dave").assert_status(200).assert_field("x-ratelimit-used", "1");
}

#[test]
fn caller_known_to_redis_is_limited_though_there_is_no_room() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = start(&redis, 2, &Policy::before(&upstream).core("rate: 5/hour"));
    for used in 1..=4 {
        assert_eq!(used_in_redis(&proxy), used);
    }
    redis.kill();
    proxy.get_as("bob").assert_status(200).assert_field("x-tollgate-store", "local");
    assert_passed(&proxy.get_as("carol"));
    assert_eq!(used_here(&proxy), 5);
    proxy.get_as("alice").assert_status(429).assert_field("x-tollgate-store", "local");
    redis.restart();
    wait_until_decided(&proxy);
    wait_until_written_back(&proxy);
}

#[test]
fn limit_that_says_closed_refuses_and_takes_nothing_of_others() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "all: { per: method, rate: 9/hour }",
        "core: { per: caller, rate: 9/hour, on_store_full: closed }",
    ]);
    let proxy = start(&gone(), 2, &policy);
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "1");
    for _ in 0..2 {
        proxy.get_as("bob").assert_status(503).assert_no_limit().assert_field("retry-after", "1");
    }
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "2");
    assert_eq!((passed(&proxy), proxy.stores().counts.no_room(NoRoom::Full)), (0, 2));
}

#[test]
fn limits_that_have_room_decide_about_a_caller_without() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 9/hour }",
        "all: { per: method, rate: 3/hour }",
    ]);
    let proxy = start(&gone(), 2, &policy);
    proxy.get_as("alice").assert_status(200);
    for _ in 0..2 {
        let response = proxy.get_as("bob");
        response.assert_status(200).assert_no_limit().assert_field("x-tollgate-store", "local");
    }
    let denied = proxy.get_as("bob");
    denied.assert_status(429).assert_field("x-ratelimit-resource", "all");
    assert_eq!(passed(&proxy), 2, "one who is denied has not passed");
    assert_eq!(proxy.stores().pending(), 2);
}

#[test]
fn one_client_gets_past_no_limit_by_what_it_makes_up() {
    let upstream = Upstream::start();
    let limit = "core: { per: header.x-key, rate: 9/hour, on_store_full: open }";
    let policy = Policy::before(&upstream).on_all_routes(&[limit]);
    let proxy = start(&gone(), 80, &policy);
    let by_key = |key: u32| proxy.send(get("/").field("x-key", &key.to_string()));
    for key in 0..2 {
        by_key(key).assert_status(200).assert_field("x-tollgate-store", "local");
    }
    by_key(2).assert_status(429).assert_no_limit();
    assert_eq!((passed(&proxy), proxy.stores().counts.no_room(NoRoom::Client)), (0, 1));
}

#[test]
fn full_store_is_no_outage_where_there_is_no_other() {
    let upstream = Upstream::start();
    for (says, is_open) in
        [("", false), (", on_store_full: closed", false), (", on_store_full: open", true)]
    {
        let policy = Policy::before(&upstream).core(&format!("rate: 2/hour{says}"));
        let proxy = Proxy::with_store("memory: { max_keys: 1 }", &policy);
        proxy.get_as("alice").assert_status(200).assert_no_field("x-tollgate-store");
        for _ in 0..2 {
            match is_open {
                true => assert_passed(&proxy.get_as("bob")),
                false => drop(proxy.get_as("bob").assert_status(503).assert_no_limit()),
            }
        }
        let refused = proxy.stores().counts.no_room(NoRoom::Full);
        assert_eq!((passed(&proxy), refused), if is_open { (2, 0) } else { (0, 2) }, "{says}");
        proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", "2");
        proxy.get_as("alice").assert_status(429);
    }
}
