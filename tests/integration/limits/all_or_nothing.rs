//! A request takes all that its limits ask for, or nothing of it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use crate::support::{MINUTE, Policy, Proxy, SECOND, Signal, Upstream, get};

/// One limit of each kind, with room for three and with different owners.
const LIMITS: [&str; 7] = [
    "fixed: { per: caller, rate: 3/hour }",
    "sliding: { per: client.ip, rate: 3/hour, algorithm: sliding_window }",
    "log: { per: header.x-key, rate: 3/hour, algorithm: sliding_log }",
    "bucket: { per: [caller, host], rate: 3/hour, algorithm: token_bucket }",
    "meter: { per: host, rate: 3/hour, algorithm: gcra }",
    "several: { per: caller, rate: [3/minute, 3/day] }",
    "inflight: { per: caller, concurrent: 3 }",
];

/// All of them with plenty of room, but for the one at a position.
fn only_one_denies(position: usize) -> Vec<String> {
    let widen = |limit: &str| limit.replace("3/", "30/").replace("concurrent: 3", "concurrent: 30");
    let widened = |(at, limit): (usize, &&str)| {
        if at == position { (*limit).to_owned() } else { widen(limit) }
    };
    LIMITS.iter().enumerate().map(widened).collect()
}

fn names(limits: &[String]) -> Vec<&str> {
    limits.iter().filter_map(|limit| limit.split(':').next()).collect()
}

#[test]
fn denied_request_leaves_every_counter_as_it_was_in_every_order() {
    let upstream = Upstream::start();
    // Requests at once are denied otherwise, and tested with them.
    for position in 0..LIMITS.len() - 1 {
        let limits = only_one_denies(position);
        for first in 0..LIMITS.len() {
            let mut order = names(&limits);
            order.rotate_left(first);
            let policy = Policy::before(&upstream)
                .limits(&limits.iter().map(String::as_str).collect::<Vec<_>>())
                .routes(&[&format!(
                    "{{ match: {{ path: /** }}, limits: [{}] }}",
                    order.join(", ")
                )]);
            let proxy = Proxy::start(&policy);
            let request = || get("/").by("alice").field("x-key", "k");
            let look = || proxy.standings(get("/rate_limit").by("alice").field("x-key", "k"));
            for _ in 0..3 {
                proxy.send(request()).assert_status(200);
                proxy.advance(SECOND);
            }
            let before = look();
            for _ in 0..4 {
                let denied = proxy.send(request());
                denied.assert_status(429);
                denied.assert_field("x-tollgate-denied-by", names(&limits)[position]);
            }
            assert_eq!(look(), before, "{order:?}");
        }
    }
    assert_eq!(upstream.count(), (LIMITS.len() - 1) * LIMITS.len() * 3);
}

#[test]
fn request_that_is_denied_by_a_rate_holds_no_place_of_those_at_once() {
    let upstream = Upstream::start();
    for order in ["inflight, core", "core, inflight"] {
        let policy = Policy::before(&upstream)
            .limits(&[
                "core: { per: caller, rate: 2/minute }",
                "inflight: { per: client.ip, concurrent: 1 }",
            ])
            .routes(&[&format!("{{ match: {{ path: /** }}, limits: [{order}] }}")]);
        let proxy = Proxy::start(&policy);
        for status in [200, 200, 429, 429, 429] {
            proxy.get_as("alice").assert_status(status);
        }
        assert_eq!(proxy.used("alice", "inflight"), 0);
        proxy.get_as("bob").assert_status(200);
    }
}

#[test]
fn request_that_is_one_too_many_at_once_is_charged_nothing() {
    for order in ["inflight, core, place", "place, core, inflight"] {
        let asked = Signal::default();
        let go = Signal::default();
        let upstream = Upstream::held(&asked, &go);
        let policy = Policy::before(&upstream)
            .limits(&[
                "core: { per: caller, rate: 10/minute }",
                "place: { per: client.ip, rate: 10/minute, algorithm: gcra }",
                "inflight: { per: caller, concurrent: 1 }",
            ])
            .routes(&[&format!("{{ match: {{ path: /** }}, limits: [{order}] }}")]);
        let proxy = Proxy::start(&policy);
        let mut held = proxy.connect();
        held.write(get("/").by("alice").to_bytes());
        asked.wait();
        let before = proxy.standings(get("/rate_limit").by("alice"));
        for _ in 0..3 {
            let denied = proxy.get_as("alice");
            denied.assert_status(429).assert_field("x-tollgate-denied-by", "inflight");
        }
        assert_eq!(proxy.standings(get("/rate_limit").by("alice")), before);
        go.open();
        held.read().assert_status(200);
        assert_eq!(proxy.used("alice", "core"), 1);
    }
}

#[test]
fn store_without_room_for_all_counters_of_a_request_takes_none() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 9/hour }",
            "page: { per: [caller, path], rate: 9/hour }",
        ])
        .routes(&[
            "{ match: { path: /core }, limits: [core] }",
            "{ match: { path: /** }, limits: [core, page] }",
        ]);
    let settings = "workers: 1\nstore: { memory: { max_keys: 2 } }";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    proxy.send(get("/a").by("alice")).assert_status(200);
    proxy.send(get("/b").by("alice")).assert_status(503).assert_no_limit();
    proxy.send(get("/core").by("alice")).assert_status(200).assert_field("x-ratelimit-used", "2");
    proxy.send(get("/core").by("bob")).assert_status(503);
}

#[test]
fn in_parallel_nothing_is_lost_nothing_is_stuck_and_no_limit_is_exceeded() {
    let upstream = Upstream::start();
    let limits: Vec<String> = LIMITS.iter().map(|limit| limit.replace("3/", "40/")).collect();
    let policy = Policy::before(&upstream)
        .limits(&limits.iter().map(String::as_str).collect::<Vec<_>>())
        .routes(&[
            "{ match: { path: /a }, limits: [fixed, sliding, bucket, inflight] }",
            "{ match: { path: /b }, limits: [inflight, log, sliding, several] }",
            "{ match: { path: /c }, limits: [meter, several, fixed] }",
            "{ match: { path: /d }, limits: [bucket, meter, log, sliding, fixed, several] }",
        ]);
    let proxy = Proxy::with_settings("workers: 2", &[&policy]);
    const PATHS: [&str; 4] = ["/a", "/b", "/c", "/d"];
    let passed = [const { AtomicU64::new(0) }; 4];
    thread::scope(|scope| {
        for shift in 0..4 {
            let proxy = &proxy;
            let passed = &passed;
            scope.spawn(move || {
                let mut client = proxy.connect();
                for number in 0..40 {
                    let path = (number + shift) % 4;
                    let request = get(PATHS[path]).by("alice").field("x-key", "k");
                    let is_passed = client.send(&request).status == 200;
                    passed[path].fetch_add(is_passed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    let [a, b, c, d] = passed.map(AtomicU64::into_inner);
    assert_eq!(upstream.count() as u64, a + b + c + d);
    let standings = proxy.standings(get("/rate_limit").by("alice").field("x-key", "k"));
    for (limit, used) in [
        ("fixed", a + c + d),
        ("sliding", a + b + d),
        ("log", b + d),
        ("bucket", a + d),
        ("meter", c + d),
        ("several", b + c + d),
        ("inflight", 0),
    ] {
        assert_eq!(standings[limit]["used"], used, "{limit} of {standings}");
        assert!(used <= 40, "{limit}: {used} of 40");
    }
    // Some limit is full: what was denied was denied for a reason.
    assert!([a + c + d, a + b + d, b + d, a + d, c + d, b + c + d].contains(&40), "{standings}");
    proxy.advance(60 * MINUTE);
    proxy.send(get("/a").by("alice")).assert_status(200);
}
