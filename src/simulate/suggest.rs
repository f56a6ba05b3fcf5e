//! A policy to begin with, from a log: its routes and callers, and limits that nearly all callers
//! stay below. Each limit only counts (`mode: shadow`), and has the evidence for its number beside
//! it.
//!
//! The logs are read twice: first for what there is (`seen`), of which a policy is made that only
//! measures (`draft`); then that policy is simulated, which gives the numbers. Whatever a log has,
//! what comes out is a policy: what no policy can have is left out.

mod callers;
mod draft;
mod evidence;
mod head;
mod seen;
#[cfg(test)]
mod tests;
mod words;

use std::path::Path;

use self::{draft::Draft, seen::Seen};
use super::{PolicySet, Progress, Simulation, SimulationError, translate::CallerField};
use crate::{
    history::ReadOptions,
    policy::{Policies, Policy, load},
    yaml::Sources,
};

/// What the policy is called while it is made.
const NAME: &str = "suggested.yaml";

/// Writes a policy to begin with. The logs are read twice, so they have to be files.
///
/// # Errors
/// [`SimulationError`].
pub fn suggest(
    read: &ReadOptions,
    callers: &[CallerField],
    host: Option<&str>,
    progress: &mut dyn FnMut(Progress),
) -> Result<String, SimulationError> {
    if read.files.iter().any(|file| file == Path::new("-")) {
        return Err(SimulationError::NotTwice);
    }
    let seen = Seen::of(read, callers, progress)?;
    let draft = Draft::of(seen);
    let policies = Policies::new(vec![parse(&draft.policy(None))?]);
    let candidate = PolicySet { policies: &policies, settings: None, name: NAME };
    let simulation = Simulation {
        read: read.clone(),
        callers: callers.to_vec(),
        host: host.map(str::to_owned),
        candidate,
        against: None,
    };
    let report = simulation.run(progress)?;
    let text = draft.policy(Some(&report));
    parse(&text)?;
    Ok(text)
}

fn parse(text: &str) -> Result<Policy, SimulationError> {
    load(Path::new(NAME), text, &Sources::system()).map_err(SimulationError::Draft)
}
