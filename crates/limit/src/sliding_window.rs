//! Sliding window counter, as Cloudflare counts.
//!
//! Two numbers for each key: the units of the current window and of the previous one. The previous
//! window counts in proportion to how much of it the last `window` of time still covers, as if its
//! units had been charged evenly. So there is no edge at which twice the limit passes, at the price
//! of an estimate. The weight is a fraction with `window` as its denominator. It is rounded only to
//! the whole unit that a decision needs, so each decision is exact.

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    skew::tolerated_skew,
    standing::{Retry, Standing},
    terms::Terms,
};

/// `limit` units in any `window`, estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Units in a window. Zero always denies.
    pub limit: u32,
    /// The length of windows, which follow one another from 1970-01-01T00:00:00Z on.
    pub window: Duration,
    /// Microseconds in a step of time: reported instants are a whole number of steps.
    time_grain: u64,
}

/// What was used in the current window and in the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Units used in the current window, which is that of the last charge.
    pub current: u32,
    /// Units used in the previous window.
    pub previous: u32,
    /// When the current window stops counting: a window after its end.
    pub expires: Timestamp,
}

/// [`Windows`] at an instant.
struct Open {
    current: u32,
    previous: u32,
    /// Start of the current window, in microseconds since the epoch.
    start: u64,
    /// Steps of the current window that have passed.
    elapsed: u64,
}

impl State for Windows {
    type Count = Self;

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires
    }

    fn count(&self) -> Self {
        *self
    }

    fn of_count(count: &Self) -> Option<Self> {
        Some(*count)
    }

    fn share_of(count: &Self, instances: NonZeroU32) -> Self {
        let [current, previous] =
            [count.current, count.previous].map(|units| units.div_ceil(instances.get()));
        Windows { current, previous, ..*count }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.current.to_le_bytes());
        bytes.extend(self.previous.to_le_bytes());
        bytes.extend(self.expires.as_micros().to_le_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Windows> {
        let current = bytes.u32()?;
        let previous = bytes.u32()?;
        Some(Windows { current, previous, expires: Timestamp::from_micros(bytes.u64()?) })
    }
}

impl SlidingWindow {
    /// Counts in microseconds, or in milliseconds if microseconds are too many for a store that has
    /// only doubles (Lua) to count exactly. None if milliseconds are too many, too, or if the
    /// window is empty or not a whole number of milliseconds.
    pub fn new(limit: u32, window: Duration) -> Option<SlidingWindow> {
        const DOUBLES_ARE_EXACT_BELOW: u128 = 1 << 53;
        let micros = window.as_micros();
        let is_exact = |time_grain: &u64| {
            let steps = micros / u128::from(*time_grain);
            2 * u128::from(limit.max(1)) * steps < DOUBLES_ARE_EXACT_BELOW
        };
        let is_whole = !window.is_zero() && window.as_nanos().is_multiple_of(1_000_000);
        let time_grain = [1, 1000].into_iter().find(is_exact).filter(|_| is_whole)?;
        Some(SlidingWindow { limit, window, time_grain })
    }

    /// The windows as they are at `now`, which may be later than the last charge.
    ///
    /// A clock that is slightly behind the current window counts as being at its start. If it is
    /// further behind, it went back, and what was used is moved to the window of `now`.
    fn open(&self, windows: &Windows, now: Timestamp) -> Open {
        let length = self.length() * self.time_grain;
        let start = now.as_micros() - now.as_micros() % length;
        let last = windows.expires.as_micros().saturating_sub(2 * length);

        let (start, current, previous) = if windows.is_over(now) {
            (start, 0, 0)
        } else if last > (now + tolerated_skew(self.window)).as_micros() {
            (start, windows.current, 0)
        } else if last >= start {
            (last, windows.current, windows.previous)
        } else {
            (start, 0, windows.current)
        };
        let elapsed = (now.as_micros().saturating_sub(start) / self.time_grain).min(self.length());
        Open { current, previous, start, elapsed }
    }

    /// The same with the window that begins at `start` as the current one. The clock may be
    /// slightly behind it.
    fn reach(&self, open: Open, start: u64) -> Open {
        let length = self.length() * self.time_grain;
        match start.saturating_sub(open.start) {
            0 => open,
            ahead => {
                let previous = if ahead == length { open.current } else { 0 };
                Open { current: 0, previous, start, elapsed: 0 }
            }
        }
    }

    /// What a window that has ended can count for: no more than the limit, so that a lowered limit
    /// does not deny for longer than a window.
    fn clamp(&self, used: u32) -> u32 {
        used.min(self.limit)
    }

    /// Units used, with the previous window weighted and rounded up to a whole unit. Costs are
    /// whole units, so that rounding changes no decision.
    fn used(&self, open: &Open) -> u64 {
        let weighed = u64::from(self.clamp(open.previous)) * (self.length() - open.elapsed);
        u64::from(open.current) + weighed.div_ceil(self.length())
    }

    fn fits(&self, open: &Open, cost: u32) -> bool {
        self.used(open) + u64::from(cost) <= u64::from(self.limit)
    }

    /// When `cost`, which does not fit now, will fit: later in this window, as the weight of the
    /// previous one shrinks; or else in the next window, as the weight of this one does.
    fn fits_from(&self, open: &Open, cost: u32) -> Retry {
        let Some(room) = self.limit.checked_sub(cost) else { return Retry::Never };
        let (weighing, room, skipped) = match room.checked_sub(open.current) {
            Some(room) => (self.clamp(open.previous), room, 0),
            None => (self.clamp(open.current), room, self.length()),
        };
        // The weight shrinks from all units to none in a window.
        let excess = u64::from(weighing.saturating_sub(room)) * self.length();
        Retry::At(self.instant(open, skipped + excess.div_ceil(u64::from(weighing.max(1)))))
    }

    fn reset(&self, open: &Open, now: Timestamp) -> Timestamp {
        match open {
            Open { current: 1.., .. } => self.instant(open, 2 * self.length()),
            Open { previous: 1.., .. } => self.instant(open, self.length()),
            _ => now,
        }
    }

    /// The instant that lies `steps` after the start of the current window.
    fn instant(&self, open: &Open, steps: u64) -> Timestamp {
        Timestamp::from_micros(open.start.saturating_add(steps.saturating_mul(self.time_grain)))
    }

    /// Steps in a window.
    fn length(&self) -> u64 {
        self.window.as_micros() as u64 / self.time_grain
    }

    /// Microseconds in a step of time, 1 or 1000: stores that have only doubles count in steps.
    pub fn time_grain(&self) -> u64 {
        self.time_grain
    }

    /// The receipt of the latest charge in `windows`: it names the window that was charged.
    pub fn receipt(&self, windows: &Windows) -> Receipt {
        Receipt { at: windows.expires, number: 0 }
    }

    fn store(&self, open: &Open) -> Windows {
        let expires = self.instant(open, 2 * self.length());
        Windows { current: open.current, previous: open.previous, expires }
    }
}

impl Algorithm for SlidingWindow {
    type State = Windows;

    fn capacity(&self) -> u32 {
        self.limit
    }

    fn longest(&self) -> Duration {
        self.window.saturating_mul(2)
    }

    fn share(&self, instances: NonZeroU32) -> SlidingWindow {
        SlidingWindow { limit: self.limit.div_ceil(instances.get()), ..*self }
    }

    fn admits(&self, windows: &Windows, cost: u32, now: Timestamp) -> bool {
        self.fits(&self.open(windows, now), cost)
    }

    fn take(&self, windows: &mut Windows, cost: u32, now: Timestamp) -> Receipt {
        let open = self.open(windows, now);
        *windows = self.store(&Open { current: open.current.saturating_add(cost), ..open });
        self.receipt(windows)
    }

    fn standing(&self, windows: &Windows, now: Timestamp) -> Standing {
        let open = self.open(windows, now);
        let used = u32::try_from(self.used(&open)).unwrap_or(u32::MAX);
        let reset = self.reset(&open, now);
        let next = match self.fits_from(&open, 1) {
            _ if self.fits(&open, 1) => now,
            Retry::At(next) => next,
            // Nothing ever fits. Clients should not retry again and again.
            Retry::Now | Retry::Never => now + self.window,
        };
        let remaining = self.limit.saturating_sub(used);
        Standing { limit: self.limit, remaining, used, reset, next, retry: Retry::Now }
    }

    fn retry(&self, windows: &Windows, cost: u32, now: Timestamp) -> Retry {
        self.fits_from(&self.open(windows, now), cost)
    }

    fn on_denied(&self, windows: &mut Windows, _cost: u32, now: Timestamp) {
        let open = self.open(windows, now);
        if self.store(&open).expires < windows.expires {
            *windows = self.store(&open);
        }
    }

    /// A charge is subtracted from the window that it was made in, current or previous.
    fn give_back(&self, windows: &mut Windows, receipt: Receipt, cost: u32, _now: Timestamp) {
        if windows.expires == receipt.at {
            windows.current = windows.current.saturating_sub(cost);
        } else if windows.expires == receipt.at + self.window {
            windows.previous = windows.previous.saturating_sub(cost);
        }
    }

    /// The start of the current window.
    fn mark(&self, windows: &Windows) -> Timestamp {
        windows.expires.saturating_sub(self.window.saturating_mul(2))
    }

    fn beyond(&self, windows: &Windows, base: &Windows, now: Timestamp) -> Option<Windows> {
        let [open, base] = [windows, base].map(|windows| self.open(windows, now));
        let current = open.current.saturating_sub(base.current);
        let previous = open.previous.saturating_sub(base.previous);
        let beyond = Open { current, previous, ..open };
        (current > 0 || previous > 0).then(|| self.store(&beyond))
    }

    fn add(&self, windows: &mut Windows, other: &Windows, now: Timestamp) {
        let [open, other] = [&*windows, other].map(|windows| self.open(windows, now));
        let current = open.current.saturating_add(other.current);
        let previous = open.previous.saturating_add(other.previous);
        *windows = self.store(&Open { current, previous, ..open });
    }

    /// The greater count of both for each of the two windows.
    fn join(&self, windows: &mut Windows, other: &Windows, now: Timestamp) -> bool {
        let [open, other] = [&*windows, other].map(|windows| self.open(windows, now));
        let start = open.start.max(other.start);
        let [open, other] = [open, other].map(|open| self.reach(open, start));
        let is_more = other.current > open.current;
        if is_more || other.previous > open.previous {
            let current = open.current.max(other.current);
            let previous = open.previous.max(other.previous);
            *windows = self.store(&Open { current, previous, ..open });
        }
        is_more
    }

    fn plain(units: u32, window: Duration) -> Option<SlidingWindow> {
        SlidingWindow::new(units, window)
    }

    fn terms(&self) -> Terms {
        Terms::of_windows(self.limit, self.window)
    }

    fn open_receipt(&self, _standing: &Standing, _cost: u32, now: Timestamp) -> Option<Receipt> {
        let nothing = Windows::default();
        Some(self.receipt(&self.store(&self.open(&nothing, now))))
    }
}

#[cfg(test)]
mod tests;
