//! The clock of a log whose times do not say their offset from UTC: once a year it goes back by an
//! hour, and the hour would be there twice.
//!
//! A line that is an hour before the one ahead of it may be a stray or may come from another clock.
//! So the first lines of that kind wait until they show that time goes on from there. In the night
//! before a Sunday, in which nearly all clocks go back, fewer of them are enough, and there may be
//! long pauses between lines.

use std::{collections::VecDeque, time::Duration};

use tollgate_clock::Timestamp;

use super::Record;

/// By how much the clock goes back.
const STEP: Duration = Duration::from_secs(3600);
/// A greater step back is not one of an hour, even if lines are a little out of order.
const MOST: Duration = Duration::from_secs(70 * 60);
/// A step back of less is no step: lines are so much out of order.
const REACH: Duration = Duration::from_secs(10);
/// The pause between two lines that a step may have been in: it makes the step look smaller.
const PAUSE: Duration = Duration::from_secs(600);
/// At night it may be so many times as long as the latest pauses. Of these, the longest does not
/// count: it may come from a single line with a wrong time.
const PAUSES: u32 = 2;
/// So many pauses are remembered.
const REMEMBERED: usize = 8;
/// So many lines make a step, at night and by day; and so many more for each line that says that
/// time went on as before, since a few may have been written a little late.
const ENOUGH_AT_NIGHT: usize = 3;
const ENOUGH: usize = 10;
/// As many lines that say that time went on as before say that there was no step.
const NO_STEP: usize = 3;
/// The clock does not go back twice within this time.
const SELDOM: Duration = Duration::from_secs(30 * 24 * 3600);
/// A duration that is longer is a mistake.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The clock of a file.
#[derive(Default)]
pub(super) struct LocalClock {
    /// What is added to the times that are written.
    shift: Duration,
    shown: ClockReading,
    waiting: Option<HeldRecords>,
    /// The latest time that the clock showed when it went back last, with what was added before.
    stepped: Option<Timestamp>,
    /// The line at which it went back first.
    pub(super) line: Option<u64>,
}

/// What the clock shows, with what is added: by several lines, since a single one may be wrong.
#[derive(Default)]
struct ClockReading {
    /// The latest time at which a line was written.
    latest: Option<Timestamp>,
    /// What the line before showed, if it was far from all before it.
    other: Option<Timestamp>,
    /// The latest pauses between lines.
    pauses: VecDeque<Duration>,
}

/// Requests that may come after a step.
struct HeldRecords {
    /// What the clock showed before, and what it showed then.
    from: Timestamp,
    to: Timestamp,
    /// The latest time at which a line of them was written.
    latest: Timestamp,
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
            && self.shown.latest.is_some_and(|latest| written + PAUSE > latest + STEP)
            && record.time.saturating_sub(STEP) <= from
            && written.saturating_sub(STEP) >= from
        {
            // It came before the step, and its line was written after that.
            record.time = record.time.saturating_sub(STEP);
            written = written.saturating_sub(STEP);
        }
        let longest = self.shown.longest_pause();
        if let Some(waiting) = &mut self.waiting {
            if written + REACH >= waiting.to && written <= waiting.latest + longest {
                waiting.latest = waiting.latest.max(written);
                waiting.records.push_back(record);
                if waiting.is_enough() {
                    self.step(ready);
                }
                return;
            }
            waiting.others += usize::from(record.time > waiting.from);
            if waiting.others >= NO_STEP {
                self.finish(ready);
            }
        } else if let Some(from) = self.steps_back(written) {
            let records = [record].into();
            self.waiting =
                Some(HeldRecords { from, to: written, latest: written, records, others: 0 });
            return;
        }
        self.shown.see(written);
        ready.push_back(record);
    }

    /// What the clock showed before, if it may have gone back by an hour.
    fn steps_back(&self, written: Timestamp) -> Option<Timestamp> {
        let from = self.shown.latest?;
        let by = from.saturating_since(written);
        let least = STEP.saturating_sub(self.shown.longest_pause()).max(REACH);
        let is_seldom = self.stepped.is_none_or(|stepped| stepped + SELDOM < written);
        (by > least && by <= MOST && is_seldom).then_some(from)
    }

    /// The clock went back: from here on, times are an hour more.
    fn step(&mut self, ready: &mut VecDeque<Box<Record>>) {
        let Some(waiting) = self.waiting.take() else { return };
        self.stepped = Some(waiting.from);
        self.shift += STEP;
        self.line = self.line.or(waiting.records.front().map(|record| record.place.line));
        for mut record in waiting.records {
            record.time = record.time + STEP;
            self.shown.see(written(&record));
            ready.push_back(record);
        }
    }

    /// Gives out what waits, as it is.
    pub(super) fn finish(&mut self, ready: &mut VecDeque<Box<Record>>) {
        for record in self.waiting.take().into_iter().flat_map(|waiting| waiting.records) {
            self.shown.see(written(&record));
            ready.push_back(record);
        }
    }
}

impl HeldRecords {
    fn is_enough(&self) -> bool {
        let enough = if is_night(self.from) { ENOUGH_AT_NIGHT } else { ENOUGH };
        self.records.len() >= enough * (1 + self.others)
    }
}

impl ClockReading {
    /// Takes the time at which a line was written. One that is far from those before it counts only
    /// if the next one is near it.
    fn see(&mut self, written: Timestamp) {
        // The next hour would be a step ahead.
        let is_near = |time: Timestamp| written + REACH >= time && written + PAUSE <= time + STEP;
        let Some(latest) = self.latest else {
            self.latest = Some(written);
            return;
        };
        if is_near(latest) {
            self.pauses.push_back(written.saturating_since(latest));
            if self.pauses.len() > REMEMBERED {
                self.pauses.pop_front();
            }
            self.latest = Some(latest.max(written));
            self.other = None;
        } else if self.other.is_some_and(is_near) {
            self.latest = Some(written);
            self.other = None;
        } else {
            self.other = Some(written);
        }
    }

    /// The longest pause between two lines that is no surprise.
    fn longest_pause(&self) -> Duration {
        match self.latest.is_some_and(is_night) {
            true => {
                let mut pauses: Vec<Duration> = self.pauses.iter().copied().collect();
                pauses.sort_unstable();
                let usual = pauses.iter().rev().nth(1).copied().unwrap_or_default();
                (usual * PAUSES).clamp(PAUSE, STEP)
            }
            false => PAUSE,
        }
    }
}

/// Whether a local time is in the night before a Sunday: from 23 to 4 o'clock.
fn is_night(time: Timestamp) -> bool {
    const HOUR: u64 = 3600;
    const WEEK: u64 = 7 * 24 * HOUR;
    // The epoch began on a Thursday.
    let of_week = (time.as_micros() / 1_000_000 + 4 * 24 * HOUR) % WEEK;
    !(4 * HOUR..WEEK - HOUR).contains(&of_week)
}

/// When the line of a request was written.
fn written(record: &Record) -> Timestamp {
    record.time + record.took.filter(|took| *took <= LONGEST).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_back_in_the_night_before_a_sunday() {
        for (time, expected) in [
            ("2026-10-25T00:00:00Z", true),
            ("2026-10-25T03:59:59Z", true),
            ("2026-10-25T04:00:00Z", false),
            ("2026-10-24T23:00:00Z", true),
            ("2026-10-24T22:59:59Z", false),
            ("2026-11-01T01:30:00Z", true),
            ("2026-11-26T01:30:00Z", false),
        ] {
            let time: jiff::Timestamp = time.parse().unwrap();
            let micros = u64::try_from(time.as_microsecond()).unwrap();
            assert_eq!(is_night(Timestamp::from_micros(micros)), expected, "{time}");
        }
    }
}
