//! GCRA as an exact meter: what was used drains continuously, `limit` units per window.
//!
//! The textbook form stores a theoretical arrival time. This one stores how much is used, in units
//! times microseconds: a unit is `window` of that, and every microsecond drains `limit`, so nothing
//! is ever rounded. Both forms decide alike under one rate. When the rate changes, this form keeps
//! the number of used units and drains them at the new rate, where the textbook form would keep the
//! number of seconds.
//!
//! A level is empty no later than the reset that was reported with its last charge, even if the
//! rate was lowered since: a state that is over may be forgotten at any time, and no decision
//! depends on whether it was.

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    skew::tolerated_skew,
    standing::{Retry, Standing},
    terms::{Detail, Terms},
};

/// `burst` units at once, and `limit` units per window in the long run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gcra {
    /// Units that drain in a window, at most 2^31 - 1. Zero always denies.
    pub limit: u32,
    /// The time in which `limit` units drain, in whole milliseconds.
    pub window: Duration,
    /// Units that can be used at once.
    pub burst: u32,
    /// Microseconds in a step of time, 1 or 1000. The current instant is rounded down to a step,
    /// and reported instants are rounded up.
    time_grain: u64,
}

/// Used units times microseconds, and since when they have been draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// What was used, in units times microseconds. It does not depend on the time grain, so a meter
    /// with another grain reads it correctly.
    pub level: u64,
    /// When it was that much.
    pub at: Timestamp,
    /// When it will have drained, inclusive.
    pub full: Timestamp,
}

impl State for Level {
    type Count = Self;

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.full
    }

    fn count(&self) -> Self {
        *self
    }

    fn of_count(count: &Self) -> Option<Self> {
        Some(*count)
    }

    fn share_of(count: &Self, instances: NonZeroU32) -> Self {
        Level { level: count.level.div_ceil(instances.get().into()), ..*count }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        for number in [self.level, self.at.as_micros(), self.full.as_micros()] {
            bytes.extend(number.to_le_bytes());
        }
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Level> {
        let level = bytes.u64()?;
        let at = bytes.u64()?;
        let full = bytes.u64()?;
        let at = Timestamp::from_micros(at);
        let full = Timestamp::from_micros(full);
        Some(Level { level, at, full })
    }
}

impl Gcra {
    /// A meter for costs up to `max_cost`; none if it is too large to count exactly.
    ///
    /// Stores that calculate in doubles are exact below 2^53. A meter that is too large in
    /// microseconds counts in milliseconds, in every store, so that all stores decide alike.
    pub fn new(limit: u32, window: Duration, burst: u32, max_cost: u32) -> Option<Gcra> {
        let [rate, capacity, largest] = [limit, burst, max_cost].map(u128::from);
        let is_exact = |time_grain: &u64| {
            let per_unit = window.as_micros() / u128::from(*time_grain);
            (capacity + largest) * per_unit < 1 << 53 && capacity * per_unit + rate < 1 << 53
        };
        let time_grain = [1, 1000].into_iter().find(is_exact)?;
        (!window.is_zero()).then_some(Gcra { limit, window, burst, time_grain })
    }

    /// One unit, as a level.
    fn per_unit(&self) -> u64 {
        (self.window.as_micros() as u64).max(1)
    }

    /// The highest level at which `cost` fits; none if it never fits.
    fn room(&self, cost: u32) -> Option<u64> {
        let units = self.capacity().checked_sub(cost)?;
        Some(u64::from(units).saturating_mul(self.per_unit()))
    }

    /// The level at `now`. Its `at` is the instant that counts as now.
    fn drain(&self, level: &Level, now: Timestamp) -> Level {
        let now_rounded = self.round_down(now);
        if level.is_over(now) {
            return Level { level: 0, at: now_rounded, full: now_rounded };
        }
        if level.at > now + tolerated_skew(self.window) {
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

    /// When `amount` has drained from `at` on. A rate of zero drains nothing, and its levels are
    /// forgotten after a window.
    fn after(&self, amount: u64, at: Timestamp) -> Timestamp {
        let micros = match u64::from(self.limit) {
            0 => self.per_unit(),
            limit => amount.div_ceil(limit),
        };
        let exact = at.as_micros().saturating_add(micros);
        Timestamp::from_micros(exact.checked_next_multiple_of(self.time_grain).unwrap_or(u64::MAX))
    }

    fn round_down(&self, instant: Timestamp) -> Timestamp {
        Timestamp::from_micros(instant.as_micros() / self.time_grain * self.time_grain)
    }

    /// Microseconds in a step of time, 1 or 1000: stores that have only doubles count in steps.
    pub fn time_grain(&self) -> u64 {
        self.time_grain
    }

    /// The receipt of the latest charge in `level`: the theoretical arrival time, rounded down, and
    /// what is left to drain at that instant. The remainder that rounding cuts off makes a refund
    /// exact.
    pub fn receipt(&self, level: &Level) -> Receipt {
        let limit = u64::from(self.limit);
        let micros = level.level.checked_div(limit).unwrap_or(self.per_unit());
        let at = self.round_down(level.at + Duration::from_micros(micros));
        let drained = at.as_micros().saturating_sub(level.at.as_micros()).saturating_mul(limit);
        Receipt { at, number: level.level.saturating_sub(drained) }
    }
}

impl Algorithm for Gcra {
    type State = Level;

    const DENIES_UNTIL_RETRY: bool = true;

    fn capacity(&self) -> u32 {
        if self.limit == 0 { 0 } else { self.burst }
    }

    fn longest(&self) -> Duration {
        match self.limit {
            0 => self.window,
            limit => self.window.saturating_mul(self.burst.div_ceil(limit)),
        }
    }

    fn share(&self, instances: NonZeroU32) -> Gcra {
        let limit = self.limit.div_ceil(instances.get());
        let burst = self.burst.div_ceil(instances.get());
        Gcra { limit, burst, ..*self }
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
            // Never; but headers need an instant, and this one makes clients wait for a while.
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

    fn on_denied(&self, level: &mut Level, _cost: u32, now: Timestamp) {
        if level.at > now + tolerated_skew(self.window) {
            *level = self.drain(level, now);
        }
    }

    /// Gives back what would not have drained yet if nothing else had been charged since. Once the
    /// meter has been empty, giving back more would erase later charges. What others give back
    /// meanwhile may empty it earlier: a level does not know that, and then too much is given back,
    /// though never more than was charged.
    fn give_back(&self, level: &mut Level, receipt: Receipt, cost: u32, now: Timestamp) {
        let rest = self.drain(level, now);
        let Some(micros) = receipt.at.as_micros().checked_sub(rest.at.as_micros()) else {
            return;
        };
        let undrained = micros.saturating_mul(self.limit.into()).saturating_add(receipt.number);
        let taken = u64::from(cost).saturating_mul(self.per_unit());
        let back = undrained.min(taken).min(rest.level);
        if back > 0 {
            // The rest has drained when the level before was down to what is given back now.
            let full = self.falls(&rest, back);
            *level = Level { level: rest.level - back, at: rest.at, full };
        }
    }

    /// Since when the level has been draining.
    fn mark(&self, level: &Level) -> Timestamp {
        level.at
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

    /// The one that is empty later of the two. If that is the same step of time, the greater one.
    fn join(&self, level: &mut Level, other: &Level, now: Timestamp) -> bool {
        let [rest, other] = [&*level, other].map(|level| self.drain(level, now));
        let is_more = (other.full, other.level) > (rest.full, rest.level);
        if is_more {
            *level = other;
        }
        is_more
    }

    /// The whole drains faster than its share by a factor of `instances`.
    fn receipt_of_share(&self, receipt: Receipt, instances: NonZeroU32, now: Timestamp) -> Receipt {
        match (instances.get(), receipt.at.saturating_since(now)) {
            (1, _) => receipt,
            (instances, left) => Receipt { at: now + left / instances, number: 0 },
        }
    }

    fn plain(units: u32, window: Duration) -> Option<Gcra> {
        Gcra::new(units, window, units, units)
    }

    fn terms(&self) -> Terms {
        let details = vec![("burst", Detail::Units(self.burst))];
        Terms { units: self.limit, window: Some(self.window), is_refilled: true, details }
    }

    fn refill_time(&self) -> Option<Duration> {
        let all = self.window.as_micros() * u128::from(self.burst);
        let micros = all.checked_div(self.limit.into())?;
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    fn open_receipt(&self, standing: &Standing, _cost: u32, _now: Timestamp) -> Option<Receipt> {
        Some(Receipt { at: standing.reset, number: 0 })
    }
}

#[cfg(test)]
mod tests;
