//! The requests of a file that may not be in order yet: those of the last ten seconds of its log,
//! and of as long as its requests take.
//!
//! Lines are written when responses have ended, and judged in the order in which requests came. So
//! a request of a minute comes a minute late. How long requests take is only known from those that
//! were read: the first long one of a log may come too late, those that follow do not.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tollgate_clock::Timestamp;

use super::{
    Record,
    log_time::{JUMP, LogTime},
};

/// Lines that are out of order by so much are put in order.
const REACH: Duration = Duration::from_secs(10);

/// A request that took longer is not waited for: the log would have to be kept for as long.
const LONGEST: Duration = Duration::from_secs(600);

/// Of a log with durations, so many requests are read before the first is given out, so that the
/// first long one is likely to be among them.
const LEARNED: u32 = 1000;

/// The requests of a file that were read and not given out.
///
/// A log is almost in order. A request that is no earlier than all before it goes to the end of a
/// queue, at no cost; only the others are sorted.
#[derive(Default)]
pub(super) struct Window {
    in_order: VecDeque<Box<Record>>,
    /// Those that are earlier than one before them, by their rank.
    strays: BTreeMap<(Timestamp, u64), Box<Record>>,
    /// The latest time of the queue.
    latest: Timestamp,
    /// The latest request that was far ahead of all others.
    ahead: Timestamp,
    /// How far the log has come.
    reached: LogTime,
    /// The longest duration that was read, of those that are waited for.
    longest: Duration,
    /// Requests that were read, as far as they are counted.
    learned: u32,
    /// About how much memory the requests take.
    pub(super) bytes: usize,
}

/// When a request comes among the others: by its time, and of one instant in the order of the
/// lines.
fn rank(record: &Record) -> (Timestamp, u64) {
    (record.time, record.place.line)
}

impl Window {
    /// Takes the duration of a request: as long, others are waited for.
    pub(super) fn learn(&mut self, took: Option<Duration>) {
        let took = took.filter(|took| *took <= LONGEST);
        self.longest = self.longest.max(took.unwrap_or_default());
    }

    /// Takes a request; returns whether it is earlier than one before it.
    pub(super) fn push(&mut self, record: Box<Record>) -> bool {
        self.bytes += size(&record);
        self.learned = self.learned.saturating_add(1);
        self.learn(record.took);
        let took = record.took.filter(|took| *took <= LONGEST).unwrap_or_default();
        let is_ahead = self.reached.see(record.time + took);
        // One with a wrong clock is not counted against all that follow.
        let is_earlier = record.time < self.latest
            || (record.time < self.ahead && self.ahead <= record.time + JUMP);
        if is_ahead {
            self.ahead = record.time;
        }
        // Behind it in the queue, all others would be strays.
        if is_earlier || is_ahead {
            self.strays.insert(rank(&record), record);
        } else {
            self.latest = record.time;
            self.in_order.push_back(record);
        }
        is_earlier
    }

    /// The time of the earliest request.
    pub(super) fn first(&self) -> Option<Timestamp> {
        let in_order = self.in_order.front().map(|record| record.time);
        let stray = self.strays.first_key_value().map(|((time, _), _)| *time);
        match (in_order, stray) {
            (Some(in_order), Some(stray)) => Some(in_order.min(stray)),
            (first, None) | (None, first) => first,
        }
    }

    /// Whether the earliest request can be given out: no line that is out of order by ten seconds
    /// at most can come before it, if its request took no longer than those that were read. For
    /// that, no more than `max_bytes` of requests are kept.
    pub(super) fn is_settled(&self, max_bytes: usize) -> bool {
        let Some(first) = self.first() else { return false };
        let has_learned = self.longest.is_zero() || self.learned >= LEARNED;
        (has_learned && first + REACH + self.longest <= self.reached.time)
            || (self.bytes >= max_bytes && first + REACH <= self.latest)
    }

    /// Gives out the earliest request.
    pub(super) fn pop(&mut self) -> Option<Box<Record>> {
        let is_stray = match (self.in_order.front(), self.strays.first_key_value()) {
            (Some(first), Some((stray, _))) => *stray < rank(first),
            (first, _) => first.is_none(),
        };
        let record = match is_stray {
            true => self.strays.pop_first().map(|(_, record)| record),
            false => self.in_order.pop_front(),
        }?;
        self.bytes -= size(&record);
        Some(record)
    }
}

/// About how much memory a request takes, in bytes. What can be long is counted as it is.
pub(super) fn size(record: &Record) -> usize {
    let fields: usize = record.fields.iter().flatten().map(|value| value.len() + 16).sum();
    let Record { host, target, user_agent, referer, own, used, .. } = record;
    let values = [host, user_agent, referer].into_iter().flatten();
    let values: usize = values.map(|value| value.len() + 64).sum();
    let own = if own.is_some() { 256 } else { 0 };
    let costs = used.costs.len() * 128;
    size_of::<Record>() + target.as_str().len() + fields + values + own + costs
}
