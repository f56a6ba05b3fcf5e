//! The limits whose callers are ranked, with what all workers have seen of them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tollgate_clock::Timestamp;

use super::{
    distinct::DistinctKeys,
    hour::{Hour, KEPT_MINUTES},
    minute::{Measure, Minute, minute_of, near_of},
    summary::Summary,
    worker::WorkerSketch,
};

/// The limits of all policies in force.
#[derive(Debug, Default)]
pub struct CallerBook {
    limits: Mutex<BTreeMap<LimitRef, LimitCallers>>,
    /// The names of tiers, by their numbers.
    tiers: Mutex<Vec<Box<str>>>,
}

/// Which limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitRef {
    /// The name of its policy.
    pub policy: Box<str>,
    /// Its own name.
    pub limit: Box<str>,
}

/// About how many callers of a tier were seen past 80 % of a limit, or denied by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearTier {
    /// The tier.
    pub tier: Box<str>,
    /// In the minute that is open.
    pub this_minute: u64,
    /// In the minute before.
    pub last_minute: u64,
}

/// What all workers have seen of a limit.
#[derive(Clone, Debug, Default)]
struct LimitCallers {
    workers: Vec<Arc<WorkerSketch>>,
    hour: Arc<Mutex<Hour>>,
}

impl CallerBook {
    /// From now on there are these limits. What is known of others is forgotten.
    pub fn enter(&self, limits: impl Iterator<Item = LimitRef>) {
        let mut own = self.limits.lock();
        let mut before = std::mem::take(&mut *own);
        own.extend(limits.map(|limit| {
            let known = before.remove(&limit).unwrap_or_default();
            (limit, known)
        }));
    }

    /// Where the worker with this number notes what it sees of a limit. None: callers are not
    /// ranked for it.
    pub fn of_worker(&self, worker: usize, limit: &LimitRef) -> Option<Arc<WorkerSketch>> {
        let mut limits = self.limits.lock();
        let LimitCallers { workers, hour } = limits.get_mut(limit)?;
        while workers.len() <= worker {
            workers.push(Arc::new(WorkerSketch::new(Arc::clone(hour))));
        }
        workers.get(worker).cloned()
    }

    /// The number of a tier.
    pub fn tier_number(&self, name: &str) -> u16 {
        let mut tiers = self.tiers.lock();
        let at = tiers.iter().position(|tier| **tier == *name).unwrap_or_else(|| {
            tiers.push(name.into());
            tiers.len() - 1
        });
        at as u16
    }

    /// The tier with this number.
    pub fn tier_name(&self, number: u16) -> Option<Box<str>> {
        self.tiers.lock().get(usize::from(number)).cloned()
    }

    /// The limits whose callers are ranked.
    pub fn limits(&self) -> Vec<LimitRef> {
        self.limits.lock().keys().cloned().collect()
    }

    /// The callers of a limit in the last `minutes`, the one of `now` among them, by a measure.
    /// None: there is no such limit.
    pub fn summary(
        &self,
        limit: &LimitRef,
        measure: Measure,
        minutes: u64,
        now: Timestamp,
    ) -> Option<Summary> {
        let callers = self.limits.lock().get(limit)?.clone();
        let now = minute_of(now);
        let is_asked = |number: u64| number + minutes > now && number <= now;
        let mut all = Vec::new();
        callers.read(now, |of| match of {
            Part::Merged(own) if is_asked(own.number) => all.push(own.summary(measure).clone()),
            Part::OfWorker(own) if is_asked(own.number) => {
                all.push(own.sketch(measure).summary());
            }
            _ => {}
        });
        Some(Summary::merged(all))
    }

    /// About how many callers were past 80 % of a limit, for each tier of which there were any.
    pub fn near(&self, limit: &LimitRef, now: Timestamp) -> Vec<NearTier> {
        let Some(callers) = self.limits.lock().get(limit).cloned() else { return Vec::new() };
        let now = minute_of(now);
        let [mut open, mut last]: [Vec<(u16, DistinctKeys)>; 2] = Default::default();
        callers.read(now, |of| {
            let (number, near) = match of {
                Part::Merged(own) => (own.number, &own.near),
                Part::OfWorker(own) => (own.number, &own.near),
            };
            let sum = match now.checked_sub(number) {
                Some(0) => &mut open,
                Some(1) => &mut last,
                _ => return,
            };
            near.iter().for_each(|(tier, keys)| near_of(sum, *tier).add_all(keys));
        });
        let mut tiers: Vec<u16> = open.iter().chain(&last).map(|(tier, _)| *tier).collect();
        tiers.sort_unstable();
        tiers.dedup();
        let tiers = tiers.into_iter().map(|tier| NearTier {
            tier: self.tier_name(tier).unwrap_or_default(),
            this_minute: near_of(&mut open, tier).estimate(),
            last_minute: near_of(&mut last, tier).estimate(),
        });
        tiers.collect()
    }

    /// Merges what workers have handed over, and forgets what is older than an hour.
    pub fn tidy(&self, now: Timestamp) {
        let all: Vec<LimitCallers> = self.limits.lock().values().cloned().collect();
        all.iter().for_each(|callers| callers.hour.lock().merge(minute_of(now)));
    }
}

/// A part of what is known of a limit.
enum Part<'p> {
    /// A minute of all workers that have handed it over.
    Merged(&'p super::hour::MergedMinute),
    /// A minute of one worker.
    OfWorker(&'p Minute),
}

impl LimitCallers {
    /// Reads all parts. No worker hands a minute over meanwhile, so that none is read twice.
    fn read(&self, now: u64, mut read: impl FnMut(Part<'_>)) {
        let mut hour = self.hour.lock();
        hour.merge(now);
        hour.merged.iter().for_each(|minute| read(Part::Merged(minute)));
        for worker in &self.workers {
            worker.read(|minutes| {
                let all = minutes.ended.iter().chain([&minutes.open]);
                all.filter(|minute| minute.number + KEPT_MINUTES > now)
                    .for_each(|minute| read(Part::OfWorker(minute)));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sketch::{Denied, Estimate, Sighting};

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const MINUTE: Duration = Duration::from_secs(60);

    fn core() -> LimitRef {
        LimitRef { policy: "api".into(), limit: "core".into() }
    }

    fn book() -> CallerBook {
        let book = CallerBook::default();
        book.enter([core()].into_iter());
        book
    }

    fn note(book: &CallerBook, worker: usize, now: Timestamp, key: u64, units: u64) {
        let denied = if units == 0 { Denied::Yes } else { Denied::No };
        note_seen(
            book,
            worker,
            now,
            Sighting { key: Some(key), tier: 0, units, denied, is_near: false },
        );
    }

    fn note_seen(book: &CallerBook, worker: usize, now: Timestamp, seen: Sighting) {
        let key = seen.key.unwrap();
        let name = |to: &mut String| to.push_str(&format!("user:{key}"));
        book.of_worker(worker, &core()).unwrap().note(now, &seen, &name);
    }

    fn top(
        book: &CallerBook,
        measure: Measure,
        minutes: u64,
        now: Timestamp,
    ) -> Vec<(u64, u64, u64)> {
        let mut summary = book.summary(&core(), measure, minutes, now).unwrap();
        summary.keep(100);
        let of = |own: &Estimate| (own.key, own.least, own.most);
        summary.entries.iter().map(of).collect()
    }

    #[test]
    fn workers_and_minutes_are_summed_exactly_for_few_callers() {
        let book = book();
        let next = START + MINUTE;
        note(&book, 0, START, 1, 5);
        note(&book, 1, START, 1, 7);
        note(&book, 1, START, 2, 1);
        note(&book, 0, next, 1, 100);
        note(&book, 0, next, 2, 0);
        assert_eq!(top(&book, Measure::Units, 2, next), [(1, 112, 112), (2, 1, 1)]);
        assert_eq!(top(&book, Measure::Units, 1, next), [(1, 100, 100)]);
        assert_eq!(top(&book, Measure::Denials, 60, next), [(2, 1, 1)]);
        // Worker 1 has not begun another minute, and its last one counts all the same.
        let later = START + MINUTE * 59;
        assert_eq!(top(&book, Measure::Units, 60, later), [(1, 112, 112), (2, 1, 1)]);
        assert_eq!(top(&book, Measure::Units, 60, later + MINUTE), [(1, 100, 100)]);
        assert_eq!(top(&book, Measure::Units, 60, later + MINUTE * 2), []);
    }

    #[test]
    fn would_be_denials_are_counted_apart_from_denials() {
        let book = book();
        let seen = |key, denied| Sighting { key, tier: 0, units: 0, denied, is_near: false };
        note_seen(&book, 0, START, seen(Some(1), Denied::Yes));
        note_seen(&book, 0, START, seen(Some(2), Denied::Would));
        note_seen(&book, 1, START, seen(Some(2), Denied::Would));
        let next = START + MINUTE;
        note_seen(&book, 0, next, seen(Some(2), Denied::Would));
        for now in [next, next + MINUTE] {
            assert_eq!(top(&book, Measure::Denials, 3, now), [(1, 1, 1)]);
            assert_eq!(top(&book, Measure::WouldBeDenials, 3, now), [(2, 3, 3)]);
        }
    }

    #[test]
    fn hour_is_bounded_and_its_bounds_hold() {
        let book = book();
        let mut truth = BTreeMap::new();
        let mut now = START;
        for minute in 0..90_u64 {
            now = START + MINUTE * minute as u32;
            for number in 0..1_000_u64 {
                // One in ten is of caller 7.
                let key = if number % 10 == 0 { 7 } else { minute * 500 + number };
                note(&book, (number % 2) as usize, now, key, 1);
                if minute >= 30 {
                    *truth.entry(key).or_insert(0) += 1;
                }
            }
        }
        let summary = book.summary(&core(), Measure::Units, 60, now).unwrap();
        assert_eq!(summary.total, 60_000);
        for entry in &summary.entries {
            let weight = truth.get(&entry.key).copied().unwrap_or(0);
            assert!(entry.least <= weight && weight <= entry.most, "{entry:?} {weight}");
        }
        // What the documentation states: 1/65 of a minute's units, and 1/256 of each worker's.
        assert!(summary.unlisted <= 60_000 / 65 + 60_000 / 256, "{}", summary.unlisted);
        let heavy = summary.entries.iter().find(|entry| entry.key == 7).unwrap();
        assert!(heavy.most - heavy.least <= 60_000 / 65 + 60_000 / 256);
        let limits = book.limits.lock();
        let hour = limits[&core()].hour.lock();
        assert_eq!(hour.merged.len(), 59);
        let entries = hour.merged.iter().map(|own| own.summary(Measure::Units).entries.len());
        assert!(entries.rev().skip(1).all(|entries| entries <= crate::sketch::SEALED_ENTRIES));
    }

    #[test]
    fn callers_past_80_percent_are_counted_once() {
        let book = book();
        for worker in 0..2 {
            for key in [3, 4, 5, 3] {
                let seen = Sighting {
                    key: Some(key),
                    tier: book.tier_number("pro"),
                    units: 1,
                    denied: Denied::No,
                    is_near: true,
                };
                book.of_worker(worker, &core()).unwrap().note(START, &seen, &|_| {});
            }
        }
        let near =
            |this_minute, last_minute| NearTier { tier: "pro".into(), this_minute, last_minute };
        assert_eq!(book.near(&core(), START), [near(3, 0)]);
        assert_eq!(book.near(&core(), START + MINUTE), [near(0, 3)]);
        assert_eq!(book.near(&core(), START + MINUTE * 2), []);
    }

    #[test]
    fn removed_limit_is_forgotten_and_others_are_kept() {
        let book = book();
        note(&book, 0, START, 1, 5);
        let other = LimitRef { limit: "search".into(), ..core() };
        book.enter([core(), other.clone()].into_iter());
        assert_eq!(top(&book, Measure::Units, 1, START), [(1, 5, 5)]);
        book.enter([other.clone()].into_iter());
        assert!(book.summary(&core(), Measure::Units, 1, START).is_none());
        assert_eq!(book.limits(), [other]);
    }
}
