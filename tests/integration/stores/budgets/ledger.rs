//! The model: everything that was taken from a counter and given back to it, and what of that
//! counts at an instant. It keeps all of it and starts from the beginning each time, in whole
//! numbers, so that nothing is ever forgotten.

use std::collections::HashMap;

use tollgate_clock::Timestamp;
use tollgate_limit::{Align, Gcra, Quota, SlidingLog, SlidingWindow, TokenBucket};

/// What has happened to a counter, in order.
#[derive(Default)]
pub(super) struct Ledger(Vec<(Timestamp, Entry)>);

/// Something that has happened to a counter.
#[derive(Clone, Copy)]
pub(super) enum Entry {
    /// So many units were taken.
    Taken(u32),
    /// Units of what was taken by the entry at this position were given back.
    GivenBack { of: usize, units: u32 },
    /// It has denied this cost.
    Denied(u32),
}

/// What counts: so many parts, of which a unit has so many.
pub(super) struct Used {
    parts: u128,
    in_a_unit: u128,
}

impl Used {
    fn of_units(units: u64) -> Used {
        Used { parts: units.into(), in_a_unit: 1 }
    }

    /// Whether so many units more are within the capacity.
    pub(super) fn leaves(&self, cost: u32, capacity: u32) -> bool {
        self.parts + u128::from(cost) * self.in_a_unit <= u128::from(capacity) * self.in_a_unit
    }

    /// In whole units, rounded up.
    pub(super) fn units(&self) -> u32 {
        self.parts.div_ceil(self.in_a_unit) as u32
    }
}

impl Ledger {
    /// Adds what happens at `now`. Returns its position.
    pub(super) fn add(&mut self, now: Timestamp, entry: Entry) -> usize {
        self.0.push((now, entry));
        self.0.len() - 1
    }

    /// What counts at `now`.
    pub(super) fn used(&self, quota: &Quota, now: Timestamp) -> Used {
        match quota {
            Quota::FixedWindow(quota) => self.in_fixed_window(&quota.align, now),
            Quota::SlidingWindow(quota) => self.in_sliding_window(quota, now),
            Quota::SlidingLog(quota) => self.in_log(quota, now),
            Quota::TokenBucket(quota) => self.missing_from_bucket(quota, now),
            Quota::Gcra(quota) => self.in_meter(quota, now),
            Quota::Concurrency(_) => panic!("leases have no costs"),
        }
    }

    /// What was taken in the window that is open. Nothing is given back into another window.
    fn in_fixed_window(&self, align: &Align, now: Timestamp) -> Used {
        let (mut used, mut end) = (0, Timestamp::default());
        let mut charged = HashMap::new();
        for (position, (at, entry)) in self.0.iter().enumerate() {
            if *at >= end && matches!(entry, Entry::Taken(_)) {
                (used, end) = (0, align.end(*at));
            }
            match *entry {
                Entry::Taken(units) => {
                    used += u64::from(units);
                    charged.insert(position, end);
                }
                Entry::GivenBack { of, units } if charged[&of] == end => used -= u64::from(units),
                Entry::GivenBack { .. } | Entry::Denied(_) => {}
            }
        }
        Used::of_units(if now < end { used } else { 0 })
    }

    /// What was taken in the window of `now`, and the share of the one before that the time just
    /// past still covers. A window that has ended counts for no more than the limit.
    fn in_sliding_window(&self, quota: &SlidingWindow, now: Timestamp) -> Used {
        let length = quota.window.as_micros() as u64;
        let index = |at: Timestamp| at.as_micros() / length;
        let mut used: HashMap<u64, u64> = HashMap::new();
        for (at, entry) in &self.0 {
            match *entry {
                Entry::Taken(units) => *used.entry(index(*at)).or_default() += u64::from(units),
                Entry::GivenBack { of, units } => {
                    *used.get_mut(&index(self.0[of].0)).unwrap() -= u64::from(units);
                }
                Entry::Denied(_) => {}
            }
        }
        let of = |index: u64| used.get(&index).copied().unwrap_or_default();
        let covered = length - now.as_micros() % length;
        let before = of(index(now) - 1).min(quota.limit.into());
        Used::of_units(of(index(now)) + (before * covered).div_ceil(length))
    }

    /// What was taken in the time just past. A debt that finds a full log moves its newest entry to
    /// the present, so what that had taken is not given back any more.
    fn in_log(&self, quota: &SlidingLog, now: Timestamp) -> Used {
        struct Logged {
            at: Timestamp,
            units: u32,
            by: usize,
        }
        let counts = |at: Timestamp, now: Timestamp| now < at + quota.window;
        let mut log: Vec<Logged> = Vec::new();
        for (by, (now, entry)) in self.0.iter().enumerate() {
            match *entry {
                Entry::Taken(units) => {
                    log.retain(|logged| counts(logged.at, *now));
                    let is_full = log.len() >= quota.limit as usize;
                    match log.last_mut().filter(|_| is_full) {
                        Some(newest) => {
                            *newest = Logged { at: *now, units: newest.units + units, by };
                        }
                        None => log.push(Logged { at: *now, units, by }),
                    }
                }
                Entry::GivenBack { of, units } => {
                    if let Some(own) = log.iter_mut().find(|logged| logged.by == of) {
                        own.units -= units;
                    }
                    log.retain(|logged| logged.units > 0);
                }
                Entry::Denied(_) => {}
            }
        }
        let live = log.iter().filter(|logged| counts(logged.at, now));
        Used::of_units(live.map(|logged| u64::from(logged.units)).sum())
    }

    /// What has not drained yet: `limit` units do in a window.
    fn in_meter(&self, quota: &Gcra, now: Timestamp) -> Used {
        let in_a_unit = quota.window.as_micros();
        let drained = |level: u128, since: Timestamp, now: Timestamp| {
            level.saturating_sub(now.saturating_since(since).as_micros() * u128::from(quota.limit))
        };
        let (mut level, mut last) = (0, Timestamp::default());
        let mut charged = HashMap::new();
        for (position, (now, entry)) in self.0.iter().enumerate() {
            level = drained(level, last, *now);
            last = *now;
            match *entry {
                Entry::Taken(units) => {
                    level += u128::from(units) * in_a_unit;
                    charged.insert(position, level);
                }
                Entry::GivenBack { of, units } => {
                    let left = drained(charged[&of], self.0[of].0, *now);
                    level -= left.min(u128::from(units) * in_a_unit).min(level);
                }
                Entry::Denied(_) => {}
            }
        }
        Used { parts: drained(level, last, now), in_a_unit }
    }

    /// What has not been refilled yet.
    fn missing_from_bucket(&self, quota: &TokenBucket, now: Timestamp) -> Used {
        let mut bucket = Missing::default();
        let mut charged = HashMap::new();
        for (position, (now, entry)) in self.0.iter().enumerate() {
            bucket = bucket.at(quota, *now);
            match *entry {
                Entry::Taken(units) => {
                    bucket.total += units;
                    if quota.strict && bucket.now(quota, *now) >= quota.capacity {
                        bucket = Missing { total: bucket.now(quota, *now), since: *now };
                    }
                    charged.insert(position, bucket);
                }
                Entry::GivenBack { of, units } => {
                    let left = charged[&of].at(quota, *now).now(quota, *now);
                    bucket.total -= left.min(units).min(bucket.now(quota, *now));
                }
                Entry::Denied(cost) if quota.strict && (1..=quota.capacity).contains(&cost) => {
                    bucket = Missing { total: bucket.now(quota, *now), since: *now };
                }
                Entry::Denied(_) => {}
            }
        }
        Used::of_units(bucket.at(quota, now).now(quota, now).into())
    }
}

/// What was taken from a bucket since it was full, less what was given back, and since when it is
/// refilled.
#[derive(Clone, Copy, Default)]
struct Missing {
    total: u32,
    since: Timestamp,
}

impl Missing {
    /// The same at `now`: a bucket that is full has nothing to be refilled.
    fn at(self, quota: &TokenBucket, now: Timestamp) -> Missing {
        if self.now(quota, now) == 0 { Missing { total: 0, since: now } } else { self }
    }

    /// What is missing at `now`.
    fn now(self, quota: &TokenBucket, now: Timestamp) -> u32 {
        let (passed, interval) = (now.saturating_since(self.since), quota.interval.as_micros());
        let refill = u128::from(quota.refill);
        let come = match quota.even {
            true => passed.as_micros() * refill / interval,
            false => passed.as_micros() / interval * refill,
        };
        u128::from(self.total).saturating_sub(come) as u32
    }
}
