//! What a report says of its own numbers: of what they are, and of what they lack.

use std::fs;

use tollgate_history::ReadOptions;
use tollgate_policy::{Policies, load};
use tollgate_yaml::Sources;

use super::line;
use crate::{Curve, PolicySet, Report, Simulation};

/// A policy with these limits, as YAML of one line each, for every path.
pub(super) fn policy(limits: &[&str]) -> String {
    let named: Vec<String> = (0..limits.len()).map(|at| format!("l{at}")).collect();
    let lines = named.iter().zip(limits).map(|(name, limit)| format!("  {name}: {{ {limit} }}\n"));
    format!(
        r#"
version: 1
upstreams: {{ api: {{ servers: [http://127.0.0.1:9] }} }}
identity:
  jwt: [{{ name: main, issuer: https://id.example.com/, jwks_url: https://id.example.com/jwks }}]
  callers:
    - {{ name: user, key: jwt.sub, tier: jwt.plan }}
    - {{ name: anonymous, key: client.ip }}
tiers: {{ default: free, names: [free, pro] }}
limits:
{}routes:
  - {{ match: {{ path: "/**" }}, auth: optional, limits: [{}] }}
"#,
        lines.collect::<String>(),
        named.join(", ")
    )
}

pub(super) fn policies(text: &str) -> Policies {
    let policy = load("main.yaml".as_ref(), text, &Sources::system());
    Policies::new(vec![policy.unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))])
}

fn compare(log: &str, own: &str, against: Option<&str>) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, log).unwrap();
    let candidate = policies(own);
    let others = against.map(policies);
    let set = |policies| PolicySet { policies, settings: None, name: "main.yaml" };
    let simulation = Simulation {
        read: ReadOptions { files: vec![file], ..ReadOptions::default() },
        callers: Vec::new(),
        host: None,
        candidate: set(&candidate),
        against: others.as_ref().map(set),
    };
    simulation.run(&mut |_| {}).unwrap()
}

fn simulate(log: &str, limits: &[&str]) -> Report {
    compare(log, &policy(limits), None)
}

/// Callers and requests that a curve denies at a limit.
fn denied(curve: &Curve, allows: u32) -> (u64, u64) {
    let point = curve.points.iter().find(|point| point.allows == allows).unwrap();
    (point.callers_denied, point.requests_denied)
}

/// 12 requests in each of three minutes.
fn three_minutes() -> String {
    let seconds = (0..36).map(|number| number / 12 * 60 + number % 12);
    seconds.map(|second| line(second, "/a", Some("user:1"), "{}", 1)).collect()
}

#[test]
fn curves_of_all_algorithms_count_in_the_window_that_they_name() {
    let report = simulate(
        &three_minutes(),
        &[
            "per: caller, rate: 10/minute, mode: shadow",
            "per: caller, rate: 10/minute, algorithm: sliding_window, mode: shadow",
            "per: caller, rate: 10/minute, algorithm: sliding_log, mode: shadow",
            "per: caller, rate: 10/minute, algorithm: token_bucket, mode: shadow",
            "per: caller, rate: 10/minute, algorithm: gcra, mode: shadow",
        ],
    );
    assert_eq!(report.curves.len(), 5);
    for curve in &report.curves {
        assert_eq!((curve.window_seconds, curve.suggested), (60, 12), "{}", curve.limit);
        assert_eq!(denied(curve, 10), (1, 6), "{}", curve.limit);
        assert_eq!(curve.is_exact, curve.limit == "l0", "{}", curve.limit);
    }
}

#[test]
fn a_burst_is_counted_in_the_time_in_which_it_comes_back() {
    let limit = "per: caller, rate: 60/hour, algorithm: gcra, burst: 10, mode: shadow";
    let report = simulate(&three_minutes(), &[limit]);
    let curve = &report.curves[0];
    assert_eq!((curve.window_seconds, curve.present), (600, 10));
    assert_eq!(denied(curve, 10), (1, 26), "all 36 in one window of ten minutes");
}

#[test]
fn a_counter_that_tiers_share_is_not_exact() {
    let log: String = (0..20)
        .map(|second| {
            let plan = ["free", "pro"][second as usize % 2];
            let facts = format!(r#"{{"jwt.plan":"{plan}"}}"#);
            line(second, "/a", Some(&format!("user:{}", second % 2)), &facts, 1)
        })
        .collect();
    let report = simulate(&log, &["per: client.ip, rate: 10/hour", "per: caller, rate: 100/hour"]);
    assert_eq!(report.outcome.denied, 10);
    assert_eq!(report.curves.len(), 4);
    for curve in &report.curves {
        let is_shared = curve.limit == "l0";
        assert_eq!((curve.shares_counters, curve.is_exact), (is_shared, !is_shared), "{curve:?}");
    }
}

#[test]
fn limits_that_could_not_be_judged_have_a_row() {
    let mut log = String::new();
    for second in 0..4 {
        log += &line(second, "/a", None, r#"{"header.x-tenant":"acme"}"#, 1);
        log += &line(second, "/a", None, "null", 1);
    }
    let limits = ["per: header.x-tenant, rate: 2/hour", "per: jwt.org, rate: 2/hour"];
    let report = simulate(&log, &limits);
    let rows: Vec<_> = report
        .limits
        .iter()
        .map(|limit| (limit.limit.as_str(), limit.requests, limit.denied, limit.not_judged))
        .collect();
    assert_eq!(rows, [("l0", 4, 2, 4), ("l1", 0, 0, 8)]);
    assert!(report.worst[0].explain.contains("-H 'x-tenant: acme'"), "{:?}", report.worst);
    // Of a tier that has no row, too.
    let log: String = (0..4)
        .map(|second| {
            let facts = match second % 2 {
                0 => r#"{"header.x-tenant":"acme","jwt.plan":"free"}"#,
                _ => r#"{"jwt.plan":"pro"}"#,
            };
            line(second, "/a", Some(&format!("user:{second}")), facts, 1)
        })
        .collect();
    let report = simulate(&log, &limits[..1]);
    let rows: Vec<_> = report
        .limits
        .iter()
        .map(|limit| (limit.tier.as_str(), limit.requests, limit.not_judged))
        .collect();
    assert_eq!(rows, [("free", 2, 0), ("pro", 0, 2)]);
}

#[test]
fn counters_that_are_over_are_not_in_use() {
    let log: String = (0..3000)
        .map(|second| line(second, "/a", Some(&format!("user:{second}")), "{}", 1))
        .collect();
    let report = simulate(&log, &["per: caller, rate: 10/minute"]);
    // One a second, each for a minute; what comes and goes between two sweeps may be missing.
    assert_eq!(report.store.peak_keys, 60);
    // A peak that ended long before the log did is known still.
    let more = (0..9000)
        .map(|number| line(number / 4, "/a", Some(&format!("user:{}", number.min(2000))), "{}", 1));
    let report = simulate(&more.collect::<String>(), &["per: caller, rate: 10/minute"]);
    assert!((220..=240).contains(&report.store.peak_keys), "{}", report.store.peak_keys);
}

#[test]
fn candidates_are_not_compared() {
    let log = three_minutes();
    let own = ["per: caller, rate: 10/minute, candidate: { rate: 1/minute }"];
    let other = ["per: caller, rate: 10/minute"];
    for (one, two) in [(own, other), (other, own)] {
        let report = compare(&log, &policy(&one), Some(&policy(&two)));
        let against = report.against.unwrap();
        assert_eq!((against.callers_better, against.callers_worse), (0, 0));
        assert_eq!((against.denied, against.denied_by_these), (6, 6));
    }
}

#[test]
fn an_override_is_no_row_of_a_tier() {
    let mut own = policy(&["per: caller, rate: 10/minute"]);
    own += "overrides: [{ limit: l0, caller: \"user:1\", rate: 11/minute, why: a contract }]\n";
    let report = compare(&three_minutes(), &own, None);
    let row = &report.limits[0];
    assert_eq!((row.tier.as_str(), row.allows, row.denied), ("override", 11, 3));
}

#[test]
fn denials_in_the_log_are_told_by_what_it_says() {
    let log = line(0, "/a", None, "{}", 1)
        .replace("200", "403")
        .replace(r#""denied":null"#, r#""denied":"limit""#);
    let report = simulate(&log, &["per: caller, rate: 10/minute"]);
    assert_eq!(report.outcome.denied_in_log, 1);
}
