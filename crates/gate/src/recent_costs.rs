//! The highest costs that responses have named recently, by route and limit: the charge for a
//! request whose response's head never comes.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use parking_lot::Mutex;
use tollgate_clock::Timestamp;
use tollgate_limit::LimitId;

/// The highest costs of this hour and the one before, for all workers.
#[derive(Default)]
pub struct RecentCosts {
    by_source: Mutex<HashMap<RouteLimit, HourlyCosts>>,
}

/// What costs are remembered by: a limit, as one route charges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteLimit(u64);

#[derive(Clone, Copy)]
struct HourlyCosts {
    /// Hours since the epoch.
    hour: u64,
    /// The highest cost of that hour.
    latest: u32,
    /// The highest cost of the hour before.
    before: u32,
}

const HOUR_SECS: u64 = 3600;

/// Routes times limits that are remembered. Policies that were reloaded leave some behind.
const MAX_SOURCES: usize = 4096;

impl RouteLimit {
    /// A limit, and the route of this name.
    pub(super) fn new(limit: LimitId, route: &str) -> RouteLimit {
        let mut hasher = DefaultHasher::new();
        (limit, route).hash(&mut hasher);
        RouteLimit(hasher.finish())
    }
}

impl RecentCosts {
    /// Remembers a cost that a response has named at `now`.
    pub(super) fn note(&self, source: RouteLimit, cost: u32, now: Timestamp) {
        let hour = hour_of(now);
        let mut by_source = self.by_source.lock();
        if by_source.len() >= MAX_SOURCES && !by_source.contains_key(&source) {
            by_source.retain(|_, old| old.hour + 1 >= hour);
            if by_source.len() >= MAX_SOURCES {
                return;
            }
        }
        let costs = by_source.entry(source).or_insert(HourlyCosts { hour, latest: 0, before: 0 });
        if costs.hour != hour {
            *costs = HourlyCosts { hour, latest: 0, before: costs.highest_before(hour) };
        }
        costs.latest = costs.latest.max(cost);
    }

    /// The highest recent cost; none if no response has named any.
    pub(super) fn of(&self, source: RouteLimit, now: Timestamp) -> Option<u32> {
        let by_source = self.by_source.lock();
        let hour = hour_of(now);
        by_source.get(&source).map(|costs| match costs.hour == hour {
            true => costs.latest.max(costs.before),
            false => costs.highest_before(hour),
        })
    }
}

impl HourlyCosts {
    /// The highest cost of the hour before this one.
    fn highest_before(&self, hour: u64) -> u32 {
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
    fn highest_cost_is_remembered_for_this_hour_and_the_one_before() {
        let costs = RecentCosts::default();
        for (cost, hour) in [(7, 0), (3, 0), (5, 1)] {
            costs.note(RouteLimit(1), cost, at(hour));
        }
        for (hour, expected) in [(1, 7), (2, 5), (3, 0)] {
            assert_eq!(costs.of(RouteLimit(1), at(hour)), Some(expected), "in hour {hour}");
        }
        assert_eq!(costs.of(RouteLimit(2), at(0)), None);
    }

    #[test]
    fn forgotten_sources_make_room() {
        let costs = RecentCosts::default();
        let new = RouteLimit(u64::MAX);
        for source in 0..MAX_SOURCES as u64 {
            costs.note(RouteLimit(source), 1, at(0));
        }
        costs.note(new, 1, at(1));
        assert_eq!(costs.of(new, at(1)), None);
        costs.note(new, 1, at(2));
        assert_eq!(costs.of(new, at(2)), Some(1));
        assert_eq!(costs.of(RouteLimit(0), at(2)), None);
    }
}
