//! Who decided about a request, in the words of the metric.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_keyword::Keyword;
use tollgate_store::Decider;

use crate::support::{Policy, Proxy, Redis, Request, Upstream, get};

/// Settings of one worker with this store, which log in this format.
fn settings(store: &str, format: &str) -> String {
    format!("workers: 1\naccess_log: {{ format: {format} }}\nstore: {{ {store} }}")
}

/// A store in this Redis, which may take as long as a busy machine needs.
fn in_redis(redis: &Redis) -> String {
    format!("redis: {{ {}, clock: proxy }}, deadline: 10s", redis.settings())
}

/// Who decided about each request, and about each of its limits; checked against the metric.
fn deciders(store: &str, policy: &Policy, requests: &[Request]) -> Vec<Value> {
    let proxy = Proxy::with_settings(&settings(store, "json"), &[policy]);
    requests.iter().for_each(|request| drop(proxy.send(request.clone())));
    let counted = Decider::all().map(Decider::keyword).zip(proxy.stores().decisions());
    let counted: BTreeMap<&str, u64> = counted.filter(|(_, count)| *count > 0).collect();
    let log = proxy.into_log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut logged: BTreeMap<&str, u64> = BTreeMap::new();
    for decider in lines.iter().filter_map(|line| line["decided_by"].as_str()) {
        *logged.entry(decider).or_default() += 1;
    }
    assert_eq!(logged, counted, "{log}");
    let of_line = |line: &Value| {
        let limits = line["limits"].as_array().unwrap().iter();
        let limits = limits.map(|limit| json!([limit["name"], limit["decided_by"]]));
        json!([line["status"], line["decided_by"], limits.collect::<Vec<_>>()])
    };
    lines.iter().map(of_line).collect()
}

fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 1/hour }",
            "daily: { per: caller, rate: 9/day }",
            "open: { per: caller, rate: 1/hour, on_store_error: open }",
            "closed: { per: caller, rate: 1/hour, on_store_error: closed }",
        ])
        .routes(&[
            "{ match: { path: /core }, limits: [core, daily] }",
            "{ match: { path: /open }, limits: [open] }",
            "{ match: { path: /closed }, limits: [core, closed] }",
            "{ match: { path: /free }, limits: [] }",
        ])
}

fn alice(path: &str) -> Request {
    get(path).by("alice")
}

#[test]
fn process_decides_where_counters_are_in_it() {
    let upstream = Upstream::start();
    let requests = ["/core", "/core", "/free", "/nowhere", "/rate_limit"].map(alice);
    let told = deciders("memory: {}", &policy(&upstream), &requests);
    let both = json!([["core", "memory"], ["daily", "memory"]]);
    let all =
        json!([["core", "memory"], ["daily", "memory"], ["open", "memory"], ["closed", "memory"]]);
    let expected = [
        json!([200, "memory", both]),
        json!([429, "memory", both]),
        json!([200, null, []]),
        json!([404, null, []]),
        // Nothing is decided about a query, but it is known whose counts these are.
        json!([200, null, all]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn redis_decides_and_the_worker_remembers_its_denials() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let requests = ["/core", "/core", "/core"].map(alice);
    let told = deciders(&in_redis(&redis), &policy(&upstream), &requests);
    let by = |decider: &str| json!([["core", decider], ["daily", decider]]);
    let expected = [
        json!([200, "redis", by("redis")]),
        json!([429, "redis", by("redis")]),
        json!([429, "memo", by("memo")]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn each_limit_decides_as_it_says_while_redis_is_away() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.kill();
    let requests = ["/core", "/core", "/open", "/closed"].map(alice);
    let told = deciders(&in_redis(&redis), &policy(&upstream), &requests);
    let both = json!([["core", "local"], ["daily", "local"]]);
    let expected = [
        json!([200, "local", both]),
        json!([429, "local", both]),
        json!([200, "open", []]),
        json!([503, "closed", []]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn text_says_who_decided_too() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    redis.kill();
    let settings = settings(&in_redis(&redis), "text");
    let proxy = Proxy::with_settings(&settings, &[&policy(&upstream)]);
    for path in ["/core", "/open", "/closed", "/free"] {
        let _ = proxy.send(alice(path));
    }
    let log = proxy.into_log();
    let lines: Vec<&str> = log.lines().collect();
    for (line, expected) in [
        (0, " 200 core=1/1 decided_by=local upstream="),
        (1, " 200 decided_by=open upstream="),
        (2, " 503 decided_by=closed denied=store error="),
        (3, " route=/free 200 upstream="),
    ] {
        assert!(lines[line].contains(expected), "{expected} is not in {}", lines[line]);
    }
}
