//! The comment at the top of a suggested policy: where its numbers come from, and what to know of
//! them.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
};

use super::words::one_line;
use crate::simulate::{Read, Report};

/// The longest line of a comment.
const MOST_COLUMNS: usize = 96;

/// The most notes about files that are written: of many files, each may have its own.
const MOST_OF_FILES: usize = 3;

/// The most reasons that are written for requests that no limit counts.
const MOST_REASONS: usize = 3;

/// Writes the comment.
pub(super) fn write_head(text: &mut String, report: &Report) -> std::fmt::Result {
    let Read { requests, first, last, bad, .. } = &report.read;
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
        "# them only count (mode: shadow): nothing is denied until you remove that line. With fewer"
    )?;
    writeln!(
        text,
        "# than 1,000 callers it is the most that one of them has used: look who that is."
    )?;
    if let Some(note) = not_judged(&report.outcome.refused) {
        write_note(text, &note)?;
    }
    let files: Vec<&str> = report.read.files.iter().map(|file| file.file.as_str()).collect();
    for note in gathered(&report.notes, &files) {
        write_note(text, &note)?;
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

/// The notes, of which those that say the same of several files are one. Of notes about files only
/// a few are left.
fn gathered(notes: &[String], files: &[&str]) -> Vec<String> {
    let known: HashSet<&str> = files.iter().copied().collect();
    let mut of_all: Vec<String> = Vec::new();
    let mut of_files: Vec<(&str, &str, usize)> = Vec::new();
    for note in notes {
        // A file's name may have a colon, too.
        let mut ends = note.match_indices(": ").map(|(end, _)| end);
        let split = ends.find_map(|end| {
            let file = note.get(..end).filter(|file| known.contains(file))?;
            Some((file, note.get(end + 2..)?))
        });
        let Some((file, said)) = split else {
            of_all.push(note.clone());
            continue;
        };
        match of_files.iter_mut().find(|(_, other, _)| *other == said) {
            Some((_, _, others)) => *others += 1,
            None => of_files.push((file, said, 0)),
        }
    }
    let more = of_files.len().saturating_sub(MOST_OF_FILES);
    of_all.extend(of_files.into_iter().take(MOST_OF_FILES).map(
        |(file, said, others)| match others {
            0 => format!("{file}: {said}"),
            1 => format!("{file} and another file: {said}"),
            others => format!("{file} and {others} other files: {said}"),
        },
    ));
    if more > 0 {
        of_all.push(format!("`tollgate simulate` has {more} more notes about single files."));
    }
    of_all
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_many_files_have_are_one() {
        let files: Vec<String> = (0..60).map(|number| format!("a: {number}.log")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let mut notes: Vec<String> =
            files.iter().map(|file| format!("{file}: no times.")).collect();
        notes.push("All of it: one second.".to_owned());
        let expected = ["All of it: one second.", "a: 0.log and 59 other files: no times."];
        assert_eq!(gathered(&notes, &files), expected);
        let different: Vec<String> = files.iter().map(|file| format!("{file}: {file}.")).collect();
        let found = gathered(&different, &files);
        assert_eq!(found.len(), 4);
        assert_eq!(found[3], "`tollgate simulate` has 57 more notes about single files.");
        assert_eq!(gathered(&different[..1], &files), ["a: 0.log: a: 0.log."]);
    }
}
