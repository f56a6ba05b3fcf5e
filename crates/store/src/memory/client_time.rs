//! Charges at instants that clients give. An instant before a counter's mark counts as the mark,
//! for each counter by itself.

use std::sync::Arc;

use tollgate_clock::Timestamp;
use tollgate_limit::{Algorithm, Charge, Decision, Standing, Verdict};
use tollgate_settings::MemoryBounds;

use super::{
    MemoryStore,
    shard::{Shard, untaken},
    tables::with_table,
    watermark::Watermark,
};
use crate::{Adjustment, NoRoom};

impl MemoryStore {
    /// An empty store whose counters are over by `watermark`, and not by the clock.
    pub(crate) fn client_timed(bounds: MemoryBounds, watermark: Arc<Watermark>) -> MemoryStore {
        // Its keys are hashed by who charges it, and it is not saved.
        MemoryStore { watermark: Some(watermark), ..MemoryStore::new(bounds, [0; 16]) }
    }

    /// Takes all `charges` or none at `at`, as [`MemoryStore::charge`] does at the time of a clock.
    /// `now` is the time of this process' clock, by which the effort for more room is bounded.
    ///
    /// # Errors
    /// Those of [`MemoryStore::charge`].
    pub(crate) fn charge_at(
        &self,
        charges: &[Charge<'_>],
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Decision, NoRoom> {
        let admit = |shard: &mut Shard, charge: &Charge<'_>| {
            let time = shard.time_of(charge, at);
            Ok(shard.admits(charge, time))
        };
        let decision = self.charge_admitted(charges, now, admit)?;
        Ok(Decision { now: at, ..decision })
    }

    /// How the limits of `charges` stand at `at`, with nothing taken.
    pub(crate) fn peek_at(&self, charges: &[Charge<'_>], at: Timestamp) -> Decision {
        let mut shards = self.lock(charges);
        let outcomes = charges.iter().flat_map(|charge| {
            let shard = shards.of(charge).ok()?;
            let time = shard.time_of(charge, at);
            Some(untaken(shard.standing(charge, time)))
        });
        Decision { verdict: Verdict::Allow, outcomes: outcomes.collect(), now: at }
    }

    /// Corrects a charge at `at`, as [`MemoryStore::settle`] does at the time of a clock.
    pub(crate) fn settle_at(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Standing> {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        if let Adjustment::Take = adjustment {
            self.make_room(charges.iter(), &mut shards, now).ok()?;
        }
        let shard = shards.of(charge).ok()?;
        let time = shard.time_of(charge, at);
        self.correct(shard, charge, adjustment, time)
    }

    /// The mark of a counter, as in [`Algorithm::mark`]; none if there is no such counter.
    pub(crate) fn mark_of(&self, charge: &Charge<'_>) -> Option<Timestamp> {
        self.lock(std::slice::from_ref(charge)).of(charge).ok()?.mark_of(charge)
    }

    /// The instant by which counters are over when they are swept at `now`.
    pub(super) fn over_by(&self, now: Timestamp) -> Timestamp {
        self.watermark.as_ref().map_or(now, |watermark| watermark.begin_sweep())
    }
}

impl Shard {
    /// The instant at which a charge at `at` counts.
    fn time_of(&mut self, charge: &Charge<'_>, at: Timestamp) -> Timestamp {
        self.mark_of(charge).map_or(at, |mark| mark.max(at))
    }

    fn mark_of(&mut self, charge: &Charge<'_>) -> Option<Timestamp> {
        with_table!(self.tables, charge.quota, (algorithm, table) => {
            table.find(charge.key.entry).map(|state| algorithm.mark(state))
        })
    }
}
