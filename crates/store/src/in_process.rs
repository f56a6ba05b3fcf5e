//! Charges in the process, and what happens where there is no room for their counters: limits that
//! are open then are left out and reported as such; a request that another limit counts is refused.

use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Outcome, Verdict};

use super::{MemoryStore, Store, StoreError, fallback::LocalCharges};

impl Store {
    /// Takes all `charges` or none in the process.
    pub(super) fn charge_in_process(
        &self,
        memory: &MemoryStore,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = memory.charge(charges, now)?;
        self.count_left_out(&decision);
        Ok(decision)
    }

    /// Counts the charges that found no room and were left out.
    pub(super) fn count_left_out(&self, decision: &Decision) {
        let is_left_out = |outcome: &&Outcome| outcome.decided_by == DecidedBy::NoStore;
        let left_out = decision.outcomes.iter().filter(is_left_out).count();
        if left_out > 0 {
            self.stores.counts.count_uncounted(left_out);
        }
    }

    /// Takes all charges or none from this proxy's shares, in place of the store that should have
    /// decided.
    pub(super) fn charge_shares(
        &self,
        charges: &LocalCharges<'_, '_>,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let LocalCharges { whole, shares, decider } = charges;
        let local = &self.stores.local;
        let mut counters = self.stores.pending.lock();
        shares.iter().for_each(|charge| self.make_room(charge, now));
        let room = local.room_for(shares, now);
        // A counter without room is not recorded as pending.
        let is_recorded = room.is_ok();
        for (charge, has_room) in whole.iter().zip(room.into_iter().flatten()) {
            if has_room {
                self.begin_local(&mut counters, charge, *decider, now);
            }
        }
        let decision = self.charge_in_process(local, shares, now)?;
        if !is_recorded && decision.verdict == Verdict::Allow {
            // Another worker made room in the meantime.
            self.stores.counts.count_unowed();
        }
        Ok(decision)
    }

    /// Whether there is room for this proxy's share of a counter.
    pub(super) fn has_room_for_share(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        let room = self.stores.local.room_for(std::slice::from_ref(charge), now);
        room.is_ok_and(|mut has_room| has_room.next() == Some(true))
    }

    /// Where there is no room for this proxy's share of a counter, its cached state makes room for
    /// it: a caller that has used up a limit must not get past it because the store is full.
    fn make_room(&self, charge: &Charge<'_>, now: Timestamp) {
        let local = &self.stores.local;
        if charge.takes()
            && local.count(charge).is_none()
            && !self.has_room_for_share(charge, now)
            && let Some(cached) = self.cached(charge)
        {
            self.stores.cache.remove(charge);
            local.adopt(charge, &cached.share(self.instances()), now);
        }
    }
}
