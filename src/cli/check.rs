//! `tollgate check`: every problem of settings and policies at once.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use super::Failure;
use crate::{
    policy::{Policies, Sources, load},
    settings::{Configuration, read_policies, read_text},
    yaml::{Document, Problem, Value},
};

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
    let sources = Sources::system();
    let path = &arguments.path;
    let settings_inside = path.join("tollgate.yaml");
    let policies = if path.is_dir() && settings_inside.is_file() {
        check_settings(&settings_inside, &sources, output)?
    } else if path.is_dir() {
        read_policies(path, &sources)?
    } else if is_policy(path, &sources)? {
        let text = read_text(path, &sources)?;
        Policies::new(vec![load(path, &text, &sources)?])
    } else {
        check_settings(path, &sources, output)?
    };
    for policy in policies.iter() {
        let (limits, routes) = (policy.limits.len(), policy.routes.len());
        writeln!(output, "policy {}: ok, {limits} limits, {routes} routes", policy.name)?;
    }
    Ok(())
}

fn check_settings(
    file: &Path,
    sources: &Sources,
    output: &mut dyn Write,
) -> Result<Policies, Failure> {
    let configuration = Configuration::read(file, sources)?;
    let listeners: Vec<String> =
        configuration.settings.listeners.iter().map(ToString::to_string).collect();
    writeln!(output, "{}: ok, listens on {}", file.display(), listeners.join(", "))?;
    Ok(configuration.policies)
}

/// Settings and policies are told apart by what they are about, not by their names.
fn is_policy(file: &Path, sources: &Sources) -> Result<bool, Vec<Problem>> {
    let text = read_text(file, sources)?;
    let document =
        Document::parse(&file.display().to_string(), &text).map_err(|problem| vec![problem])?;
    let Value::Mapping(entries) = &document.root().value else { return Ok(false) };
    let has = |names: &[&str]| entries.iter().any(|(name, _)| names.contains(&name.as_str()));
    Ok(has(&["routes", "upstreams", "identity", "tiers"])
        || !has(&["listeners", "policies", "store"]))
}
