//! What one worker has seen of a limit.

use std::sync::Arc;

use parking_lot::Mutex;
use tollgate_clock::Timestamp;

use super::{
    hour::Hour,
    minute::{Minute, Sighting, minute_of},
};

/// What one worker has seen of a limit in the minute that is open. Only that worker writes to it.
///
/// It has two halves. The worker writes to the first one, or to the second one while somebody reads
/// the first; a reader holds one half at a time, and the hour, so that there is one reader at a
/// time. So the worker never waits, and its locks are in no other core's cache unless somebody
/// reads.
#[derive(Debug)]
#[repr(align(64))]
pub struct WorkerSketch {
    halves: [Mutex<Minutes>; 2],
    hour: Arc<Mutex<Hour>>,
}

/// The minute that is open, and those that have ended and were not handed over yet.
#[derive(Debug, Default)]
pub(super) struct Minutes {
    pub(super) open: Minute,
    pub(super) ended: Vec<Minute>,
}

/// Minutes of a worker that may wait to be handed over.
const MAX_ENDED: usize = 4;

impl WorkerSketch {
    pub(super) fn new(hour: Arc<Mutex<Hour>>) -> WorkerSketch {
        WorkerSketch { halves: Default::default(), hour }
    }

    /// Notes what the limit has decided about a request. `name` writes the caller's name, and is
    /// called only if the caller enters the sketch.
    pub fn note(&self, now: Timestamp, seen: &Sighting, name: &dyn Fn(&mut String)) {
        // With one reader at a time, there always is a half.
        let Some(mut minutes) = self.halves.iter().find_map(Mutex::try_lock) else { return };
        let minute = minute_of(now);
        // A clock that was set back does not open a minute again.
        if minute > minutes.open.number {
            self.turn(&mut minutes, minute);
        }
        minutes.open.add(seen, name);
    }

    /// Begins another minute, and hands the one before over to the hour unless that is being read
    /// just now.
    fn turn(&self, minutes: &mut Minutes, number: u64) {
        let ended = std::mem::replace(&mut minutes.open, Minute { number, ..Minute::default() });
        if !ended.is_empty() {
            minutes.ended.push(ended);
        }
        match self.hour.try_lock() {
            Some(mut hour) => minutes.ended.drain(..).for_each(|minute| hour.take(minute)),
            // Nobody reads for minutes.
            None => minutes.ended.truncate(MAX_ENDED),
        }
    }

    /// Has `read` read each half. The caller holds the hour.
    pub(super) fn read(&self, mut read: impl FnMut(&Minutes)) {
        for half in &self.halves {
            read(&half.lock());
        }
    }
}
