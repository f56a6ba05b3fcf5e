//! The greatest instant that clients have given: what ends client-timed counters.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_clock::Timestamp;

/// The greatest instant that was charged.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    latest: AtomicU64,
    /// Where it was when counters were last dropped.
    swept: AtomicU64,
}

impl Watermark {
    /// Notes a charge.
    pub(crate) fn advance(&self, at: Timestamp) {
        self.latest.fetch_max(at.as_micros(), Ordering::Relaxed);
    }

    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp::from_micros(self.latest.load(Ordering::Relaxed))
    }

    /// The instant by which counters are over that are dropped now.
    pub(crate) fn begin_sweep(&self) -> Timestamp {
        let latest = self.latest();
        // Before any of them goes: who misses a counter knows that it may have been dropped.
        self.swept.fetch_max(latest.as_micros(), Ordering::SeqCst);
        latest
    }

    /// Whatever ended later than this was not dropped.
    pub(crate) fn swept(&self) -> Timestamp {
        Timestamp::from_micros(self.swept.load(Ordering::SeqCst))
    }
}
