//! A report for people.

use std::io::{self, Write};

use super::{
    online::Attempt,
    report::{Checked, CheckedPolicy, CheckedSettings, Report},
};
use crate::cli::counted;

/// Writes all but the problems, which are errors.
pub(super) fn write(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    for Checked { settings, policies, attempts, .. } in &report.checked {
        if let Some(CheckedSettings { file, listeners, warnings }) = settings {
            for warning in warnings {
                writeln!(output, "{warning}\n")?;
            }
            writeln!(output, "{file}: ok, listens on {}", listeners.join(", "))?;
        }
        for policy in policies {
            write_policy(policy, output)?;
        }
        for Attempt { what, is_good, found, took_ms } in attempts {
            let verdict = if *is_good { "ok" } else { "failed" };
            writeln!(output, "{what}: {verdict}, {found} ({took_ms} ms)")?;
        }
    }
    let warnings = report.warnings().len();
    if report.is_strict && warnings > 0 {
        let count = counted(warnings, "warning");
        writeln!(output, "\n{count} found, which `--strict` takes for problems")?;
    }
    Ok(())
}

fn write_policy(policy: &CheckedPolicy, output: &mut dyn Write) -> io::Result<()> {
    let CheckedPolicy { name, limits, routes, warnings, notes, tests } = policy;
    for warning in warnings {
        writeln!(output, "{warning}\n")?;
    }
    let failed = tests.iter().filter_map(|test| test.failed.as_ref());
    let failed_count = failed.clone().count();
    let verdict = if failed_count == 0 { "ok, " } else { "" };
    let limits = counted(*limits, "limit");
    let routes = counted(*routes, "route");
    write!(output, "policy {name}: {verdict}{limits}, {routes}")?;
    match (tests.len(), failed_count) {
        (0, _) => writeln!(output)?,
        (all, 0) => writeln!(output, ", {}", counted(all, "test"))?,
        (all, some) => writeln!(output, ", {some} of {} failed", counted(all, "test"))?,
    }
    for note in notes {
        writeln!(output, "  note: {note}")?;
    }
    for failed in failed {
        writeln!(output, "\n{failed}")?;
    }
    Ok(())
}
