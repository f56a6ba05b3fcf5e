//! The clock of a log whose times do not say their offset from UTC: once a year it goes back by an
//! hour, and the hour would be there twice.
//!
//! A line that is an hour before those ahead of it may be a stray or may come from another clock. So the
//! first lines of that kind wait until they show that time goes on from there.

use std::{collections::VecDeque, time::Duration};

use super::Record;
use crate::clock::Timestamp;

/// By how much the clock goes back.
const STEP: Duration = Duration::from_secs(3600);
/// A step back of this much is one of an hour: lines come seldom, or are a little out of order.
const STEPS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(50 * 60)..=Duration::from_secs(70 * 60);
/// Lines that go on from the step must be no further out of order.
const REACH: Duration = Duration::from_secs(10);
/// So many lines make a step; and so many more for each line that says that time went on as before,
/// since a few may have been written a little late. As many of those say that there was no step.
const ENOUGH: usize = 3;
/// The clock does not go back twice within this time.
const SELDOM: Duration = Duration::from_secs(30 * 24 * 3600);
/// The duration of a longer request says nothing about when its line was written.
const LONGEST: Duration = Duration::from_secs(600);

/// The clock of a file.
#[derive(Default)]
pub(super) struct LocalClock {
    /// What is added to the times that are written.
    shift: Duration,
    /// The latest time at which a line was written, with what is added.
    latest: Timestamp,
    waiting: Option<Waiting>,
    /// The latest time that the clock showed when it went back last, with what was added before.
    stepped: Option<Timestamp>,
    /// The line at which it went back first.
    line: Option<u64>,
    /// Whether lines come from clocks that differ: then a step cannot be told.
    is_mixed: bool,
}

/// Requests that may come after a step.
struct Waiting {
    /// What the clock showed before, and what it showed then.
    from: Timestamp,
    to: Timestamp,
    records: VecDeque<Box<Record>>,
    /// Lines between them that say that time went on as before.
    others: usize,
}

impl LocalClock {
    /// Puts a request right, and gives out all that are known to be right.
    pub(super) fn take(&mut self, mut record: Box<Record>, ready: &mut VecDeque<Box<Record>>) {
        record.time = record.time + self.shift;
        let mut written = written(&record);
        if let Some(from) = self.stepped
            && written > self.latest + *STEPS.start()
            && record.time.saturating_sub(STEP) <= from
            && written.saturating_sub(STEP) >= from
        {
            // It came before the step, and its line was written after that.
            record.time = record.time.saturating_sub(STEP);
            written = written.saturating_sub(STEP);
        }
        if let Some(waiting) = &mut self.waiting {
            if written + REACH >= waiting.to && written + REACH < waiting.from {
                waiting.records.push_back(record);
                if waiting.records.len() >= ENOUGH * (1 + waiting.others) {
                    self.step(ready);
                }
                return;
            }
            waiting.others += usize::from(record.time > waiting.from);
            if waiting.others >= ENOUGH {
                self.is_mixed = true;
                self.finish(ready);
            }
        } else if self.is_step(written) {
            let (from, to) = (self.latest, written);
            self.waiting = Some(Waiting { from, to, records: [record].into(), others: 0 });
            return;
        }
        self.latest = self.latest.max(written);
        ready.push_back(record);
    }

    fn is_step(&self, written: Timestamp) -> bool {
        STEPS.contains(&self.latest.saturating_since(written))
            && !self.is_mixed
            && self.stepped.is_none_or(|from| from + SELDOM < written)
    }

    /// The clock went back: from here on, times are an hour more.
    fn step(&mut self, ready: &mut VecDeque<Box<Record>>) {
        let Some(waiting) = self.waiting.take() else { return };
        self.stepped = Some(waiting.from);
        self.shift += STEP;
        self.line = self.line.or(waiting.records.front().map(|record| record.place.line));
        for mut record in waiting.records {
            record.time = record.time + STEP;
            self.latest = self.latest.max(written(&record));
            ready.push_back(record);
        }
    }

    /// Gives out what waits, as it is.
    pub(super) fn finish(&mut self, ready: &mut VecDeque<Box<Record>>) {
        ready.extend(self.waiting.take().into_iter().flat_map(|waiting| waiting.records));
    }

    /// The line at which the clock went back first.
    pub(super) const fn line(&self) -> Option<u64> {
        self.line
    }
}

/// When the line of a request was written.
fn written(record: &Record) -> Timestamp {
    record.time + record.took.filter(|took| *took <= LONGEST).unwrap_or_default()
}
