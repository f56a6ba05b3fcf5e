//! The clock of a request's spans.

use std::time::{Duration, Instant};

use tollgate_clock::Timestamp;

/// When a request came. Spans tell the time by its clock, so that they agree with each other and
/// with the access log.
#[derive(Clone, Copy, Debug)]
pub struct StartTime {
    /// By the clock of the proxy.
    pub at: Timestamp,
    /// The same instant, for measuring from it.
    pub instant: Instant,
}

impl StartTime {
    /// An instant after it, in nanoseconds since the epoch.
    pub(super) fn nanos(self, instant: Instant) -> u64 {
        self.nanos_after(instant.saturating_duration_since(self.instant))
    }

    /// The same, so long after it.
    pub(super) fn nanos_after(self, time: Duration) -> u64 {
        self.at.as_micros().saturating_mul(1000).saturating_add(nanos(time))
    }
}

/// A time in nanoseconds, of some centuries at most.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
