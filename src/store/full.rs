//! What becomes of charges where the process has no room for their counters: those of limits that are
//! open then are left out, and counted; a request that must have one is refused.

use super::{MemoryStore, Store, StoreError};
use crate::{
    clock::Timestamp,
    limit::{Charge, DecidedBy, Decision, Outcome, Verdict},
};

impl Store {
    /// Takes all `charges` or none in the process.
    pub(super) fn charge_here(
        &self,
        memory: &MemoryStore,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = memory.charge(charges, now)?;
        let is_left_out = |outcome: &&Outcome| outcome.decided_by == DecidedBy::Nobody;
        let left_out = decision.outcomes.iter().filter(is_left_out).count();
        if left_out > 0 {
            self.stores.counts.count_uncounted(left_out);
        }
        Ok(decision)
    }

    /// Takes all charges or none in place of the store that was `asked`: what each asks for, by its
    /// whole quota and by this proxy's share.
    pub(super) fn charge_alone<'c, 'q: 'c>(
        &self,
        (charges, shares): (impl Iterator<Item = &'c Charge<'q>>, &[Charge<'_>]),
        asked: DecidedBy,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let (alone, mut debts) = (&self.stores.alone, self.stores.owed.lock());
        shares.iter().for_each(|charge| self.make_way(charge, now));
        // Nothing is owed of what there is no room to count.
        let room = alone.room_for(shares, now);
        let is_owed = room.is_ok();
        for (charge, has_room) in charges.zip(room.into_iter().flatten()) {
            if has_room {
                self.go_alone(&mut debts, (charge, asked), now);
            }
        }
        let decision = self.charge_here(alone, shares, now)?;
        if !is_owed && decision.verdict == Verdict::Allow {
            // There was room after all, a moment later.
            self.stores.counts.count_unowed();
        }
        Ok(decision)
    }

    /// Whether there is room for this proxy's own part of a counter.
    pub(super) fn has_room_alone(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        let room = self.stores.alone.room_for(std::slice::from_ref(charge), now);
        room.is_ok_and(|mut has_room| has_room.next() == Some(true))
    }

    /// Where there is no room for this proxy's own part of a counter, what is known of it makes way:
    /// who has used up a limit must not get past it for want of room.
    fn make_way(&self, charge: &Charge<'_>, now: Timestamp) {
        let alone = &self.stores.alone;
        if charge.takes()
            && alone.count(charge).is_none()
            && !self.has_room_alone(charge, now)
            && let Some(known) = self.known(charge)
        {
            self.stores.known.remove(charge);
            alone.adopt(charge, &known.share(self.instances()), now);
        }
    }
}
