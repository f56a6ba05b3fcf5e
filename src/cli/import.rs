//! `tollgate import`: a policy from another program's configuration.

mod envoy;
mod manifest;

use std::{
    io::{self, Read, Write, stdin},
    path::PathBuf,
};

use anyhow::{Context, anyhow};
use tollgate_yaml::Sources;

use super::{Exit, Failure};

/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Make a policy of another program's configuration
///
/// Writes the policy to standard output, and what it could not take over to standard error: then
/// the exit code is 3.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// What the configuration is of
    #[arg(value_enum)]
    format: Format,
    /// The file with the configuration; in a ConfigMap of Kubernetes, too; `-` for standard input
    file: PathBuf,
    /// Succeed though something is left out
    #[arg(long)]
    allow_partial: bool,
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
    let Arguments { format: Format::Envoy, file, allow_partial } = arguments;
    let name = file.display().to_string();
    let text = match name.as_str() {
        "-" => read_all(&mut stdin()),
        _ => Sources::system().read(file, MAX_FILE_BYTES),
    };
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let text = String::from_utf8(text).map_err(|_| anyhow!("{name} is not UTF-8"))?;
    let mut problems = Vec::new();
    let mut configurations = Vec::new();
    for document in manifest::documents(&name, &text)? {
        let decoded = document.decode::<envoy::Configuration>(&[], &mut problems);
        configurations.extend(decoded.map(|configuration| (document, configuration)));
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let imported =
        envoy::policy(&configurations).with_context(|| format!("cannot import {name}"))?;
    for note in &imported.left_out {
        writeln!(notes, "left out: {note}")?;
    }
    write!(output, "{}", imported.policy)?;
    match imported.left_out.is_empty() || *allow_partial {
        true => Ok(()),
        false => Err(Failure::Reported(Exit::Partial)),
    }
}

/// Reads what comes through a pipe.
fn read_all(input: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes"))),
        false => Ok(text),
    }
}
