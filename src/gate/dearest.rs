//! What responses have lately cost at most, by route and limit: what a request is charged whose
//! response nobody has seen.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use crate::{clock::Timestamp, limit::LimitId};

/// The dearest costs that responses have told in this hour and the one before, for all workers.
#[derive(Default)]
pub struct Dearest {
    seen: Mutex<HashMap<u64, Seen>>,
}

#[derive(Clone, Copy)]
struct Seen {
    /// Hours since the epoch.
    hour: u64,
    /// The dearest of that hour.
    latest: u32,
    /// The dearest of the hour before.
    before: u32,
}

const HOUR_SECS: u64 = 3600;

/// Routes times limits that are remembered. Policies that were reloaded leave some behind.
const MOST: usize = 4096;

/// What costs are remembered by: a limit, as the route of this name charges it.
pub(super) fn source(limit: LimitId, route: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (limit, route).hash(&mut hasher);
    hasher.finish()
}

impl Dearest {
    /// Remembers a cost that a response has told at `now`.
    pub(super) fn note(&self, source: u64, cost: u32, now: Timestamp) {
        let hour = hour_of(now);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST && !seen.contains_key(&source) {
            seen.retain(|_, old| old.hour + 1 >= hour);
            if seen.len() >= MOST {
                return;
            }
        }
        let entry = seen.entry(source).or_insert(Seen { hour, latest: 0, before: 0 });
        if entry.hour != hour {
            *entry = Seen { hour, latest: 0, before: entry.dearest_before(hour) };
        }
        entry.latest = entry.latest.max(cost);
    }

    /// The dearest cost of late; none if no response has told any.
    pub(super) fn of(&self, source: u64, now: Timestamp) -> Option<u32> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let hour = hour_of(now);
        seen.get(&source).map(|entry| match entry.hour == hour {
            true => entry.latest.max(entry.before),
            false => entry.dearest_before(hour),
        })
    }
}

impl Seen {
    /// What it has of the hour before this one.
    fn dearest_before(&self, hour: u64) -> u32 {
        if self.hour + 1 == hour { self.latest } else { 0 }
    }
}

fn hour_of(now: Timestamp) -> u64 {
    now.as_micros() / 1_000_000 / HOUR_SECS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: u64) -> Timestamp {
        Timestamp::from_secs(1000 * HOUR_SECS + hours * HOUR_SECS)
    }

    #[test]
    fn dearest_cost_is_remembered_for_this_hour_and_the_one_before() {
        let dearest = Dearest::default();
        for (cost, hour) in [(7, 0), (3, 0), (5, 1)] {
            dearest.note(1, cost, at(hour));
        }
        for (hour, expected) in [(1, 7), (2, 5), (3, 0)] {
            assert_eq!(dearest.of(1, at(hour)), Some(expected), "in hour {hour}");
        }
        assert_eq!(dearest.of(2, at(0)), None);
    }

    #[test]
    fn what_was_forgotten_makes_room() {
        let dearest = Dearest::default();
        for source in 0..MOST as u64 {
            dearest.note(source, 1, at(0));
        }
        dearest.note(u64::MAX, 1, at(1));
        assert_eq!(dearest.of(u64::MAX, at(1)), None);
        dearest.note(u64::MAX, 1, at(2));
        assert_eq!(dearest.of(u64::MAX, at(2)), Some(1));
        assert_eq!(dearest.of(0, at(2)), None);
    }
}
