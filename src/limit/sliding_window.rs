//! Sliding window counter, as Cloudflare counts.
//!
//! Two numbers a key: the units of the present window and of the one before. The window before
//! counts in proportion to how much of it the last `window` of time still covers, as if its units
//! had come evenly. So there is no edge at which twice the limit passes, at the price of an
//! estimate. The weight is a fraction with `window` below the line and is never rounded but to the
//! whole unit that a decision needs, so each decision is exact.

use std::time::Duration;

use super::{Algorithm, Bytes, Receipt, Retry, Standing, State, borne};
use crate::clock::Timestamp;

/// `limit` units in any `window`, by estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Units a window. Zero denies always.
    pub limit: u32,
    /// Windows follow each other from 1970-01-01T00:00:00Z on, and are this long.
    pub window: Duration,
    /// Microseconds in a step of time: the instants that are told are a whole number of steps.
    unit: u64,
}

/// What was used in the present window and in the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Units used in the present window, which is that of the last charge.
    pub current: u32,
    /// Units used in the window before.
    pub previous: u32,
    /// When the present window no longer counts: a window after its end.
    pub expires: Timestamp,
}

/// [`Windows`] at an instant.
struct Open {
    current: u32,
    previous: u32,
    /// Start of the present window, in microseconds since the epoch.
    start: u64,
    /// Steps of the present window that have passed.
    elapsed: u64,
}

impl State for Windows {
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.current.to_le_bytes());
        bytes.extend(self.previous.to_le_bytes());
        bytes.extend(self.expires.as_micros().to_le_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Windows> {
        let (current, previous) = (bytes.u32()?, bytes.u32()?);
        Some(Windows { current, previous, expires: Timestamp::from_micros(bytes.u64()?) })
    }
}

impl SlidingWindow {
    /// Counts in microseconds, or in milliseconds if a store that has only doubles (Lua) could not
    /// do it exactly otherwise; none if it could not do that either, or if the window is empty or no
    /// whole number of milliseconds.
    pub fn new(limit: u32, window: Duration) -> Option<SlidingWindow> {
        const DOUBLES_ARE_EXACT_BELOW: u128 = 1 << 53;
        let micros = window.as_micros();
        let is_exact = |unit: &u64| {
            2 * u128::from(limit.max(1)) * (micros / u128::from(*unit)) < DOUBLES_ARE_EXACT_BELOW
        };
        let is_whole = !window.is_zero() && window.as_nanos().is_multiple_of(1_000_000);
        let unit = [1, 1000].into_iter().find(is_exact).filter(|_| is_whole)?;
        Some(SlidingWindow { limit, window, unit })
    }

    /// The windows as they are at `now`: time has gone on since the last charge.
    ///
    /// A clock that is a little behind the present window is taken to be at its start. If it is
    /// further behind, it went back: what was used is moved to the window of `now`.
    fn open(&self, windows: &Windows, now: Timestamp) -> Open {
        let length = self.length() * self.unit;
        let start = now.as_micros() - now.as_micros() % length;
        let last = windows.expires.as_micros().saturating_sub(2 * length);

        let (start, current, previous) = if windows.is_over(now) {
            (start, 0, 0)
        } else if last > (now + borne(self.window)).as_micros() {
            (start, windows.current, 0)
        } else if last >= start {
            (last, windows.current, windows.previous)
        } else {
            (start, 0, windows.current)
        };
        let elapsed = (now.as_micros().saturating_sub(start) / self.unit).min(self.length());
        Open { current, previous, start, elapsed }
    }

    /// The same when the window that begins at `start` is the present one: the clock may be a little
    /// behind it.
    fn reach(&self, open: Open, start: u64) -> Open {
        let length = self.length() * self.unit;
        match start.saturating_sub(open.start) {
            0 => open,
            ahead => {
                let previous = if ahead == length { open.current } else { 0 };
                Open { current: 0, previous, start, elapsed: 0 }
            }
        }
    }

    /// What a window that has ended can count for: no more than the limit, lest one that was lowered
    /// deny for longer than a window.
    fn clamp(&self, used: u32) -> u32 {
        used.min(self.limit)
    }

    /// Units used, the window before weighed and rounded up to a whole unit. As costs are whole
    /// units, that rounding changes no decision.
    fn used(&self, open: &Open) -> u64 {
        let weighed = u64::from(self.clamp(open.previous)) * (self.length() - open.elapsed);
        u64::from(open.current) + weighed.div_ceil(self.length())
    }

    fn fits(&self, open: &Open, cost: u32) -> bool {
        self.used(open) + u64::from(cost) <= u64::from(self.limit)
    }

    /// When `cost`, which does not fit, will: later in this window, as the one before weighs less
    /// and less; or else in the next one, as this one does.
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

    /// The instant that lies `steps` after the start of the present window.
    fn instant(&self, open: &Open, steps: u64) -> Timestamp {
        Timestamp::from_micros(open.start.saturating_add(steps.saturating_mul(self.unit)))
    }

    /// Steps in a window.
    fn length(&self) -> u64 {
        self.window.as_micros() as u64 / self.unit
    }

    /// Microseconds in a step of time, 1 or 1000: stores that have only doubles count in it.
    pub(crate) fn grain(&self) -> u64 {
        self.unit
    }

    /// The receipt of the charge that made `windows` what they are: it tells which was charged.
    pub(crate) fn receipt(&self, windows: &Windows) -> Receipt {
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
            // Nothing ever fits: clients are not to ask again and again.
            Retry::Now | Retry::Never => now + self.window,
        };
        let remaining = self.limit.saturating_sub(used);
        Standing { limit: self.limit, remaining, used, reset, next, retry: Retry::Now }
    }

    fn retry(&self, windows: &Windows, cost: u32, now: Timestamp) -> Retry {
        self.fits_from(&self.open(windows, now), cost)
    }

    fn penalize(&self, windows: &mut Windows, _cost: u32, now: Timestamp) {
        let open = self.open(windows, now);
        if self.store(&open).expires < windows.expires {
            *windows = self.store(&open);
        }
    }

    /// What was charged in this window is taken off it, what was charged in the one before off that.
    fn give_back(&self, windows: &mut Windows, receipt: Receipt, cost: u32, _now: Timestamp) {
        if windows.expires == receipt.at {
            windows.current = windows.current.saturating_sub(cost);
        } else if windows.expires == receipt.at + self.window {
            windows.previous = windows.previous.saturating_sub(cost);
        }
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

    /// The greater of both for each of the two windows.
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
}

#[cfg(test)]
mod tests;
