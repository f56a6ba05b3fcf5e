//! What a limit decides, as pure functions of (state, cost, now).
//!
//! An algorithm is a file below this one. It gives four steps: `open` the stored state at an
//! instant, ask whether it `admits` a cost, `charge` it, and tell its `standing`. A store does the
//! first two for every limit of a request and the third only if all of them admit: that is what
//! makes several limits all or nothing, and a denied request free.

mod fixed_window;
mod key;

use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Timestamp;

pub use self::{
    fixed_window::FixedWindow,
    key::{Key, KeyHasher, LimitId},
};

/// How much a caller may use: `limit` units in each `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Units a window, at most 2^31 - 1. Zero denies always.
    pub limit: u32,
    /// Length of the window, at most 366 days.
    pub window: Duration,
}

/// One limit, one key, one cost: what a request asks of the store.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// Which counter.
    pub key: Key,
    /// What the counter may reach.
    pub quota: Quota,
    /// Units to take.
    pub cost: u32,
}

/// Whether all charges of a request were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All were taken.
    Allow,
    /// None was taken; the charge at this position was the first that could not be.
    Deny(usize),
}

/// What the store answers: the verdict and how each limit stands, from one read.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Taken or not.
    pub verdict: Verdict,
    /// One for each charge, in the order of the charges.
    pub standings: Standings,
}

/// Standings of the few limits of a request.
pub type Standings = SmallVec<[Standing; 2]>;

impl Decision {
    /// When a denied client should come back: the latest instant that any denying limit asks for.
    pub fn retry(&self) -> Retry {
        self.standings.iter().map(|standing| standing.retry).max().unwrap_or(Retry::Now)
    }
}

/// How a limit stands for one key, as response headers tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units a window.
    pub limit: u32,
    /// Units left now.
    pub remaining: u32,
    /// Units taken in this window.
    pub used: u32,
    /// When the limit is full again.
    pub reset: Timestamp,
    /// When one more unit can be taken.
    pub next: Timestamp,
    /// When the cost that was asked for can be taken.
    pub retry: Retry,
}

/// When a cost that was denied would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// It was not denied.
    Now,
    /// From this instant on, if nothing else is charged.
    At(Timestamp),
    /// Not under this quota: the cost exceeds what can ever be left.
    Never,
}

/// How far a stored time may lie ahead of the clock before it is taken for a clock that jumped
/// back, and healed.
const MAX_SKEW: Duration = Duration::from_secs(5);
