//! Counters in Redis by what clients write themselves: one client asks for so many of them a
//! minute, and Redis is not filled.

use tollgate_settings::MoveMode;
use tollgate_store::NoRoom;

use crate::support::{
    Cluster, MINUTE, Policy, Proxy, Redis, Request, Response, Shards, Upstream, algorithms, get,
    http2,
};

/// A limit by a header for anonymous callers, and one by caller elsewhere.
fn policy(upstream: &Upstream, fields: &str) -> Policy {
    Policy::before(upstream)
        .limits(&[
            &format!("made_up: {{ per: header.x-api-key, rate: 9/hour, {fields} }}"),
            "core: { per: caller, rate: 9/hour }",
        ])
        .routes(&[
            "{ match: { path: /open }, limits: [made_up] }",
            "{ match: { path: /** }, limits: [core] }",
        ])
}

fn settings(store: &str) -> String {
    format!(
        "workers: 2\ntrusted_proxies: [127.0.0.1]\n\
         store: {{ {store}, deadline: 10s, unverified_keys: {{ per_address: 4, new_per_minute: 4 }} }}"
    )
}

fn start(store: &str, policy: &Policy) -> Proxy {
    Proxy::with_settings(&settings(store), &[policy])
}

fn by_key(key: usize, address: &str) -> Request {
    get("/open").field("x-api-key", &format!("key-{key}")).from(address)
}

fn assert_too_many(response: &Response) {
    response.assert_status(429).assert_field("retry-after", "60").assert_no_limit();
}

/// Sends made-up keys, a few times as many as a client may, and sees that others are served.
fn assert_bounded(proxy: &Proxy, what: &str) {
    for key in 0..12 {
        let answer = proxy.send(by_key(key, "203.0.113.1"));
        assert_eq!(answer.status, if key < 4 { 200 } else { 429 }, "{what}: {key}");
    }
    proxy.send(by_key(0, "203.0.113.1")).assert_status(200);
    proxy.send(by_key(4, "203.0.113.2")).assert_status(200);
    proxy.get_as("alice").assert_status(200);
}

#[test]
fn client_asks_for_so_many_new_counters_a_minute_in_every_topology() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let shards = Shards::start(2);
    let cluster = Cluster::start();
    for (what, settings) in [
        ("one server", redis.settings()),
        ("shards", shards.settings()),
        ("cluster", cluster.settings()),
    ] {
        let proxy = start(&format!("redis: {{ {settings} }}"), &policy(&upstream, ""));
        assert_bounded(&proxy, what);
        assert_eq!(proxy.stores().counts.no_room(NoRoom::Minute), 8, "{what}");
    }
    assert_eq!(redis.counters().len(), 6, "five by key and alice's");
}

#[test]
fn next_minute_has_room_for_as_many_again() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = start(&format!("redis: {{ {} }}", redis.settings()), &policy(&upstream, ""));
    for key in 0..5 {
        let answer = proxy.send(by_key(key, "2001:db8::1"));
        answer.assert_status(if key < 4 { 200 } else { 429 });
    }
    assert_too_many(&proxy.send(by_key(5, "2001:db8::2")));
    proxy.send(by_key(5, "2001:db8:0:1::1")).assert_status(200);
    proxy.advance(MINUTE);
    proxy.send(by_key(6, "2001:db8::2")).assert_status(200);
}

#[test]
fn every_algorithm_and_http2_are_bounded_alike() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let redis = Redis::start();
        let policy = policy(&upstream, &format!("algorithm: {algorithm}"));
        let proxy = start(&format!("redis: {{ {} }}", redis.settings()), &policy);
        let request = |key: usize| {
            let uri = format!("http://{}/open", proxy.address());
            let request = http::Request::get(uri).header("x-api-key", format!("key-{key}"));
            request.body(String::new()).unwrap()
        };
        let answers = http2(proxy.address(), (0..12).map(request).collect());
        let passed = answers.iter().filter(|answer| answer.status() == 200).count();
        assert_eq!((passed, redis.counters().len()), (4, 4), "{algorithm}");
    }
}

#[test]
fn shadow_limit_makes_no_more_counters_and_denies_no_request() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let policy = policy(&upstream, "mode: shadow");
    let proxy = start(&format!("redis: {{ {} }}", redis.settings()), &policy);
    for key in 0..12 {
        proxy.send(by_key(key, "203.0.113.1")).assert_status(200);
    }
    assert_eq!(redis.counters().len(), 4);
}

#[test]
fn process_that_decides_in_place_of_redis_has_the_same_bounds() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.kill();
    for (fields, expected) in [("on_store_error: local", 200), ("on_store_error: open", 200)] {
        let store = format!("redis: {{ {} }}, fallback_header: true", redis.settings());
        let proxy = start(&store, &policy(&upstream, fields));
        for key in 0..8 {
            let answer = proxy.send(by_key(key, "203.0.113.1"));
            assert_eq!(answer.status, if key < 4 { expected } else { 429 }, "{fields} {key}");
        }
        proxy.get_as("alice").assert_status(200).assert_field("x-tollgate-store", "local");
        // In a new minute as many may be asked for again, but the process has as many as it may.
        proxy.advance(MINUTE);
        let is_local = fields.ends_with("local");
        let answer = proxy.send(by_key(9, "203.0.113.1"));
        assert_eq!(answer.status, if is_local { 429 } else { 200 }, "{fields}");
        let refused = u64::from(is_local);
        assert_eq!(proxy.stores().counts.no_room(NoRoom::Client), refused, "{fields}");
    }
}

#[test]
fn client_is_bounded_while_callers_are_moved() {
    let upstream = Upstream::start();
    for (mode, name) in [(MoveMode::MoveNow, "move_now"), (MoveMode::Mirror, "mirror")] {
        let redis = Redis::start();
        let store = format!(
            "current: {{ memory: {{}} }}, next: {{ redis: {{ {} }} }}, percent: 100, mode: {name}",
            redis.settings()
        );
        let proxy = Proxy::with_known_secret(&settings(&store), &[&policy(&upstream, "")]);
        assert_eq!(proxy.stores().moving.plan(), Some((100, mode)));
        assert_bounded(&proxy, name);
    }
}

/// What costs nothing until the response names a cost.
#[test]
fn cost_that_a_response_names_makes_no_more_counters() {
    let redis = Redis::start();
    let shared = format!("redis: {{ {} }}", redis.settings());
    for store in ["memory: { max_keys: 80 }", &shared] {
        let upstream = Upstream::as_asked();
        let cost = "cost: { reserve: 0, from_response_header: x-cost }";
        let proxy = start(store, &policy(&upstream, cost));
        for key in 0..12 {
            let answer = proxy.send(by_key(key, "203.0.113.1").costing("2"));
            assert_eq!(answer.status, if key < 4 { 200 } else { 429 }, "{store}: {key}");
        }
    }
    assert_eq!(redis.counters().len(), 4);
}
