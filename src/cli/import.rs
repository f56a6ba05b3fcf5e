//! `tollgate import`: a policy from another program's configuration.

mod envoy;

use std::{io::Write, path::PathBuf};

use anyhow::{Context, anyhow};
use tollgate_yaml::{Document, Sources};

use super::Failure;

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Make a policy of another program's configuration
///
/// Writes the policy to standard output, and what it could not take over to standard error.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// What the configuration is of
    #[arg(value_enum)]
    format: Format,
    /// The file with the configuration
    file: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// The descriptors of envoyproxy/ratelimit, the reference of Envoy's rate limit service
    Envoy,
}

pub(super) fn run(
    arguments: &Arguments,
    output: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), Failure> {
    let Arguments { format: Format::Envoy, file } = arguments;
    let name = file.display().to_string();
    let text = Sources::system().read(file, MAX_FILE_BYTES);
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let text = String::from_utf8(text).map_err(|_| anyhow!("{name} is not UTF-8"))?;
    let document = Document::parse(&name, &text).map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    let configuration: Option<envoy::Configuration> = document.decode(&[], &mut problems);
    let Some(configuration) = configuration.filter(|_| problems.is_empty()) else {
        return Err(problems.into());
    };
    let imported =
        envoy::policy(&configuration).with_context(|| format!("cannot import {name}"))?;
    for note in &imported.left_out {
        let place = document.problem(note.span, &note.message, "").place();
        writeln!(notes, "{place}: left out: {}", note.message)?;
    }
    Ok(write!(output, "{}", imported.policy)?)
}
