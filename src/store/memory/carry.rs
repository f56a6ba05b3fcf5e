//! Counters that come from another store, or go to one.

use super::{MemoryStore, shard::Shard, tag, tagged};
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
    pub fn adopt(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) {
        self.change(charge, now, |shard| {
            with_table!(shard, charge.quota, (_algorithm, table) => {
                table.entry(tagged(charge)).map(|(state, is_new)| {
                    count.store_in(state);
                    is_new
                })
            })
        });
    }

    /// Changes what a counter holds, where there is room for one more; `change` tells whether it is
    /// new.
    fn change(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        change: impl FnOnce(&mut Shard) -> Option<bool>,
    ) {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        // Leases are known to who holds them, and to nobody else.
        let is_lease = matches!(charge.quota, Quota::Concurrency(_));
        if is_lease || self.make_room(charges.iter(), &mut shards, now).is_err() {
            return;
        }
        let Ok(shard) = shards.of(charge) else { return };
        if change(shard) == Some(true) {
            shard.count_new(tag(charge.origin), &self.room);
        }
    }

    /// Whether counters like this one that nobody needs yet would take room from those that somebody
    /// will.
    pub fn is_half_full(&self, charge: &Charge<'_>) -> bool {
        self.room.is_half_full(tag(charge.origin))
    }

    /// Adds what was taken elsewhere to what the counter holds; if there is no room for it, nothing.
    pub fn add(&self, charge: &Charge<'_>, other: &AnyState, now: Timestamp) {
        self.change(charge, now, |shard| {
            with_table!(shard, charge.quota, (algorithm, table) => {
                let other = Part::of_any(other)?;
                table.entry(tagged(charge)).map(|(state, is_new)| {
                    algorithm.add(state, other, now);
                    is_new
                })
            })
        });
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

    /// Makes `count` what the counter holds, unless it holds as much; tells whether it did.
    pub fn seed(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) -> bool {
        let is_more = self.count(charge).is_none_or(|there| count.exceeds(&there, now));
        if is_more {
            self.adopt(charge, count, now);
        }
        is_more
    }
}
