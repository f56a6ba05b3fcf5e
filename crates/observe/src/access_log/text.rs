//! Lines for people.

use std::{fmt::Write as _, io::Write as _};

use tollgate_limit::Standing;

use super::{
    Millis,
    entry::{DenialCause, Entry, LimitStanding},
    escape::{Word, push_json, push_word},
};
use crate::metrics::Totals;

/// Room for most lines.
const LINE_BYTES: usize = 384;

/// `2026-11-21T08:41:00.123Z 4f… 127.0.0.1 user:42 free GET /repos/o/r route=/** 200 core=1/5000
/// upstream=1.204ms out=12 total=1.377ms`, with `-` for what is not known of the first ones.
pub(super) fn write_text(entry: &Entry<'_>) -> Vec<u8> {
    let mut line = Vec::with_capacity(LINE_BYTES);
    // Writing to memory does not fail.
    let _ = write!(line, "{} ", entry.time);
    push_word(&mut line, entry.request_id);
    let _ = write!(line, " {} ", entry.client);
    match entry.caller {
        Some(caller) => {
            let _ = write!(Word(&mut line), "{caller}");
        }
        None => line.push(b'-'),
    }
    for word in [entry.tier.unwrap_or("-"), entry.method, entry.path] {
        line.push(b' ');
        push_word(&mut line, word);
    }
    line.extend_from_slice(b" route=");
    push_word(&mut line, entry.route.unwrap_or("-"));
    let _ = write!(line, " {}", entry.status);
    if let Some(LimitStanding { name, standing, .. }) = entry.limit {
        let Standing { limit, used, .. } = standing;
        let _ = write!(line, " {name}={used}/{limit}");
    }
    if let Some(key) = entry.key {
        line.extend_from_slice(b" key=");
        push_word(&mut line, key);
    }
    if let Some(asker) = entry.asked_by {
        let _ = write!(line, " asked_by={asker}");
    }
    if let Some(decider) = entry.decided_by {
        let _ = write!(line, " decided_by={decider}");
    }
    if entry.is_exempt {
        line.extend_from_slice(b" exempt");
    }
    if let Some(DenialCause { reason, by }) = entry.denied {
        let _ = write!(line, " denied={reason}");
        if let Some(by) = by {
            line.extend_from_slice(b" denied_by=");
            push_word(&mut line, by);
        }
    }
    if let Some(limits) = entry.would_deny {
        line.extend_from_slice(b" would_deny=");
        push_json(&mut line, &limits);
    }
    if let Some(upstream) = entry.upstream {
        let _ = write!(line, " upstream={}ms", Millis(upstream));
    }
    if let Some(trace) = entry.trace_id {
        let _ = write!(line, " trace_id={trace}");
    }
    if let Some(facts) = entry.facts {
        line.extend_from_slice(b" facts=");
        facts.write(&mut line);
    }
    if let Some(error) = entry.error {
        line.extend_from_slice(b" error=");
        push_json(&mut line, error);
    }
    line
}

/// Ends a line: the bytes of both bodies, where there are any, and how long it took.
pub(super) fn end(line: &mut Vec<u8>, totals: Totals, is_complete: bool) {
    let Totals { received, sent, time } = totals;
    for (name, bytes) in [("in", received), ("out", sent)] {
        if bytes > 0 {
            let _ = write!(line, " {name}={bytes}");
        }
    }
    let _ = write!(line, " total={}ms", Millis(time));
    line.extend_from_slice(if is_complete { b"\n" } else { b" aborted\n" });
}
