//! Counters that come from another store, or go to one.

use super::{MemoryStore, lock, shard::Shard, tag, tagged};
use crate::{
    clock::Timestamp,
    limit::{Algorithm, AnyState, Charge, Count, Countable, Part, Quota},
};

impl MemoryStore {
    /// What a counter holds; none if it holds nothing.
    pub fn count(&self, charge: &Charge<'_>) -> Option<Count> {
        let mut shards = self.lock(std::slice::from_ref(charge));
        let shard = shards.of(charge).ok()?;
        with_table!(shard, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).map(Countable::count)
        })
    }

    /// The whole of what a counter holds; none if it holds nothing.
    pub fn state(&self, charge: &Charge<'_>) -> Option<AnyState> {
        let mut shards = self.lock(std::slice::from_ref(charge));
        let shard = shards.of(charge).ok()?;
        with_table!(shard, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).map(Part::to_any)
        })
    }

    /// Makes `count` what the counter holds, whatever it held; if there is no room for it, nothing.
    /// Tells whether the counter is new.
    pub fn adopt(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) -> bool {
        self.change(charge, now, |shard| {
            with_table!(shard, charge.quota, (_algorithm, table) => {
                table.entry(tagged(charge)).map(|(state, is_new)| {
                    count.store_in(state);
                    is_new
                })
            })
        })
    }

    /// Changes what a counter holds, where there is room for one more; `change` tells whether it is
    /// new.
    fn change(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        change: impl FnOnce(&mut Shard) -> Option<bool>,
    ) -> bool {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        // Leases are known to who holds them, and to nobody else.
        let is_lease = matches!(charge.quota, Quota::Concurrency(_));
        if is_lease || self.make_room(charges.iter(), &mut shards, now).is_err() {
            return false;
        }
        let Ok(shard) = shards.of(charge) else { return false };
        let is_new = change(shard) == Some(true);
        if is_new {
            shard.count_new(tag(charge.origin), &self.room);
        }
        is_new
    }

    /// Gives all counters to another store, where they take the place of those that it has too.
    pub(in crate::store) fn empty_into(&self, other: &MemoryStore) {
        for (from, to) in self.shards.iter().zip(&other.shards) {
            lock(from).empty_into(&mut lock(to), (&self.room, &other.room));
        }
    }

    /// Whether counters like this one that nobody needs yet would take room from those that somebody
    /// will.
    pub fn is_half_full(&self, charge: &Charge<'_>) -> bool {
        self.room.is_half_full(tag(charge.origin))
    }

    /// Adds what was taken elsewhere to what the counter holds; if there is no room for it, nothing.
    /// Tells whether the counter is new.
    pub fn add(&self, charge: &Charge<'_>, other: &AnyState, now: Timestamp) -> bool {
        self.change(charge, now, |shard| {
            with_table!(shard, charge.quota, (algorithm, table) => {
                let other = Part::of_any(other)?;
                table.entry(tagged(charge)).map(|(state, is_new)| {
                    algorithm.add(state, other, now);
                    is_new
                })
            })
        })
    }

    /// Forgets a counter.
    pub fn remove(&self, charge: &Charge<'_>) {
        let mut shards = self.lock(std::slice::from_ref(charge));
        let Ok(shard) = shards.of(charge) else { return };
        let removed = with_table!(shard, charge.quota, (_algorithm, table) => {
            table.remove(charge.key.entry)
        });
        if let Some(tag) = removed {
            shard.count_gone(tag, &self.room);
        }
    }

    /// Has the counter count what `other` does too; tells whether that is more than it counted.
    pub fn seed(&self, charge: &Charge<'_>, other: &AnyState, now: Timestamp) -> bool {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        let has_room = self.make_room(charges.iter(), &mut shards, now).is_ok();
        let Ok(shard) = shards.of(charge) else { return false };
        let seeded = with_table!(shard, charge.quota, (algorithm, table) => {
            let found = table.find(charge.key.entry).cloned();
            joined(algorithm, found.unwrap_or_default(), other, now).filter(|_| has_room).and_then(
                |(joined, is_more)| {
                    let (state, is_new) = table.entry(tagged(charge))?;
                    *state = joined;
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

/// What counts what both do, if that is anything new, and whether it is more than `state` counts.
fn joined<A: Algorithm<State: Part>>(
    algorithm: &A,
    state: A::State,
    other: &AnyState,
    now: Timestamp,
) -> Option<(A::State, bool)> {
    let mut joined = state.clone();
    let is_more = algorithm.join(&mut joined, Part::of_any(other)?, now);
    (joined != state).then_some((joined, is_more))
}
