//! What the process knows of counters in Redis: each as it stands by Redis' last reply and what was
//! put right since, whole and not divided.
//!
//! Nobody decides by it while Redis answers. It is what limits are decided from when Redis is away
//! (`local`), and what callers take along who go back from Redis to the process. Leases are not in it:
//! only who holds them knows them.

use super::{Adjustment, Backend, Store, Stores, redis::Reply};
use crate::{
    clock::Timestamp,
    limit::{AnyState, Charge, Count},
};

impl Store {
    /// What is known of a counter in Redis; none if nothing is, or it is of leases.
    pub(super) fn known(&self, charge: &Charge<'_>) -> Option<Count> {
        if is_leased(charge) {
            return None;
        }
        let lost = self.stores.lost.counters();
        let is_lost = || lost.is_in_use().then(|| lost.count(charge)).flatten();
        self.stores.known.count(charge).or_else(is_lost)
    }

    /// Keeps what Redis said when it was `now` here.
    pub(super) fn learn(&self, charges: &[Charge<'_>], reply: &Reply, now: Timestamp) {
        let ahead = reply.decision.now.as_micros() as i64 - now.as_micros() as i64;
        self.ahead.set(ahead);
        for (charge, count) in charges.iter().zip(&reply.counts) {
            if self.may_know(charge) && self.stores.known.adopt(charge, count, reply.decision.now) {
                self.stores.lost.remember(charge);
            }
            self.stop_alone(charge);
        }
    }

    /// Keeps what some server of Redis said, if that is more than is known.
    pub(super) fn know_at_least(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) {
        if let Some(state) = count.state().filter(|_| self.may_know(charge)) {
            self.stores.known.seed(charge, &state, now);
        }
    }

    /// Redis was brought what it was owed.
    pub(super) fn know_paid(&self, charge: &Charge<'_>, paid: &AnyState, now: Timestamp) {
        if self.may_know(charge) && self.stores.known.add(charge, paid, self.local_time(now)) {
            self.stores.lost.remember(charge);
        }
    }

    /// Whether there is room for what nobody may ever need.
    fn may_know(&self, charge: &Charge<'_>) -> bool {
        let known = &self.stores.known;
        !known.is_half_full(charge) || known.count(charge).is_some()
    }

    /// Puts right what is known, until Redis says it anew.
    pub(super) fn settle_known(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        let (now, lost) = (self.local_time(now), self.stores.lost.counters());
        for known in [&self.stores.known, lost] {
            if known.is_in_use() && !is_leased(charge) && known.count(charge).is_some() {
                known.settle(charge, adjustment, now);
            }
        }
    }

    /// Brings what is known of these counters, and what was decided alone, back into the process,
    /// which is about to decide about them: their callers were moved to Redis, and have come back.
    /// They take it along: nothing of it is owed to Redis any more.
    pub(super) fn come_home(&self, charges: &[Charge<'_>], now: Timestamp) {
        let Stores { known, alone, lost, owed, memory, .. } = &*self.stores;
        let of_redis =
            [lost.counters(), known, alone].map(|store| store.is_in_use().then_some(store));
        if !matches!(self.current, Backend::Memory(_)) || of_redis.iter().all(Option::is_none) {
            return;
        }
        for charge in charges.iter().filter(|charge| !is_leased(charge)) {
            let states = || of_redis.iter().flatten().filter_map(|store| store.state(charge));
            if states().next().is_none() {
                continue;
            }
            // One worker brings it, and others wait for that.
            let mut debts = owed.lock();
            for state in states() {
                memory.seed(charge, &state, now);
            }
            of_redis.iter().flatten().for_each(|store| store.remove(charge));
            owed.forget(&mut debts, charge.key.entry);
        }
    }
}

/// Whether a counter is of leases.
pub(super) fn is_leased(charge: &Charge<'_>) -> bool {
    charge.quota.holds_leases()
}
