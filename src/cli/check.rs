//! `tollgate check`: every problem of settings and policies at once, and the tests inside policies.

use std::{io::Write, path::PathBuf};

use anyhow::anyhow;

use super::{
    Failure,
    configured::{Configured, sources_of},
};
use crate::{cases::Runner, clock::Clock, warning::Warning};

/// Check settings and policies
///
/// Prints every problem with file, line and column, the text that is wrong, and what to write
/// instead. Without problems, runs the tests inside the policies: in this process, with nothing
/// charged before, and with a clock of their own. Exits with 0 if all is well, with 64 if there are
/// problems, with 1 if a test fails.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A settings file, a policy file, or a folder with either
    #[arg(value_name = "PATH", default_value = "config/tollgate.yaml")]
    path: PathBuf,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let Configured { settings, policies, .. } =
        Configured::read(&arguments.path, &sources_of(&[&arguments.path])?)?;
    let now = Clock::System.now();
    let known = settings.as_ref().map(|(_, settings)| settings);
    let holds = |warning: &&Warning| warning.holds(now, known);
    if let Some((file, settings)) = &settings {
        for warning in settings.warnings.iter().filter(holds) {
            writeln!(output, "{warning}\n")?;
        }
        let listeners: Vec<String> =
            settings.listeners.iter().map(|own| own.address.to_string()).collect();
        writeln!(output, "{}: ok, listens on {}", file.display(), listeners.join(", "))?;
    }
    let runner = Runner::start(settings.as_ref().map(|(_, settings)| settings))?;
    let (mut tests, mut failed_tests) = (0, 0);
    for policy in policies.iter() {
        for warning in policy.warnings.iter().filter(holds) {
            writeln!(output, "{warning}\n")?;
        }
        let failed = runner.run(policy, &policies);
        let verdict = if failed.is_empty() { "ok, " } else { "" };
        let (limits, routes) = (policy.limits.len(), policy.routes.len());
        write!(output, "policy {}: {verdict}{limits} limits, {routes} routes", policy.name)?;
        match (policy.tests.len(), failed.len()) {
            (0, _) => writeln!(output)?,
            (all, 0) => writeln!(output, ", {all} tests")?,
            (all, some) => writeln!(output, ", {some} of {all} tests failed")?,
        }
        for failed in &failed {
            writeln!(output, "\n{failed}")?;
        }
        tests += policy.tests.len();
        failed_tests += failed.len();
    }
    match failed_tests {
        0 => Ok(()),
        some => Err(anyhow!("{some} of {tests} tests failed").into()),
    }
}
