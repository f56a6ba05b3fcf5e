//! Who has decided about requests, for metrics, traces and the access log.

use tollgate_keyword::{Keyword, keywords};
use tollgate_limit::{DecidedBy, Decision, Outcome};
use tollgate_observe::metrics::Count;

use crate::{Store, StoreError};

keywords! {
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
pub(crate) struct DecisionCounts([Count; Decider::KEYWORDS.len()]);

impl DecisionCounts {
    pub(crate) fn count(&self, decider: Decider) {
        if let Some(count) = self.0.get(decider as usize) {
            count.increment();
        }
    }

    /// In the order of the deciders' keywords.
    pub(crate) fn all(&self) -> &[Count; Decider::KEYWORDS.len()] {
        &self.0
    }
}

impl Store {
    /// Counts what came of charges.
    pub(crate) fn count_decision(&self, decision: &Result<Decision, StoreError>) {
        let decider = match decision {
            Ok(decision) => self.stores.decider_of(&decision.outcomes),
            Err(StoreError::Unanswered(_)) => Decider::Closed,
            Err(StoreError::NoRoom(reason)) => return self.stores.counts.count_no_room(*reason),
        };
        self.decisions.count(decider);
    }

    /// Counts the charges that found no room and were left out.
    pub(crate) fn count_left_out(&self, decision: &Decision) {
        let is_left_out = |outcome: &&Outcome| outcome.decided_by == DecidedBy::NoStore;
        let left_out = decision.outcomes.iter().filter(is_left_out).count();
        if left_out > 0 {
            self.stores.counts.uncounted.add(left_out);
        }
    }
}
