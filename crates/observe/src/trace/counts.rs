//! What became of spans, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a span was not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Too many wait.
    QueueFull,
    /// The endpoint could not be reached, or did not take them for too long.
    Undelivered,
    /// The endpoint has refused them.
    Refused,
}

/// What became of all spans so far.
#[derive(Debug, Default)]
pub struct TraceCounts {
    exported: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl DropReason {
    /// All of them.
    pub const ALL: [DropReason; 3] =
        [DropReason::QueueFull, DropReason::Undelivered, DropReason::Refused];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::Undelivered => "undelivered",
            DropReason::Refused => "refused",
        }
    }
}

impl TraceCounts {
    /// Spans that the endpoint has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.of(reason).load(Ordering::Relaxed)
    }

    pub(super) fn count_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self, reason: DropReason, spans: usize) {
        self.of(reason).fetch_add(spans as u64, Ordering::Relaxed);
    }

    fn of(&self, reason: DropReason) -> &AtomicU64 {
        let [queue_full, undelivered, refused] = &self.dropped;
        match reason {
            DropReason::QueueFull => queue_full,
            DropReason::Undelivered => undelivered,
            DropReason::Refused => refused,
        }
    }
}
