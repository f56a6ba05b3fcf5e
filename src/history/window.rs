//! The requests of a file that may not be in order yet: those of the last ten seconds of its log.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use super::Record;
use crate::clock::Timestamp;

/// Lines that are out of order by so much are put in order.
const REACH: Duration = Duration::from_secs(10);

/// The requests of a file that were read and not given out.
///
/// A log is almost in order. A request that is no earlier than all before it goes to the end of a
/// queue, at no cost; only the others need the heap.
#[derive(Default)]
pub(super) struct Window {
    in_order: VecDeque<Box<Record>>,
    strays: BinaryHeap<Reverse<Stray>>,
    /// The latest time that was read.
    latest: Timestamp,
    /// About how much memory the requests take.
    bytes: usize,
}

/// A request that is earlier than one before it.
struct Stray(Box<Record>);

/// When a request comes among the others: by its time, and of one instant in the order of the lines.
fn rank(record: &Record) -> (Timestamp, u64) {
    (record.time, record.place.line)
}

impl Window {
    /// Takes a request; returns whether it is earlier than one before it.
    pub(super) fn push(&mut self, record: Box<Record>) -> bool {
        self.bytes += size(&record);
        if record.time >= self.latest {
            self.latest = record.time;
            self.in_order.push_back(record);
            return false;
        }
        self.strays.push(Reverse(Stray(record)));
        true
    }

    /// About how much memory the requests take, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time of the earliest request.
    pub(super) fn first(&self) -> Option<Timestamp> {
        let in_order = self.in_order.front().map(|record| record.time);
        let stray = self.strays.peek().map(|Reverse(Stray(record))| record.time);
        match (in_order, stray) {
            (Some(in_order), Some(stray)) => Some(in_order.min(stray)),
            (first, None) | (None, first) => first,
        }
    }

    /// Whether no line that is out of order by ten seconds at most can come before the earliest one.
    pub(super) fn is_settled(&self) -> bool {
        self.first().is_some_and(|first| first + REACH <= self.latest)
    }

    /// Gives out the earliest request.
    pub(super) fn pop(&mut self) -> Option<Box<Record>> {
        let is_stray = match (self.in_order.front(), self.strays.peek()) {
            (Some(first), Some(Reverse(Stray(stray)))) => rank(stray) < rank(first),
            (first, _) => first.is_none(),
        };
        let record = match is_stray {
            true => self.strays.pop().map(|Reverse(Stray(record))| record),
            false => self.in_order.pop_front(),
        }?;
        self.bytes -= size(&record);
        Some(record)
    }
}

/// About how much memory a request takes, in bytes. What can be long is counted as it is.
fn size(record: &Record) -> usize {
    let fields: usize = record.fields.iter().flatten().map(|value| value.len() + 16).sum();
    let Record { host, target, user_agent, referer, own, .. } = record;
    let values = [host, user_agent, referer].into_iter().flatten();
    let values: usize = values.map(|value| value.len() + 64).sum();
    let own = if own.is_some() { 256 } else { 0 };
    size_of::<Record>() + target.as_str().len() + fields + values + own
}

impl PartialEq for Stray {
    fn eq(&self, other: &Stray) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Stray {}

impl PartialOrd for Stray {
    fn partial_cmp(&self, other: &Stray) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stray {
    fn cmp(&self, other: &Stray) -> Ordering {
        rank(&self.0).cmp(&rank(&other.0))
    }
}
