//! `INFO`, by which servers report about themselves, and texts of its form.

use redis::Cmd;

/// Queries a section.
pub(super) fn info(section: &str) -> Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// The value of a field in a reply.
pub(super) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}
