//! Logs of tollgate, judged again.

mod costs;
mod forms;
mod honest;

use std::{fmt::Write as _, fs, path::Path};

use tollgate_history::ReadOptions;
use tollgate_policy::{Policies, load};
use tollgate_yaml::Sources;

use super::{CallerField, PolicySet, Report, Simulation, SimulationError, suggest};

const POLICY: &str = r#"
version: 1
upstreams: { api: { servers: [http://127.0.0.1:9] } }
identity:
  jwt: [{ name: main, issuer: https://id.example.com/, jwks_url: https://id.example.com/jwks }]
  callers:
    - { name: user, key: jwt.sub, tier: jwt.plan }
    - { name: anonymous, key: client.ip, tier: anonymous }
tiers: { default: free, names: [anonymous, free, pro] }
limits:
  core: { per: caller, rate: { anonymous: 2/hour, free: 4/hour, pro: unlimited } }
  org: { per: jwt.org, rate: 5/hour, mode: shadow }
  tenant: { per: header.x-tenant, rate: 6/hour }
  units: { per: caller, rate: 20/hour, cost: { from_response_header: x-cost, reserve: 1 } }
  inflight: { per: caller, concurrent: 1 }
routes:
  - { match: { path: /slow }, auth: optional, limits: [inflight] }
  - { match: { path: /costly }, auth: optional, limits: [units] }
  - { match: { path: /tenant }, auth: optional, limits: [tenant] }
  - { match: { path: /org }, auth: optional, limits: [org] }
  - { match: { path: /private }, auth: required, limits: [core] }
  - { match: { path: "/**" }, auth: optional, limits: [core] }
"#;

/// A line of a log: second, path, caller, tier, facts, and how long it took.
fn line(second: u32, path: &str, caller: Option<&str>, facts: &str, took: u32) -> String {
    let caller = caller.map_or("null".to_owned(), |caller| format!("\"{caller}\""));
    let (minute, second) = (second / 60, second % 60);
    format!(
        "{{\"time\":\"2026-11-20T08:{minute:02}:{second:02}.000Z\",\"request_id\":\"a\",\
         \"client\":\"192.0.2.7\",\"exempt\":false,\"decided_by\":\"memory\",\"limits\":[],\
         \"caller\":{caller},\"tier\":null,\"method\":\"GET\",\"host\":\"api.example.com\",\
         \"path\":\"{path}\",\"status\":200,\"denied\":null,\"facts\":{facts},\"total_ms\":{took}}}\n"
    )
}

fn simulate(log: &str, callers: &[CallerField]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, log).unwrap();
    let policy = load(Path::new("main.yaml"), POLICY, &Sources::system()).unwrap();
    let policies = Policies::new(vec![policy]);
    let simulation = Simulation {
        read: ReadOptions {
            files: vec![file],
            wanted: callers.iter().map(|caller| caller.field.clone()).collect(),
            ..ReadOptions::default()
        },
        callers: callers.to_vec(),
        host: None,
        candidate: PolicySet { policies: &policies, settings: None, name: "main.yaml" },
        against: None,
    };
    simulation.run(&mut |_| {}).unwrap()
}

/// Requests, and denied ones, of a limit for a tier.
fn counted(report: &Report, limit: &str, tier: &str) -> (u64, u64) {
    let found = report.limits.iter().find(|it| it.limit == limit && it.tier == tier);
    found.map_or((0, 0), |found| (found.requests, found.denied))
}

#[test]
fn callers_tiers_and_claims_are_those_of_the_log() {
    let mut log = String::new();
    for second in 0..6 {
        log += &line(second, "/a", Some("user:1"), r#"{"tier":"free"}"#, 1);
        log += &line(second, "/a", Some("user:2"), r#"{"jwt.plan":"pro"}"#, 1);
        log += &line(second, "/a", Some("anonymous:192.0.2.7"), "{}", 1);
        log += &line(second, "/org", Some(&format!("user:{second}")), r#"{"jwt.org":"acme"}"#, 1);
        log += &line(second, "/tenant", None, r#"{"header.x-tenant":{"hash":"00ff"}}"#, 1);
        log += &line(second, "/tenant", None, r#"{"header.x-tenant":"other"}"#, 1);
    }
    let report = simulate(&log, &[]);
    assert_eq!(counted(&report, "core", "free"), (6, 2));
    assert_eq!(counted(&report, "core", "pro"), (0, 0), "unlimited");
    assert_eq!(counted(&report, "core", "anonymous"), (6, 4));
    assert_eq!(counted(&report, "org", "free"), (6, 1));
    assert_eq!(counted(&report, "tenant", "anonymous"), (12, 0), "two of them, 6 each");
    assert_eq!((report.outcome.denied, report.outcome.would_deny), (6, 1));
    let worst = &report.worst[0];
    assert_eq!((worst.caller.as_str(), worst.denied), ("anonymous:192.0.2.7", 4));
    let explained = "tollgate explain --policy main.yaml --address 192.0.2.7 GET \
                     http://api.example.com/a";
    assert_eq!(worst.explain, explained);
    assert!(report.worst[1].explain.contains(r#"--claims '{"plan":"free","sub":"1"}'"#));
}

#[test]
fn callers_of_a_log_of_several_issuers_are_those_of_a_policy_of_one() {
    let names = ["user:1", "main/user:1", "https://old.example.com//user:1", "old/acme/user:1"];
    let log: String = (0..6)
        .map(|second| {
            let name = names[second as usize % names.len()];
            line(second, "/private", Some(name), r#"{"tier":"free"}"#, 1)
        })
        .collect();
    let report = simulate(&log, &[]);
    assert_eq!(counted(&report, "core", "free"), (6, 2));
    assert_eq!(report.worst[0].caller, "user:1");
}

#[test]
fn every_caller_is_counted_once() {
    // A weak hash once took these for one.
    let callers = ["user:1830", "user:100040", "user:1831", "user:100140"];
    let log: String = callers.iter().map(|name| line(0, "/a", Some(name), "{}", 1)).collect();
    let report = simulate(&log, &[]);
    assert_eq!((report.outcome.callers, report.limits[0].callers), (4, 4));
}

#[test]
fn costs_of_responses_and_time_in_flight_are_those_of_the_log() {
    let mut log = String::new();
    for second in 0..5 {
        log += &line(second, "/costly", Some("user:1"), r#"{"cost.x-cost":7}"#, 1);
    }
    // Each takes 2 seconds: the second one comes while the first is under way, and so on.
    for second in [0, 1, 3, 4, 6] {
        log += &line(second, "/slow", Some("user:1"), "{}", 2000);
    }
    let report = simulate(&log, &[]);
    assert_eq!(counted(&report, "units", "free"), (5, 2), "7, 14, and 21 are used");
    assert_eq!(counted(&report, "inflight", "free"), (5, 2));
}

#[test]
fn what_the_log_lacks_is_said_and_not_judged() {
    let mut log = String::new();
    for second in 0..10 {
        let _ = writeln!(
            log,
            "192.0.2.7 - {} [20/Nov/2026:08:00:{second:02} +0000] \"GET /private HTTP/1.1\" 200 5 \
             \"-\" \"curl\"",
            if second < 6 { "ada" } else { "-" }
        );
    }
    let report = simulate(&log, &[]);
    assert_eq!(report.outcome.refused.values().sum::<u64>(), 10, "{:?}", report.outcome.refused);
    assert!(report.notes.iter().any(|note| note.contains("--caller user=FIELD")));
    let callers = [CallerField { kind: "user".into(), field: "remote_user".into() }];
    let report = simulate(&log, &callers);
    assert_eq!(counted(&report, "core", "free"), (6, 2));
    assert_eq!(report.limits[0].not_judged, 4);
    assert!(report.notes.iter().any(|note| note.contains("4 (40.0 %)")), "{:?}", report.notes);
}

#[test]
fn suggested_policy_can_be_read_and_denies_next_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let mut log = String::new();
    for second in 0..3000 {
        let user = format!("user:{}", second % 7);
        log +=
            &line(second, &format!("/repos/{second}/issues"), Some(&user), r#"{"tier":"pro"}"#, 1);
        log += &line(second, "/search", None, "{}", 1);
    }
    fs::write(&file, log).unwrap();
    let read = ReadOptions { files: vec![file], ..ReadOptions::default() };
    let text = suggest(&read, &[], None, &mut |_| {}).unwrap();
    let policy = load(Path::new("suggested.yaml"), &text, &Sources::system());
    let policy = policy.unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
    let routes: Vec<&str> = policy.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(routes, ["/search", "/repos/{a}/issues", "/**"]);
    let policies = Policies::new(vec![policy]);
    let candidate = PolicySet { policies: &policies, settings: None, name: "suggested.yaml" };
    let simulation = Simulation { read, callers: Vec::new(), host: None, candidate, against: None };
    let report = simulation.run(&mut |_| {}).unwrap();
    assert_eq!((report.outcome.requests, report.outcome.would_deny), (6000, 0));
    assert!(report.limits.iter().all(|limit| limit.mode == "shadow"), "{text}");
}

#[test]
fn requests_that_ask_how_limits_stand_count_in_none() {
    let facts = r#"{"tier":"free"}"#;
    let mut log = line(0, "/a", Some("user:1"), facts, 1);
    for second in 1..9 {
        log += &line(second, "/rate_limit", Some("user:1"), facts, 1);
    }
    let report = simulate(&log, &[]);
    assert_eq!(report.outcome.requests, 9);
    assert_eq!(counted(&report, "core", "free"), (1, 0));
    assert_eq!(counted(&report, "inflight", "free"), (0, 0));
}
