//! What a denial says: which limit denied, until when, and in texts that clients of GitHub know.

use std::collections::BTreeSet;

use super::reset;
use crate::support::{Policy, Proxy, Request, START, Upstream, get, post};

#[test]
fn primary_denial_says_who_and_where_to_read_on() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("1/hour")
        .responses(&["documentation_url: https://docs.example.com/limits"]);
    let proxy = Proxy::start(&policy);
    for (request, who) in [(get("/").by("alice"), "user alice"), (get("/"), "127.0.0.1")] {
        proxy.send(request.clone()).assert_status(200);
        let denied = proxy.send(request);
        denied
            .assert_status(429)
            .assert_field("content-type", "application/json; charset=utf-8")
            .assert_field("cache-control", "no-store")
            .assert_field("x-ratelimit-remaining", "0");
        let body = denied.json();
        assert_eq!(body["message"], format!("API rate limit exceeded for {who}."));
        assert_eq!(body["documentation_url"], "https://docs.example.com/limits");
        assert_eq!(body.as_object().unwrap().len(), 2);
    }
}

#[test]
fn denial_that_no_waiting_helps_says_so_in_words_that_no_client_waits_for() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    let denied = proxy.get_as("alice");
    denied.assert_status(429).assert_no_field("retry-after");
    assert_eq!(denied.json()["message"], "The cost of this request exceeds its limit.");
}

#[test]
fn denial_without_documentation_has_no_url() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    let body = proxy.get_as("alice").json();
    assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
}

/// The primary limit has room, the secondary one for one request.
fn secondary(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "first: { per: caller, rate: 10/hour }",
            "second: { per: client.ip, rate: 1/minute }",
        ])
        .routes(&["{ match: { path: /** }, limits: [first, second] }"])
}

#[test]
fn secondary_denial_is_recognized_by_its_message() {
    let upstream = Upstream::start();
    for (responses, url) in [
        (
            &["documentation_url: https://docs.example.com/limits"][..],
            Some("https://docs.example.com/limits"),
        ),
        (
            &["documentation_url: \"https://docs.example.com/limits#all\""],
            Some("https://docs.example.com/limits"),
        ),
        (&[], None),
    ] {
        let proxy = Proxy::start(&secondary(&upstream).responses(responses));
        proxy.get_as("alice").assert_status(200);
        let denied = proxy.get_as("alice");
        denied
            .assert_status(429)
            .assert_field("retry-after", "60")
            .assert_field("cache-control", "no-store")
            .assert_field("x-ratelimit-resource", "second");
        let body = denied.json();
        let message = "You have exceeded a secondary rate limit. Try again in 60 seconds.";
        assert_eq!(body["message"], message);
        let url = url.map(|url| format!("{url}#about-secondary-rate-limits"));
        let told = body.get("documentation_url").and_then(|told| told.as_str());
        assert_eq!(told, url.as_deref(), "a fragment alone is the address of nothing");
    }
}

#[test]
fn primary_denial_says_that_nothing_is_left_until_the_request_fits() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .core("rate: 10/minute, cost: { POST: 8, default: 1 }, algorithm: gcra")
        .responses(&["headers: both"]);
    let proxy = Proxy::start(&policy);
    proxy.send(post("/", "").by("alice")).assert_status(200);
    let denied = proxy.send(post("/", "").by("alice"));
    // Six of the eight have to come back, one every six seconds.
    let reset = (START.as_micros().div_ceil(1_000_000) + 36).to_string();
    denied
        .assert_status(429)
        .assert_field("x-ratelimit-remaining", "0")
        .assert_field("x-ratelimit-used", "8")
        .assert_field("x-ratelimit-reset", &reset)
        .assert_field("retry-after", "36");
    assert!(denied.field("ratelimit").unwrap().starts_with("\"core\";r=2;t="), "{denied:?}");
    // What costs less does fit.
    proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-remaining", "1");
}

#[test]
fn secondary_denial_never_says_that_the_primary_limit_is_used_up() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&secondary(&upstream));
    proxy.get_as("alice").assert_field("x-ratelimit-remaining", "9");
    let denied = proxy.get_as("alice");
    // All five are those of the limit that denied, from the same read.
    let reset = (START.as_micros().div_ceil(1_000_000) + 60).to_string();
    denied.assert_limit(["1", "0", "1", &reset, "second"]);
}

#[test]
fn denied_client_waits_for_the_longest_of_the_limits_that_deny() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "short: { per: caller, rate: 1/minute }",
            "long: { per: client.ip, rate: 1/hour }",
        ])
        .routes(&["{ match: { path: /** }, limits: [short, long] }"]);
    let proxy = Proxy::start(&policy);
    proxy.get("/").assert_status(200);
    proxy
        .get("/")
        .assert_status(429)
        .assert_limit(["1", "0", "1", &reset(), "long"])
        .assert_field("x-tollgate-denied-by", "long")
        .assert_field("retry-after", "3600");
}

#[test]
fn limit_that_denied_is_named() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "first: { per: caller, rate: 2/hour }",
            "second: { per: client.ip, rate: 1/minute }",
        ])
        .routes(&[
            "{ match: { path: /one }, limits: [first] }",
            "{ match: { path: /** }, limits: [first, second] }",
        ])
        .responses(&["headers: none"]);
    let proxy = Proxy::start(&policy);
    proxy.get("/").assert_status(200).assert_no_field("x-tollgate-denied-by");
    proxy.get("/").assert_status(429).assert_field("x-tollgate-denied-by", "second");
    proxy.get("/one").assert_status(200).assert_no_field("x-tollgate-denied-by");
    proxy.get("/one").assert_status(429).assert_field("x-tollgate-denied-by", "first");
    let log = proxy.into_log();
    let errors = ["denied by secondary limit second", "denied by limit first"];
    for (line, error) in [(1, errors[0]), (3, errors[1])] {
        let line = log.lines().nth(line).unwrap();
        assert!(line.contains(" 429 ") && line.contains(error), "{log}");
    }
}

#[test]
fn jitter_spreads_retries_and_allows_none_too_early() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("1/minute").responses(&["jitter: 20s"]);
    let proxy = Proxy::start(&policy);
    let mut waits = BTreeSet::new();
    for caller in 0..40 {
        let caller = format!("user-{caller}");
        proxy.get_as(&caller).assert_status(200);
        let denied = proxy.get_as(&caller);
        let wait = denied.assert_status(429).number("retry-after");
        assert!((60..=80).contains(&wait), "{denied:?}");
        // The window is what it is.
        let reset = (START.as_micros().div_ceil(1_000_000) + 60).to_string();
        denied.assert_field("x-ratelimit-reset", &reset);
        waits.insert(wait);
    }
    assert!(waits.len() > 5, "{waits:?}");
}

#[test]
fn denied_status_may_be_another_one() {
    let upstream = Upstream::start();
    for status in [403, 400, 499, 503] {
        let responses = format!("denied_status: {status}");
        let policy = Policy::before(&upstream).rate("1/hour").responses(&[&responses]);
        let proxy = Proxy::start(&policy);
        proxy.get("/").assert_status(200);
        let denied = proxy.get("/");
        denied
            .assert_status(status)
            .assert_limit(["1", "0", "1", &reset(), "core"])
            .assert_field("retry-after", "3600");
        assert_eq!(denied.json()["message"], "API rate limit exceeded for 127.0.0.1.");
    }
}

#[test]
fn denial_of_head_has_no_body() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    let mut client = proxy.connect();
    let head = Request::new("HEAD", "/");
    client.send(&head).assert_status(429).assert_field("x-ratelimit-remaining", "0");
    // The connection is in step: what comes next is an answer and no stray body.
    client.send(&get("/")).assert_status(429);
}

#[test]
fn denial_leaves_a_large_upload_unread_and_is_heard() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    proxy.send(post("/", vec![b'x'; 4 << 20])).assert_status(429);
    assert_eq!(upstream.count(), 0);
}
