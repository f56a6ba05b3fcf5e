//! A policy to begin with, from a log: its routes and callers, and limits that nearly all callers
//! stay below. Each limit only counts (`mode: shadow`), and has the evidence for its number beside
//! it.
//!
//! The logs are read twice: first for what there is (`seen`), of which a policy is made that only
//! measures (`draft`); then that policy is simulated, which gives the numbers. If some callers used
//! far more than all others, the logs are read once more, for their names. Whatever a log has, what
//! comes out is a policy: what no policy can have is left out.

mod callers;
mod counts;
mod doubts;
mod draft;
mod evidence;
mod free;
mod head;
mod logins;
mod seen;
#[cfg(test)]
mod tests;
mod words;

use std::path::Path;

use tollgate_history::ReadOptions;
use tollgate_policy::{Policies, Policy, load};
use tollgate_yaml::Sources;

use self::{draft::Draft, head::Measured, seen::Observations, words::is_name};
use super::{
    PolicySet, Progress, Simulation, SimulationError,
    order::{in_order, is_read_once},
    run::Names,
    translate::CallerField,
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
    check(read, callers)?;
    // The second time, it is known how they have to be read.
    let (seen, read) =
        in_order(read, |read| Ok((Observations::of(read, callers, progress)?, read.clone())))?;
    let read_once = seen.records;
    if seen.requests == 0 {
        // Numbers for limits would be made up.
        return Err(SimulationError::NoRequest);
    }
    let draft = Draft::of(seen);
    let policies = Policies::new(vec![parse(&draft.policy(None))?]);
    let candidate = PolicySet { policies: &policies, settings: None, name: NAME };
    let simulation = Simulation {
        read,
        callers: callers.to_vec(),
        host: host.map(str::to_owned),
        candidate,
        against: None,
    };
    let report = simulation.run(&mut |second| progress(goes_on(read_once, second)))?;
    let outliers = report.curves.iter().flat_map(|curve| &curve.outliers).map(|(key, _)| *key);
    let busiest = report.curves.iter().filter_map(|curve| Some(curve.doubt?.busiest));
    let mut names: Names = outliers.chain(busiest).map(|key| (key, None)).collect();
    if !names.is_empty() {
        // Only now it is known whose names are wanted.
        simulation.run_naming(&mut names, &mut |_| {})?;
    }
    let text = draft.policy(Some(&Measured { report, names }));
    parse(&text)?;
    Ok(text)
}

/// Refuses what cannot be read twice, and kinds of callers that no policy can have.
fn check(read: &ReadOptions, callers: &[CallerField]) -> Result<(), SimulationError> {
    if is_read_once(read) {
        return Err(SimulationError::NotTwice);
    }
    match callers.iter().find(|caller| !is_name(&caller.kind)) {
        None => Ok(()),
        Some(CallerField { kind, .. }) => Err(SimulationError::CallerKind(kind.clone())),
    }
}

fn parse(text: &str) -> Result<Policy, SimulationError> {
    load(Path::new(NAME), text, &Sources::system()).map_err(SimulationError::Draft)
}

/// The progress of the second time, which goes on where the first one ended.
fn goes_on(read_once: u64, second: Progress) -> Progress {
    let Progress { requests, bytes, all_bytes } = second;
    Progress {
        requests: read_once + requests,
        bytes: all_bytes.unwrap_or_default() + bytes,
        all_bytes: all_bytes.map(|all| all * 2),
    }
}
