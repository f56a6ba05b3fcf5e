//! `tollgate diff`: what a change of policies does, before it is made.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::{
    Failure,
    configured::{Configured, is_pipe, sources_of},
};
use crate::policy::diff;

/// Tell what a change of policies does
///
/// To open windows: kept, rescaled (the same counter under another rate), fresh (another counter,
/// so all begin anew), gone or new, and for whom. To requests: which take another route, or are
/// charged or let in otherwise on the same one. To who is calling, who is singled out, and what
/// clients are told.
///
/// Two policy files are two versions of one policy, whatever they are called. In folders and
/// settings, policies are matched by their files' names. Exits with 0, and with 64 if a file has
/// problems.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// What is in force: a settings file, a policy file, or a folder with either
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// What will be
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Print JSON, windows that are kept included
    #[arg(long)]
    json: bool,
    /// Exit with 1 if there is a difference
    #[arg(long)]
    exit_code: bool,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let sources = sources_of(&[&arguments.old, &arguments.new])?;
    let read = |path: &Path, other: &Path| match is_pipe(path) {
        true => Configured::read_as(path, other, &sources),
        false => Configured::read(path, &sources),
    };
    let (old, new) =
        match (read(&arguments.old, &arguments.new), read(&arguments.new, &arguments.old)) {
            (Ok(old), Ok(new)) => (old, new),
            (old, new) => {
                let problems = [old.err(), new.err()].into_iter().flatten().flatten();
                return Err(Failure::Configuration(problems.collect()));
            }
        };
    let old = match old.is_one_policy && new.is_one_policy {
        true => Configured::read_as(&arguments.old, &arguments.new, &sources)?,
        false => old,
    };
    let difference = diff(&old.policies, &new.policies);
    match arguments.json {
        true => {
            let text = serde_json::to_string_pretty(&difference).map_err(anyhow::Error::from)?;
            writeln!(output, "{text}")?;
        }
        false => write!(output, "{difference}")?,
    }
    match arguments.exit_code && !difference.is_empty() {
        true => Err(Failure::Other(anyhow::anyhow!("there is a difference"))),
        false => Ok(()),
    }
}
