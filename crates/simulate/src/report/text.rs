//! The answers for a terminal: what was read, what to know of it, the outcome, and then the
//! reasons.

mod table;

use std::io::{self, Write};

use self::table::wrapped;
use super::{
    choice::{self, Choice},
    safe, sentences, tables, times,
    words::{self, number},
};
use crate::{Against, Read, Report, Timeline, WorstCaller};

/// Characters of a sparkline, from the lowest.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Characters of a sparkline, so that it has room beside its indent.
const SPARKLINE: usize = 80;

/// Writes all answers in lines of at most 100 columns, but for commands to paste.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    write_read(&report.read, output)?;
    write_notes(report, output)?;
    title(output, "Outcome")?;
    wrapped(output, "  ", &sentences::verdict(&report.outcome))?;
    for sentence in sentences::besides(&report.outcome) {
        wrapped(output, "  ", &safe::printable(&sentence))?;
    }
    title(output, "Limits")?;
    if report.limits.is_empty() {
        writeln!(output, "  {}", sentences::NO_LIMITS)?;
    } else {
        table::write(output, &tables::limits(&report.limits))?;
        wrapped(output, "  ", sentences::LOCKOUT)?;
    }
    write_worst(&report.worst, output)?;
    write_curves(report, output)?;
    write_timeline(&report.timeline, output)?;
    if let Some(against) = &report.against {
        write_against(against, report, output)?;
    }
    title(output, "Store")?;
    wrapped(output, "  ", &sentences::need(&report.store))
}

fn title(output: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(output, "\n{text}")
}

fn write_read(read: &Read, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "Read")?;
    wrapped(output, "  ", &sentences::read(read))?;
    if let Some(took) = sentences::took(read) {
        wrapped(output, "  ", &took)?;
    }
    if !read.files.is_empty() {
        table::write(output, &tables::files(&read.files))?;
    }
    for bad in &read.bad_lines {
        let place = format!("{}:{}", safe::name(&bad.file), bad.line);
        wrapped(output, "  ", &format!("{place}: {}", safe::at_most(&bad.reason, 300)))?;
        writeln!(output, "    {}", safe::at_most(&bad.text, table::WIDTH - 4))?;
    }
    Ok(())
}

fn write_notes(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    let notes = sentences::notes(report);
    if !notes.is_empty() {
        title(output, "To know before you read on")?;
    }
    notes.iter().try_for_each(|note| wrapped(output, "  - ", &safe::printable(note)))
}

fn write_worst(worst: &[WorstCaller], output: &mut dyn Write) -> io::Result<()> {
    if worst.is_empty() {
        return Ok(());
    }
    title(output, "Callers denied most")?;
    table::write(output, &tables::worst(worst))?;
    writeln!(output, "\n  {}", sentences::EXPLAINED)?;
    worst.iter().try_for_each(|own| writeln!(output, "  {}", safe::printable(&own.explain)))
}

fn write_curves(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    title(output, "Which limit to choose")?;
    let choices = choice::choices(report);
    if choices.is_empty() {
        return wrapped(output, "  ", sentences::NO_CURVES);
    }
    wrapped(output, "  ", sentences::SUGGESTION)?;
    choices.iter().try_for_each(|choice| write_curve(choice, output))
}

fn write_curve(choice: &Choice<'_>, output: &mut dyn Write) -> io::Result<()> {
    let mode = choice.mode.map(|mode| format!(" ({})", safe::name(mode))).unwrap_or_default();
    let title = safe::at_most(&choice.title(), table::WIDTH - 20);
    writeln!(output, "\n  {title}{mode}")?;
    if let Some(sentence) = sentences::inexact(choice) {
        wrapped(output, "  ", sentence)?;
    }
    table::write(output, &tables::curve(choice, &choice::FEW))
}

fn write_timeline(timeline: &Timeline, output: &mut dyn Write) -> io::Result<()> {
    if timeline.buckets.is_empty() {
        return Ok(());
    }
    title(output, "Over time")?;
    let merged = times::merged(timeline, SPARKLINE);
    let each = words::window(merged.bucket_seconds);
    for (name, values) in [
        ("requests", merged.buckets.iter().map(|own| own.requests).collect::<Vec<_>>()),
        ("denied", merged.buckets.iter().map(|own| own.denied).collect()),
        ("would deny", merged.buckets.iter().map(|own| own.would_deny).collect()),
    ] {
        let most = values.iter().copied().max().unwrap_or_default();
        if most == 0 {
            writeln!(output, "  {name:<10}  none")?;
            continue;
        }
        writeln!(output, "  {name:<10}  {}", sparkline(&values, most))?;
        writeln!(output, "  {:10}  at most {} in {each}", "", number(most))?;
    }
    let last = merged.buckets.len() - 1;
    let (first, last) = (times::bucket(&merged, 0), times::bucket(&merged, last));
    let period = format!("from {first} to {last} (UTC), {each} a block");
    writeln!(output, "  {:10}  {}", "", safe::printable(&period))
}

/// A block for each value; nothing is a space, and a little is more than nothing.
fn sparkline(values: &[u64], most: u64) -> String {
    let block = |value: &u64| match value {
        0 => ' ',
        value => {
            let step = (*value as f64 / most as f64 * 8.0).ceil() as usize;
            BLOCKS.get(step.saturating_sub(1)).copied().unwrap_or('█')
        }
    };
    values.iter().map(block).collect()
}

fn write_against(against: &Against, report: &Report, output: &mut dyn Write) -> io::Result<()> {
    let policies = safe::name(&against.policies);
    title(output, &format!("Against {policies}"))?;
    wrapped(output, "  ", &sentences::against(against, &report.outcome))?;
    for changes in tables::changes(against) {
        writeln!(output, "\n  {}", changes.caption)?;
        table::write(output, &changes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    fn written(report: &Report) -> String {
        let mut output = Vec::new();
        write(report, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn every_answer_is_there() {
        let text = written(&example::report());
        // Sentences may be wrapped anywhere.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "1 file with 1,234,600 lines: 1,234,567 requests in 6 d 23 h, from 2026-03-01 00:00:02",
            "access.log.gz:77123: the time is missing",
            "  - The log does not name users",
            "deny 12,345 of 1,234,567 requests (1 %), and 12 of 10,234 callers (0.12 %)",
            "12 of 10,234",
            "2 h 5 min",
            "tollgate explain --address 192.0.2.1 GET 'https://a.test/v1/1'",
            "core, tier default, per 1 h (enforce)",
            "suggested",
            "Not judged: parallel, tier default: 5 requests (< 0.01 %)",
            "▄",
            "Against config/policies",
            "4,321 counters in use at once: 1.5 MiB of memory",
        ] {
            let is_there = text.contains(expected) || words.contains(expected);
            assert!(is_there, "{expected}\n{text}");
        }
    }

    #[test]
    fn lines_fit_but_for_commands() {
        for report in [example::report(), example::large(), example::hostile(), example::broken()] {
            for line in written(&report).lines().filter(|line| !line.contains("explain")) {
                let is_command = line.contains("alert(1)");
                assert!(line.chars().count() <= 100 || is_command, "{line}");
            }
        }
    }

    #[test]
    fn huge_counts_are_in_two_tables() {
        let mut report = example::report();
        report.limits[0].requests = u64::MAX / 1_000;
        report.limits[0].callers = 1 << 40;
        report.limits[0].callers_denied = 1 << 39;
        let text = written(&report);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.matches("lock-out\n").count(), 1);
    }

    #[test]
    fn names_do_not_drive_the_terminal() {
        let text = written(&example::hostile());
        assert!(!text.chars().any(|c| c != '\n' && c.is_control()), "{text}");
        assert!(!text.contains('\u{202e}'));
    }

    #[test]
    fn nothing_is_said_plainly() {
        let text = written(&example::nothing());
        assert!(text.contains("No request was judged"), "{text}");
        assert!(text.contains("No limit was asked"), "{text}");
        for report in [example::nothing(), example::broken()] {
            let text = written(&report);
            assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        }
    }

    #[test]
    fn little_is_more_than_nothing_in_a_sparkline() {
        assert_eq!(sparkline(&[0, 1, 500, 1_000], 1_000), " ▁▄█");
    }
}
