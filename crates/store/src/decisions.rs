//! Who has decided about requests, for metrics, traces and the access log.

use tollgate_limit::Decision;
use tollgate_observe::metrics::Count;

use super::{Store, StoreError, named::named};

named! {
    /// Who decided about the charges of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Decider {
        /// The process, whose counters these are.
        Memory = "memory",
        /// The process, whose counters these are, and are on its disk.
        Disk = "disk",
        /// Redis.
        Redis = "redis",
        /// The worker, which remembers that Redis has denied the same until some time.
        Memo = "memo",
        /// The process in place of Redis, for a part at least: `on_store_error: local`.
        Local = "local",
        /// No store, for a part at least: `on_store_error: open`.
        Open = "open",
        /// No store, and a limit fails closed: `on_store_error: closed`.
        Closed = "closed",
    }
}

/// What a worker counts.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct DecisionCounts([Count; Decider::ALL.len()]);

impl DecisionCounts {
    pub(super) fn count(&self, decider: Decider) {
        self.of(decider).increment();
    }

    pub(super) fn of(&self, decider: Decider) -> &Count {
        decider.of(&self.0)
    }
}

impl Store {
    /// Counts what came of charges that were not decided by the memo, nor by the process alone.
    pub(super) fn count_decision(&self, decision: &Result<Decision, StoreError>) {
        let decider = match decision {
            Ok(decision) => self.stores.decider_of(&decision.outcomes),
            Err(StoreError::Unanswered(_)) => Decider::Closed,
            // The process has no room: `Counts` has these.
            Err(StoreError::NoRoom(_)) => return,
        };
        self.decisions.count(decider);
    }
}
