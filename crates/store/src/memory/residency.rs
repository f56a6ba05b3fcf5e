//! Which counters are in memory, where others are on disk.
//!
//! A counter that was charged is collected and written in the next flush, and is known to be on
//! disk once that is acknowledged. Only then may it leave memory, when memory is needed and nobody
//! has used it for some time. What the disk has is always an absolute state, so a write that comes
//! twice does no harm.

use std::sync::Arc;

use tollgate_clock::Timestamp;
use tollgate_limit::{Bytes, Charge, Decision, Standing, State};
use tollgate_settings::MemoryBounds;

use super::{
    LockedShards, MemoryStore, SHARDS, peek_locked,
    room::{is_verified, tag},
    shard::Shard,
    table::{Mark, Table},
    tables::{for_each_table, with_table},
    tagged_key::{bare_key, with_tag},
    unsaved::{Unsaved, is_kept},
};
use crate::{
    Adjustment, NoRoom,
    disk::{Batch, BatchEntry, Disk, Record},
};

/// By what factor memory may exceed its bound until counters have left it.
const EXCESS: (usize, usize) = (5, 4);

/// So many notes of counters that are to be written are not worth a look.
const FEW_UNSAVED: usize = 8;

/// What became of a state that was read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThawOutcome {
    /// The counter is in memory.
    Resident,
    /// The state may be out of date: it must be read again.
    Stale,
}

/// Memory that a shard's counters take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

/// A store that keeps its counters on disk. Decisions are made in memory: counters that were not
/// used for some time are only on disk, and must come back before they are charged.
pub struct DiskStore {
    /// The counters in memory.
    memory: MemoryStore,
    disk: Arc<Disk>,
}

/// Why charges are not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCharged {
    /// There is no room for a new counter.
    NoRoom(NoRoom),
    /// A counter may be on disk, and has to come into memory first.
    Cold,
    /// Memory is full until some counters have left it for the disk.
    Crowded,
}

/// A counter may be on disk, and has to come into memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cold;

impl From<NoRoom> for NotCharged {
    fn from(reason: NoRoom) -> NotCharged {
        NotCharged::NoRoom(reason)
    }
}

impl DiskStore {
    /// A store with counters on `disk`. `bounds` are of the counters in memory and on disk
    /// together.
    pub(crate) fn new(disk: Arc<Disk>, bounds: MemoryBounds, key_secret: [u8; 16]) -> DiskStore {
        let memory = MemoryStore::new(bounds, key_secret);
        for shard in &memory.shards {
            shard.lock().unsaved = Some(Unsaved::default());
        }
        DiskStore { memory, disk }
    }

    /// The disk that counters are kept on.
    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// The counters that are in memory, and the bounds of all.
    pub fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Keys are hashed with another secret from now on, as in [`MemoryStore::rekey`].
    pub(crate) fn rekey(&self, key_secret: [u8; 16]) {
        if self.memory.key_secret() != key_secret {
            self.memory.rekey(key_secret);
            self.disk.keep_secret(key_secret);
        }
    }

    /// Takes all `charges` or none, as [`MemoryStore::charge`] does.
    ///
    /// # Errors
    /// [`NotCharged`]; nothing was taken then.
    pub(crate) fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, NotCharged> {
        self.memory.charge_admitted(charges, now, |shard, charge| {
            let admission = shard.admits(charge, now);
            if !admission.is_known {
                self.check_residency(shard, charge)?;
            }
            Ok(admission)
        })
    }

    /// Corrects an earlier `charge`, as [`MemoryStore::settle`] does.
    ///
    /// # Errors
    /// The counter may be on disk; nothing was corrected then.
    pub(crate) fn settle(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Result<Option<Standing>, Cold> {
        let mut shards = self.memory.lock(std::slice::from_ref(charge));
        match self.is_cold(&mut shards, charge) {
            true => Err(Cold),
            false => Ok(self.memory.settle_locked(&mut shards, charge, adjustment, now)),
        }
    }

    /// How the limits of `charges` stand, with nothing taken.
    ///
    /// # Errors
    /// A counter may be on disk.
    pub(crate) fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Result<Decision, Cold> {
        let mut shards = self.memory.lock(charges);
        match charges.iter().any(|charge| self.is_cold(&mut shards, charge)) {
            true => Err(Cold),
            false => Ok(peek_locked(&mut shards, charges, now)),
        }
    }

    /// Checks that a counter that the shard does not have is new, and that it may enter memory.
    fn check_residency(&self, shard: &Shard, charge: &Charge<'_>) -> Result<(), NotCharged> {
        if self.may_be_on_disk(shard, charge) {
            return Err(NotCharged::Cold);
        }
        if charge.needs_counter() && self.is_crowded() {
            return Err(NotCharged::Crowded);
        }
        Ok(())
    }

    /// Whether memory is so full that new counters have to wait. The keeper is asked to flush
    /// before.
    fn is_crowded(&self) -> bool {
        let (keys, most) = (self.in_memory(), self.disk.max_in_memory());
        if keys >= most {
            self.disk.ask_for_flush();
        }
        keys >= most / EXCESS.1 * EXCESS.0
    }

    /// The charges whose counters have to come into memory before they are known.
    pub(crate) fn cold<'c, 'p>(&self, charges: &'c [Charge<'p>]) -> Vec<&'c Charge<'p>> {
        let mut shards = self.memory.lock(charges);
        charges.iter().filter(|charge| self.is_cold(&mut shards, charge)).collect()
    }

    /// Whether the counter of a charge has to come into memory before it is known.
    fn is_cold(&self, shards: &mut LockedShards<'_>, charge: &Charge<'_>) -> bool {
        let is_absent =
            |shard: &mut Shard| !shard.knows(charge) && self.may_be_on_disk(shard, charge);
        shards.of(charge).is_ok_and(is_absent)
    }

    /// Whether the disk may have a counter that its shard does not have.
    fn may_be_on_disk(&self, shard: &Shard, charge: &Charge<'_>) -> bool {
        let is_removed = |unsaved: &Unsaved| unsaved.is_removed(charge.key.entry);
        is_kept(charge.quota)
            && !shard.unsaved.as_ref().is_some_and(is_removed)
            && self.disk.may_have(bare_key(charge.key.entry))
    }

    /// How often counters have left the memory of a charge's shard: to be asked before its counter
    /// is read from disk.
    pub(crate) fn evictions(&self, charge: &Charge<'_>) -> u32 {
        let mut shards = self.memory.lock(std::slice::from_ref(charge));
        let shard = shards.of(charge).ok();
        shard.and_then(|shard| shard.unsaved.as_ref()).map_or(0, |unsaved| unsaved.evictions)
    }

    /// Puts a counter into memory, as it was read from disk; none: it is not on disk, and is known
    /// to be unused from now on. `evictions` is from before it was read.
    pub(crate) fn thaw(
        &self,
        charge: &Charge<'_>,
        record: Option<&Record>,
        evictions: u32,
        now: Timestamp,
    ) -> ThawOutcome {
        let mut shards = self.memory.lock(std::slice::from_ref(charge));
        let Ok(shard) = shards.of(charge) else { return ThawOutcome::Resident };
        let Some(unsaved) = &shard.unsaved else { return ThawOutcome::Resident };
        let is_current = unsaved.evictions == evictions;
        let is_removed = unsaved.is_removed(charge.key.entry);
        if shard.knows(charge) {
            return ThawOutcome::Resident;
        }
        if !is_current && !is_removed {
            return ThawOutcome::Stale;
        }
        let record = record.filter(|record| !is_removed && record.kind == charge.quota.kind());
        let of = record.map_or(tag(charge.origin), |record| record.tag);
        let is_counted = with_table!(shard.tables, charge.quota, (_algorithm, table) => {
            let state = record.and_then(|record| State::decode(&mut Bytes(&record.state)));
            table.entry(with_tag(charge.key.entry, of)).map(|(mut entry, _)| {
                // Nothing is lost if it is evicted again.
                entry.mark(Mark::Saved);
                // It is needed now, and must not be evicted at once.
                entry.mark(Mark::Used);
                let is_counted = state.as_ref().is_some_and(|state| !State::is_over(state, now));
                if let Some(state) = state {
                    *entry.state = state;
                }
                is_counted
            })
        });
        match is_counted {
            // It was counted while it was on disk.
            Some(true) => {
                shard.unverified += usize::from(!is_verified(of));
                self.memory.room.add_resident();
            }
            Some(false) => shard.count_new(of, &self.memory.room),
            None => {}
        }
        ThawOutcome::Resident
    }

    /// How many parts of the store are collected one after the other.
    pub(crate) const PARTS: usize = SHARDS;

    /// Adds to `batch` what of a part is not on disk yet.
    pub(crate) fn collect(&self, part: usize, batch: &mut Batch, now: Timestamp) {
        let Some(shard) = self.memory.shards.get(part) else { return };
        let shard = &mut *shard.lock();
        let Some(unsaved) = &mut shard.unsaved else { return };
        // Removals first: a counter that was removed may have been charged since.
        for key in unsaved.begin_removing() {
            batch.remove(key);
        }
        let changed = std::mem::take(&mut unsaved.changed);
        for (kind, key) in changed {
            let collected = BatchEntry { part: part as u16, kind, key };
            for_each_table!(&mut shard.tables, (of_kind, table) => {
                if of_kind == kind {
                    save(table, collected, batch, now);
                }
            });
        }
    }

    /// The memory that a part takes.
    pub(crate) fn usage(&self, part: usize) -> Usage {
        let Some(shard) = self.memory.shards.get(part) else { return Usage::default() };
        let shard = &mut *shard.lock();
        shard.forget_gone();
        let mut bytes = 0;
        for_each_table!(&mut shard.tables, (_kind, table) => bytes += table.bytes());
        Usage { keys: shard.tables.len(), bytes }
    }

    /// Notes of counters that are to be written.
    #[cfg(test)]
    pub(crate) fn unsaved(&self) -> usize {
        let unsaved = |shard: &Shard| shard.unsaved.as_ref().map_or(0, |it| it.changed.len());
        self.memory.shards.iter().map(|shard| unsaved(&shard.lock())).sum()
    }

    /// What was collected of these parts is written: removals need not be written again.
    pub(crate) fn note_written(&self, parts: std::ops::Range<usize>) {
        for shard in self.memory.shards.get(parts).unwrap_or_default() {
            if let Some(unsaved) = &mut shard.lock().unsaved {
                let written = std::mem::take(&mut unsaved.removing);
                unsaved.applying.extend(written);
            }
        }
    }

    /// All that was written can be read.
    pub(crate) fn acknowledge(&self) {
        for shard in &self.memory.shards {
            if let Some(unsaved) = &mut shard.lock().unsaved {
                unsaved.applying = Default::default();
            }
        }
    }

    /// Takes back what was collected and not written: it is collected again.
    pub(crate) fn take_back(&self, collected: &[BatchEntry]) {
        for BatchEntry { part, kind, key } in collected {
            let Some(shard) = self.memory.shards.get(usize::from(*part)) else { continue };
            let shard = &mut *shard.lock();
            let Some(unsaved) = &mut shard.unsaved else { continue };
            for_each_table!(&mut shard.tables, (of_kind, table) => {
                if of_kind == *kind
                    && let Some(mut entry) = table.find_mut(*key)
                    && entry.mark(Mark::Changed)
                {
                    unsaved.changed.push((*kind, *key));
                }
            });
        }
    }

    /// Evicts counters of a part that are on disk and were not used since the last call. Returns
    /// how many.
    pub(crate) fn evict(&self, part: usize) -> usize {
        let Some(shard) = self.memory.shards.get(part) else { return 0 };
        let shard = &mut *shard.lock();
        let mut evicted = 0;
        let mut unverified = 0;
        for_each_table!(&mut shard.tables, (_kind, table) => table.retain(
            |entry| {
                entry.unmark(Mark::Used) || entry.has(Mark::Changed) || !entry.has(Mark::Saved)
            },
            |tag| {
                evicted += 1;
                unverified += usize::from(!is_verified(tag));
                self.memory.room.remove_resident();
            },
        ));
        shard.unverified = shard.unverified.saturating_sub(unverified);
        if evicted > 0
            && let Some(unsaved) = &mut shard.unsaved
        {
            unsaved.evictions = unsaved.evictions.wrapping_add(1);
        }
        evicted
    }

    /// Replaces the number of counters in use, in memory and on disk together, for each tag.
    pub(crate) fn recount(&self, by_tag: &[u64]) {
        self.memory.room.recount(by_tag);
    }

    /// Counters in memory.
    pub(crate) fn in_memory(&self) -> usize {
        self.memory.room.own()
    }

    /// Counts the counters that are in memory and not on disk, for each tag.
    pub(crate) fn count_unsaved(&self, by_tag: &mut [u64]) {
        for shard in &self.memory.shards {
            let shard = &mut *shard.lock();
            for_each_table!(&mut shard.tables, (_kind, table) => table.for_each(|entry| {
                if !entry.has(Mark::Saved)
                    && let Some(count) = by_tag.get_mut(usize::from(entry.tag()))
                {
                    *count += 1;
                }
            }));
        }
    }
}

impl Shard {
    /// Forgets that counters are to be written that are gone by now: while the disk takes nothing,
    /// they would pile up.
    fn forget_gone(&mut self) {
        let Some(unsaved) = &mut self.unsaved else { return };
        if unsaved.changed.len() <= 2 * self.tables.len() + FEW_UNSAVED {
            return;
        }
        // One that was gone and came back is noted twice.
        unsaved.changed.sort_unstable_by_key(|(kind, key)| (kind.number(), *key));
        unsaved.changed.dedup();
        let tables = &mut self.tables;
        unsaved.changed.retain(|(kind, key)| {
            let mut is_changed = false;
            for_each_table!(tables, (of_kind, table) => {
                if of_kind == *kind {
                    is_changed = table.find_mut(*key).is_some_and(|entry| entry.has(Mark::Changed));
                }
            });
            is_changed
        });
        unsaved.changed.shrink_to_fit();
    }
}

/// Adds a counter to a batch, if it is there and was changed.
fn save<S: State>(table: &mut Table<S>, collected: BatchEntry, batch: &mut Batch, now: Timestamp) {
    let Some(mut entry) = table.find_mut(collected.key) else { return };
    if !entry.unmark(Mark::Changed) {
        return;
    }
    let key = entry.key();
    if !entry.state.is_over(now) {
        let is_first = entry.mark(Mark::Saved);
        let tag = entry.tag();
        batch.put(key, (collected, tag), is_first, |bytes| entry.state.encode(bytes));
    } else if entry.has(Mark::Saved) {
        // The disk may have an earlier state that is not over: units were given back since.
        batch.remove(key);
        batch.collected.push(collected);
    }
}
