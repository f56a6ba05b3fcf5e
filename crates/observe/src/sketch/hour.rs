//! The last hour of a limit, of all workers together.

use super::{
    distinct::DistinctKeys,
    minute::{Measure, Minute, near_of},
    summary::Summary,
};

/// Minutes that are kept, the one that is open among them.
pub const KEPT_MINUTES: u64 = 60;

/// Callers that are kept of a minute that has ended.
pub const SEALED_ENTRIES: usize = 64;

/// Minutes that were handed over may wait to be merged; above this many, the worker that adds one
/// merges them.
const MAX_WAITING: usize = 128;

/// The last hour of a limit.
#[derive(Debug, Default)]
pub(super) struct Hour {
    /// Minutes of workers that have ended, as they were handed over.
    waiting: Vec<Minute>,
    /// Merged ones, the oldest first.
    pub(super) merged: Vec<MergedMinute>,
}

/// A minute of all workers.
#[derive(Debug, Default)]
pub(super) struct MergedMinute {
    pub(super) number: u64,
    units: Summary,
    denials: Summary,
    would_be_denials: Summary,
    pub(super) near: Vec<(u16, DistinctKeys)>,
}

impl MergedMinute {
    pub(super) fn summary(&self, measure: Measure) -> &Summary {
        match measure {
            Measure::Units => &self.units,
            Measure::Denials => &self.denials,
            Measure::WouldBeDenials => &self.would_be_denials,
        }
    }
}

impl Hour {
    /// Takes a minute of a worker. It is merged later, by a reader.
    pub(super) fn take(&mut self, minute: Minute) {
        let now = minute.number + 1;
        self.waiting.push(minute);
        if self.waiting.len() > MAX_WAITING {
            self.merge(now);
        }
    }

    /// Merges what was handed over, and forgets what is too old in the minute `now`.
    ///
    /// Of a minute, all that the workers have is kept until the minute after it has ended, too, for
    /// workers hand theirs over at different times; then it is cut to [`SEALED_ENTRIES`] callers.
    pub(super) fn merge(&mut self, now: u64) {
        for minute in self.waiting.drain(..) {
            let at = self.merged.partition_point(|own| own.number < minute.number);
            if self.merged.get(at).is_none_or(|own| own.number != minute.number) {
                let new = MergedMinute { number: minute.number, ..MergedMinute::default() };
                self.merged.insert(at, new);
            }
            let Some(own) = self.merged.get_mut(at) else { continue };
            for (sum, sketch) in [
                (&mut own.units, &minute.units),
                (&mut own.denials, &minute.denials),
                (&mut own.would_be_denials, &minute.would_be_denials),
            ] {
                *sum = Summary::merged([std::mem::take(sum), sketch.summary()]);
            }
            minute.near.iter().for_each(|(tier, keys)| near_of(&mut own.near, *tier).add_all(keys));
        }
        self.merged.retain(|minute| minute.number + KEPT_MINUTES > now);
        for minute in self.merged.iter_mut().filter(|minute| minute.number + 1 < now) {
            minute.near = Vec::new();
            for summary in [&mut minute.units, &mut minute.denials, &mut minute.would_be_denials] {
                if summary.entries.len() > SEALED_ENTRIES {
                    summary.keep(SEALED_ENTRIES);
                    summary.entries.shrink_to_fit();
                }
            }
        }
    }
}
