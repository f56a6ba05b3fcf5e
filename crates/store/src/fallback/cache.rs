//! The last known state of counters in Redis: whole counters as Redis last reported them, with the
//! adjustments that were made since.
//!
//! The cache decides nothing while Redis answers. Limits are decided from it when Redis is away
//! (`fallback`), and callers who are moved back from Redis to the process take it with them. Leases
//! are not cached: only the store that granted them has them.

use tollgate_clock::Timestamp;
use tollgate_limit::{AnyState, Charge, Count};

use crate::{Adjustment, Store, redis::Reply};

impl Store {
    /// The last known count of a counter in Redis; none if it is not known, or counts leases.
    pub(crate) fn cached(&self, charge: &Charge<'_>) -> Option<Count> {
        if is_lease(charge) {
            return None;
        }
        let reseeding = &self.stores.reseeding.counters;
        let to_reseed = || reseeding.is_in_use().then(|| reseeding.count(charge)).flatten();
        self.stores.cache.count(charge).or_else(to_reseed)
    }

    /// Caches a reply of Redis that arrived at `now` by this process' clock, unless counters were
    /// reset since the call was made, when resets had this `generation`.
    pub(crate) fn update_cache(
        &self,
        charges: &[Charge<'_>],
        reply: &Reply,
        generation: u64,
        now: Timestamp,
    ) {
        let ahead = reply.decision.now.as_micros() as i64 - now.as_micros() as i64;
        self.ahead.set(ahead);
        let is_current = generation == self.stores.resets.generation();
        for (charge, count) in charges.iter().zip(&reply.counts) {
            if is_current
                && self.may_cache(charge)
                && self.stores.cache.adopt(charge, count, reply.decision.now)
            {
                self.stores.reseeding.remember(charge);
            }
            self.end_local(charge);
        }
    }

    /// Caches a count that a server reported, if it is higher than the cached one.
    pub(crate) fn raise_cached(&self, charge: &Charge<'_>, count: &Count, now: Timestamp) {
        if let Some(state) = count.state().filter(|_| self.may_cache(charge)) {
            self.stores.cache.seed(charge, &state, now);
        }
    }

    /// Adds units that were written back to Redis.
    pub(crate) fn add_to_cache(&self, charge: &Charge<'_>, written: &AnyState, now: Timestamp) {
        if self.may_cache(charge) && self.stores.cache.add(charge, written, self.local_time(now)) {
            self.stores.reseeding.remember(charge);
        }
    }

    /// Whether the cache has room. It may take half of the store at most: its entries may never be
    /// needed.
    fn may_cache(&self, charge: &Charge<'_>) -> bool {
        let cache = &self.stores.cache;
        !cache.is_half_full(charge) || cache.count(charge).is_some()
    }

    /// Applies an adjustment to the cached counter, until Redis reports it anew.
    pub(crate) fn settle_cached(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        let now = self.local_time(now);
        for counters in [&self.stores.cache, &self.stores.reseeding.counters] {
            if counters.is_in_use() && !is_lease(charge) && counters.count(charge).is_some() {
                counters.settle(charge, adjustment, now);
            }
        }
    }

    /// Copies cached and locally decided counters into the process, which is about to decide them:
    /// their callers were moved to Redis and are moved back. Pending charges of these counters are
    /// dropped, because the copies include them.
    pub(crate) fn return_to_memory(&self, charges: &[Charge<'_>], now: Timestamp) {
        let stores = &*self.stores;
        let of_redis = [&stores.reseeding.counters, &stores.cache, &stores.local]
            .map(|store| store.is_in_use().then_some(store));
        let Some(memory) = self.current.memory() else { return };
        if of_redis.iter().all(Option::is_none) {
            return;
        }
        if self.next.is_none() {
            // What was decided while the disk did not serve is added to the counters by now.
            return charges.iter().for_each(|charge| self.end_local(charge));
        }
        for charge in charges.iter().filter(|charge| !is_lease(charge)) {
            let states = || of_redis.iter().flatten().filter_map(|store| store.state(charge));
            if states().next().is_none() {
                continue;
            }
            // The lock makes other workers wait until this one has copied the counter.
            let mut counters = stores.pending.lock();
            for state in states() {
                memory.seed(charge, &state, now);
            }
            of_redis.iter().flatten().for_each(|store| store.remove(charge));
            stores.pending.discard(&mut counters, charge.key.entry);
        }
    }
}

/// Whether a counter counts leases.
pub(crate) fn is_lease(charge: &Charge<'_>) -> bool {
    charge.quota.holds_leases()
}
