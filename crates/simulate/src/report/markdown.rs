//! The answers as Markdown, for a pull request: the verdict and what to choose are seen at once, the
//! rest unfolds.

use std::io::{self, Write};

use super::{
    choice::{self, Choice},
    safe::{self, code, prose},
    sentences, times,
    words::{self, duration, number, share},
};
use crate::{Against, CallerChange, LimitAnswer, Read, Report, WorstCaller};

/// Rows of the table over time: a comment is no place for 240.
const MOMENTS: usize = 24;

/// Files that are listed.
const FILES: usize = 20;

/// Curves that are shown: GitHub takes comments of 65,536 characters, and one of a hundred limits
/// must not be refused.
const CURVES: usize = 20;

/// Limits in a table, for the same reason.
const LIMITS: usize = 100;

/// Writes all answers.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "**{}**\n", prose(&sentences::verdict(&report.outcome)))?;
    for sentence in sentences::besides(&report.outcome) {
        writeln!(output, "{}\n", prose(&sentence))?;
    }
    write_notes(report, output)?;
    let choices = choice::choices(report);
    write_choices(&choices, output)?;
    write_limits(&report.limits, output)?;
    write_worst(&report.worst, output)?;
    write_curves(&choices, output)?;
    write_timeline(report, output)?;
    if let Some(against) = &report.against {
        write_against(against, report, output)?;
    }
    write_read(&report.read, output)?;
    writeln!(output, "Store: {}", prose(&sentences::need(&report.store)))
}

fn write_notes(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    for note in report.notes.iter().cloned().chain(sentences::faults(&report.read)) {
        writeln!(output, "- {}", prose(&note))?;
    }
    for (limit, reason) in sentences::not_judged(report) {
        writeln!(output, "- Not judged: {}: {}.", code(&safe::name(&limit)), prose(&reason))?;
    }
    writeln!(output)
}

/// A table: a head with `:` for columns of numbers, then rows.
fn table(
    output: &mut dyn Write,
    head: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> io::Result<()> {
    let names: Vec<&str> = head.iter().map(|name| name.trim_start_matches('>')).collect();
    let rules: Vec<&str> =
        head.iter().map(|name| if name.starts_with('>') { "---:" } else { "---" }).collect();
    writeln!(output, "| {} |", names.join(" | "))?;
    writeln!(output, "| {} |", rules.join(" | "))?;
    for row in rows {
        writeln!(output, "| {} |", row.join(" | "))?;
    }
    writeln!(output)
}

/// The rest of a list that was cut.
fn more(output: &mut dyn Write, all: usize, shown: usize, what: &str) -> io::Result<()> {
    match all > shown {
        true => writeln!(output, "And {} more {what}.\n", number((all - shown) as u64)),
        false => Ok(()),
    }
}

fn fold(output: &mut dyn Write, summary: &str) -> io::Result<()> {
    // The blank line lets Markdown go on within the tag.
    writeln!(output, "<details><summary>{summary}</summary>\n")
}

fn unfold(output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "</details>\n")
}

fn write_choices(choices: &[Choice<'_>], output: &mut dyn Write) -> io::Result<()> {
    if choices.is_empty() {
        return writeln!(output, "{}\n", prose(sentences::NO_CURVES));
    }
    let row = |choice: &Choice<'_>| {
        let curve = choice.curve;
        vec![
            code(&safe::name(&curve.limit)),
            code(&safe::name(&curve.tier)),
            words::window(curve.window_seconds),
            number(curve.present.into()),
            callers(&choice.present),
            format!("**{}**", number(curve.suggested.into())),
            callers(&choice.suggested),
        ]
    };
    let head = ["limit", "tier", "window", ">now", ">denies callers", ">suggested", ">would deny"];
    table(output, &head, choices.iter().take(LIMITS).map(row))?;
    more(output, choices.len(), LIMITS, "limits")?;
    writeln!(output, "{}\n", prose(sentences::SUGGESTION))
}

fn callers(point: &crate::CurvePoint) -> String {
    format!("{} ({})", number(point.callers_denied), prose(&share(point.callers_share)))
}

fn write_limits(limits: &[LimitAnswer], output: &mut dyn Write) -> io::Result<()> {
    if limits.is_empty() {
        return writeln!(output, "No limit was asked about a request.\n");
    }
    let row = |limit: &LimitAnswer| {
        vec![
            code(&safe::name(&limit.limit)),
            code(&safe::name(&limit.tier)),
            prose(&safe::name(&limit.mode)),
            limit.window_seconds.map_or("at once".into(), words::window),
            number(limit.allows.into()),
            number(limit.requests),
            number(limit.denied),
            prose(&share(limit.denied_share)),
            format!("{} of {}", number(limit.callers_denied), number(limit.callers)),
            prose(&duration(limit.longest_lockout_seconds)),
        ]
    };
    let head = [
        "limit",
        "tier",
        "mode",
        "window",
        ">allows",
        ">requests",
        ">denied",
        ">share",
        ">callers hit",
        ">lock-out",
    ];
    fold(output, "Limits as they are")?;
    table(output, &head, limits.iter().take(LIMITS).map(row))?;
    more(output, limits.len(), LIMITS, "limits")?;
    writeln!(output, "{}\n", prose(sentences::LOCKOUT))?;
    unfold(output)
}

fn write_worst(worst: &[WorstCaller], output: &mut dyn Write) -> io::Result<()> {
    if worst.is_empty() {
        return Ok(());
    }
    fold(output, "Callers denied most")?;
    let row = |own: &WorstCaller| {
        vec![
            code(&safe::name(&own.caller)),
            code(&safe::name(&own.tier)),
            code(&safe::name(&own.limit)),
            number(own.requests),
            number(own.denied),
            prose(&share(own.denied_share)),
            prose(&safe::at_most(&times::instant(&own.first_denied), 40)),
        ]
    };
    let head = ["caller", "tier", "limit", ">requests", ">denied", ">share", "first denied"];
    table(output, &head, worst.iter().map(row))?;
    writeln!(output, "Their first denials, explained by:\n")?;
    write_commands(worst, output)?;
    unfold(output)
}

/// As a block of code, whose fence is longer than any row of backticks in it.
fn write_commands(worst: &[WorstCaller], output: &mut dyn Write) -> io::Result<()> {
    let commands: Vec<_> = worst.iter().map(|own| safe::printable(&own.explain)).collect();
    let runs = commands.iter().flat_map(|own| own.split(|c| c != '`').map(str::len));
    let fence = "`".repeat(runs.max().unwrap_or_default().max(2) + 1);
    writeln!(output, "{fence}sh")?;
    commands.iter().try_for_each(|command| writeln!(output, "{command}"))?;
    writeln!(output, "{fence}\n")
}

fn write_curves(choices: &[Choice<'_>], output: &mut dyn Write) -> io::Result<()> {
    for choice in choices.iter().take(CURVES) {
        let title = safe::summary(&safe::at_most(&choice.title(), 120));
        fold(output, &format!("If the limit were another: {title}"))?;
        if let Some(sentence) = sentences::inexact(choice) {
            writeln!(output, "{}\n", prose(sentence))?;
        }
        let row = |row: choice::Row| {
            let point = row.point;
            let mark = row.mark();
            vec![
                number(point.allows.into()),
                number(point.callers_denied),
                prose(&share(point.callers_share)),
                number(point.requests_denied),
                prose(&share(point.requests_share)),
                if mark.is_empty() { String::new() } else { format!("**{mark}**") },
            ]
        };
        let head = [">limit", ">callers denied", ">share", ">requests denied", ">share", " "];
        table(output, &head, choice.rows(&choice::FEW).into_iter().map(row))?;
        unfold(output)?;
    }
    more(output, choices.len(), CURVES, "limits have curves: see the report as HTML or JSON")
}

fn write_timeline(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    if report.timeline.buckets.is_empty() {
        return Ok(());
    }
    let merged = times::merged(&report.timeline, MOMENTS);
    fold(output, "Over time")?;
    let row = |(at, moment): (usize, &crate::Moment)| {
        let part = moment.denied as f64 / moment.requests as f64;
        vec![
            prose(&times::bucket(&merged, at)),
            number(moment.requests),
            number(moment.denied),
            if moment.requests == 0 { "–".into() } else { prose(&share(part)) },
            number(moment.would_deny),
        ]
    };
    let head = ["from (UTC)", ">requests", ">denied", ">share", ">would deny"];
    table(output, &head, merged.buckets.iter().enumerate().map(row))?;
    unfold(output)
}

fn write_against(against: &Against, report: &Report, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "**Against {}**\n", code(&safe::name(&against.policies)))?;
    writeln!(output, "{}\n", prose(&sentences::against(against, &report.outcome)))?;
    let row = |own: &CallerChange| {
        vec![
            code(&safe::name(&own.caller)),
            number(own.requests),
            number(own.denied_against),
            number(own.denied),
        ]
    };
    for (summary, callers) in [
        ("Callers that are better off", &against.better),
        ("Callers that are worse off", &against.worse),
    ] {
        if !callers.is_empty() {
            fold(output, summary)?;
            let head = ["caller", ">requests", ">denied by the others", ">denied by these"];
            table(output, &head, callers.iter().map(row))?;
            unfold(output)?;
        }
    }
    Ok(())
}

fn write_read(read: &Read, output: &mut dyn Write) -> io::Result<()> {
    fold(output, "What was read")?;
    writeln!(output, "{}\n", prose(&sentences::read(read)))?;
    if !read.files.is_empty() {
        let row = |file: &crate::FileRead| {
            vec![
                code(&safe::name(&file.file)),
                prose(&safe::name(&file.format)),
                number(file.lines),
                number(file.bad),
                prose(&duration(file.grain_seconds)),
            ]
        };
        let head = ["file", "format", ">lines", ">not read", ">grain of time"];
        table(output, &head, read.files.iter().take(FILES).map(row))?;
        more(output, read.files.len(), FILES, "files")?;
    }
    for bad in &read.bad_lines {
        let place = code(&format!("{}:{}", safe::name(&bad.file), bad.line));
        let reason = prose(&safe::at_most(&bad.reason, 300));
        writeln!(output, "- {place}: {reason}: {}", code(&safe::at_most(&bad.text, 200)))?;
    }
    writeln!(output)?;
    unfold(output)
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
    fn the_verdict_is_the_first_line() {
        let text = written(&example::report());
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "**These limits would deny 12,345 of 1,234,567 requests (1 %), and 12 of 10,234 callers \
             (0.12 %) at least once.**"
        );
    }

    #[test]
    fn every_answer_is_there() {
        let text = written(&example::report());
        for expected in [
            "| `core` | `default` | 1 h | 1,000 |",
            "| `core` | `default` | enforce | 1 h | 1,000 | 1,234,567 | 12,001 | 0.97 % | 12 of \
             10,234 | 2 h 5 min |",
            "| `user:1037` | `default` | `core` | 40,000 | 4,000 | 10 % | 2026-03-02 01:05:09 UTC |",
            "\ntollgate explain --address 192.0.2.1 GET 'https://a.test/v1/1'\n",
            "<details><summary>If the limit were another: core, tier default, per 1 h</summary>",
            "<details><summary>Over time</summary>",
            "**Against `config/policies`**",
            "| `user:1037` | 4,000 | 900 | 400 |",
            "| `access.log.gz` | combined | 1,234,600 | 33 | 1 s |",
            "- `access.log.gz:77123`: the time is missing: `192.0.2.1 - - \"GET /`",
            "Store: At most 4,321 counters",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
    }

    /// The columns of a row: `|` that no backslash is before.
    fn columns(line: &str) -> usize {
        line.replace("\\|", "").matches('|').count()
    }

    #[test]
    fn names_do_not_end_cells_and_are_no_marks() {
        let (good, hostile) = (written(&example::report()), written(&example::hostile()));
        let rows = |text: &str| -> Vec<usize> {
            text.lines().filter(|line| line.starts_with('|')).map(columns).collect()
        };
        // Each has as many rows, and each row as many cells.
        let times = |counts: Vec<usize>| counts.len();
        assert_eq!(times(rows(&good)), times(rows(&hostile)));
        assert!(!hostile.contains('\u{1b}') && !hostile.contains('\u{202e}'));
        let mut is_code = false;
        for (at, line) in hostile.lines().enumerate() {
            is_code ^= line.starts_with("```");
            if is_code {
                continue;
            }
            // Outside of code, no tag but our own and no mention.
            let outside = without_code(line);
            assert!(!outside.replace("<b>@</b>", "").contains('@'), "{at}: {line}");
            assert!(!outside.replace("\\<", "").contains("<script"), "{at}: {line}");
        }
    }

    /// A line without code spans, as CommonMark finds them.
    fn without_code(line: &str) -> String {
        let mut rest = line;
        let mut outside = String::new();
        while let Some(at) = rest.find('`') {
            let (before, from) = rest.split_at(at);
            outside.push_str(before);
            if before.ends_with('\\') {
                rest = &from[1..];
                continue;
            }
            let fence: String = from.chars().take_while(|c| *c == '`').collect();
            let inner = &from[fence.len()..];
            let mut end = None;
            let mut search = 0;
            while let Some(found) = inner[search..].find(&fence) {
                let length = inner[search + found..].chars().take_while(|c| *c == '`').count();
                if length == fence.len() {
                    end = Some(search + found + length);
                    break;
                }
                search += found + length;
            }
            rest = end.map_or("", |end| &inner[end..]);
        }
        outside + rest
    }

    #[test]
    fn a_comment_takes_a_hundred_limits() {
        let text = written(&example::large());
        assert!(text.len() < 65_536, "{}", text.len());
    }

    #[test]
    fn nothing_is_said_plainly() {
        let text = written(&example::nothing());
        assert!(text.starts_with("**No request was judged"), "{text}");
        for report in [example::nothing(), example::broken()] {
            let text = written(&report);
            assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        }
    }
}
