//! What tests look at of what was imported.

use crate::{Imported, Verdict};

/// The rows of a verdict, a line each.
pub(crate) fn rows(imported: &Imported, verdict: Verdict) -> String {
    let rows = imported.findings.iter().filter(|row| row.verdict == verdict);
    rows.map(|row| format!("{}: {}\n", row.there, row.here)).collect()
}

/// The lines of a section of a policy.
pub(crate) fn section(imported: &Imported, name: &str) -> Vec<String> {
    let lines = imported.policy.lines().skip_while(|line| *line != format!("{name}:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().trim_start_matches("- ").to_owned()).collect()
}

/// Whether there are routes, and all are closed.
pub(crate) fn is_closed(imported: &Imported) -> bool {
    let routes = section(imported, "routes");
    !routes.is_empty() && routes.iter().all(|route| route.contains("deny: [0.0.0.0/0"))
}
