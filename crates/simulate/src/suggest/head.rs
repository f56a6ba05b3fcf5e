//! The comment at the top of a suggested policy: where its numbers come from, and what to know of
//! them.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{doubts::warnings, words::one_line};
use crate::{Read, Report, run::Names};

/// The longest line of a comment.
const MOST_COLUMNS: usize = 96;

/// The most reasons that are written for requests that no limit counts.
const MOST_REASONS: usize = 3;

/// What the measuring policy has measured.
pub(super) struct Measured {
    pub(super) report: Report,
    /// The names of callers who used far more than all others.
    pub(super) names: Names,
}

/// Writes the comment.
pub(super) fn write_head(
    text: &mut String,
    Measured { report, names }: &Measured,
) -> std::fmt::Result {
    let Read { requests, first, last, bad, late, .. } = &report.read;
    if *late > 0 {
        let warning = format!(
            "WARNING: {late} of the requests are out of order by more than 10 s, and were counted at \
             a later time than their own: sort the log by time, and suggest again."
        );
        write_note(text, &warning)?;
    }
    for warning in warnings(report, names) {
        write_note(text, &warning)?;
    }
    let day = |time: &Option<String>| time.clone().unwrap_or_else(|| "-".to_owned());
    writeln!(text, "# A policy to begin with, from {requests} requests of {}", day(first))?;
    let bad =
        if *bad == 0 { String::new() } else { format!(" Lines that could not be read: {bad}.") };
    writeln!(text, "# to {}.{bad}", day(last))?;
    writeln!(
        text,
        "# Each limit is the least that 99.9 % of the callers stay below, rounded up. All of"
    )?;
    writeln!(
        text,
        "# them only count (mode: shadow): nothing is denied until you remove that line. Callers who"
    )?;
    writeln!(
        text,
        "# used far more than all others, or whose credentials did not pass at a login, are left"
    )?;
    writeln!(
        text,
        "# out: an attack makes no limit. With fewer than 1,000 callers, the number is the most that"
    )?;
    writeln!(text, "# one of the others has used.")?;
    if let Some(note) = not_judged(&report.outcome.refused) {
        write_note(text, &note)?;
    }
    for note in &report.notes {
        write_note(text, note)?;
    }
    writeln!(text)
}

/// What to know of requests that no limit counts, with the most frequent reasons.
fn not_judged(refused: &BTreeMap<String, u64>) -> Option<String> {
    let all: u64 = refused.values().sum();
    let mut reasons: Vec<(&String, &u64)> = refused.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown =
        reasons.iter().take(MOST_REASONS).map(|(reason, count)| format!("{reason} ({count})"));
    let shown = shown.collect::<Vec<String>>().join(", ");
    let more = if reasons.len() > MOST_REASONS { ", and other reasons" } else { "" };
    let note = format!(
        "{all} of the requests are in no number here, because they would be refused before limits \
         count them: {shown}{more}."
    );
    (all > 0).then_some(note)
}

/// A comment of several lines, none of them longer than people like to read.
fn write_note(text: &mut String, note: &str) -> std::fmt::Result {
    let mut line = String::from("# -");
    for word in one_line(note).split_whitespace() {
        if line.len() + word.len() >= MOST_COLUMNS {
            writeln!(text, "{line}")?;
            line = String::from("#  ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(text, "{line}")
}
