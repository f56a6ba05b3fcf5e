//! `tollgate check`: every problem of settings and policies at once.

use std::{io::Write, path::PathBuf};

use super::{Failure, configured::Configured};
use crate::policy::Sources;

/// Check settings and policies
///
/// Prints every problem with file, line and column, the text that is wrong, and what to write
/// instead. Exits with 0 if all is well, with 64 if not.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A settings file, a policy file, or a folder with either
    #[arg(value_name = "PATH", default_value = "config/tollgate.yaml")]
    path: PathBuf,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let configured = Configured::read(&arguments.path, &Sources::system())?;
    if let Some((file, settings)) = &configured.settings {
        for warning in &settings.warnings {
            writeln!(output, "warning: {warning}\n")?;
        }
        let listeners: Vec<String> = settings.listeners.iter().map(ToString::to_string).collect();
        writeln!(output, "{}: ok, listens on {}", file.display(), listeners.join(", "))?;
    }
    for policy in configured.policies.iter() {
        let (limits, routes) = (policy.limits.len(), policy.routes.len());
        writeln!(output, "policy {}: ok, {limits} limits, {routes} routes", policy.name)?;
    }
    Ok(())
}
