//! GCRA as an exact meter: what was used drains all the time, `limit` units a window.
//!
//! The textbook form keeps a theoretical arrival time. This one keeps what it stands for, how much
//! is used, in units times microseconds: a unit is `window` of that and every microsecond drains
//! `limit`, so nothing is ever rounded. It decides alike, but after a change of the rate a caller
//! still owes so many units, at the new rate, and not so many seconds.
//!
//! A debt ends with the instant that the caller was told when it was last charged, even if a rate
//! lowered since would have it last longer: a state that is over may be forgotten at any time, and
//! no decision depends on whether it was.

use std::time::Duration;

use super::{Algorithm, Bytes, Receipt, Retry, Standing, State, borne};
use crate::clock::Timestamp;

/// `burst` units at once, and `limit` in each window in the long run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gcra {
    /// Units that drain in a window, at most 2^31 - 1. Zero denies always.
    pub limit: u32,
    /// The time in which `limit` units drain, in whole milliseconds.
    pub window: Duration,
    /// Units that can be used at once.
    pub burst: u32,
    /// The grain of time in microseconds, 1 or 1000: now is rounded down to it, instants that are
    /// told are rounded up.
    unit: u64,
}

/// Used units times microseconds, and since when they have been draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// What was used, in units times microseconds whatever the grain, so that a change of the grain
    /// misreads nothing.
    pub level: u64,
    /// When it was that much.
    pub at: Timestamp,
    /// When it will have drained, inclusive.
    pub full: Timestamp,
}

impl State for Level {
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.full
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [self.level, self.at.as_micros(), self.full.as_micros()] {
            bytes.extend(number.to_le_bytes());
        }
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Level> {
        let (level, at, full) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let (at, full) = (Timestamp::from_micros(at), Timestamp::from_micros(full));
        Some(Level { level, at, full })
    }
}

impl Gcra {
    /// None if a meter for costs up to `max_cost` would be too large to count exactly.
    ///
    /// Stores that calculate in doubles are exact below 2^53. What does not fit in microseconds is
    /// counted in milliseconds, by every store, so that all of them decide alike.
    pub fn new(limit: u32, window: Duration, burst: u32, max_cost: u32) -> Option<Gcra> {
        let [rate, capacity, largest] = [limit, burst, max_cost].map(u128::from);
        let is_exact = |unit: &u64| {
            let per_unit = window.as_micros() / u128::from(*unit);
            (capacity + largest) * per_unit < 1 << 53 && capacity * per_unit + rate < 1 << 53
        };
        let unit = [1, 1000].into_iter().find(is_exact)?;
        (!window.is_zero()).then_some(Gcra { limit, window, burst, unit })
    }

    /// One unit, as a level.
    fn per_unit(&self) -> u64 {
        (self.window.as_micros() as u64).max(1)
    }

    /// The highest level at which `cost` fits, if it can at all.
    fn room(&self, cost: u32) -> Option<u64> {
        let units = self.capacity().checked_sub(cost)?;
        Some(u64::from(units).saturating_mul(self.per_unit()))
    }

    /// What is left of `level`, with the time that counts as now.
    fn drain(&self, level: &Level, now: Timestamp) -> Level {
        let now_rounded = self.round_down(now);
        if level.is_over(now) {
            return Level { level: 0, at: now_rounded, full: now_rounded };
        }
        if level.at > now + borne(self.window) {
            return self.draining(level.level, now_rounded);
        }
        let at = level.at.max(now_rounded);
        let elapsed = at.as_micros() - level.at.as_micros();
        let drained = elapsed.saturating_mul(self.limit.into());
        Level { level: level.level.saturating_sub(drained), at, full: level.full }
    }

    /// A level that begins to drain.
    fn draining(&self, level: u64, at: Timestamp) -> Level {
        Level { level, at, full: self.after(level, at) }
    }

    /// When `level` has fallen to `target`.
    fn falls(&self, level: &Level, target: u64) -> Timestamp {
        self.after(level.level.saturating_sub(target), level.at).min(level.full)
    }

    /// When `amount` has drained from `at` on. A rate of zero drains nothing, and forgets after a
    /// window.
    fn after(&self, amount: u64, at: Timestamp) -> Timestamp {
        let micros = match u64::from(self.limit) {
            0 => self.per_unit(),
            limit => amount.div_ceil(limit),
        };
        let exact = at.as_micros().saturating_add(micros);
        Timestamp::from_micros(exact.checked_next_multiple_of(self.unit).unwrap_or(u64::MAX))
    }

    fn round_down(&self, instant: Timestamp) -> Timestamp {
        Timestamp::from_micros(instant.as_micros() / self.unit * self.unit)
    }

    /// The grain of time in microseconds, 1 or 1000: stores that have only doubles count in it.
    pub(crate) fn grain(&self) -> u64 {
        self.unit
    }

    /// The receipt of the charge that made `level` what it is: the theoretical arrival time, rounded down, and what is left to drain at that instant: what
    /// rounding cut off, so that a refund is exact.
    pub(crate) fn receipt(&self, level: &Level) -> Receipt {
        let limit = u64::from(self.limit);
        let micros = level.level.checked_div(limit).unwrap_or(self.per_unit());
        let at = self.round_down(level.at + Duration::from_micros(micros));
        let drained = at.as_micros().saturating_sub(level.at.as_micros()).saturating_mul(limit);
        Receipt { at, number: level.level.saturating_sub(drained) }
    }
}

impl Algorithm for Gcra {
    type State = Level;

    fn capacity(&self) -> u32 {
        if self.limit == 0 { 0 } else { self.burst }
    }

    fn admits(&self, level: &Level, cost: u32, now: Timestamp) -> bool {
        self.room(cost).is_some_and(|room| self.drain(level, now).level <= room)
    }

    fn take(&self, level: &mut Level, cost: u32, now: Timestamp) -> Receipt {
        let rest = self.drain(level, now);
        let taken = u64::from(cost).saturating_mul(self.per_unit());
        *level = self.draining(rest.level.saturating_add(taken), rest.at);
        self.receipt(level)
    }

    fn standing(&self, level: &Level, now: Timestamp) -> Standing {
        let rest = self.drain(level, now);
        let used = u32::try_from(rest.level.div_ceil(self.per_unit())).unwrap_or(u32::MAX);
        let next = match self.room(1) {
            Some(room) if rest.level <= room => now,
            Some(room) => self.falls(&rest, room),
            // Never; but headers need an instant, and this one keeps clients away for a while.
            None => now + self.window,
        };
        Standing {
            limit: self.capacity(),
            remaining: self.capacity().saturating_sub(used),
            used,
            reset: if used == 0 { now } else { self.falls(&rest, 0) },
            next,
            retry: Retry::Now,
        }
    }

    fn retry(&self, level: &Level, cost: u32, now: Timestamp) -> Retry {
        match self.room(cost) {
            Some(room) => Retry::At(self.falls(&self.drain(level, now), room)),
            None => Retry::Never,
        }
    }

    fn penalize(&self, level: &mut Level, _cost: u32, now: Timestamp) {
        if level.at > now + borne(self.window) {
            *level = self.drain(level, now);
        }
    }

    /// Gives back what would still be owed had nothing else been charged since: once the meter has
    /// been empty, anything more would erase the debt of later charges.
    fn give_back(&self, level: &mut Level, receipt: Receipt, cost: u32, now: Timestamp) {
        let rest = self.drain(level, now);
        let Some(micros) = receipt.at.as_micros().checked_sub(rest.at.as_micros()) else {
            return;
        };
        let owed = micros.saturating_mul(self.limit.into()).saturating_add(receipt.number);
        let taken = u64::from(cost).saturating_mul(self.per_unit());
        let back = owed.min(taken).min(rest.level);
        if back > 0 {
            // The rest is gone when so much of the level was left as is given back now.
            let full = self.falls(&rest, back);
            *level = Level { level: rest.level - back, at: rest.at, full };
        }
    }

    fn beyond(&self, level: &Level, base: &Level, now: Timestamp) -> Option<Level> {
        let [rest, base] = [level, base].map(|level| self.drain(level, now));
        let beyond = rest.level.saturating_sub(base.level);
        (beyond > 0).then(|| self.draining(beyond, rest.at))
    }

    fn add(&self, level: &mut Level, other: &Level, now: Timestamp) {
        let [rest, other] = [&*level, other].map(|level| self.drain(level, now));
        if other.level > 0 {
            *level = self.draining(rest.level.saturating_add(other.level), rest.at);
        }
    }

    /// The one that is empty later.
    fn join(&self, level: &mut Level, other: &Level, now: Timestamp) -> bool {
        let [rest, other] = [&*level, other].map(|level| self.drain(level, now));
        let is_more = other.full > rest.full;
        if is_more {
            *level = other;
        }
        is_more
    }
}

#[cfg(test)]
mod tests;
