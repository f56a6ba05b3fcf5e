//! Where windows begin and end.

use std::time::Duration;

use tollgate_clock::Timestamp;

use super::{calendar::Calendar, skew::MAX_SKEW};

/// Where windows begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Align {
    /// A window begins with the first charge after the last one's end, and is this long.
    FirstRequest(Duration),
    /// Windows of this length follow one another from 1970-01-01T00:00:00Z on.
    Epoch(Duration),
    /// Windows are hours, days, weeks, months or years of a time zone.
    Calendar(Calendar),
}

impl Align {
    /// The end of a window that is open at `now`; it begins then, if windows begin with the first
    /// charge.
    pub fn end(&self, now: Timestamp) -> Timestamp {
        match self {
            Align::FirstRequest(length) => now + *length,
            Align::Epoch(length) => {
                let length = length.as_micros() as u64;
                let index = now.as_micros().checked_div(length).unwrap_or(0);
                Timestamp::from_micros(index.saturating_add(1).saturating_mul(length))
            }
            Align::Calendar(calendar) => calendar.end(now),
        }
    }

    /// The ends of two windows, one of which is open at any instant near `now`: for a store that
    /// has its own clock and no calendar.
    pub fn ends_near(&self, now: Timestamp) -> [Timestamp; 2] {
        let skew = MAX_SKEW.as_micros() as u64;
        let first = self.end(Timestamp::from_micros(now.as_micros().saturating_sub(skew)));
        [first, self.end(first)]
    }

    /// The length of the longest window.
    pub fn max_length(&self) -> Duration {
        match self {
            Align::FirstRequest(length) | Align::Epoch(length) => *length,
            Align::Calendar(calendar) => calendar.unit.max_length(),
        }
    }
}
