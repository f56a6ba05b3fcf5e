//! Token bucket that is refilled at intervals, as Smyte's ratelimit server counts, or evenly.
//!
//! Refills come in steps of `refill` units every interval, and keep their phase as long as anything
//! is missing, so up to `capacity + refill` units can pass in a short time. A full bucket has no
//! phase: the next charge starts one at its own instant. If the phase continued while the bucket is
//! full, decisions would depend on when a store forgets full buckets.
//!
//! The units of an even bucket come one by one, all intervals long: up to `capacity + 1` can pass
//! in a short time. Seven a minute have no whole step. So a state says what was missing at its
//! mark, which moves by times that have whole units in them, and no rounding adds up.
//!
//! A strict bucket makes callers wait: a denied request, and one that takes the last unit, start
//! the interval over; of an even bucket, the wait for the next unit.
//!
//! As in the other algorithms, a denied request takes nothing, and a bucket is full no later than
//! the reset that was reported with its last charge, even if the rate was lowered since.

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    skew::tolerated_skew,
    standing::{Retry, Standing},
    terms::{Detail, Terms},
};

/// Up to `capacity` units, and `refill` more every interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Units in a full bucket, at most 2^31 - 1. Zero always denies.
    pub capacity: u32,
    /// Units in a refill. Zero: there are no refills, and what was used stays used.
    pub refill: u32,
    /// Time from one refill to the next.
    pub interval: Duration,
    /// Whether the units of a refill come one by one, all interval long.
    pub even: bool,
    /// Whether finding or leaving the bucket empty starts the interval over.
    pub strict: bool,
}

/// The shortest time that has whole units in it, and so many of them.
#[derive(Clone, Copy)]
struct Step {
    micros: u64,
    units: u64,
}

/// What is missing, and since when it has been refilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Units that were missing from a full bucket at the mark, and those that were taken since.
    pub deficit: u32,
    /// The last refill; the next one comes an interval later. Of an even bucket, an instant since
    /// which units come evenly.
    pub mark: Timestamp,
    /// When nothing will be missing, inclusive; the end of time if that never happens.
    pub full: Timestamp,
}

/// The end of time: an instant that never comes.
const NEVER: Timestamp = Timestamp::from_micros(u64::MAX);

impl State for Bucket {
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
        Bucket { deficit: count.deficit.div_ceil(instances.get()), ..*count }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.deficit.to_le_bytes());
        bytes.extend(self.mark.as_micros().to_le_bytes());
        bytes.extend(self.full.as_micros().to_le_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Bucket> {
        let deficit = bytes.u32()?;
        let mark = bytes.u64()?;
        let full = bytes.u64()?;
        let mark = Timestamp::from_micros(mark);
        let full = Timestamp::from_micros(full);
        Some(Bucket { deficit, mark, full })
    }
}

impl TokenBucket {
    /// The largest deficit at which `cost` fits; none if it never fits.
    fn room(&self, cost: u32) -> Option<u32> {
        self.capacity.checked_sub(cost)
    }

    fn interval_micros(&self) -> u64 {
        (self.interval.as_micros() as u64).max(1)
    }

    /// Into how many steps the interval is divided.
    pub fn steps(&self) -> u64 {
        match self.even {
            true => common_divisor(self.interval_micros(), self.refill.into()),
            false => 1,
        }
    }

    fn step(&self) -> Step {
        let steps = self.steps();
        Step { micros: self.interval_micros() / steps, units: u64::from(self.refill) / steps }
    }

    /// The bucket with all whole steps until now.
    fn refilled(&self, bucket: &Bucket, now: Timestamp) -> Bucket {
        let full = Bucket { deficit: 0, mark: now, full: now };
        if bucket.is_over(now) {
            return full;
        }
        if bucket.mark > now + tolerated_skew(self.interval) {
            return self.refilling(bucket.deficit, now);
        }
        let step = self.step();
        let steps = micros_since(bucket.mark, now) / step.micros;
        let come = steps.saturating_mul(step.units);
        let deficit = u64::from(bucket.deficit).saturating_sub(come) as u32;
        let mark = bucket.mark + Duration::from_micros(steps * step.micros);
        let rest = Bucket { deficit, mark, full: bucket.full };
        if self.missing(&rest, now) == 0 { full } else { rest }
    }

    /// What is missing now from a bucket with all whole steps until now.
    fn missing(&self, refilled: &Bucket, now: Timestamp) -> u32 {
        if !self.even || refilled.deficit == 0 {
            return refilled.deficit;
        }
        let step = self.step();
        let come = scaled(micros_since(refilled.mark, now), step.units, step.micros).whole;
        u64::from(refilled.deficit).saturating_sub(come) as u32
    }

    /// A bucket that was refilled until `mark`.
    fn refilling(&self, deficit: u32, mark: Timestamp) -> Bucket {
        Bucket { deficit, mark, full: self.after(deficit, mark) }
    }

    /// A bucket with all whole steps until now, whose wait for a refill begins again.
    fn waiting(&self, refilled: &Bucket, more: u32, now: Timestamp) -> Bucket {
        let deficit = self.missing(refilled, now).saturating_add(more);
        self.refilling(deficit, refilled.mark.max(now))
    }

    /// When no more than `target` units are missing from `bucket`.
    fn rises(&self, bucket: &Bucket, target: u32) -> Timestamp {
        self.after(bucket.deficit.saturating_sub(target), bucket.mark).min(bucket.full)
    }

    /// When `units` will have been refilled after the refill at `mark`.
    fn after(&self, units: u32, mark: Timestamp) -> Timestamp {
        self.time_of(units).map_or(NEVER, |micros| mark + Duration::from_micros(micros))
    }

    /// How long `units` take to come, in microseconds; none if they never do.
    fn time_of(&self, units: u32) -> Option<u64> {
        match (units, self.refill) {
            (0, _) => Some(0),
            (_, 0) => None,
            (units, _) if self.even => {
                let step = self.step();
                Some(scaled(units.into(), step.micros, step.units).rounded_up())
            }
            (units, refill) => {
                let refills = u64::from(units.div_ceil(refill));
                Some(refills.saturating_mul(self.interval_micros()))
            }
        }
    }

    /// The receipt of the latest charge in `bucket`: what was missing then, and since which refill.
    pub fn receipt(&self, bucket: &Bucket) -> Receipt {
        Receipt { at: bucket.mark, number: bucket.deficit.into() }
    }
}

impl Algorithm for TokenBucket {
    type State = Bucket;

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn longest(&self) -> Duration {
        self.time_of(self.capacity).map_or(Duration::MAX, Duration::from_micros)
    }

    fn share(&self, instances: NonZeroU32) -> TokenBucket {
        let capacity = self.capacity.div_ceil(instances.get());
        let refill = self.refill.div_ceil(instances.get());
        TokenBucket { capacity, refill, ..*self }
    }

    fn admits(&self, bucket: &Bucket, cost: u32, now: Timestamp) -> bool {
        // Refills need a division, and matter only if the cost does not fit without them.
        self.room(cost).is_some_and(|room| {
            bucket.deficit <= room || self.missing(&self.refilled(bucket, now), now) <= room
        })
    }

    fn take(&self, bucket: &mut Bucket, cost: u32, now: Timestamp) -> Receipt {
        let rest = self.refilled(bucket, now);
        let is_emptied = self.missing(&rest, now).saturating_add(cost) >= self.capacity;
        *bucket = match self.strict && is_emptied {
            true => self.waiting(&rest, cost, now),
            false => self.refilling(rest.deficit.saturating_add(cost), rest.mark),
        };
        self.receipt(bucket)
    }

    fn standing(&self, bucket: &Bucket, now: Timestamp) -> Standing {
        let bucket = self.refilled(bucket, now);
        let used = self.missing(&bucket, now);
        let next = match self.room(1) {
            Some(room) if used <= room => now,
            Some(room) => self.rises(&bucket, room),
            // Never; but headers need an instant, and this one makes clients wait for a while.
            None => now + self.interval,
        };
        Standing {
            limit: self.capacity,
            remaining: self.capacity.saturating_sub(used),
            used,
            reset: if used == 0 { now } else { self.rises(&bucket, 0) },
            next,
            retry: Retry::Now,
        }
    }

    fn retry(&self, bucket: &Bucket, cost: u32, now: Timestamp) -> Retry {
        match self.room(cost).map(|room| self.rises(&self.refilled(bucket, now), room)) {
            None | Some(NEVER) => Retry::Never,
            Some(instant) => Retry::At(instant),
        }
    }

    /// A cost that can never fit does not start the interval over: no wait would help.
    fn on_denied(&self, bucket: &mut Bucket, cost: u32, now: Timestamp) {
        let starts_over = self.strict && (1..=self.capacity).contains(&cost);
        if starts_over {
            *bucket = self.waiting(&self.refilled(bucket, now), 0, now);
        } else if bucket.mark > now + tolerated_skew(self.interval) {
            *bucket = self.refilled(bucket, now);
        }
    }

    /// Gives back what would still be missing if nothing else had been charged since. Once the
    /// bucket has been full, giving back more would erase later charges. What others give back
    /// meanwhile may fill it earlier: a bucket does not know that, and then too much is given back,
    /// though never more than was charged. The phase stays.
    fn give_back(&self, bucket: &mut Bucket, receipt: Receipt, cost: u32, now: Timestamp) {
        let rest = self.refilled(bucket, now);
        let charged = u32::try_from(receipt.number).unwrap_or(u32::MAX);
        let charged = self.refilled(&self.refilling(charged, receipt.at), now);
        let [missing, of_it] = [&rest, &charged].map(|bucket| self.missing(bucket, now));
        let back = cost.min(of_it).min(missing);
        if back > 0 {
            let deficit = rest.deficit - back;
            // No later than before, even if the rate was lowered since.
            let full = self.rises(&rest, back);
            *bucket = Bucket { deficit, full, ..rest };
        }
    }

    /// The last refill.
    fn mark(&self, bucket: &Bucket) -> Timestamp {
        bucket.mark
    }

    fn beyond(&self, bucket: &Bucket, base: &Bucket, now: Timestamp) -> Option<Bucket> {
        let [rest, base] = [bucket, base].map(|bucket| self.refilled(bucket, now));
        let [missing, before] = [&rest, &base].map(|bucket| self.missing(bucket, now));
        let is_more = missing > before;
        is_more.then(|| self.refilling(rest.deficit.saturating_sub(before), rest.mark))
    }

    /// A bucket that is not full keeps its phase.
    fn add(&self, bucket: &mut Bucket, other: &Bucket, now: Timestamp) {
        let [rest, other] = [&*bucket, other].map(|bucket| self.refilled(bucket, now));
        if rest.deficit == 0 {
            *bucket = self.refilling(other.deficit, other.mark);
        } else if other.deficit > 0 {
            let more = self.missing(&other, now);
            *bucket = self.refilling(rest.deficit.saturating_add(more), rest.mark);
        }
    }

    /// The one that misses more; of two that miss the same, the one that is full later.
    fn join(&self, bucket: &mut Bucket, other: &Bucket, now: Timestamp) -> bool {
        let [rest, other] = [&*bucket, other].map(|bucket| self.refilled(bucket, now));
        let [ours, theirs] = [&rest, &other].map(|bucket| self.missing(bucket, now));
        let is_more = (theirs, other.full) > (ours, rest.full);
        if is_more {
            *bucket = other;
        }
        is_more
    }

    fn plain(units: u32, window: Duration) -> Option<TokenBucket> {
        let (capacity, refill, interval) = (units, units, window);
        Some(TokenBucket { capacity, refill, interval, even: false, strict: false })
    }

    fn terms(&self) -> Terms {
        let mut details = vec![("capacity", Detail::Units(self.capacity))];
        details.extend((!self.even).then_some(("refill", Detail::Units(self.refill))));
        details.extend(self.strict.then_some(("strict", Detail::Set)));
        let window = Some(self.interval);
        Terms { units: self.refill, window, is_refilled: true, details }
    }

    /// A bucket of 50 that gains 10 a second allows 50 in 5 seconds, and not 50 in one.
    fn refill_time(&self) -> Option<Duration> {
        let bucket = TokenBucket { refill: self.refill.max(1), ..self.clone() };
        bucket.time_of(self.capacity.max(1)).map(Duration::from_micros)
    }

    /// A denial starts the interval of a strict bucket over.
    fn writes_denials(&self) -> bool {
        self.strict
    }

    fn open_receipt(&self, _standing: &Standing, cost: u32, now: Timestamp) -> Option<Receipt> {
        Some(Receipt { at: now, number: cost.into() })
    }
}

/// A product, divided.
struct Scaled {
    whole: u64,
    has_rest: bool,
}

impl Scaled {
    fn rounded_up(&self) -> u64 {
        self.whole.saturating_add(self.has_rest.into())
    }
}

/// `number * by / of`, exactly.
fn scaled(number: u64, by: u64, of: u64) -> Scaled {
    let of = of.max(1);
    match number.checked_mul(by) {
        Some(product) => Scaled { whole: product / of, has_rest: product % of > 0 },
        None => {
            let (product, of) = (u128::from(number) * u128::from(by), u128::from(of));
            let whole = u64::try_from(product / of).unwrap_or(u64::MAX);
            Scaled { whole, has_rest: product % of > 0 }
        }
    }
}

fn common_divisor(mut left: u64, mut right: u64) -> u64 {
    while right > 0 {
        (left, right) = (right, left % right);
    }
    left.max(1)
}

fn micros_since(mark: Timestamp, now: Timestamp) -> u64 {
    now.as_micros().saturating_sub(mark.as_micros())
}

#[cfg(test)]
mod tests;
