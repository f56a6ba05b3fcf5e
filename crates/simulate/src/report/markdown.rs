//! The answers as Markdown, for a pull request: the verdict and what to choose are seen at once,
//! the rest unfolds.

use std::io::{self, Write};

use super::{
    choice::{self, Choice},
    safe::{self, code, prose},
    sentences,
    tables::{self, Kind, Table},
    words::number,
};
use crate::{Against, Read, Report, WorstCaller};

/// Rows of the table over time: a comment is no place for 240.
const MOMENTS: usize = 24;

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
    for note in sentences::notes(report) {
        writeln!(output, "- {}", prose(&note))?;
    }
    writeln!(output)?;
    let choices = choice::choices(report);
    if choices.is_empty() {
        writeln!(output, "{}\n", prose(sentences::NO_CURVES))?;
    } else {
        table(output, &tables::choices(&choices).at_most(LIMITS))?;
        writeln!(output, "{}\n", prose(sentences::SUGGESTION))?;
    }
    if report.limits.is_empty() {
        writeln!(output, "{}\n", sentences::NO_LIMITS)?;
    } else {
        fold(output, "Limits as they are")?;
        table(output, &tables::limits(&report.limits).at_most(LIMITS))?;
        writeln!(output, "{}\n", prose(sentences::LOCKOUT))?;
        unfold(output)?;
    }
    write_worst(&report.worst, output)?;
    write_curves(&choices, output)?;
    if !report.timeline.buckets.is_empty() {
        fold(output, "Over time")?;
        table(output, &tables::timeline(&report.timeline, MOMENTS))?;
        unfold(output)?;
    }
    if let Some(against) = &report.against {
        write_against(against, report, output)?;
    }
    write_read(&report.read, output)?;
    writeln!(output, "Store: {}", prose(&sentences::need(&report.store)))
}

/// A table: a head with `:` for columns that stand on the right, then rows.
fn table(output: &mut dyn Write, table: &Table) -> io::Result<()> {
    let heads: Vec<&str> = table.columns.iter().map(|column| column.head).collect();
    let rule = |kind| match kind {
        Kind::Number | Kind::Strong => "---:",
        Kind::Name | Kind::Word | Kind::Time => "---",
    };
    let rules: Vec<&str> = table.columns.iter().map(|column| rule(column.kind)).collect();
    writeln!(output, "| {} |", heads.join(" | "))?;
    writeln!(output, "| {} |", rules.join(" | "))?;
    for row in &table.rows {
        let cell = |(column, cell): (&tables::Column, &String)| match column.kind {
            Kind::Name => code(cell),
            Kind::Strong if !cell.is_empty() => format!("**{}**", prose(cell)),
            Kind::Word | Kind::Time | Kind::Number | Kind::Strong => prose(cell),
        };
        let cells: Vec<String> = table.columns.iter().zip(row).map(cell).collect();
        writeln!(output, "| {} |", cells.join(" | "))?;
    }
    writeln!(output)?;
    table.more().map_or(Ok(()), |more| writeln!(output, "{more}\n"))
}

fn fold(output: &mut dyn Write, summary: &str) -> io::Result<()> {
    // The blank line lets Markdown go on within the tag.
    writeln!(output, "<details><summary>{summary}</summary>\n")
}

fn unfold(output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "</details>\n")
}

fn write_worst(worst: &[WorstCaller], output: &mut dyn Write) -> io::Result<()> {
    if worst.is_empty() {
        return Ok(());
    }
    fold(output, "Callers denied most")?;
    table(output, &tables::worst(worst))?;
    writeln!(output, "{}\n", sentences::EXPLAINED)?;
    write_commands(worst, output)?;
    unfold(output)
}

/// As a block of code.
fn write_commands(worst: &[WorstCaller], output: &mut dyn Write) -> io::Result<()> {
    let commands: Vec<_> = worst.iter().map(|own| safe::printable(&own.explain)).collect();
    let commands = commands.join("\n");
    let fence = safe::fence(&commands, 3);
    writeln!(output, "{fence}sh\n{commands}\n{fence}\n")
}

fn write_curves(choices: &[Choice<'_>], output: &mut dyn Write) -> io::Result<()> {
    for choice in choices.iter().take(CURVES) {
        let title = safe::summary(&safe::at_most(&choice.title(), 120));
        fold(output, &format!("If the limit were another: {title}"))?;
        if let Some(sentence) = sentences::inexact(choice) {
            writeln!(output, "{}\n", prose(sentence))?;
        }
        table(output, &tables::curve(choice, &choice::FEW))?;
        unfold(output)?;
    }
    if choices.len() <= CURVES {
        return Ok(());
    }
    let more = number((choices.len() - CURVES) as u64);
    writeln!(output, "And {more} more limits have curves: see the report as HTML or JSON.\n")
}

fn write_against(against: &Against, report: &Report, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "**Against {}**\n", code(&safe::name(&against.policies)))?;
    writeln!(output, "{}\n", prose(&sentences::against(against, &report.outcome)))?;
    for changes in tables::changes(against) {
        fold(output, &changes.caption)?;
        table(output, &changes)?;
        unfold(output)?;
    }
    Ok(())
}

fn write_read(read: &Read, output: &mut dyn Write) -> io::Result<()> {
    fold(output, "What was read")?;
    writeln!(output, "{}\n", prose(&sentences::read(read)))?;
    if !read.files.is_empty() {
        table(output, &tables::files(&read.files))?;
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
    use crate::report::tests::example;

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
            "| `core` | `default` | 1 h | enforce | 1,000 |",
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
