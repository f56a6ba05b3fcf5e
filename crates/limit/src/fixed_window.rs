//! Fixed window with a stored end, as GitHub counts.
//!
//! The first charge opens the window and fixes its end. All that clients see is computed from that
//! stored end, so it stays the same for the whole window. Windows that start with each caller's own
//! traffic do not all reopen at one instant. The price, known from published systems, is that up to
//! twice the limit can pass around one end. Aligned windows end for all callers at once.

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    align::Align,
    skew::tolerated_skew,
    standing::{Retry, Standing},
    terms::Terms,
};

/// `limit` units in each window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Units in a window, at most 2^31 - 1. Zero always denies.
    pub limit: u32,
    /// Where windows begin and end.
    pub align: Align,
}

/// What was used, and when it stops counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Units used.
    pub used: u32,
    /// The window's end, inclusive: at this instant it is over.
    pub reset: Timestamp,
}

impl State for Window {
    type Count = Self;

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.reset
    }

    fn count(&self) -> Self {
        *self
    }

    fn of_count(count: &Self) -> Option<Self> {
        Some(*count)
    }

    fn share_of(count: &Self, instances: NonZeroU32) -> Self {
        Window { used: count.used.div_ceil(instances.get()), ..*count }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.used.to_le_bytes());
        bytes.extend(self.reset.as_micros().to_le_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Window> {
        let used = bytes.u32()?;
        let reset = bytes.u64()?;
        Some(Window { used, reset: Timestamp::from_micros(reset) })
    }
}

impl FixedWindow {
    /// The window at `now`: the stored one while it is open, else a new one.
    ///
    /// A window that is too far ahead means that the clock went back. Its end is moved to where a
    /// new window would end, and its count is kept.
    fn open(&self, window: &Window, now: Timestamp) -> Window {
        if window.is_over(now) {
            Window { used: 0, reset: self.align.end(now) }
        } else if self.is_ahead(window, now) {
            Window { used: window.used, reset: self.align.end(now) }
        } else {
            *window
        }
    }

    /// Whether it ends later than any window opened by a clock within the tolerated skew.
    fn is_ahead(&self, window: &Window, now: Timestamp) -> bool {
        let length = self.align.max_length();
        // The first comparison is cheap and nearly always false; the end of a calendar window is
        // not cheap to compute.
        window.reset > now + length && window.reset > self.align.end(now + tolerated_skew(length))
    }

    /// The receipt of the latest charge in `window`.
    pub fn receipt(&self, window: &Window) -> Receipt {
        Receipt { at: window.reset, number: 0 }
    }
}

impl Algorithm for FixedWindow {
    type State = Window;

    const DENIES_UNTIL_RETRY: bool = true;

    fn capacity(&self) -> u32 {
        self.limit
    }

    fn longest(&self) -> Duration {
        self.align.max_length()
    }

    fn share(&self, instances: NonZeroU32) -> FixedWindow {
        let limit = self.limit.div_ceil(instances.get());
        FixedWindow { limit, align: self.align.clone() }
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

    fn on_denied(&self, window: &mut Window, _cost: u32, now: Timestamp) {
        if !window.is_over(now) {
            *window = self.open(window, now);
        }
    }

    fn give_back(&self, window: &mut Window, receipt: Receipt, cost: u32, now: Timestamp) {
        if window.reset == receipt.at && !window.is_over(now) {
            window.used = window.used.saturating_sub(cost);
        }
    }

    /// The start of the longest window that has this end. Where windows differ in length, the
    /// window may have begun later; at any instant in between, it counts as open.
    fn mark(&self, window: &Window) -> Timestamp {
        window.reset.saturating_sub(self.align.max_length())
    }

    fn beyond(&self, window: &Window, base: &Window, now: Timestamp) -> Option<Window> {
        let known = if base.reset == window.reset { base.used } else { 0 };
        let used = window.used.saturating_sub(known);
        (used > 0 && !window.is_over(now)).then_some(Window { used, ..*window })
    }

    /// An open window keeps its end, even if the other one ends later: a caller has one window at a
    /// time.
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

    /// A window that ends later was opened after the charge.
    fn receipt_in(&self, window: &Window, receipt: Receipt, _cost: u32) -> Option<Receipt> {
        (window.reset <= receipt.at).then(|| self.receipt(window))
    }

    fn plain(units: u32, window: Duration) -> Option<FixedWindow> {
        Some(FixedWindow { limit: units, align: Align::FirstRequest(window) })
    }

    fn terms(&self) -> Terms {
        Terms::of_windows(self.limit, self.align.max_length())
    }

    fn align(&self) -> Option<&Align> {
        Some(&self.align)
    }

    fn open_receipt(&self, standing: &Standing, _cost: u32, _now: Timestamp) -> Option<Receipt> {
        Some(Receipt { at: standing.reset, number: 0 })
    }
}

#[cfg(test)]
mod tests;
