//! A difference as Markdown, for a comment on a change.

use std::io::{self, Write};

use tollgate_preview::diff::PolicyDifference;
use tollgate_simulate::report::code_span;

use super::Comparison;

pub(super) fn write(comparison: &Comparison, output: &mut dyn Write) -> io::Result<()> {
    let difference = &comparison.difference;
    if difference.is_empty() {
        writeln!(output, "No difference.")?;
    }
    if !difference.hosts.is_empty() {
        writeln!(output, "### Hosts\n")?;
        let items: Vec<String> = difference.hosts.iter().map(ToString::to_string).collect();
        write_items(&items, output)?;
    }
    for policy in difference.policies.iter().filter(|policy| !policy.is_empty()) {
        write_policy(policy, output)?;
    }
    match comparison.note() {
        Some(note) => writeln!(output, "\n{}", code(&note)),
        None => Ok(()),
    }
}

fn write_policy(policy: &PolicyDifference, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "### Policy {}\n", code(&policy.policy))?;
    for (title, items) in policy.sections() {
        writeln!(output, "**{title}**\n")?;
        write_items(&items, output)?;
        let kept = policy.kept();
        if title == "windows" && !kept.is_empty() {
            writeln!(output, "Kept: {}\n", code(&kept.join(", ")))?;
        }
    }
    Ok(())
}

/// As code, since `*` and `_` are in paths and names, and must not become marks.
fn write_items(items: &[String], output: &mut dyn Write) -> io::Result<()> {
    items.iter().try_for_each(|item| writeln!(output, "- {}", code(item)))?;
    writeln!(output)
}

fn code(text: &str) -> String {
    code_span(&text.replace(char::is_control, "?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_code_span_early() {
        for (text, expected) in [
            ("/search/**", "`/search/**`"),
            ("a `b` c", "``a `b` c``"),
            ("``a`", "``` ``a` ```"),
            ("two\nlines", "`two?lines`"),
        ] {
            assert_eq!(code(text), expected);
        }
    }
}
