//! The second judge: it computes each answer again, from a list of all that was taken before, by
//! what docs/limits.md says of each algorithm. It has no state, no cache and no Lua.
//!
//! - `lists`: what an algorithm answers to a list;
//! - `calm`: where nothing went wrong, each answer is exactly that of some order of the calls;
//! - `bounds`: where something did, each answer of Redis lies between that of the least that may
//!   be counted and that of the most.

mod bounds;
mod calm;
mod lists;
#[cfg(test)]
mod tests;

use super::Facts;
use crate::{ledger::Ledger, limits::Limit};

/// What the second judge has found.
#[derive(Debug, Default)]
pub(crate) struct Review {
    /// What is not as computed.
    pub(crate) broken: Vec<String>,
    /// Answers that were held to the only ones that are right.
    pub(crate) exact: u64,
    /// Limits in answers of Redis that were held to the least that it must have counted.
    pub(crate) at_least: u64,
    /// The same with the most.
    pub(crate) at_most: u64,
    /// Limits in answers that one of the two bounds says nothing about.
    pub(crate) unjudged: u64,
}

/// Computes all answers again.
pub(crate) fn review(limits: &[[Limit; 2]], ledger: &Ledger, facts: &Facts) -> Review {
    let mut review = Review::default();
    for (caller, both) in limits.iter().enumerate() {
        match facts.is_calm {
            true => calm::judge(both, caller, ledger, &mut review),
            false => bounds::judge(both, caller, (ledger, facts), &mut review),
        }
    }
    review
}
