//! What the process knows of counters in Redis: each as it stands by Redis' last reply and what was
//! put right since, whole and not divided.
//!
//! Nobody decides by it while Redis answers. It is what limits are decided from when Redis is away
//! (`local`), and what callers take along who go back from Redis to the process. Leases are not in it:
//! only who holds them knows them.

use super::{Adjustment, Backend, Store, redis::Reply};
use crate::{
    clock::Timestamp,
    limit::{AnyState, Charge, Count, Quota},
};

impl Store {
    /// What is known of a counter in Redis; none if nothing is, or it is of leases.
    pub(super) fn known(&self, charge: &Charge<'_>) -> Option<Count> {
        self.stores.known.count(charge).filter(|_| !is_leased(charge))
    }

    /// Keeps what Redis said when it was `now` here.
    pub(super) fn learn(&self, charges: &[Charge<'_>], reply: &Reply, now: Timestamp) {
        let ahead = reply.decision.now.as_micros() as i64 - now.as_micros() as i64;
        self.ahead.set(ahead);
        for (charge, count) in charges.iter().zip(&reply.counts) {
            if self.may_know(charge) {
                self.stores.known.adopt(charge, count, reply.decision.now);
            }
            self.stop_alone(charge);
        }
    }

    /// Keeps what some server of Redis said, if that is more than is known.
    pub(super) fn know_at_least(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) {
        if !is_leased(charge) && self.may_know(charge) {
            self.stores.known.seed(charge, count, now);
        }
    }

    /// Redis was brought what it was owed.
    pub(super) fn know_paid(&self, charge: &Charge<'_>, paid: &AnyState, now: Timestamp) {
        if self.may_know(charge) {
            self.stores.known.add(charge, paid, self.local_time(now));
        }
    }

    /// Whether there is room for what nobody may ever need.
    fn may_know(&self, charge: &Charge<'_>) -> bool {
        let known = &self.stores.known;
        !known.is_half_full(charge) || known.count(charge).is_some()
    }

    /// Puts right what is known, until Redis says it anew.
    pub(super) fn settle_known(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        if self.known(charge).is_some() {
            self.stores.known.settle(charge, adjustment, self.local_time(now));
        }
    }

    /// Brings what is known of these counters, and what was decided alone, back into the process,
    /// which is about to decide about them: their callers were moved to Redis, and have come back.
    /// They take it along: nothing of it is owed to Redis any more.
    pub(super) fn come_home(&self, charges: &[Charge<'_>], now: Timestamp) {
        let (known, alone) = (&self.stores.known, &self.stores.alone);
        if !matches!(self.current, Backend::Memory(_)) || !(known.is_in_use() || alone.is_in_use())
        {
            return;
        }
        for charge in charges.iter().filter(|charge| !is_leased(charge)) {
            let away = || known.count(charge).into_iter().chain(alone.count(charge));
            if away().next().is_none() {
                continue;
            }
            // One worker brings it, and others wait for that.
            let mut debts = self.stores.owed.lock();
            for count in away() {
                self.stores.memory.seed(charge, &count, now);
            }
            known.remove(charge);
            alone.remove(charge);
            self.stores.owed.forget(&mut debts, charge.key.entry);
        }
    }
}

/// Whether a counter is of leases.
pub(super) fn is_leased(charge: &Charge<'_>) -> bool {
    matches!(charge.quota, Quota::Concurrency(_))
}
