//! Lines for machines.

use std::io::Write as _;

use tollgate_keyword::Keyword;
use tollgate_limit::Standing;

use super::{
    AwaitedPlace, Line, Millis,
    entry::{Entry, LimitStanding},
    escape::{push_json, push_json_header, push_json_text},
};
use crate::metrics::Totals;

/// Room for most lines.
const LINE_BYTES: usize = 1024;

/// Of a longer `User-Agent`, the rest is cut off: clients can send kilobytes.
const MAX_USER_AGENT_BYTES: usize = 256;

/// All fields but the last, and no closing brace. Whatever is not known is null.
pub(super) fn write_json(entry: &Entry<'_>) -> Line {
    let mut line = Vec::with_capacity(LINE_BYTES);
    let mut awaited = Vec::new();
    // Writing to memory does not fail.
    let _ = write!(line, "{{\"time\":\"{}\"", entry.time);
    push_text(&mut line, "request_id", Some(entry.request_id));
    if let Some(trace) = entry.trace_id {
        let _ = write!(line, ",\"trace_id\":\"{trace}\"");
    }
    let _ = write!(line, ",\"client\":\"{}\"", entry.client);
    push_name(&mut line, "caller");
    match entry.caller {
        Some(caller) => push_json(&mut line, caller),
        None => line.extend_from_slice(NULL),
    }
    push_text(&mut line, "tier", entry.tier);
    push_text(&mut line, "method", Some(entry.method));
    push_text(&mut line, "host", entry.host);
    push_text(&mut line, "path", Some(entry.path));
    push_text(&mut line, "route", entry.route);
    let _ = write!(line, ",\"status\":{},\"exempt\":{}", entry.status, entry.is_exempt);
    if let Some(asker) = entry.asked_by {
        push_text(&mut line, "asked_by", Some(asker));
    }
    push_text(&mut line, "decided_by", entry.decided_by);
    push_text(&mut line, "denied", entry.denied.map(|denied| denied.reason));
    push_text(&mut line, "denied_by", entry.denied.and_then(|denied| denied.by));
    push_text(&mut line, "would_deny", entry.would_deny);
    push_name(&mut line, "error");
    match entry.error {
        Some(error) => push_json(&mut line, error),
        None => line.extend_from_slice(NULL),
    }
    push_limit(&mut line, &mut awaited, entry.limit.as_ref());
    if let Some(key) = entry.key {
        push_text(&mut line, "key", Some(key));
    }
    push_limits(&mut line, &mut awaited, entry.limits);
    push_name(&mut line, "user_agent");
    match entry.user_agent {
        Some(value) => push_json_header(&mut line, value, MAX_USER_AGENT_BYTES),
        None => line.extend_from_slice(NULL),
    }
    if let Some(facts) = entry.facts {
        push_name(&mut line, "facts");
        facts.write(&mut line);
    }
    let _ = match entry.upstream {
        Some(upstream) => write!(line, ",\"upstream_ms\":{}", Millis(upstream)),
        None => write!(line, ",\"upstream_ms\":null"),
    };
    Line { bytes: line, awaited }
}

/// Ends a line: the bytes of both bodies, and how long it took.
pub(super) fn end(line: &mut Vec<u8>, totals: Totals, is_complete: bool) {
    let Totals { received, sent, time } = totals;
    let total = Millis(time);
    let _ = write!(
        line,
        ",\"request_bytes\":{received},\"response_bytes\":{sent},\"total_ms\":{total}"
    );
    line.extend_from_slice(if is_complete { b"}\n" } else { b",\"aborted\":true}\n" });
}

/// What is written for what is not known.
const NULL: &[u8] = b"null";

fn push_name(line: &mut Vec<u8>, name: &str) {
    line.extend_from_slice(b",\"");
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b"\":");
}

fn push_text(line: &mut Vec<u8>, name: &str, text: Option<&str>) {
    push_name(line, name);
    match text {
        Some(text) => push_json_text(line, text),
        None => line.extend_from_slice(NULL),
    }
}

/// The one limit that clients see in headers, where a reader need not look into a list.
fn push_limit(
    line: &mut Vec<u8>,
    awaited: &mut Vec<AwaitedPlace>,
    limit: Option<&LimitStanding<'_>>,
) {
    let Some(own) = limit else {
        line.extend_from_slice(b",\"limit\":null,\"used\":null,\"of\":null,\"cost\":null");
        return;
    };
    let LimitStanding { name, standing: Standing { limit, used, .. }, .. } = own;
    // The name of a limit needs no escapes.
    let _ = write!(line, ",\"limit\":\"{name}\",\"used\":{used},\"of\":{limit}");
    push_cost(line, awaited, own);
}

/// The cost, and where it stands if it may still change.
fn push_cost(line: &mut Vec<u8>, awaited: &mut Vec<AwaitedPlace>, own: &LimitStanding<'_>) {
    push_name(line, "cost");
    let start = line.len();
    let _ = write!(line, "{}", own.cost);
    let digits = start..line.len();
    awaited.extend(own.awaited.map(|position| AwaitedPlace { position, digits }));
}

fn push_limits(line: &mut Vec<u8>, awaited: &mut Vec<AwaitedPlace>, limits: &[LimitStanding<'_>]) {
    line.extend_from_slice(b",\"limits\":[");
    for (at, own) in limits.iter().enumerate() {
        let LimitStanding { name, window_seconds, standing, decided_by, key, .. } = own;
        let Standing { limit, used, remaining, .. } = standing;
        let mode = own.mode.keyword();
        let decision = own.decision.keyword();
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(line, "{comma}{{\"name\":\"{name}\",\"mode\":\"{mode}\"");
        push_number(line, "window_seconds", *window_seconds);
        let _ = write!(line, ",\"limit\":{limit},\"used\":{used},\"remaining\":{remaining}");
        let reset = window_seconds.map(|_| standing.reported_reset().ceil_secs());
        push_number(line, "reset", reset);
        push_cost(line, awaited, own);
        let _ = write!(line, ",\"decision\":\"{decision}\",\"decided_by\":\"{decided_by}\"");
        if let Some(key) = key {
            push_text(line, "key", Some(key));
        }
        line.push(b'}');
    }
    line.push(b']');
}

fn push_number(line: &mut Vec<u8>, name: &str, number: Option<u64>) {
    push_name(line, name);
    let _ = match number {
        Some(number) => write!(line, "{number}"),
        None => line.write_all(NULL),
    };
}
