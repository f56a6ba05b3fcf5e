//! What a counter has had, and since when it would outlive its process or the power.
//!
//! The counter of an hour is the sum of what was said of it, so after a restart it must be what it
//! was at one of the instants that may be left. Of other algorithms only differences are known:
//! what may be lost was charged, or given back, since then.

use tollgate_limit::Standing;

/// Units by which a standing may be rounded.
const ROUNDED: u32 = 1;

/// A counter at an instant.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// What is used, if it is the sum of what was said.
    used: u32,
    /// Units that were charged and given back until then.
    charged: u32,
    given: u32,
    resets: u32,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has written all that it had.
    Stopped,
    /// Or it could not write.
    Killed,
    PowerCut,
}

/// All that a counter has had since all of it was on disk.
#[derive(Clone, Debug)]
pub(super) struct History {
    steps: Vec<Step>,
    /// What outlives the process.
    written: usize,
    /// What outlives the power.
    synced: usize,
    /// Whether the clock was set since.
    was_set: bool,
}

impl History {
    pub(super) fn new() -> History {
        History { steps: vec![Step::default()], written: 0, synced: 0, was_set: false }
    }

    fn last(&self) -> Step {
        self.steps.last().copied().unwrap_or_default()
    }

    /// What is used, if this is the counter of an hour.
    pub(super) fn used(&self) -> u32 {
        self.last().used
    }

    pub(super) fn charge(&mut self, units: u32) {
        let last = self.last();
        let (used, charged) = (last.used + units, last.charged + units);
        self.steps.push(Step { used, charged, ..last });
    }

    pub(super) fn give_back(&mut self, units: u32) {
        let last = self.last();
        let (used, given) = (last.used.saturating_sub(units), last.given + units);
        self.steps.push(Step { used, given, ..last });
    }

    pub(super) fn reset(&mut self) {
        let last = self.last();
        self.steps.push(Step { used: 0, resets: last.resets + 1, ..last });
    }

    pub(super) fn set_clock(&mut self) {
        self.was_set = true;
    }

    /// All so far is written.
    pub(super) fn note_written(&mut self, is_synced: bool) {
        self.written = self.steps.len() - 1;
        if is_synced {
            self.synced = self.written;
        }
    }

    /// What is wrong about the counter after its process has ended like this, where it stood like
    /// this before. From now on it has what it has, and all of it is on disk.
    pub(super) fn restart(
        &mut self,
        end: End,
        is_sum: bool,
        before: &Standing,
        after: &Standing,
    ) -> Option<String> {
        let last = self.last();
        let first = match end {
            End::Stopped => self.steps.len() - 1,
            End::Killed => self.written,
            End::PowerCut => self.synced,
        };
        let left = self.steps.get(first..).unwrap_or_default();
        let is_among = left.iter().any(|step| step.used == after.used);
        let from = left.first().copied().unwrap_or_default();
        let least = before.used.saturating_sub(last.charged - from.charged + ROUNDED);
        let most = match from.resets == last.resets && !self.was_set {
            true => before.used + last.given - from.given + ROUNDED,
            false => u32::MAX,
        };
        let is_right = match is_sum {
            true => is_among,
            false if self.was_set => true,
            false => (least..=most).contains(&after.used),
        };
        let values: Vec<_> = left.iter().map(|step| step.used).collect();
        *self = History::new();
        self.steps = vec![Step { used: after.used, ..Step::default() }];
        let of = if is_sum { format!("{values:?}") } else { format!("{least} to {most}") };
        (!is_right).then(|| format!("{} after {end:?}, and may be {of}", after.used))
    }
}
