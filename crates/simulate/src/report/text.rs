//! The answers for a terminal: what was read, what to know of it, the outcome, and then the reasons.

mod table;

use std::io::{self, Write};

use self::table::{Column, Stands, wrapped};
use super::{
    choice::{self, Choice},
    safe, sentences, times,
    words::{self, duration, number, share},
};
use crate::{Against, CallerChange, LimitAnswer, Read, Report, Timeline, WorstCaller};

/// Characters of a sparkline, from the lowest.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Characters of a sparkline, so that it has room beside its indent.
const SPARKLINE: usize = 80;

/// Files that are listed: of a thousand, the sum is what matters.
const FILES: usize = 20;

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
    write_limits(&report.limits, output)?;
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

fn left(head: &'static str) -> Column {
    Column { head, stands: Stands::Left }
}

fn cut(head: &'static str) -> Column {
    Column { head, stands: Stands::GivesWay }
}

fn right(head: &'static str) -> Column {
    Column { head, stands: Stands::Right }
}

fn write_read(read: &Read, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "Read")?;
    wrapped(output, "  ", &sentences::read(read))?;
    if let Some(took) = sentences::took(read) {
        wrapped(output, "  ", &took)?;
    }
    for fault in sentences::faults(read) {
        wrapped(output, "  ", &fault)?;
    }
    let row = |file: &crate::FileRead| {
        let grain = duration(file.grain_seconds);
        let counts = [number(file.lines), number(file.bad), grain];
        [safe::name(&file.file), safe::name(&file.format)].into_iter().chain(counts).collect()
    };
    let rows: Vec<Vec<String>> = read.files.iter().take(FILES).map(row).collect();
    if !rows.is_empty() {
        let columns =
            [cut("file"), cut("format"), right("lines"), right("not read"), right("grain of time")];
        table::write(output, &columns, &rows)?;
    }
    if read.files.len() > FILES {
        writeln!(output, "  and {} more", number((read.files.len() - FILES) as u64))?;
    }
    for bad in &read.bad_lines {
        let place = format!("{}:{}", safe::name(&bad.file), bad.line);
        wrapped(output, "  ", &format!("{place}: {}", safe::at_most(&bad.reason, 300)))?;
        writeln!(output, "    {}", safe::at_most(&bad.text, table::WIDTH - 4))?;
    }
    Ok(())
}

fn write_notes(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    let not_judged = sentences::not_judged(report);
    if report.notes.is_empty() && not_judged.is_empty() {
        return Ok(());
    }
    title(output, "To know before you read on")?;
    for note in &report.notes {
        wrapped(output, "  - ", &safe::printable(note))?;
    }
    for (limit, reason) in not_judged {
        wrapped(output, "  - ", &format!("not judged: {}: {reason}.", safe::name(&limit)))?;
    }
    Ok(())
}

fn write_limits(limits: &[LimitAnswer], output: &mut dyn Write) -> io::Result<()> {
    title(output, "Limits")?;
    if limits.is_empty() {
        return writeln!(output, "  No limit was asked about a request.");
    }
    let names = |limit: &LimitAnswer| {
        vec![safe::name(&limit.limit), safe::name(&limit.tier), safe::name(&limit.mode)]
    };
    let counts = |limit: &LimitAnswer| {
        [
            limit.window_seconds.map_or("at once".into(), words::window),
            number(limit.allows.into()),
            number(limit.requests),
            number(limit.denied),
            share(limit.denied_share),
        ]
    };
    let callers = |limit: &LimitAnswer| {
        [
            format!("{} of {}", number(limit.callers_denied), number(limit.callers)),
            duration(limit.longest_lockout_seconds),
        ]
    };
    let name_columns = || [cut("limit"), cut("tier"), left("mode")];
    let count_columns =
        || [left("window"), right("allows"), right("requests"), right("denied"), right("share")];
    let caller_columns = || [right("callers hit"), right("lock-out")];

    let all: Vec<Column> =
        name_columns().into_iter().chain(count_columns()).chain(caller_columns()).collect();
    let row = |limit| names(limit).into_iter().chain(counts(limit)).chain(callers(limit)).collect();
    let rows: Vec<Vec<String>> = limits.iter().map(row).collect();
    if table::least_width(&all, &rows) <= table::WIDTH {
        table::write(output, &all, &rows)?;
        return write_lockout(output);
    }
    // Counts in the billions: in two tables, since a line that wraps cannot be read.
    let columns: Vec<Column> = name_columns().into_iter().chain(count_columns()).collect();
    let row = |limit| names(limit).into_iter().chain(counts(limit)).collect();
    table::write(output, &columns, &limits.iter().map(row).collect::<Vec<_>>())?;
    writeln!(output)?;
    let columns: Vec<Column> = name_columns().into_iter().chain(caller_columns()).collect();
    let row = |limit| names(limit).into_iter().chain(callers(limit)).collect();
    table::write(output, &columns, &limits.iter().map(row).collect::<Vec<_>>())?;
    write_lockout(output)
}

fn write_lockout(output: &mut dyn Write) -> io::Result<()> {
    wrapped(output, "  ", sentences::LOCKOUT)
}

fn write_worst(worst: &[WorstCaller], output: &mut dyn Write) -> io::Result<()> {
    if worst.is_empty() {
        return Ok(());
    }
    title(output, "Callers denied most")?;
    let row = |own: &WorstCaller| {
        vec![
            safe::name(&own.caller),
            safe::name(&own.tier),
            safe::name(&own.limit),
            number(own.requests),
            number(own.denied),
            share(own.denied_share),
            safe::at_most(&times::instant(&own.first_denied), 23),
        ]
    };
    let columns = [
        cut("caller"),
        cut("tier"),
        cut("limit"),
        right("requests"),
        right("denied"),
        right("share"),
        left("first denied"),
    ];
    table::write(output, &columns, &worst.iter().map(row).collect::<Vec<_>>())?;
    writeln!(output, "\n  The first denial of each, explained by:")?;
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
    let row = |row: choice::Row| {
        let point = row.point;
        vec![
            number(point.allows.into()),
            number(point.callers_denied),
            share(point.callers_share),
            number(point.requests_denied),
            share(point.requests_share),
            row.mark().to_owned(),
        ]
    };
    let columns = [
        right("limit"),
        right("callers denied"),
        right("share"),
        right("requests denied"),
        right("share"),
        left(""),
    ];
    table::write(
        output,
        &columns,
        &choice.rows(&choice::FEW).into_iter().map(row).collect::<Vec<_>>(),
    )
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
    let row = |own: &CallerChange| {
        vec![
            safe::name(&own.caller),
            number(own.requests),
            number(own.denied_against),
            number(own.denied),
        ]
    };
    for (head, callers) in [("better off", &against.better), ("worse off", &against.worse)] {
        if !callers.is_empty() {
            let columns =
                [cut(head), right("requests"), right("denied by the others"), right("by these")];
            writeln!(output)?;
            table::write(output, &columns, &callers.iter().map(row).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

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
            "not judged: parallel, tier default: 5 requests (< 0.01 %)",
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
