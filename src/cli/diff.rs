//! `tollgate diff`: what a change of policies does, before it is made.

mod markdown;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;
use tollgate_policy::Policies;
use tollgate_preview::diff::{Difference, diff};
use tollgate_yaml::{Problem, Sources};

use super::{
    Failure,
    configured::{Configured, is_pipe, sources_of},
    write_json,
};

/// Show what a change of policies does
///
/// For counters: which are kept, rescaled (the same counter under another rate), fresh (another
/// counter, so all callers start again), gone or new, and which callers they count. For requests:
/// which take another route, or are charged or admitted differently on the same route. Also shows
/// changes to how callers are identified, to overrides for single callers, and to the responses
/// that clients receive.
///
/// Two policy files are two versions of one policy, whatever they are called. In folders and
/// settings, policies are matched by their files' names. Where key files, certificates, secrets or
/// variables are missing, all of them are compared by name, and the output says so. Exits with 0,
/// and with 64 if a file has problems.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// What is in force: a settings file, a policy file, or a folder with either
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// What will be
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// How to print it: JSON has windows that are kept too
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Short for `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Exit with 1 if there is a difference
    #[arg(long)]
    exit_code: bool,
}

/// How a difference is printed.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Format {
    /// For terminals
    #[default]
    Text,
    /// One JSON object
    Json,
    /// For a comment on a change
    Markdown,
}

/// A difference, and what it rests on.
#[derive(Serialize)]
struct Comparison {
    #[serde(flatten)]
    difference: Difference,
    /// Why key files, certificates, secrets and variables were compared by name; none: by content.
    by_name_because: Option<String>,
}

/// Policies before and after.
struct Versions {
    old: Policies,
    new: Policies,
}

pub(super) fn run(arguments: &Arguments, output: &mut dyn Write) -> Result<(), Failure> {
    let comparison = compare(&arguments.old, &arguments.new)?;
    let format = if arguments.json { Format::Json } else { arguments.format };
    match format {
        Format::Text => {
            write!(output, "{}", comparison.difference)?;
            if let Some(note) = comparison.note() {
                writeln!(output, "{note}")?;
            }
        }
        Format::Json => write_json(output, &comparison)?,
        Format::Markdown => markdown::write(&comparison, output)?,
    }
    match arguments.exit_code && !comparison.difference.is_empty() {
        true => Err(Failure::Other(anyhow::anyhow!("there is a difference"))),
        false => Ok(()),
    }
}

/// Compares by content if all is there. A version that comes from elsewhere, such as from `git
/// show` on a machine without keys, lacks what its policies name; then names are compared on both
/// sides, for a name and a content never agree.
fn compare(old: &Path, new: &Path) -> Result<Comparison, Vec<Problem>> {
    let sources = sources_of(&[old, new])?;
    let (versions, by_name_because) = match Versions::read(old, new, &sources) {
        Ok(versions) => (versions, None),
        Err(problems) => match Versions::read(old, new, &sources.by_name()) {
            Ok(versions) => (versions, problems.first().map(place_and_message)),
            // Something is wrong with the files themselves.
            Err(_) => return Err(problems),
        },
    };
    Ok(Comparison { difference: diff(&versions.old, &versions.new), by_name_because })
}

fn place_and_message(problem: &Problem) -> String {
    match problem.line() {
        0 => format!("{}: {}", problem.file(), problem.message()),
        line => format!("{}:{line}: {}", problem.file(), problem.message()),
    }
}

impl Versions {
    fn read(old: &Path, new: &Path, sources: &Sources) -> Result<Versions, Vec<Problem>> {
        let read = |path: &Path, other: &Path| match is_pipe(path) {
            true => Configured::read_as(path, other, sources),
            false => Configured::read(path, sources),
        };
        let (before, after) = match (read(old, new), read(new, old)) {
            (Ok(before), Ok(after)) => (before, after),
            (before, after) => {
                let problems = [before.err(), after.err()].into_iter().flatten().flatten();
                return Err(problems.collect());
            }
        };
        let before = match before.is_one_policy && after.is_one_policy {
            true => Configured::read_as(old, new, sources)?,
            false => before,
        };
        Ok(Versions { old: before.policies, new: after.policies })
    }
}

impl Comparison {
    /// That less was compared than there is, if so.
    fn note(&self) -> Option<String> {
        let because = self.by_name_because.as_ref()?;
        Some(format!("key files, certificates and secrets were compared by name: {because}"))
    }
}
