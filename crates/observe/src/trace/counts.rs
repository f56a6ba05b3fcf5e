//! What became of spans, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_keyword::{Keyword, keywords};

keywords! {
    /// Why a span was not exported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DropReason {
        /// Too many wait.
        QueueFull = "queue_full",
        /// The endpoint could not be reached, or did not take them for too long.
        Undelivered = "undelivered",
        /// The endpoint has refused them.
        Refused = "refused",
    }
}

/// What became of all spans so far.
#[derive(Debug, Default)]
pub struct TraceCounts {
    exported: AtomicU64,
    dropped: [AtomicU64; DropReason::KEYWORDS.len()],
}

impl TraceCounts {
    /// Spans that the endpoint has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.of(reason).map_or(0, |dropped| dropped.load(Ordering::Relaxed))
    }

    pub(super) fn count_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self, reason: DropReason, spans: usize) {
        if let Some(dropped) = self.of(reason) {
            dropped.fetch_add(spans as u64, Ordering::Relaxed);
        }
    }

    fn of(&self, reason: DropReason) -> Option<&AtomicU64> {
        self.dropped.get(reason as usize)
    }
}
