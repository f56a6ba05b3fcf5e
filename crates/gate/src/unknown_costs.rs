//! Costs that a response was to tell, and did not.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate_clock::{Throttle, Timestamp};
use tollgate_usage::response::Unread;

/// Why a response did not tell what its request has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It has ended without.
    Missing,
    /// It could not be read.
    Unread(Unread),
}

/// How many costs stayed unknown, by reason.
pub struct UnknownCosts {
    counts: [AtomicU64; UNKNOWN.len()],
    warnings: Throttle,
}

/// How long it is not logged again that a cost is unknown.
const PAUSE: Duration = Duration::from_secs(60);

/// All reasons, with the names that metrics give them.
const UNKNOWN: [(Unknown, &str); 5] = [
    (Unknown::Missing, "missing"),
    (Unknown::Unread(Unread::ContentType), "content_type"),
    (Unknown::Unread(Unread::ContentCoding), "content_coding"),
    (Unknown::Unread(Unread::Malformed), "malformed"),
    (Unknown::Unread(Unread::TooLong), "too_long"),
];

impl Default for UnknownCosts {
    fn default() -> Self {
        UnknownCosts { counts: Default::default(), warnings: Throttle::new(PAUSE) }
    }
}

impl UnknownCosts {
    /// Counts one at `now`, and warns of it now and then.
    pub(super) fn note(&self, why: Unknown, source: &str, now: Timestamp) {
        let named = UNKNOWN.iter().zip(&self.counts).find(|((own, _), _)| *own == why);
        let Some(((_, reason), count)) = named else { return };
        count.fetch_add(1, Ordering::Relaxed);
        if self.warnings.take(now) {
            tracing::warn!(reason, source, "a response did not tell what its request has cost");
        }
    }

    /// How many there were, by the name of the reason.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        UNKNOWN.iter().map(|(_, name)| *name).zip(counts)
    }
}
