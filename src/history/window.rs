//! The requests of a file that may not be in order yet: those of the last ten seconds of its log.

use std::{
    cmp::Reverse,
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
/// queue, at no cost; only the others need the heap. Both hold positions, so that a request is moved
/// once in and once out.
#[derive(Default)]
pub(super) struct Window {
    /// The requests, and places that are free again.
    slots: Vec<Option<Record>>,
    free: Vec<usize>,
    in_order: VecDeque<Rank>,
    strays: BinaryHeap<Reverse<Rank>>,
    /// The latest time that was read.
    latest: Timestamp,
    /// About how much memory the requests take.
    bytes: usize,
}

/// When a request comes among the others: by its time, and of one instant in the order of the lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    time: Timestamp,
    line: u64,
    /// Where it is. No two have the same line, so this never decides.
    slot: usize,
}

impl Window {
    /// Takes a request; returns whether it is earlier than one before it.
    pub(super) fn push(&mut self, record: Record) -> bool {
        self.bytes += size(&record);
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let rank = Rank { time: record.time, line: record.place.line, slot };
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(record),
            None => self.slots.push(Some(record)),
        }
        if rank.time >= self.latest {
            self.latest = rank.time;
            self.in_order.push_back(rank);
            return false;
        }
        self.strays.push(Reverse(rank));
        true
    }

    /// About how much memory the requests take, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time of the earliest request.
    pub(super) fn first(&self) -> Option<Timestamp> {
        let in_order = self.in_order.front().map(|rank| rank.time);
        let stray = self.strays.peek().map(|Reverse(rank)| rank.time);
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
    pub(super) fn pop(&mut self) -> Option<Record> {
        let is_stray = match (self.in_order.front(), self.strays.peek()) {
            (Some(rank), Some(Reverse(stray))) => stray < rank,
            (first, _) => first.is_none(),
        };
        let Rank { slot, .. } =
            if is_stray { self.strays.pop()?.0 } else { self.in_order.pop_front()? };
        let record = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        self.bytes -= size(&record);
        Some(record)
    }
}

/// About how much memory a request takes, in bytes. What can be long is counted as it is.
fn size(record: &Record) -> usize {
    let fields: usize = record.fields.iter().flatten().map(|value| value.len() + 16).sum();
    let headers: usize = record.headers.iter().map(|(_, value)| value.len() + 64).sum();
    let own = if record.own.is_some() { 256 } else { 0 };
    size_of::<Record>() + record.target.len() + fields + headers + own
}
