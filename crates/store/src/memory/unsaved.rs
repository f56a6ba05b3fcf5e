//! What of a shard's counters is not on disk yet.
//!
//! A counter that was changed is marked, and its key is noted once until it is saved. A counter
//! that was removed is noted until its removal is on disk: until then the disk has an old state of
//! it, which must not come back.

use std::{collections::HashSet, time::Duration};

use tollgate_limit::{AlgorithmKind, Charge, Quota};

use super::{
    table::{Entry, Mark},
    tagged_key::bare_key,
};

/// Limits that count for a shorter time are in memory only: they are over before a process that was
/// killed is back.
const SHORTEST: Duration = Duration::from_secs(60);

/// What is not on disk yet.
#[derive(Default)]
pub(super) struct Unsaved {
    /// Counters that were changed, in the tables of these algorithms.
    pub(super) changed: Vec<(AlgorithmKind, u128)>,
    /// Counters that were removed.
    removed: HashSet<u128>,
    /// Removals that are being written.
    pub(super) removing: HashSet<u128>,
    /// Removals that were written, and can still be read past.
    pub(super) applying: HashSet<u128>,
    /// How often counters have left the shard's memory. A state that was read from disk before
    /// this number changed may be out of date.
    pub(super) evictions: u32,
}

/// Whether counters of this quota are kept on disk.
pub(crate) fn is_kept(quota: &Quota) -> bool {
    !quota.holds_leases() && quota.longest() >= SHORTEST
}

/// Notes that an entry was used and changed, if there is a disk.
pub(super) fn note<S>(
    unsaved: &mut Option<Unsaved>,
    entry: &mut Entry<'_, S>,
    charge: &Charge<'_>,
) {
    if let Some(unsaved) = unsaved
        && is_kept(charge.quota)
    {
        entry.mark(Mark::Used);
        if entry.mark(Mark::Changed) {
            unsaved.changed.push((charge.quota.kind(), charge.key.entry));
        }
    }
}

impl Unsaved {
    /// Notes that a counter was removed.
    pub(super) fn remove(&mut self, entry: u128) {
        self.removed.insert(bare_key(entry));
    }

    /// Whether a counter was removed, and the disk may still have a state of it.
    pub(super) fn is_removed(&self, entry: u128) -> bool {
        let key = bare_key(entry);
        [&self.removed, &self.removing, &self.applying].iter().any(|set| set.contains(&key))
    }

    /// The removals that are to be written now. They are noted until they are.
    pub(super) fn begin_removing(&mut self) -> impl Iterator<Item = u128> {
        self.removing.extend(self.removed.drain());
        self.removing.iter().copied()
    }
}
