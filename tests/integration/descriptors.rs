//! Descriptors of Envoy's rate limit filter: which limits they are charged to, and all of a request
//! or none. `tests/beside/envoy.py` asks by gRPC, and has Envoy ask.

use serde_json::{Value, json};

use crate::support::{Policy, Proxy, Redis, Response, SECOND, Upstream, eventually, post};

const ASKABLE: &str = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: grpc }]";

fn policy() -> Policy {
    Policy::before(&Upstream::start())
        .limits(&[
            "core: { per: caller, rate: 5/hour }",
            "per-user: { per: descriptor.user, rate: 5/minute }",
            "per-path: { per: [descriptor.user, descriptor.path], rate: 3/minute }",
            "bucket: { per: descriptor.bucket, rate: 4/minute, algorithm: token_bucket }",
            "slid: { per: descriptor.slid, rate: 4/minute, algorithm: sliding_window }",
            "evened: { per: descriptor.evened, rate: 4/minute, algorithm: gcra, burst: 4 }",
            "done: { per: descriptor.done, rate: 10/minute }",
            "costly: { per: descriptor.costly, rate: 10/minute, cost: 3 }",
        ])
        .section(
            "overrides:\n  - { limit: per-user, descriptor.user: vip, rate: 50/minute, why: a test }",
        )
        .section(
            "rls:\n\
             \x20 - { domain: edge, when: { key: [user, path], value: { path: /free* } }, limits: [] }\n\
             \x20 - { domain: edge, when: { key: [user] }, limits: [per-user] }\n\
             \x20 - { domain: edge, when: { key: [user, path] }, limits: [per-path] }\n\
             \x20 - { domain: edge, when: { key: [bucket] }, limits: [bucket] }\n\
             \x20 - { domain: edge, when: { key: [slid] }, limits: [slid] }\n\
             \x20 - { domain: edge, when: { key: [evened] }, limits: [evened] }\n\
             \x20 - { domain: edge, when: { key: [done] }, limits: [done], charge: always }\n\
             \x20 - { domain: edge, when: { key: [costly] }, limits: [costly] }",
        )
}

fn proxy() -> Proxy {
    Proxy::with_settings(ASKABLE, &[&policy()])
}

/// A descriptor that is written as `user=7 path=/a`, with fields.
fn descriptor(text: &str, fields: Value) -> Value {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        json!({ "key": key, "value": value })
    };
    let entries: Vec<Value> = text.split(' ').map(pair).collect();
    let mut all = json!({ "entries": entries });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    all
}

fn asked(proxy: &Proxy, descriptors: &[Value]) -> Response {
    let question = json!({ "domain": "edge", "descriptors": descriptors });
    proxy.ask(post("/json", question.to_string()).by_program())
}

/// Status of the response, and of each descriptor its code and what remains.
fn outcome(response: &Response) -> (u16, Vec<(String, u64)>) {
    let body = response.json();
    let statuses = body["statuses"].as_array().unwrap().iter().map(|status| {
        let remaining = status["limitRemaining"].as_u64().unwrap_or(999);
        (status["code"].as_str().unwrap().to_owned(), remaining)
    });
    (response.status, statuses.collect())
}

/// Asks for one descriptor with so many hits.
fn hits(proxy: &Proxy, text: &str, hits: u64) -> (u16, u64) {
    let response = asked(proxy, &[descriptor(text, json!({ "hitsAddend": hits }))]);
    let (status, all) = outcome(&response);
    (status, all[0].1)
}

fn given_back(proxy: &Proxy, text: &str, hits: u64) -> u64 {
    let fields = json!({ "hitsAddend": hits, "isNegativeHits": true });
    outcome(&asked(proxy, &[descriptor(text, fields)])).1[0].1
}

#[test]
fn all_descriptors_are_charged_or_none() {
    let proxy = proxy();
    let both = [descriptor("user=7", json!({})), descriptor("user=7 path=/a", json!({}))];
    let row = |code: &str, remaining| (code.to_owned(), remaining);
    for left in [(4, 2), (3, 1), (2, 0)] {
        let expected = vec![row("OK", left.0), row("OK", left.1)];
        assert_eq!(outcome(&asked(&proxy, &both)), (200, expected));
    }
    let denied = asked(&proxy, &both);
    assert_eq!(outcome(&denied), (429, vec![row("OK", 2), row("OVER_LIMIT", 0)]));
    assert!(denied.text().contains("retry-after"), "{}", denied.text());
    assert_eq!(hits(&proxy, "user=7", 0), (200, 2), "the other was not charged");
    proxy.advance(60 * SECOND);
    assert_eq!(outcome(&asked(&proxy, &both)), (200, vec![row("OK", 4), row("OK", 2)]));
}

#[test]
fn first_rule_for_a_descriptor_applies() {
    let proxy = proxy();
    for _ in 0..9 {
        assert_eq!(hits(&proxy, "user=7 path=/free/a", 1), (200, 999), "no limit");
    }
    assert_eq!(hits(&proxy, "user=7 path=/a", 3), (200, 0));
    assert_eq!(hits(&proxy, "path=/a user=7", 3), (200, 999), "another order");
    assert_eq!(hits(&proxy, "user=8 path=/a", 3), (200, 0), "another user");
    assert_eq!(hits(&proxy, "user=vip", 50), (200, 0), "an override");
    assert_eq!(hits(&proxy, "costly=a", 3), (200, 1), "a hit costs three");
    assert_eq!(hits(&proxy, "costly=a", 1), (429, 1));
}

#[test]
fn hits_are_given_back_to_the_window_that_is_open() {
    let proxy = proxy();
    for text in ["user=7", "bucket=7", "slid=7", "evened=7"] {
        let (_, before) = hits(&proxy, text, 0);
        assert_eq!(hits(&proxy, text, 3), (200, before - 3), "{text}");
        assert_eq!(given_back(&proxy, text, 2), before - 1, "{text}");
        assert_eq!(given_back(&proxy, text, 9), before, "{text}: no more than was taken");
    }
}

#[test]
fn what_has_happened_is_charged_whatever_becomes_of_the_rest() {
    let proxy = proxy();
    assert_eq!(hits(&proxy, "done=7", 25), (429, 0));
    assert_eq!(given_back(&proxy, "done=7", 20), 5, "25 of 10 were taken");
    let both = [
        descriptor("done=7", json!({ "hitsAddend": 2 })),
        descriptor("user=7", json!({ "hitsAddend": 9 })),
    ];
    assert_eq!(asked(&proxy, &both).status, 429);
    assert_eq!(hits(&proxy, "done=7", 0), (200, 3));
    assert_eq!(hits(&proxy, "user=7", 0), (200, 5));
}

#[test]
fn counters_in_redis_are_those_of_all_proxies() {
    let redis = Redis::start();
    let settings = format!(
        "{ASKABLE}\nstore: {{ redis: {{ url: \"{}\", clock: proxy }}, deadline: 10s }}",
        redis.url()
    );
    let [one, other] = [(); 2].map(|()| Proxy::with_settings(&settings, &[&policy()]));
    assert_eq!(hits(&one, "user=7", 3), (200, 2));
    assert_eq!(hits(&other, "user=7", 3).0, 429);
    assert_eq!(hits(&other, "user=7", 2), (200, 0));
    let _ = given_back(&one, "user=7", 4);
    eventually("they are given back", || (hits(&other, "user=7", 0) == (200, 4)).then_some(()));
}

#[test]
fn questions_that_make_no_sense_are_told_so_and_charge_nothing() {
    let proxy = proxy();
    for (question, expected) in [
        (json!({ "domain": "", "descriptors": [] }), "the domain is empty"),
        (json!({ "domain": "edge", "descriptors": [] }), "1 to 64 descriptors"),
        (json!({ "domain": "edge" }), "missing field `descriptors`"),
        (
            json!({ "domain": "edge", "descriptors": [descriptor("user=7", json!({ "hitsAddend": "x" }))] }),
            "invalid digit",
        ),
        (
            json!({ "domain": "edge", "descriptors": [descriptor("user=7", json!({ "hitsAddend": 1_u64 << 40 }))] }),
            "hits_addend has to be 0 to",
        ),
    ] {
        let response = proxy.ask(post("/json", question.to_string()).by_program());
        assert_eq!(response.status, 400, "{question}");
        assert!(response.text().contains(expected), "{}", response.text());
    }
    assert_eq!(hits(&proxy, "user=7", 0), (200, 5));
}
