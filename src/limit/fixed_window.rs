//! Fixed window with a stored end, as GitHub counts.
//!
//! The first charge opens the window and fixes its end; everything told to the client is read from
//! that stored end, so it never wobbles. Windows that start with each caller's own traffic do not
//! stampede at a common boundary; the price, known from the published systems, is that up to twice
//! the limit can pass around one end. Aligned windows end for all callers at once.

use std::time::Duration;

use super::{Algorithm, Bytes, Calendar, MAX_SKEW, Receipt, Retry, Standing, State, borne};
use crate::clock::Timestamp;

/// `limit` units in each window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Units a window, at most 2^31 - 1. Zero denies always.
    pub limit: u32,
    /// Where windows begin and end.
    pub align: Align,
}

/// Where windows begin and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Align {
    /// A window begins with the first charge after the last one's end, and is this long.
    FirstRequest(Duration),
    /// Windows of this length follow each other from 1970-01-01T00:00:00Z on.
    Epoch(Duration),
    /// Windows are hours, days, weeks, months or years of a time zone.
    Calendar(Calendar),
}

impl Align {
    /// The end of a window that is open at `now`.
    fn end(&self, now: Timestamp) -> Timestamp {
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

    /// The ends of two windows, one of which is open at any instant near `now`: for a store that has
    /// a clock of its own and no calendar.
    pub(crate) fn ends_near(&self, now: Timestamp) -> [Timestamp; 2] {
        let skew = MAX_SKEW.as_micros() as u64;
        let first = self.end(Timestamp::from_micros(now.as_micros().saturating_sub(skew)));
        [first, self.end(first)]
    }

    /// No window is longer than this.
    pub fn max_length(&self) -> Duration {
        match self {
            Align::FirstRequest(length) | Align::Epoch(length) => *length,
            Align::Calendar(calendar) => calendar.unit.max_length(),
        }
    }
}

/// What was used, and when that no longer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Units used.
    pub used: u32,
    /// The window's end, inclusive: at this instant it is over.
    pub reset: Timestamp,
}

impl State for Window {
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.reset
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.used.to_le_bytes());
        bytes.extend(self.reset.as_micros().to_le_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Window> {
        let (used, reset) = (bytes.u32()?, bytes.u64()?);
        Some(Window { used, reset: Timestamp::from_micros(reset) })
    }
}

impl FixedWindow {
    /// The window at `now`: the stored one while it is open, else a fresh one.
    ///
    /// One that is ahead means that the clock went back; its end is moved to where it would be now, and
    /// the count kept.
    fn open(&self, window: &Window, now: Timestamp) -> Window {
        if window.is_over(now) {
            Window { used: 0, reset: self.align.end(now) }
        } else if self.is_ahead(window, now) {
            Window { used: window.used, reset: self.align.end(now) }
        } else {
            *window
        }
    }

    /// Whether no clock that is as far ahead as is borne could have opened it.
    fn is_ahead(&self, window: &Window, now: Timestamp) -> bool {
        let length = self.align.max_length();
        // Ends of calendars take time to find out, and hardly ever does one matter.
        window.reset > now + length && window.reset > self.align.end(now + borne(length))
    }

    /// The receipt of the charge that made `window` what it is.
    pub(crate) fn receipt(&self, window: &Window) -> Receipt {
        Receipt { at: window.reset, number: 0 }
    }
}

impl Algorithm for FixedWindow {
    type State = Window;

    fn capacity(&self) -> u32 {
        self.limit
    }

    fn admits(&self, window: &Window, cost: u32, now: Timestamp) -> bool {
        let used = if window.is_over(now) { 0 } else { window.used };
        u64::from(used) + u64::from(cost) <= u64::from(self.limit)
    }

    fn take(&self, window: &mut Window, cost: u32, now: Timestamp) -> Receipt {
        let open = self.open(window, now);
        *window = Window { used: open.used.saturating_add(cost), ..open };
        self.receipt(window)
    }

    fn standing(&self, window: &Window, now: Timestamp) -> Standing {
        let Window { used, reset } = self.open(window, now);
        Standing {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            used,
            reset,
            next: if used < self.limit { now } else { reset },
            retry: Retry::Now,
        }
    }

    fn retry(&self, window: &Window, cost: u32, now: Timestamp) -> Retry {
        if cost > self.limit { Retry::Never } else { Retry::At(self.open(window, now).reset) }
    }

    fn penalize(&self, window: &mut Window, _cost: u32, now: Timestamp) {
        if !window.is_over(now) {
            *window = self.open(window, now);
        }
    }

    fn give_back(&self, window: &mut Window, receipt: Receipt, cost: u32, now: Timestamp) {
        if window.reset == receipt.at && !window.is_over(now) {
            window.used = window.used.saturating_sub(cost);
        }
    }

    fn beyond(&self, window: &Window, base: &Window, now: Timestamp) -> Option<Window> {
        let known = if base.reset == window.reset { base.used } else { 0 };
        let used = window.used.saturating_sub(known);
        (used > 0 && !window.is_over(now)).then_some(Window { used, ..*window })
    }

    /// An open window keeps its end, even where the other one's is later: a caller has one window
    /// at a time.
    fn add(&self, window: &mut Window, other: &Window, now: Timestamp) {
        if !other.is_over(now) {
            let is_over = window.is_over(now);
            let open = self.open(if is_over { other } else { window }, now);
            let used = if is_over { 0 } else { open.used };
            *window = Window { used: used.saturating_add(other.used), ..open };
        }
    }

    fn join(&self, window: &mut Window, other: &Window, now: Timestamp) -> bool {
        let used = |window: &Window| if window.is_over(now) { 0 } else { window.used };
        let is_more = used(other) > used(window);
        if is_more {
            *window = *other;
        }
        is_more
    }
}

#[cfg(test)]
mod tests;
