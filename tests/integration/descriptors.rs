//! Descriptors of Envoy's rate limit filter: which limits they are charged to, and all of a request
//! or none. `tests/beside/envoy.py` asks by gRPC, and has Envoy ask.

use serde_json::{Value, json};
use tollgate::callers::top::RankBy;

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
            "export: { per: descriptor.path, rate: 3/minute }",
            "login: { per: descriptor.generic_key, rate: 5/minute }",
            "files: { per: descriptor.file, rate: 10/hour }",
            "keys: { per: descriptor.api_key, rate: 10/hour }",
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
             \x20 - { domain: edge, when: { key: [costly] }, limits: [costly] }\n\
             \x20 - { domain: edge, when: { key: [path], value: { path: /v1/*/export } }, limits: [export] }\n\
             \x20 - { domain: edge, when: [{ key: generic_key, value: v1 }, { key: generic_key, value: login }], limits: [login] }\n\
             \x20 - { domain: edge, when: { key: [api_key] }, limits: [keys] }\n\
             \x20 - { domain: edge, when: [{ key: file, value: \"a/*\", shared: true }], limits: [files] }",
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
fn descriptors_are_ranked_by_their_values() {
    let proxy = proxy();
    for (text, count) in [
        ("user=7", 2),
        ("user=7 path=/a", 3),
        ("generic_key=v1 generic_key=login", 1),
        ("file=a/1", 1),
        ("file=a/2", 1),
        ("api_key=s3cret", 1),
    ] {
        hits(&proxy, text, count);
    }
    let ranked = |limit: &str| {
        let all = proxy.top(RankBy::Units, 1).callers.into_iter().filter(|own| own.limit == limit);
        all.map(|own| (own.name, own.count)).collect::<Vec<_>>()
    };
    for (limit, name, count) in [
        ("per-user", "descriptor.user:7", 2),
        ("per-path", "descriptor.user=7,descriptor.path=/a", 3),
        ("login", "descriptor.generic_key=v1,descriptor.generic_key=login", 1),
        ("files", "descriptor.file:a/*", 2),
    ] {
        assert_eq!(ranked(limit), [(name.to_owned(), count)]);
        assert_eq!(proxy.look(name).unwrap().limits[0].windows[0].used, count as u32, "{limit}");
    }
    let [(secret, 1)] = &ranked("keys")[..] else { panic!("{:?}", ranked("keys")) };
    assert!(secret.starts_with("descriptor.api_key:(hash "), "{secret}");
}

#[test]
fn hits_are_counted_once_whatever_windows_a_limit_has() {
    let policy = Policy::before(&Upstream::start())
        .limits(&[
            "wide: { per: descriptor.user, rate: [10/minute, 100/day] }",
            "bytes: { per: descriptor.done, rate: [10/minute, 100/day] }",
        ])
        .section(
            "rls:\n\
             \x20 - { domain: edge, when: { key: [user] }, limits: [wide] }\n\
             \x20 - { domain: edge, when: { key: [done] }, limits: [bytes], charge: always }",
        );
    let proxy = Proxy::with_settings(ASKABLE, &[&policy]);
    let of = |text: &str, hits: u64| descriptor(text, json!({ "hitsAddend": hits }));
    assert_eq!(hits(&proxy, "done=7", 4), (200, 6));
    assert_eq!(proxy.units("bytes"), [4, 0]);
    assert_eq!(given_back(&proxy, "done=7", 3), 9);
    assert_eq!(proxy.units("bytes"), [4, 3]);
    // What has happened leaves no room, so what was admitted is given back.
    assert_eq!(asked(&proxy, &[of("done=7", 20), of("user=1", 2)]).status, 429);
    assert_eq!((proxy.units("bytes"), proxy.units("wide")), ([24, 3], [2, 2]));
    // Two counters of one limit are no windows of one.
    assert_eq!(asked(&proxy, &[of("user=1", 1), of("user=2", 4)]).status, 200);
    assert_eq!(proxy.units("wide"), [7, 2]);
    let counted = |name: &str, count| (format!("descriptor.{name}"), count);
    assert_eq!(proxy.ranked("wide"), [counted("user:2", 4), counted("user:1", 3)]);
    assert_eq!(proxy.ranked("bytes"), [counted("done:7", 24)]);
}

#[test]
fn line_names_the_counter_of_a_descriptor() {
    let proxy = proxy();
    hits(&proxy, "user=7 path=/a", 1);
    hits(&proxy, "api_key=s3cret", 1);
    hits(&proxy, "user=7 path=/free", 1);
    let log = proxy.into_log();
    let line = |at: usize| log.lines().nth(at).unwrap();
    let named = " per-path=1/3 key=descriptor.user=7,descriptor.path=/a asked_by=rls ";
    assert!(line(0).contains(named), "{log}");
    assert!(line(1).contains(" key=descriptor.api_key:(hash\\x20"), "{log}");
    assert!(!log.contains("s3cret") && !line(2).contains(" key="), "{log}");
}

#[test]
fn filter_is_told_the_headers_that_it_does_not_write_itself() {
    for (profile, expected) in [
        ("github", &[][..]),
        ("envoy", &[]),
        ("apisix", &[]),
        ("ietf", &["ratelimit", "ratelimit-policy"]),
        (
            "draft-03",
            &["ratelimit-limit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset"],
        ),
        (
            "kong",
            &[
                "ratelimit-limit",
                "ratelimit-remaining",
                "ratelimit-reset",
                "x-ratelimit-limit-minute",
                "x-ratelimit-remaining-minute",
            ],
        ),
    ] {
        let headers = format!("headers: {profile}");
        let proxy = Proxy::with_settings(ASKABLE, &[&policy().responses(&[&headers])]);
        let body = asked(&proxy, &[descriptor("user=7", json!({}))]).json();
        let fields = body["responseHeadersToAdd"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<&str> =
            fields.iter().map(|field| field["key"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{profile}: {body}");
    }
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
fn values_are_patterns_and_keys_may_be_there_twice() {
    let proxy = proxy();
    assert_eq!(hits(&proxy, "path=/v1/42/export", 3), (200, 0));
    assert_eq!(hits(&proxy, "path=/v1/43/export", 1), (200, 2), "another value");
    assert_eq!(hits(&proxy, "path=/v1/42/exports", 9), (200, 999), "no limit");
    assert_eq!(hits(&proxy, "generic_key=v1 generic_key=login", 5), (200, 0));
    assert_eq!(hits(&proxy, "generic_key=v1 generic_key=login", 1), (429, 0));
    assert_eq!(hits(&proxy, "generic_key=login generic_key=v1", 9), (200, 999), "another order");
    assert_eq!(hits(&proxy, "file=a/b", 4), (200, 6));
    assert_eq!(hits(&proxy, "file=a/c", 4), (200, 2), "one counter for all");
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
    ] {
        let response = proxy.ask(post("/json", question.to_string()).by_program());
        assert_eq!(response.status, 400, "{question}");
        assert!(response.text().contains(expected), "{}", response.text());
    }
    assert_eq!(hits(&proxy, "user=7", 0), (200, 5));
}

#[test]
fn hits_past_the_largest_limit_are_saturated() {
    let proxy = proxy();
    for many in [1_u64 << 31, 1 << 40, u64::MAX] {
        assert_eq!(hits(&proxy, "user=7", many), (429, 5), "{many}: nothing is charged");
    }
    assert_eq!(hits(&proxy, "done=7", 3 << 30), (429, 0), "what has happened is charged");
    assert_eq!(hits(&proxy, "done=7", 0).0, 429);
    assert_eq!(given_back(&proxy, "user=7", u64::MAX), 5);
}

/// One counter, charged by descriptors with room and by such as have happened.
fn shared() -> Proxy {
    let policy = Policy::before(&Upstream::start())
        .limits(&["both: { per: descriptor.user, rate: 5/minute }"])
        .section(
            "rls:\n\
             \x20 - { domain: edge, when: { key: [user] }, limits: [both] }\n\
             \x20 - { domain: edge, when: { key: [user, done] }, limits: [both], charge: always }",
        );
    Proxy::with_settings(ASKABLE, &[&policy])
}

#[test]
fn what_has_happened_and_what_is_admitted_may_share_a_counter() {
    let admitted = |hits: u64| descriptor("user=7", json!({ "hitsAddend": hits }));
    let happened = |hits: u64| descriptor("user=7 done=a", json!({ "hitsAddend": hits }));
    for is_first in [true, false] {
        let ask = |proxy: &Proxy, happened: Value, admitted: Value| {
            let both = if is_first { [happened, admitted] } else { [admitted, happened] };
            asked(proxy, &both).status
        };
        let proxy = shared();
        assert_eq!(ask(&proxy, happened(2), admitted(2)), 200, "{is_first}");
        assert_eq!(hits(&proxy, "user=7", 0), (200, 1), "{is_first}");
        // Alone it does not fit.
        assert_eq!(ask(&proxy, happened(1), admitted(2)), 429, "{is_first}");
        assert_eq!(hits(&proxy, "user=7", 0), (200, 0), "only what has happened is charged");
        // Beside what has happened it does not fit.
        let proxy = shared();
        assert_eq!(ask(&proxy, happened(4), admitted(2)), 429, "{is_first}");
        assert_eq!(hits(&proxy, "user=7", 0), (200, 1), "only what has happened is charged");
    }
}

/// A store with little room for what clients choose.
fn small(upstream: &Upstream, verified: &str) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&[
            "core: { per: client.ip, rate: 100/hour }",
            &format!("per-user: {{ per: descriptor.user, rate: 5/hour{verified} }}"),
            &format!(
                "per-both: {{ per: [descriptor.remote_address, descriptor.user], rate: 5/hour{verified} }}"
            ),
        ])
        .routes(&["{ match: { path: /** }, limits: [core] }"])
        .section(
            "rls:\n\
             \x20 - { domain: edge, when: { key: [user] }, limits: [per-user] }\n\
             \x20 - { domain: edge, when: { key: [remote_address, user] }, limits: [per-both] }",
        );
    let settings = format!(
        "{ASKABLE}\nstore: {{ memory: {{ max_keys: 1000 }}, unverified_keys: {{ percent: 50, per_address: 100 }} }}"
    );
    Proxy::with_known_secret(&settings, &[&policy])
}

#[test]
fn values_of_descriptors_fill_no_more_than_their_room() {
    let upstream = Upstream::start();
    let proxy = small(&upstream, "");
    let passed = |text: &dyn Fn(u32) -> String| {
        (0..600).filter(|number| hits(&proxy, &text(*number), 1).0 == 200).count()
    };
    assert_eq!(passed(&|number| format!("user={number}")), 100, "as many as one asker may make");
    for client in 0..3 {
        let made = passed(&|number| format!("remote_address=203.0.113.{client} user={number}"));
        assert_eq!(made, 100, "{client}");
    }
    proxy.get("/").assert_status(200);
    assert_eq!(hits(&proxy, "user=0", 1).0, 200, "those that are there go on");
    let vouched = small(&upstream, ", verified: true");
    let made = (0..600).filter(|number| hits(&vouched, &format!("user={number}"), 1).0 == 200);
    assert_eq!(made.count(), 600);
}

#[test]
fn values_of_descriptors_are_bounded_in_redis_too() {
    let redis = Redis::start();
    let settings = format!(
        "{ASKABLE}\nstore: {{ redis: {{ url: \"{}\", clock: proxy }}, deadline: 10s, unverified_keys: {{ new_per_minute: 50 }} }}",
        redis.url()
    );
    let proxy = Proxy::with_settings(&settings, &[&policy()]);
    let made = (0..80).filter(|number| hits(&proxy, &format!("user={number}"), 1).0 == 200);
    assert_eq!(made.count(), 50);
}

/// A store that decides in this way, with limits of what has happened.
fn happened(store: &str) -> Proxy {
    let policy = Policy::before(&Upstream::start())
        .limits(&[
            "bytes: { per: descriptor.user, rate: 10/hour }",
            "known: { per: descriptor.known, rate: [10/hour, 100/day], verified: true }",
        ])
        .section(
            "rls:\n\
             \x20 - { domain: edge, when: { key: [user] }, limits: [bytes], charge: always }\n\
             \x20 - { domain: edge, when: { key: [known] }, limits: [known], charge: always }",
        );
    Proxy::with_settings(&format!("{ASKABLE}\nstore: {{ {store} }}"), &[&policy])
}

#[test]
fn what_has_happened_has_the_room_of_what_is_admitted() {
    let redis = Redis::start();
    let shared = format!(
        "redis: {{ url: \"{}\", clock: proxy }}, deadline: 10s, unverified_keys: {{ new_per_minute: 50 }}",
        redis.url()
    );
    let own = "memory: { max_keys: 1000 }, unverified_keys: { per_address: 50 }";
    for store in [own, &shared] {
        let proxy = happened(store);
        let counted = (0..80).filter(|user| hits(&proxy, &format!("user={user}"), 1).0 == 200);
        assert_eq!(counted.count(), 50, "{store}");
        // Those that are there go on, and looking at others is free.
        assert_eq!(hits(&proxy, "user=7", 9), (200, 0), "{store}");
        assert_eq!(hits(&proxy, "user=never", 0), (200, 10), "{store}");
    }
    assert_eq!(redis.counters().len(), 50);
}

/// One that only looks asks for no room, but what has happened beside it does.
#[test]
fn look_at_a_counter_takes_it_no_room_that_what_has_happened_needs() {
    let settings = format!(
        "{ASKABLE}\nstore: {{ memory: {{ max_keys: 1000 }}, unverified_keys: {{ per_address: 5 }} }}"
    );
    let policy = Policy::before(&Upstream::start())
        .limits(&["both: { per: descriptor.user, rate: 5/minute }"])
        .section(
            "rls:\n\
             \x20 - { domain: edge, when: { key: [user] }, limits: [both] }\n\
             \x20 - { domain: edge, when: { key: [user, done] }, limits: [both], charge: always }",
        );
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let counted = (0..9).filter(|user| {
        let looked = descriptor(&format!("user={user}"), json!({ "hitsAddend": 0 }));
        let happened = descriptor(&format!("user={user} done=a"), json!({ "hitsAddend": 1 }));
        asked(&proxy, &[looked, happened]).status == 200
    });
    assert_eq!(counted.count(), 5);
}

#[test]
fn what_has_happened_is_charged_though_a_counter_beside_it_finds_no_room() {
    let redis = Redis::start();
    let shared = format!(
        "redis: {{ url: \"{}\", clock: proxy }}, deadline: 10s, unverified_keys: {{ new_per_minute: 1 }}",
        redis.url()
    );
    let own = "memory: { max_keys: 1000 }, unverified_keys: { per_address: 1 }";
    for store in [own, &shared] {
        let proxy = happened(store);
        assert_eq!(hits(&proxy, "user=0", 1), (200, 9), "{store}");
        let both = [
            descriptor("known=a", json!({ "hitsAddend": 3 })),
            descriptor("user=1", json!({ "hitsAddend": 1 })),
        ];
        assert_eq!(asked(&proxy, &both).status, 429, "{store}");
        eventually("it is charged", || (hits(&proxy, "known=a", 0) == (200, 7)).then_some(()));
        assert_eq!(proxy.units("known"), [3, 0], "{store}");
        assert_eq!(proxy.ranked("known"), [("descriptor.known:a".to_owned(), 3)], "{store}");
    }
}
