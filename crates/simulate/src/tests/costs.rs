//! Costs that only the response told.

use std::fs;

use tollgate_history::{Format, ReadOptions};

use super::{
    counted,
    honest::{policies, policy},
};
use crate::{PolicySet, Simulation};

const USAGE: &str = "per: caller, rate: 100/hour, cost: { from_response: { usage: auto }";

/// A line of ours, of a request that took two seconds and came at this one. `limits` is what each
/// of them was charged.
fn line(second: u32, status: u16, limits: &str) -> String {
    let denied = if status == 429 { "\"limit\"" } else { "null" };
    format!(
        "{{\"time\":\"2026-11-20T08:00:{second:02}.000Z\",\"request_id\":\"a\",\
         \"client\":\"192.0.2.7\",\"caller\":\"user:1\",\"tier\":null,\"method\":\"POST\",\
         \"host\":\"api.example.com\",\"path\":\"/v1\",\"route\":\"/**\",\"status\":{status},\
         \"exempt\":false,\"decided_by\":\"memory\",\"denied\":{denied},\"denied_by\":null,\
         \"would_deny\":null,\"error\":null,\"limit\":null,\"used\":null,\"of\":null,\
         \"cost\":null,\"limits\":[{limits}],\"user_agent\":null,\"upstream_ms\":1,\
         \"request_bytes\":3000,\"response_bytes\":5000,\"total_ms\":2000}}\n"
    )
}

fn told(limit: &str, cost: u32) -> String {
    format!("{{\"name\":\"{limit}\",\"cost\":{cost},\"reserved\":80,\"cost_source\":\"openai\"}}")
}

/// Requests, and denied ones, of the only limit, which has these fields.
fn judge(log: &str, limit: &str, columns: &[(&str, &str)]) -> ((u64, u64), Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    fs::write(&file, log).unwrap();
    let policies = policies(&policy(&[limit]));
    let owned = |(what, name): &(&str, &str)| ((*what).to_owned(), (*name).to_owned());
    let simulation = Simulation {
        read: ReadOptions {
            files: vec![file],
            format: (!columns.is_empty()).then_some(Format::Json),
            columns: columns.iter().map(owned).collect(),
            ..ReadOptions::default()
        },
        callers: Vec::new(),
        host: None,
        candidate: PolicySet { policies: &policies, settings: None, name: "main.yaml" },
        against: None,
    };
    let report = simulation.run(&mut |_| {}).unwrap();
    (counted(&report, "l0", "free"), report.notes)
}

#[test]
fn a_request_is_charged_its_reserve_and_settled_when_its_response_has_ended() {
    let log: String = [0, 1, 3, 6].map(|second| line(second, 200, &told("l0", 30))).concat();
    // 60; and 60 more is too much; 30 and 60; 60 and 60 is too much.
    let (counts, notes) = judge(&log, &format!("{USAGE}, reserve: 60 }}"), &[]);
    assert_eq!(counts, (4, 2));
    assert!(!notes.iter().any(|note| note.contains("what they have cost")), "{notes:?}");
    // What the body asked for is known from what was reserved: 80, and later 30 and 80.
    let of_body = "reserve: { from_request: [max_tokens], default: 5 } }";
    assert_eq!(judge(&log, &format!("{USAGE}, {of_body}"), &[]).0, (4, 3));
    // The limit had another name then.
    let renamed = log.replace("\"l0\"", "\"tokens\"");
    assert_eq!(judge(&renamed, &format!("{USAGE}, reserve: 60 }}"), &[]).0, (4, 2));
}

#[test]
fn what_the_log_does_not_tell_of_costs_stays_reserved_and_is_said() {
    let told_once = line(0, 200, &told("l0", 30)) + &line(4, 200, "") + &line(8, 429, "");
    // 30, 30 and 40, and no more 40.
    let (counts, notes) = judge(&told_once, &format!("{USAGE}, reserve: 40 }}"), &[]);
    assert_eq!(counts, (3, 1));
    let said = "The log says of 1 of 3 requests (33.3 %) what they have cost limit l0";
    assert!(notes.iter().any(|note| note.starts_with(said)), "{notes:?}");
}

#[test]
fn bytes_and_time_of_the_log_are_costs() {
    let log: String = [0, 3, 6].map(|second| line(second, 200, "")).concat();
    for (source, denied) in [
        // 5 units each: 5, 10, and no more.
        ("response_bytes: { unit: 1KiB }", 1),
        // 3 units each.
        ("request_bytes: { unit: 1KiB }", 0),
        ("upstream_time: { unit: 1s }", 0),
        ("upstream_time: { unit: 250ms }", 1),
    ] {
        let limit =
            format!("per: caller, rate: 10/hour, cost: {{ from_response: {{ {source} }} }}");
        assert_eq!(judge(&log, &limit, &[]).0, (3, denied), "{source}");
    }
    let combined: String = (0..4)
        .map(|second| {
            format!(
                "192.0.2.7 - - [20/Nov/2026:08:00:{second:02} +0000] \"GET / HTTP/1.1\" 200 2048 \
                 \"-\" \"curl\"\n"
            )
        })
        .collect();
    let limit =
        "per: client.ip, rate: 5/hour, cost: { from_response: { response_bytes: { unit: 1KiB } } }";
    let (counts, notes) = judge(&combined, limit, &[]);
    assert_eq!(counts, (4, 1), "2, 4, 6, and no more");
    assert!(notes.iter().any(|note| note.contains("as if they had ended at once")), "{notes:?}");
}

#[test]
fn a_column_has_the_cost_in_logs_of_others() {
    let log: String = (0..4)
        .map(|second| {
            format!(
                "{{\"time\":\"2026-11-20T08:00:{second:02}Z\",\"ip\":\"192.0.2.7\",\"path\":\"/\",\
                 \"status\":200,\"used\":{{\"total\":45}}}}\n"
            )
        })
        .collect();
    let limit =
        "per: client.ip, rate: 100/hour, cost: { from_response: { usage: auto }, reserve: 10 }";
    assert_eq!(judge(&log, limit, &[("cost", "used.total")]).0, (4, 1), "45, 90, 135");
    assert_eq!(judge(&log, limit, &[("target", "path")]).0, (4, 0));
}
