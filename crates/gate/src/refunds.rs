//! Counts of refunds: those that responses give back by their status, and those that a limit's
//! `at_most` withholds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of charges since the start.
#[derive(Debug, Default)]
pub struct Refunds {
    given: AtomicU64,
    withheld: AtomicU64,
}

impl Refunds {
    /// Charges that were given back.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Charges that would have been given back if `at_most` had had room.
    pub fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::Relaxed)
    }

    pub(super) fn count_given(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_withheld(&self) {
        self.withheld.fetch_add(1, Ordering::Relaxed);
    }
}
