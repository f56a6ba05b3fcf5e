//! Token bucket that is refilled at intervals, as Smyte's ratelimit server counts.
//!
//! Refills come in steps of `refill` units every interval, and keep their phase as long as anything
//! is missing, so up to `capacity + refill` units can pass in a short time. A full bucket has no
//! phase: the next charge starts one at its own instant. If the phase continued while the bucket is
//! full, decisions would depend on when a store forgets full buckets.
//!
//! A strict bucket makes callers wait: a denied request, and one that takes the last unit, start
//! the interval over.
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
    /// Whether finding or leaving the bucket empty starts the interval over.
    pub strict: bool,
}

/// What is missing, and since when it has been refilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Units that are missing from a full bucket.
    pub deficit: u32,
    /// The last refill; the next one comes an interval later.
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

    /// The bucket with all refills until now.
    fn refilled(&self, bucket: &Bucket, now: Timestamp) -> Bucket {
        let full = Bucket { deficit: 0, mark: now, full: now };
        if bucket.is_over(now) {
            return full;
        }
        if bucket.mark > now + tolerated_skew(self.interval) {
            return self.refilling(bucket.deficit, now);
        }
        let interval = self.interval_micros();
        let refills = now.as_micros().saturating_sub(bucket.mark.as_micros()) / interval;
        let come = refills.saturating_mul(self.refill.into());
        match u64::from(bucket.deficit).saturating_sub(come) {
            0 => full,
            deficit => {
                let mark = bucket.mark + Duration::from_micros(refills * interval);
                Bucket { deficit: deficit as u32, mark, full: bucket.full }
            }
        }
    }

    /// A bucket whose last refill was at `mark`.
    fn refilling(&self, deficit: u32, mark: Timestamp) -> Bucket {
        Bucket { deficit, mark, full: self.after(deficit, mark) }
    }

    /// When no more than `target` units are missing from `bucket`.
    fn rises(&self, bucket: &Bucket, target: u32) -> Timestamp {
        self.after(bucket.deficit.saturating_sub(target), bucket.mark).min(bucket.full)
    }

    /// When `units` will have been refilled after the refill at `mark`.
    fn after(&self, units: u32, mark: Timestamp) -> Timestamp {
        let refills = match (units, self.refill) {
            (0, _) => 0,
            (_, 0) => return NEVER,
            (units, refill) => u64::from(units.div_ceil(refill)),
        };
        mark + Duration::from_micros(refills.saturating_mul(self.interval_micros()))
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
        match self.refill {
            0 => Duration::MAX,
            refill => self.interval.saturating_mul(self.capacity.div_ceil(refill)),
        }
    }

    fn share(&self, instances: NonZeroU32) -> TokenBucket {
        let capacity = self.capacity.div_ceil(instances.get());
        let refill = self.refill.div_ceil(instances.get());
        TokenBucket { capacity, refill, ..*self }
    }

    fn admits(&self, bucket: &Bucket, cost: u32, now: Timestamp) -> bool {
        // Refills need a division, and matter only if the cost does not fit without them.
        self.room(cost).is_some_and(|room| {
            bucket.deficit <= room || self.refilled(bucket, now).deficit <= room
        })
    }

    fn take(&self, bucket: &mut Bucket, cost: u32, now: Timestamp) -> Receipt {
        let Bucket { deficit, mut mark, .. } = self.refilled(bucket, now);
        let deficit = deficit.saturating_add(cost);
        if self.strict && deficit >= self.capacity {
            mark = mark.max(now);
        }
        *bucket = self.refilling(deficit, mark);
        self.receipt(bucket)
    }

    fn standing(&self, bucket: &Bucket, now: Timestamp) -> Standing {
        let bucket = self.refilled(bucket, now);
        let used = bucket.deficit;
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
            let Bucket { deficit, mark, .. } = self.refilled(bucket, now);
            *bucket = self.refilling(deficit, mark.max(now));
        } else if bucket.mark > now + tolerated_skew(self.interval) {
            *bucket = self.refilled(bucket, now);
        }
    }

    /// Gives back what would still be missing if nothing else had been charged since. Once the
    /// bucket has been full, giving back more would erase later charges. The phase stays.
    fn give_back(&self, bucket: &mut Bucket, receipt: Receipt, cost: u32, now: Timestamp) {
        let rest = self.refilled(bucket, now);
        let charged = u32::try_from(receipt.number).unwrap_or(u32::MAX);
        let missing = self.refilled(&self.refilling(charged, receipt.at), now).deficit;
        let back = cost.min(missing).min(rest.deficit);
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
        let deficit = rest.deficit.saturating_sub(base.deficit);
        (deficit > 0).then(|| self.refilling(deficit, rest.mark))
    }

    /// A bucket that is not full keeps its phase.
    fn add(&self, bucket: &mut Bucket, other: &Bucket, now: Timestamp) {
        let [rest, other] = [&*bucket, other].map(|bucket| self.refilled(bucket, now));
        if other.deficit > 0 {
            let mark = if rest.deficit > 0 { rest.mark } else { other.mark };
            *bucket = self.refilling(rest.deficit.saturating_add(other.deficit), mark);
        }
    }

    /// The one with the greater deficit; of equal deficits, the one that is full later.
    fn join(&self, bucket: &mut Bucket, other: &Bucket, now: Timestamp) -> bool {
        let [rest, other] = [&*bucket, other].map(|bucket| self.refilled(bucket, now));
        let is_more = (other.deficit, other.full) > (rest.deficit, rest.full);
        if is_more {
            *bucket = other;
        }
        is_more
    }

    fn plain(units: u32, window: Duration) -> Option<TokenBucket> {
        Some(TokenBucket { capacity: units, refill: units, interval: window, strict: false })
    }

    fn terms(&self) -> Terms {
        let mut details = vec![("capacity", Detail::Units(self.capacity))];
        details.extend(self.strict.then_some(("strict", Detail::Set)));
        let window = Some(self.interval);
        Terms { units: self.refill, window, is_refilled: true, details }
    }

    /// A bucket of 50 that gains 10 a second allows 50 in 5 seconds, and not 50 in one.
    fn refill_time(&self) -> Option<Duration> {
        let refills = self.capacity.div_ceil(self.refill.max(1)).max(1);
        Some(self.interval.saturating_mul(refills).min(Duration::from_micros(u64::MAX)))
    }

    /// A denial starts the interval of a strict bucket over.
    fn writes_denials(&self) -> bool {
        self.strict
    }

    fn open_receipt(&self, _standing: &Standing, cost: u32, now: Timestamp) -> Option<Receipt> {
        Some(Receipt { at: now, number: cost.into() })
    }
}

#[cfg(test)]
mod tests;
