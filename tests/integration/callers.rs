//! The limits of one caller: looking at them changes nothing, and after a reset they are as never
//! used, on every proxy and in every store.

mod names;
mod ranked;
mod shared;
mod values;

use serde_json::json;
use tollgate::callers::{AnsweredBy, CallerError, PolicyReport};

use crate::support::{Cluster, MINUTE, Policy, Proxy, Redis, Upstream, get, seconds, token_with};

const LIMITS: [&str; 4] = [
    "core: { per: caller, rate: { anonymous: 2/hour, free: [3/hour, 10/day], pro: 9/hour, internal: unlimited } }",
    "burst: { per: caller, rate: 100/minute, algorithm: gcra, mode: shadow }",
    "paths: { per: [caller, path], rate: 100/hour }",
    "hosts: { per: client.ip, rate: 100/hour }",
];

fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream).on_all_routes(&LIMITS)
}

/// Used and limit of each window of a limit.
fn windows(report: &PolicyReport, limit: &str) -> Vec<(u32, u32)> {
    let limit = report.limits.iter().find(|own| own.limit == limit).unwrap();
    limit.windows.iter().map(|window| (window.used, window.max)).collect()
}

/// That a denied caller is looked at, and passes with a fresh window once it was reset.
fn assert_denied_caller_passes_after_a_reset(proxy: &Proxy, answered_by: AnsweredBy) {
    let before = proxy.look("user:42").unwrap();
    assert!(before.limits.iter().flat_map(|limit| &limit.windows).all(|own| own.used == 0));
    assert_eq!(before.tier, None, "no token of it was seen");

    let opened = proxy.get_as("42").number("x-ratelimit-reset");
    for status in [200, 200, 429, 429, 429] {
        proxy.get_as("42").assert_status(status);
    }
    for _ in 0..2 {
        let report = proxy.look("user:42").unwrap();
        assert_eq!((report.policy.as_str(), report.caller.as_str()), ("policy-0", "user:42"));
        assert_eq!(
            (report.issuer.as_deref(), report.tier.as_deref()),
            (Some("main"), Some("free"))
        );
        assert_eq!(windows(&report, "core"), [(3, 3), (3, 10)]);
        assert_eq!(windows(&report, "burst"), [(3, 100)]);
        let core = &report.limits[0];
        assert_eq!((core.limit.as_str(), core.mode.as_str()), ("core", "enforced"));
        assert_eq!(report.limits[1].mode, "shadow");
        assert!(core.windows.iter().all(|window| window.answered_by == answered_by), "{core:?}");
        assert_eq!(core.windows[0].remaining, 0);
        // The header is about the longest window.
        let reset = core.windows[1].reset.as_deref().unwrap();
        assert_eq!(opened - seconds(reset), 1, "rounded up in the header");
        let shared = report.shared.iter().map(|it| (&*it.limit, &*it.per, &*it.name));
        let expected = [("paths", "caller and path", "caller=user:42,path=VALUE")];
        assert_eq!(shared.collect::<Vec<_>>(), expected);
    }

    proxy.advance(MINUTE);
    proxy.reset("user:42");
    let report = proxy.look("user:42").unwrap();
    assert_eq!(windows(&report, "core"), [(0, 3), (0, 10)]);
    assert_eq!(report.limits[0].windows[0].reset, None, "no window is open");
    let passed = proxy.get_as("42");
    passed.assert_status(200);
    assert_eq!(passed.number("x-ratelimit-used"), 1);
    assert_eq!(passed.number("x-ratelimit-reset"), opened + 60, "a window of its own");
    assert_eq!(windows(&proxy.look("user:42").unwrap(), "core"), [(1, 3), (1, 10)]);
}

#[test]
fn denied_caller_passes_after_a_reset_with_counters_in_the_process() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    assert_denied_caller_passes_after_a_reset(&proxy, AnsweredBy::Memory);
}

#[test]
fn denied_caller_passes_after_a_reset_with_counters_in_redis() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &policy(&upstream));
    assert_denied_caller_passes_after_a_reset(&proxy, AnsweredBy::Redis);
    let cluster = Cluster::start();
    let proxy = Proxy::with_redis(&cluster.settings(), &policy(&upstream));
    assert_denied_caller_passes_after_a_reset(&proxy, AnsweredBy::Redis);
}

#[test]
fn looking_at_a_caller_writes_nothing() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let proxy = Proxy::with_redis(&redis.settings(), &policy(&upstream));
    proxy.look("user:42").unwrap();
    assert_eq!(redis.counters(), [""; 0]);
    proxy.get_as("42").assert_status(200);
    let counters = redis.counters();
    let dump = || counters.iter().map(|name| redis.ask(&["GET", name])).collect::<Vec<Vec<u8>>>();
    let before = dump();
    proxy.look("user:42").unwrap();
    assert_eq!(before, dump());
}

#[test]
fn other_callers_and_addresses_keep_their_counts() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    for caller in ["42", "43"] {
        proxy.get_as(caller).assert_status(200);
    }
    proxy.get("/").assert_status(200);
    proxy.reset("user:42");
    assert_eq!(windows(&proxy.look("user:43").unwrap(), "core"), [(1, 3), (1, 10)]);
    assert_eq!(windows(&proxy.look("anonymous:127.0.0.1").unwrap(), "core"), [(1, 2)]);
    assert_eq!(windows(&proxy.look("client.ip:127.0.0.1").unwrap(), "hosts"), [(3, 100)]);
    proxy.reset("client.ip:127.0.0.1");
    assert_eq!(windows(&proxy.look("client.ip:127.0.0.1").unwrap(), "hosts"), [(0, 100)]);
    assert_eq!(windows(&proxy.look("anonymous:127.0.0.1").unwrap(), "core"), [(1, 2)]);
    proxy.reset("anonymous:127.0.0.1");
    assert_eq!(windows(&proxy.look("anonymous:127.0.0.1").unwrap(), "core"), [(0, 2)]);
}

#[test]
fn tier_is_that_of_the_latest_token_and_other_tiers_are_reset_too() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    proxy.get_as("42").assert_status(200);
    let pro = token_with(&json!({ "sub": "42", "plan": "pro" }));
    proxy.send(get("/").token(&pro)).assert_status(200);
    proxy.reset("user:42");
    assert_eq!(proxy.get_as("42").number("x-ratelimit-used"), 1);
    let unseen = proxy.look("user:nobody").unwrap();
    assert_eq!(unseen.tier, None);
    let core = &unseen.limits[0];
    let tiers: Vec<_> = core.windows.iter().map(|window| window.tier.as_deref()).collect();
    assert_eq!(tiers, ["anonymous", "free", "free", "pro"].map(Some));
}

#[test]
fn override_and_its_end_are_told() {
    let upstream = Upstream::start();
    let policy = policy(&upstream).section(
        "overrides:\n  - { caller: \"user:42\", limit: core, rate: 7/hour, until: 2099-12-31, why: a trial }\nexempt: [\"user:root\"]",
    );
    let proxy = Proxy::start(&policy);
    proxy.get_as("42").assert_status(200);
    let report = proxy.look("user:42").unwrap();
    assert_eq!(windows(&report, "core"), [(1, 7)]);
    let own = report.limits[0].r#override.as_ref().unwrap();
    assert_eq!(
        (own.why.as_str(), own.until.as_deref()),
        ("a trial", Some("2100-01-01T00:00:00.000Z"))
    );
    proxy.reset("user:42");
    assert_eq!(windows(&proxy.look("user:42").unwrap(), "core"), [(0, 7)]);
    assert_eq!(proxy.look("user:root").unwrap().listed.as_deref(), Some("exempt"));
}

#[test]
fn name_without_its_issuer_is_refused_where_there_are_several() {
    let upstream = Upstream::start();
    let policy = policy(&upstream).and_issuer("other", "https://other.example.com/");
    let proxy = Proxy::start(&policy);
    proxy.get_as("42").assert_status(200);
    for (name, expected) in [
        (
            "user:42",
            "`user:42` may be a caller of any issuer: write whose, one of main/user:42, other/user:42",
        ),
        (
            "robot:42",
            "`robot` is no entry of `callers`, and no limit counts by it: ask for one of \
             user:VALUE, anonymous:192.0.2.1, caller=user:VALUE,path=VALUE, client.ip:192.0.2.1",
        ),
        (
            "42",
            "`42` does not say what it is: write one of user:42, anonymous:42, \
             caller=user:42,path=42, client.ip:42",
        ),
        (
            "user:",
            "`user:` is not a caller: write an entry of `callers` and a value, such as user:42",
        ),
        (
            "anonymous:nowhere",
            "callers of kind `anonymous` are addresses: write one such as anonymous:192.0.2.1",
        ),
        (
            "client.ip:nowhere",
            "callers of kind `client.ip` are addresses: write one such as client.ip:192.0.2.1",
        ),
    ] {
        let error = proxy.look(name).unwrap_err();
        assert!(matches!(error, CallerError::Name(_) | CallerError::Kind { .. }), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(windows(&proxy.look("main/user:42").unwrap(), "core"), [(1, 3), (1, 10)]);
    assert_eq!(proxy.look("other/user:42").unwrap().issuer.as_deref(), Some("other"));
    proxy.reset("other/user:42");
    assert_eq!(windows(&proxy.look("main/user:42").unwrap(), "core"), [(1, 3), (1, 10)]);
}
