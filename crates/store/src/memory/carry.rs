//! Counters that are copied from or to another store.

use tollgate_clock::Timestamp;
use tollgate_limit::{Algorithm, AnyState, Charge, Count, Key, StateVariant};

use super::{
    MemoryStore,
    room::tag,
    shard::Shard,
    shard_of,
    tables::{for_each_table, with_table},
    tagged_key::tagged_key,
    unsaved::note,
};

impl MemoryStore {
    /// What a counter holds; none if it holds nothing.
    pub fn count(&self, charge: &Charge<'_>) -> Option<Count> {
        let mut shards = self.lock(std::slice::from_ref(charge));
        let shard = shards.of(charge).ok()?;
        with_table!(shard.tables, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).map(StateVariant::to_count)
        })
    }

    /// The whole state of a counter; none if it holds nothing.
    pub fn state(&self, charge: &Charge<'_>) -> Option<AnyState> {
        let mut shards = self.lock(std::slice::from_ref(charge));
        let shard = shards.of(charge).ok()?;
        with_table!(shard.tables, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).map(StateVariant::to_any)
        })
    }

    /// Replaces what the counter holds by `count`, if there is room for it. Returns whether the
    /// counter is new.
    pub fn adopt(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) -> bool {
        self.change(charge, now, |shard| {
            with_table!(shard.tables, charge.quota, (_algorithm, table) => {
                table.entry(tagged_key(charge)).map(|(mut entry, is_new)| {
                    count.store_in(entry.state);
                    note(&mut shard.unsaved, &mut entry, charge);
                    is_new
                })
            })
        })
    }

    /// Changes what a counter holds, if there is room for one more. `change` returns whether the
    /// counter is new.
    fn change(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        change: impl FnOnce(&mut Shard) -> Option<bool>,
    ) -> bool {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        // Only the holders of leases can name them.
        if charge.quota.holds_leases() {
            return false;
        }
        // Mostly the counter is there: then it is cheaper to find that out than to look for room.
        let is_known = shards.of(charge).is_ok_and(|shard| shard.knows(charge));
        if !is_known && self.make_room(charges.iter(), &mut shards, now).is_err() {
            return false;
        }
        let Ok(shard) = shards.of(charge) else { return false };
        let is_new = change(shard) == Some(true);
        if is_new {
            shard.count_new(tag(charge.origin), &self.room);
        }
        is_new
    }

    /// Moves all counters to another store, where they replace those that it has, too.
    pub(crate) fn empty_into(&self, other: &MemoryStore) {
        for (from, to) in self.shards.iter().zip(&other.shards) {
            from.lock().empty_into(&mut to.lock(), (&self.room, &other.room));
        }
    }

    /// Whether the room of counters like this one is half used. Then there is none to spare for
    /// counters that may never be needed.
    pub fn is_half_full(&self, charge: &Charge<'_>) -> bool {
        self.room.is_half_full(tag(charge.origin))
    }

    /// Adds what was taken elsewhere to the counter, if there is room for it. Returns whether the
    /// counter is new.
    pub fn add(&self, charge: &Charge<'_>, other: &AnyState, now: Timestamp) -> bool {
        self.change(charge, now, |shard| {
            with_table!(shard.tables, charge.quota, (algorithm, table) => {
                let other = StateVariant::from_any(other)?;
                table.entry(tagged_key(charge)).map(|(mut entry, is_new)| {
                    algorithm.add(entry.state, other, now);
                    note(&mut shard.unsaved, &mut entry, charge);
                    is_new
                })
            })
        })
    }

    /// Removes a counter.
    pub fn remove(&self, charge: &Charge<'_>) {
        self.remove_key(charge.key);
    }

    /// Removes a counter of whichever algorithm.
    pub(crate) fn remove_key(&self, key: Key) {
        let Some(shard) = self.shards.get(shard_of(key.owner)) else { return };
        let shard = &mut *shard.lock();
        let mut removed = Vec::new();
        for_each_table!(&mut shard.tables, (_kind, table) => removed.extend(table.remove(key.entry)));
        removed.into_iter().for_each(|tag| shard.count_gone(tag, &self.room));
        shard.unsaved.iter_mut().for_each(|unsaved| unsaved.remove(key.entry));
    }

    /// Merges `other`, which counts the same charges, into the counter. Returns whether it counts
    /// more than before.
    pub fn seed(&self, charge: &Charge<'_>, other: &AnyState, now: Timestamp) -> bool {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        let has_room = self.make_room(charges.iter(), &mut shards, now).is_ok();
        let Ok(shard) = shards.of(charge) else { return false };
        let seeded = with_table!(shard.tables, charge.quota, (algorithm, table) => {
            let found = table.find(charge.key.entry).cloned();
            joined(algorithm, found.unwrap_or_default(), other, now).filter(|_| has_room).and_then(
                |(joined, is_more)| {
                    let (mut entry, is_new) = table.entry(tagged_key(charge))?;
                    *entry.state = joined;
                    note(&mut shard.unsaved, &mut entry, charge);
                    Some((is_new, is_more))
                },
            )
        });
        if let Some((true, _)) = seeded {
            shard.count_new(tag(charge.origin), &self.room);
        }
        seeded.is_some_and(|(_, is_more)| is_more)
    }
}

/// Both states merged, if that differs from `state`, and whether it counts more than `state`.
fn joined<A: Algorithm<State: StateVariant>>(
    algorithm: &A,
    state: A::State,
    other: &AnyState,
    now: Timestamp,
) -> Option<(A::State, bool)> {
    let mut joined = state.clone();
    let is_more = algorithm.join(&mut joined, StateVariant::from_any(other)?, now);
    (joined != state).then_some((joined, is_more))
}
