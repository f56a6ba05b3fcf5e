//! What an algorithm answers when these units were taken at these instants. Instants are
//! microseconds since the epoch; what is used is a fraction, and nothing is rounded before the end.

use tollgate_limit::{Align, Quota};

/// Units that were taken of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) at: u64,
    pub(super) units: u64,
    /// Its place in the ledger's admissions.
    pub(super) entry: usize,
}

/// How many refills of a bucket there are between two instants: who does not know when it was full
/// for the last time does not know when its refills come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refills {
    /// The first unit that is taken from a full bucket decides when they come.
    FromFirst,
    /// As many as there can be.
    Most,
    /// As few as there can be.
    Fewest,
}

/// A limit, and what was taken of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'l> {
    pub(super) quota: &'l Quota,
    /// In the order in which it was taken.
    pub(super) taken: &'l [Taken],
    pub(super) refills: Refills,
}

/// What is used of a limit: so many units, in parts of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    parts: u64,
    parts_of_unit: u64,
}

/// What is used of no limit for longer than this in a simulation.
const LONGEST: u64 = 3600 * 1_000_000;

impl<'l> List<'l> {
    /// One whose refills come when its first unit says.
    pub(super) fn new(quota: &'l Quota, taken: &'l [Taken]) -> List<'l> {
        List { quota, taken, refills: Refills::FromFirst }
    }

    /// Units used, rounded up.
    pub(super) fn used(&self, now: u64) -> u64 {
        let Used { parts, parts_of_unit } = self.exactly(now);
        parts.div_ceil(parts_of_unit)
    }

    /// Whether a request of this cost is admitted.
    pub(super) fn fits(&self, cost: u64, now: u64) -> bool {
        let Used { parts, parts_of_unit } = self.exactly(now);
        parts + cost * parts_of_unit <= capacity(self.quota) * parts_of_unit
    }

    /// When the limit is whole again: with fixed windows, at the end of this one, used or not.
    pub(super) fn reset(&self, now: u64) -> u64 {
        match self.quota {
            Quota::FixedWindow(_) => (now / length(self.quota) + 1) * length(self.quota),
            // When requests end, nobody knows.
            Quota::Concurrency(_) if self.used(now) == 0 => now,
            Quota::Concurrency(limit) => now + limit.retry_after.as_micros() as u64,
            _ => first(now, |at| self.exactly(at).parts == 0),
        }
    }

    /// From when on a request of this cost is admitted if nothing else is taken; none: never.
    pub(super) fn retry(&self, cost: u64, now: u64) -> Option<u64> {
        if cost > capacity(self.quota) {
            return None;
        }
        match self.quota {
            Quota::Concurrency(limit) => Some(now + limit.retry_after.as_micros() as u64),
            _ => Some(first(now, |at| self.fits(cost, at))),
        }
    }

    fn exactly(&self, now: u64) -> Used {
        let length = length(self.quota);
        let units = |counts: &dyn Fn(u64) -> bool| -> u64 {
            self.taken.iter().filter(|taken| counts(taken.at)).map(|taken| taken.units).sum()
        };
        let whole = |parts: u64| Used { parts, parts_of_unit: 1 };
        match self.quota {
            Quota::FixedWindow(_) => whole(units(&|at| at / length == now / length)),
            Quota::SlidingLog(_) => whole(units(&|at| at + length > now)),
            Quota::Concurrency(_) => {
                let held = self.taken.iter().filter(|taken| taken.at + length > now);
                whole(held.count() as u64)
            }
            Quota::SlidingWindow(limit) => {
                let window = now / length;
                let previous = units(&|at| at / length + 1 == window).min(limit.limit.into());
                let current = units(&|at| at / length == window);
                let parts = previous * (length - now % length) + current * length;
                Used { parts, parts_of_unit: length }
            }
            Quota::Gcra(limit) => {
                let drained = |since: u64| (now - since) * u64::from(limit.limit);
                let parts = self.left(length, drained);
                Used { parts, parts_of_unit: length }
            }
            Quota::TokenBucket(bucket) => whole(match self.refills {
                Refills::FromFirst => self.missing(now),
                Refills::Most => {
                    self.left(1, |since| ((now - since) / length + 1) * u64::from(bucket.refill))
                }
                Refills::Fewest => {
                    self.left(1, |since| (now - since) / length * u64::from(bucket.refill))
                }
            }),
        }
    }

    /// What is left of all that was taken when so much has come back since an instant. What comes
    /// back while nothing is left is lost, so the instant counts since which most is left.
    fn left(&self, parts_of_unit: u64, back: impl Fn(u64) -> u64) -> u64 {
        let mut most = 0;
        let mut parts = 0;
        for taken in self.taken.iter().rev() {
            parts += taken.units * parts_of_unit;
            most = most.max(parts.saturating_sub(back(taken.at)));
        }
        most
    }

    /// What a bucket misses. It is refilled at intervals since it was full for the last time.
    fn missing(&self, now: u64) -> u64 {
        let Quota::TokenBucket(bucket) = self.quota else { return 0 };
        let interval = length(self.quota);
        let mut missing = 0;
        let mut refilled = 0;
        let mut refill_until = |missing: &mut u64, at: u64| {
            while *missing > 0 && refilled + interval <= at {
                refilled += interval;
                *missing = missing.saturating_sub(bucket.refill.into());
            }
            if *missing == 0 {
                refilled = at;
            }
        };
        for taken in self.taken {
            refill_until(&mut missing, taken.at);
            missing += taken.units;
        }
        refill_until(&mut missing, now);
        missing
    }
}

/// The most that can be used of a limit.
fn capacity(quota: &Quota) -> u64 {
    u64::from(match quota {
        Quota::FixedWindow(limit) => limit.limit,
        Quota::SlidingLog(limit) => limit.limit,
        Quota::SlidingWindow(limit) => limit.limit,
        Quota::Concurrency(limit) => limit.limit,
        Quota::Gcra(limit) => limit.burst,
        Quota::TokenBucket(bucket) => bucket.capacity,
    })
}

/// The length of a window, of a lease, or of the time between two refills.
pub(super) fn length(quota: &Quota) -> u64 {
    let length = match quota {
        Quota::FixedWindow(limit) => match limit.align {
            Align::Epoch(length) => length,
            _ => panic!("simulated windows follow each other: {limit:?}"),
        },
        Quota::SlidingLog(limit) => limit.window,
        Quota::SlidingWindow(limit) => limit.window,
        Quota::Concurrency(limit) => limit.lease,
        Quota::Gcra(limit) => limit.window,
        Quota::TokenBucket(bucket) => bucket.interval,
    };
    length.as_micros() as u64
}

/// The first instant from `now` on at which something holds that goes on to hold.
fn first(now: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut from, mut until) = (now, now + LONGEST);
    while from < until {
        let middle = from.midpoint(until);
        match holds(middle) {
            true => until = middle,
            false => from = middle + 1,
        }
    }
    from
}
