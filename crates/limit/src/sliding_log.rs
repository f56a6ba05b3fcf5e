//! Sliding log: exactly `limit` units in any `window`, by remembering each charge.
//!
//! The only algorithm with neither an edge nor an estimate. Its state grows with the limit, so it
//! is meant for small limits.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    skew::tolerated_skew,
    standing::{Retry, Standing},
    terms::Terms,
};

/// `limit` units in any `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// Units, at most [`SlidingLog::MAX_LIMIT`]. Zero always denies.
    pub limit: u32,
    /// How long a unit counts.
    pub window: Duration,
}

/// The charges of a key that may still count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Oldest first. Entries that no longer count stay until the next charge.
    entries: VecDeque<Entry>,
    /// Units of all entries.
    units: u64,
    /// The number of the next entry: it makes entries of one microsecond distinct.
    charges: u64,
    /// When the newest entry no longer counts.
    expires: Timestamp,
}

/// A charge. Its instant and its number identify it, and entries are in the order of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was made.
    pub at: Timestamp,
    /// Its units.
    pub cost: u32,
    /// Makes entries of one instant distinct.
    pub number: u64,
}

/// What a standing needs of a log: for a store that does not return the whole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Units that count.
    pub used: u64,
    /// When none of them counts any more; none if there are no such units.
    pub reset: Option<Timestamp>,
    /// If no unit fits: when enough will have left for one to fit.
    pub next: Option<Timestamp>,
}

impl Entry {
    fn name(&self) -> (Timestamp, u64) {
        (self.at, self.number)
    }
}

/// A summary of a log: all charges as if they had been made with the newest, so that nothing is
/// forgotten too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSummary {
    /// Units that may count.
    pub used: u32,
    /// When the newest of them was charged.
    pub newest: Timestamp,
    /// When all of them stop counting.
    pub expires: Timestamp,
}

impl State for Log {
    type Count = LogSummary;

    const HOLDS_MEMORY: bool = true;

    fn held_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires
    }

    fn count(&self) -> LogSummary {
        let (used, newest, expires) = self.summary();
        LogSummary { used, newest, expires }
    }

    fn of_count(count: &LogSummary) -> Option<Log> {
        Some(Log::of_one(count.used, count.newest, count.expires))
    }

    fn share_of(count: &LogSummary, instances: NonZeroU32) -> LogSummary {
        LogSummary { used: count.used.div_ceil(instances.get()), ..*count }
    }

    fn summarized_at(count: &LogSummary) -> Option<Timestamp> {
        Some(count.newest)
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.charges.to_le_bytes());
        bytes.extend(self.expires.as_micros().to_le_bytes());
        bytes.extend((self.entries.len() as u32).to_le_bytes());
        for Entry { at, cost, number } in &self.entries {
            bytes.extend(at.as_micros().to_le_bytes());
            bytes.extend(cost.to_le_bytes());
            bytes.extend(number.to_le_bytes());
        }
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Log> {
        let charges = bytes.u64()?;
        let expires = Timestamp::from_micros(bytes.u64()?);
        let count = bytes.u32()?;
        let mut entry = || {
            let at = Timestamp::from_micros(bytes.u64()?);
            Some(Entry { at, cost: bytes.u32()?, number: bytes.u64()? })
        };
        let entries = (0..count).map(|_| entry()).collect::<Option<VecDeque<Entry>>>()?;
        let units = entries.iter().map(|entry| u64::from(entry.cost)).sum();
        Some(Log { entries, units, charges, expires })
    }
}

impl Log {
    /// A log of one charge.
    pub(super) fn of_one(cost: u32, at: Timestamp, expires: Timestamp) -> Log {
        let mut log = Log::default();
        if cost > 0 {
            log.entries.push_back(Entry { at, cost, number: 0 });
            (log.units, log.charges, log.expires) = (cost.into(), 1, expires);
        }
        log
    }

    /// A log of these entries, oldest first, whose next entry is number `charges`. Entries without
    /// a cost are left out.
    pub fn of_entries(entries: impl Iterator<Item = Entry>, charges: u64, window: Duration) -> Log {
        let entries: VecDeque<Entry> = entries.filter(|entry| entry.cost > 0).collect();
        let units = entries.iter().map(|entry| u64::from(entry.cost)).sum();
        let expires = entries.back().map_or(Timestamp::default(), |newest| newest.at + window);
        Log { entries, units, charges, expires }
    }

    /// Its entries, oldest first, and the number of the next one. If there are more than `most`,
    /// neighbours are merged into one entry, which has the instant and the number of the newest of
    /// them.
    pub fn condensed(&self, most: usize) -> (Vec<Entry>, u64) {
        let size = self.entries.len().div_ceil(most.max(1)).max(1);
        let newest_first: Vec<&Entry> = self.entries.iter().rev().collect();
        let mut entries: Vec<Entry> = newest_first
            .chunks(size)
            .filter_map(|group| {
                let newest = group.first()?;
                let cost = group.iter().fold(0_u32, |sum, entry| sum.saturating_add(entry.cost));
                Some(Entry { cost, ..**newest })
            })
            .collect();
        entries.reverse();
        (entries, self.charges)
    }

    /// Units of all entries, the instant of the newest, and when it stops counting.
    pub(super) fn summary(&self) -> (u32, Timestamp, Timestamp) {
        let newest = self.entries.back().map_or(Timestamp::default(), |newest| newest.at);
        (u32::try_from(self.units).unwrap_or(u32::MAX), newest, self.expires)
    }
}

impl SlidingLog {
    /// The most units that a log can hold: each may need an entry.
    pub const MAX_LIMIT: u32 = 10_000;

    /// The instant that counts as now. A clock that is slightly behind the newest entry counts as
    /// being at it. If it is further behind, it went back, and later entries count as made now.
    fn time(&self, log: &Log, now: Timestamp) -> Timestamp {
        match log.entries.back() {
            Some(newest) if newest.at <= now + tolerated_skew(self.window) => newest.at.max(now),
            _ => now,
        }
    }

    fn has_left(&self, entry: &Entry, time: Timestamp) -> bool {
        time.saturating_since(entry.at) >= self.window
    }

    /// Units that count at `time`. Entries that have left are at the front, and every charge drops
    /// them, so this reads few entries.
    fn used(&self, log: &Log, time: Timestamp) -> u64 {
        let left = log.entries.iter().take_while(|entry| self.has_left(entry, time));
        log.units.saturating_sub(left.map(|entry| u64::from(entry.cost)).sum())
    }

    /// When `units` of those that count at `time` will have left; none if fewer count.
    fn freed(&self, log: &Log, units: u64, time: Timestamp) -> Option<Timestamp> {
        let mut freed = 0;
        let mut live = log.entries.iter().skip_while(|entry| self.has_left(entry, time));
        let last = live.find(|entry| {
            freed += u64::from(entry.cost);
            freed >= units
        })?;
        Some(last.at.min(time) + self.window)
    }

    /// How a log with this tail stands.
    pub fn standing_of(&self, tail: &Tail, now: Timestamp) -> Standing {
        let reset = tail.reset.unwrap_or(now);
        let next = match tail.used >= self.limit.into() {
            // Nothing ever fits. Clients should not retry again and again.
            true if self.limit == 0 => now + self.window,
            true => tail.next.unwrap_or(reset),
            false => now,
        };
        let used = u32::try_from(tail.used).unwrap_or(u32::MAX);
        let remaining = self.limit.saturating_sub(used);
        Standing { limit: self.limit, remaining, used, reset, next, retry: Retry::Now }
    }

    /// When `cost`, which does not fit now, will fit; `freed` is when the units that it needs will
    /// have left.
    pub fn retry_after(&self, freed: Option<Timestamp>, cost: u32, now: Timestamp) -> Retry {
        if cost > self.limit { Retry::Never } else { Retry::At(freed.unwrap_or(now)) }
    }

    /// Adds units to the end of a log, which is not newer than `at`. They get a new entry while
    /// there are fewer than `limit` entries; from then on they are added to the newest one.
    fn append(&self, log: &mut Log, cost: u32, at: Timestamp) -> Receipt {
        log.expires = at + self.window;
        if log.entries.len() >= self.limit as usize
            && let Some(newest) = log.entries.back_mut()
        {
            let cost = cost.min(u32::MAX - newest.cost);
            *newest = Entry { at, cost: newest.cost + cost, ..*newest };
            log.units += u64::from(cost);
            return Receipt { at, number: newest.number };
        }
        let number = log.charges;
        log.charges = log.charges.wrapping_add(1);
        log.units += u64::from(cost);
        log.entries.push_back(Entry { at, cost, number });
        Receipt { at, number }
    }

    /// Moves entries that are ahead of `time` to it.
    fn correct_clock(&self, log: &mut Log, time: Timestamp) {
        for entry in log.entries.iter_mut().rev().take_while(|entry| entry.at > time) {
            entry.at = time;
            log.expires = time + self.window;
        }
    }

    /// Drops the entries that have left.
    fn forget(&self, log: &mut Log, time: Timestamp) {
        while let Some(oldest) = log.entries.front().filter(|entry| self.has_left(entry, time)) {
            log.units = log.units.saturating_sub(u64::from(oldest.cost));
            log.entries.pop_front();
        }
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    const IS_SUMMARIZED: bool = true;

    fn capacity(&self) -> u32 {
        self.limit
    }

    fn longest(&self) -> Duration {
        self.window
    }

    fn share(&self, instances: NonZeroU32) -> SlidingLog {
        SlidingLog { limit: self.limit.div_ceil(instances.get()), ..*self }
    }

    fn admits(&self, log: &Log, cost: u32, now: Timestamp) -> bool {
        // Entries that have left matter only if the cost does not fit with them.
        let fits = |used: u64| used + u64::from(cost) <= u64::from(self.limit);
        fits(log.units) || fits(self.used(log, self.time(log, now)))
    }

    /// An admitted charge always gets a new entry. A charge beyond the limit gets one while there
    /// are fewer than `limit` entries; from then on it is added to the newest entry, so that memory
    /// is bounded and nothing counts for too short a time.
    fn take(&self, log: &mut Log, cost: u32, now: Timestamp) -> Receipt {
        let time = self.time(log, now);
        self.correct_clock(log, time);
        self.forget(log, time);
        self.append(log, cost, time)
    }

    fn standing(&self, log: &Log, now: Timestamp) -> Standing {
        let time = self.time(log, now);
        let used = self.used(log, time);
        let newest = log.entries.back().filter(|_| used > 0);
        let excess = (used + 1).saturating_sub(self.limit.into());
        let tail = Tail {
            used,
            reset: newest.map(|newest| newest.at.min(time) + self.window),
            next: if excess > 0 { self.freed(log, excess, time) } else { None },
        };
        self.standing_of(&tail, now)
    }

    fn retry(&self, log: &Log, cost: u32, now: Timestamp) -> Retry {
        let time = self.time(log, now);
        let excess = (self.used(log, time) + u64::from(cost)).saturating_sub(self.limit.into());
        self.retry_after(self.freed(log, excess, time), cost, now)
    }

    fn on_denied(&self, log: &mut Log, _cost: u32, now: Timestamp) {
        let time = self.time(log, now);
        self.correct_clock(log, time);
    }

    /// Subtracts it from the charge's own entry. An entry that was moved since, because a clock
    /// went back or another charge was added to it, keeps its cost.
    fn give_back(&self, log: &mut Log, receipt: Receipt, cost: u32, _now: Timestamp) {
        let name = (receipt.at, receipt.number);
        let Ok(index) = log.entries.binary_search_by_key(&name, Entry::name) else { return };
        let Some(entry) = log.entries.get_mut(index) else { return };
        let cost = cost.min(entry.cost);
        entry.cost -= cost;
        log.units = log.units.saturating_sub(u64::from(cost));
        if entry.cost == 0 {
            log.entries.remove(index);
        }
        log.expires =
            log.entries.back().map_or(Timestamp::default(), |newest| newest.at + self.window);
    }

    /// The instant of the newest entry.
    fn mark(&self, log: &Log) -> Timestamp {
        log.entries.back().map_or(Timestamp::default(), |newest| newest.at)
    }

    /// The entries that came since, and what was added to the newest entry of `base`.
    fn beyond(&self, log: &Log, base: &Log, now: Timestamp) -> Option<Log> {
        let time = self.time(log, now);
        let mut beyond = Log::default();
        for entry in log.entries.iter().filter(|entry| !self.has_left(entry, time)) {
            let known = base.entries.back().filter(|newest| newest.number == entry.number);
            let is_new = entry.number >= base.charges;
            let joined = known.map_or(0, |known| entry.cost.saturating_sub(known.cost));
            let cost = if is_new { entry.cost } else { joined };
            if cost > 0 {
                self.append(&mut beyond, cost, entry.at);
            }
        }
        (beyond.units > 0).then_some(beyond)
    }

    /// Each entry is added to the first one that is not older, so that entries keep their order and
    /// their numbers. Entries that are newer than all are appended.
    fn add(&self, log: &mut Log, other: &Log, now: Timestamp) {
        let time = self.time(log, now);
        self.correct_clock(log, time);
        self.forget(log, time);
        for entry in other.entries.iter().filter(|entry| !self.has_left(entry, time)) {
            let position = log.entries.partition_point(|present| present.at < entry.at);
            match log.entries.get_mut(position) {
                Some(present) => {
                    let cost = entry.cost.min(u32::MAX - present.cost);
                    present.cost += cost;
                    log.units += u64::from(cost);
                }
                None => {
                    self.append(log, entry.cost, entry.at.min(time));
                }
            }
        }
    }

    /// From each instant on, as many units as the log that has more of them since then. A charge
    /// that is in both logs is counted once, even if their clocks differ: it counts for as long as
    /// it does in either. A charge that is in one log is counted unless the other has as many newer
    /// units.
    fn join(&self, log: &mut Log, other: &Log, now: Timestamp) -> bool {
        let mut other = other.clone();
        let time = self.time(log, now).max(self.time(&other, now));
        for log in [&mut *log, &mut other] {
            self.correct_clock(log, time);
            self.forget(log, time);
        }
        let mut joined: VecDeque<Entry> = VecDeque::new();
        let [mut ours, mut theirs, mut units] = [0_u64; 3];
        let mut here = log.entries.iter().rev().peekable();
        let mut there = other.entries.iter().rev().peekable();
        loop {
            let heads = [here.peek(), there.peek()].map(|head| head.map(|entry| entry.name()));
            let Some(name) = heads.into_iter().flatten().max() else { break };
            let is_next = |entry: &&Entry| entry.name() == name;
            ours += here.next_if(is_next).map_or(0, |entry| u64::from(entry.cost));
            theirs += there.next_if(is_next).map_or(0, |entry| u64::from(entry.cost));
            let cost = u32::try_from(ours.max(theirs) - units).unwrap_or(u32::MAX);
            if cost == 0 {
                continue;
            }
            units += u64::from(cost);
            // While so many entries count, nothing fits whatever is older: memory stays bounded.
            let is_full = joined.len() >= self.limit.max(1) as usize;
            match joined.front_mut().filter(|_| is_full) {
                Some(oldest) => oldest.cost = oldest.cost.saturating_add(cost),
                None => joined.push_front(Entry { at: name.0, cost, number: name.1 }),
            }
        }
        let charges = log.charges.max(other.charges);
        *log = Log::of_entries(joined.into_iter(), charges, self.window);
        units > ours
    }

    /// An entry that was added keeps its instant, and has another number.
    fn receipt_in(&self, log: &Log, receipt: Receipt, cost: u32) -> Option<Receipt> {
        let has_it = |entry: &&Entry| entry.at == receipt.at && entry.cost >= cost;
        let entry = log.entries.iter().rev().find(has_it)?;
        Some(Receipt { at: entry.at, number: entry.number })
    }

    fn plain(units: u32, window: Duration) -> Option<SlidingLog> {
        Some(SlidingLog { limit: units, window })
    }

    fn terms(&self) -> Terms {
        Terms::of_windows(self.limit, self.window)
    }
}

#[cfg(test)]
mod tests;
