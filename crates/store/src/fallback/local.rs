//! Decides charges that Redis did not decide: each limit follows its `on_store_error`.
//!
//! A limit that is decided locally starts from what Redis last reported (`cache`), divided among
//! the proxies that share it. From the first local decision until Redis' next reply, the process
//! keeps this proxy's share of the counter. What is taken from it is pending (`pending`) until it
//! is written to Redis.

use std::num::NonZeroU32;

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_limit::{
    Charge, Count, DecidedBy, Decision, Fallback, Outcome, Outcomes, Quota, Stance, Standing,
    Verdict,
};

use super::{cache::is_lease, pending::PendingCounters};
use crate::{Adjustment, Backend, Store, StoreError, Unanswered, undecided::undecided};

/// Charges that are decided locally.
struct LocalCharges<'l, 'q> {
    /// The charges against the whole quotas.
    whole: &'l [&'l Charge<'q>],
    /// The same against this proxy's shares.
    shares: &'l [Charge<'l>],
    /// The store that should have decided, and gets the charges later.
    decider: DecidedBy,
}

impl Store {
    /// Decides `charges` that the store `decider` did not decide because of `reason`.
    ///
    /// # Errors
    /// A limit fails closed, or there is no room for its counter in the process.
    pub(crate) fn fall_back(
        &self,
        charges: &[Charge<'_>],
        decider: DecidedBy,
        reason: Unanswered,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let is_closed = |charge: &Charge<'_>| {
            // A limit that only observes denies no request.
            charge.fallback == Fallback::Closed && charge.stance == Stance::Enforce
        };
        if charges.iter().any(is_closed) {
            return Err(reason.into());
        }
        let now = self.local_time(now);
        let is_local = |charge: &&Charge<'_>| charge.fallback == Fallback::Local;
        let whole: SmallVec<[&Charge<'_>; 2]> = charges.iter().filter(is_local).collect();
        let quotas: SmallVec<[Quota; 2]> = whole.iter().map(|charge| self.share(charge)).collect();
        let shares = whole.iter().zip(&quotas).map(|(charge, quota)| {
            let full = charge.full.while_alone();
            Charge { quota, full, ..**charge }
        });
        let shares: SmallVec<[Charge<'_>; 2]> = shares.collect();
        let decided = match shares.is_empty() {
            true => Decision { verdict: Verdict::Allow, outcomes: Outcomes::new(), now },
            false => {
                let local = LocalCharges { whole: &whole, shares: &shares, decider };
                self.charge_shares(&local, now)?
            }
        };
        let mut local = decided.outcomes.into_iter();
        let outcomes = charges
            .iter()
            .map(|charge| match charge.fallback {
                Fallback::Local => local.next().map_or(undecided(charge, now), locally),
                Fallback::Open | Fallback::Closed => undecided(charge, now),
            })
            .collect();
        Ok(Decision { verdict: decided.verdict, outcomes, now })
    }

    /// Takes all charges or none from this proxy's shares, in place of the store that should have
    /// decided.
    fn charge_shares(
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
            self.stores.counts.unowed.add(1);
        }
        Ok(decision)
    }

    /// Whether there is room for this proxy's share of a counter.
    fn has_room_for_share(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        let room = self.stores.local.room_for(std::slice::from_ref(charge), now);
        room.is_ok_and(|mut has_room| has_room.next() == Some(true))
    }

    /// Where there is no room for this proxy's share of a counter, its cached state makes room for
    /// it: a caller that has used up a limit must not get past it because the store is full.
    fn make_room(&self, charge: &Charge<'_>, now: Timestamp) {
        let local = &self.stores.local;
        if charge.needs_counter()
            && local.count(charge).is_none()
            && !self.has_room_for_share(charge, now)
            && let Some(cached) = self.cached(charge)
        {
            self.stores.cache.remove(charge);
            local.adopt(charge, &cached.share(self.instances()), now);
        }
    }

    /// Makes sure that this proxy's share of a counter exists, if the counter is known, and that
    /// what is taken from it from now on is pending for the store `decider`.
    fn begin_local(
        &self,
        counters: &mut PendingCounters,
        charge: &Charge<'_>,
        decider: DecidedBy,
        now: Timestamp,
    ) {
        if is_lease(charge) || counters.contains(charge.key.entry) {
            return;
        }
        let local = &self.stores.local;
        if local.count(charge).is_none()
            && let Some(count) = self.last_known(charge)
        {
            local.adopt(charge, &count.share(self.instances()), now);
        }
        let base = local.state(charge);
        if !self.stores.pending.begin(counters, charge, decider, base) {
            self.stores.counts.unowed.add(1);
        }
    }

    /// Drops this proxy's share of a counter that Redis has reported: later local decisions start
    /// from that report. A counter with pending charges stays, because Redis does not have them.
    pub(crate) fn end_local(&self, charge: &Charge<'_>) {
        let local = &self.stores.local;
        if local.is_in_use() && !is_lease(charge) && local.count(charge).is_some() {
            let counters = self.stores.pending.lock();
            if !counters.contains(charge.key.entry) {
                local.remove(charge);
            }
        }
    }

    /// The last known count of a counter that Redis decides: reported by Redis, or from before its
    /// caller was moved there.
    pub(crate) fn last_known(&self, charge: &Charge<'_>) -> Option<Count> {
        self.cached(charge).or_else(|| {
            let memory = self.current.memory().filter(|_| !is_lease(charge))?;
            memory.count(charge)
        })
    }

    /// The standing of limits while Redis does not answer: from this proxy's shares for limits that
    /// are decided locally, else from the last known counts.
    pub(crate) fn peek_locally(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let now = self.local_time(now);
        let outcomes = charges.iter().map(|charge| match charge.fallback {
            Fallback::Local => self.peek_share(charge, now),
            Fallback::Open | Fallback::Closed => self.peek_last_known(charge, now),
        });
        Decision { verdict: Verdict::Allow, outcomes: outcomes.collect(), now }
    }

    /// The standing of this proxy's share of a counter, as a local decision would find it now.
    fn peek_share(&self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let local = &self.stores.local;
        let quota = &self.share(charge);
        let count = match local.count(charge) {
            Some(_) => None,
            None => self.last_known(charge),
        };
        let standing = match count {
            Some(count) => {
                let share = count.share(self.instances()).state();
                share.and_then(|share| quota.standing_of(&share, now))
            }
            None => {
                let peeked = local.peek(&[Charge { quota, ..*charge }], now);
                peeked.outcomes.first().map(|outcome| outcome.standing)
            }
        };
        let undecided = undecided(charge, now);
        match standing {
            Some(standing) => Outcome { standing, decided_by: DecidedBy::Local, ..undecided },
            None => undecided,
        }
    }

    /// The standing of a counter in Redis by its last known count; if there is none, as if it were
    /// unused.
    fn peek_last_known(&self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let state = self.last_known(charge).and_then(|count| count.state());
        let known = state.and_then(|state| charge.quota.standing_of(&state, now));
        let standing = known.unwrap_or_else(|| charge.quota.standing_of_unused(now));
        Outcome { standing, ..undecided(charge, now) }
    }

    /// Applies an adjustment to a charge that was decided locally.
    pub(crate) fn settle_locally(
        &self,
        charge: &Charge<'_>,
        outcome: &Outcome,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        match adjustment {
            Adjustment::Take => self.take_locally(charge, now),
            Adjustment::GiveBack(receipt) if !is_lease(charge) => {
                self.give_back_locally(charge, outcome, receipt, now)
            }
            // Leases end, and are renewed, where they were granted.
            Adjustment::GiveBack(_) | Adjustment::Renew(_) => {
                let quota = &self.share(charge);
                let now = self.local_time(now);
                self.stores.local.settle(&Charge { quota, ..*charge }, adjustment, now)
            }
        }
    }

    /// Takes a charge here, whether or not it fits. It is pending for the store that decides.
    pub(super) fn take_locally(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Standing> {
        let quota = &self.share(charge);
        let now = self.local_time(now);
        let mut counters = self.stores.pending.lock();
        if self.has_room_for_share(charge, now) {
            self.begin_local(&mut counters, charge, self.decider(charge.key.owner), now);
        }
        self.stores.local.settle(&Charge { quota, ..*charge }, Adjustment::Take, now)
    }

    /// The time of local decisions: the shares come from Redis, and so go by Redis' clock.
    pub(crate) fn local_time(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros().saturating_add_signed(self.ahead.get()))
    }

    /// How many proxies a quota is divided among. While callers are moved from the process to
    /// Redis, each proxy still has its own whole limit for callers who are not moved, or are moved
    /// back.
    pub(crate) fn instances(&self) -> NonZeroU32 {
        match &self.current {
            Backend::Memory(_) | Backend::Disk(_) => NonZeroU32::MIN,
            Backend::Redis(_) => self.stores.settings.instances,
        }
    }

    /// This proxy's share of a quota.
    pub(crate) fn share(&self, charge: &Charge<'_>) -> Quota {
        let share = charge.quota.share(self.instances());
        // A charge that exceeds every share is decided by the whole limit, or could never pass.
        match charge.cost > share.capacity() {
            true => charge.quota.clone(),
            false => share,
        }
    }
}

/// Marks an outcome as decided locally, unless its limit was left out.
fn locally(outcome: Outcome) -> Outcome {
    match outcome.decided_by {
        DecidedBy::NoStore => outcome,
        _ => Outcome { decided_by: DecidedBy::Local, ..outcome },
    }
}
