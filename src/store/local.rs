//! What becomes of charges that Redis did not decide: each limit does what it says.
//!
//! Limits that are decided here start from what Redis last said, divided among the proxies that
//! share them. While Redis answers, its answers are kept for that; so nothing has to be carried over
//! at the moment at which it goes away, nor when it is back.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::{
    Adjustment, Backend, MemoryStore, Store, StoreError, Unanswered, groups::undecided,
    redis::Reply,
};
use crate::{
    clock::Timestamp,
    limit::{
        Charge, DecidedBy, Decision, Fallback, Outcome, Outcomes, Quota, Stance, Standing, Verdict,
    },
};

impl Store {
    /// Keeps this proxy's part of what Redis said when it was `now` here.
    pub(super) fn keep_share(&self, charges: &[Charge<'_>], reply: &Reply, now: Timestamp) {
        let ahead = reply.decision.now.as_micros() as i64 - now.as_micros() as i64;
        self.ahead.set(ahead);
        for (charge, count) in charges.iter().zip(&reply.counts) {
            let memory = &self.stores.memory;
            let has_room = || !memory.is_half_full(charge) || memory.count(charge).is_some();
            // A counter that has what Redis has not is not lost.
            let is_paid = || !self.stores.owed.contains(charge.key.entry);
            if charge.fallback == Fallback::Local && has_room() && is_paid() {
                let share = count.share(self.instances());
                memory.adopt(charge, &share, reply.decision.now);
            }
        }
    }

    /// Decides about charges that a store was asked for and did not decide.
    ///
    /// # Errors
    /// A limit is closed then, or there is no room for its counter here.
    pub(super) fn fall_back(
        &self,
        charges: &[Charge<'_>],
        (asked, reason): (DecidedBy, Unanswered),
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let is_closed = |charge: &Charge<'_>| {
            // A limit that only counts keeps nobody out.
            charge.fallback == Fallback::Closed && charge.stance == Stance::Enforce
        };
        if charges.iter().any(is_closed) {
            return Err(reason.into());
        }
        let now = self.local_time(now);
        let is_local = |charge: &&Charge<'_>| charge.fallback == Fallback::Local;
        let shares: SmallVec<[Quota; 2]> =
            charges.iter().filter(is_local).map(|charge| self.share(charge)).collect();
        let of_share = |(charge, quota): (&Charge<'_>, _)| {
            let full = charge.full.while_alone();
            Charge { quota, full, ..*charge }
        };
        let locals: SmallVec<[Charge<'_>; 2]> =
            charges.iter().filter(is_local).zip(&shares).map(of_share).collect();
        // Nothing is owed of what there is no room to count.
        let room = self.stores.memory.room_for(&locals, now);
        let is_owed = room.is_ok();
        if let Ok(has_room) = room {
            let counted = charges.iter().filter(is_local).zip(has_room);
            let owing: SmallVec<[Charge<'_>; 2]> =
                counted.filter_map(|(charge, has_room)| has_room.then_some(*charge)).collect();
            self.owe(&owing, asked);
        }
        let decided = match locals.is_empty() {
            true => Decision { verdict: Verdict::Allow, outcomes: Outcomes::new(), now },
            false => self.charge_here(&self.stores.memory, &locals, now)?,
        };
        // There was room for it after all, a moment later.
        if !is_owed && decided.verdict == Verdict::Allow {
            self.stores.counts.count_unowed();
        }
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

    /// Takes all `charges` or none in the process, and counts those that are left out for want of room.
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

    /// Whether there is room here for the counter of a charge that Redis did not decide.
    pub(super) fn has_room(&self, charge: &Charge<'_>, now: Timestamp) -> bool {
        let has_room = self.stores.memory.room_for(&[*charge], self.local_time(now));
        has_room.is_ok_and(|mut has_room| has_room.next() == Some(true))
    }

    /// How the limits stand that are decided here while Redis does not tell.
    pub(super) fn peek_locally(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let now = self.local_time(now);
        let standing = |charge: &Charge<'_>| {
            let quota = &self.share(charge);
            let peeked = self.stores.memory.peek(&[Charge { quota, ..*charge }], now);
            peeked.outcomes.first().copied().map(locally)
        };
        let outcomes = charges.iter().map(|charge| match charge.fallback {
            Fallback::Local => standing(charge).unwrap_or_else(|| undecided(charge, now)),
            Fallback::Open | Fallback::Closed => undecided(charge, now),
        });
        Decision { verdict: Verdict::Allow, outcomes: outcomes.collect(), now }
    }

    /// Puts right what was decided here.
    pub(super) fn settle_locally(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        let (quota, now) = (&self.share(charge), self.local_time(now));
        self.stores.memory.settle(&Charge { quota, ..*charge }, adjustment, now)
    }

    /// Puts right this proxy's part of what Redis said, which Redis has not said anew since.
    pub(super) fn settle_share(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        let cost = match adjustment {
            Adjustment::Take => charge.cost.div_ceil(self.instances().get()),
            // Rounded down: no part gets back more than the whole does.
            Adjustment::GiveBack(_) => charge.cost / self.instances(),
            Adjustment::Renew(_) => 0,
        };
        let is_leased = matches!(charge.quota, Quota::Concurrency(_));
        let is_kept = || {
            let is_paid = !self.stores.owed.contains(charge.key.entry);
            is_paid && self.stores.memory.count(charge).is_some()
        };
        if charge.fallback == Fallback::Local && cost > 0 && !is_leased && is_kept() {
            self.settle_locally(&Charge { cost, ..*charge }, adjustment, now);
        }
    }

    /// What time it is for counters that are decided here while Redis does not: they are as Redis
    /// left them, by its clock.
    pub(super) fn local_time(&self, now: Timestamp) -> Timestamp {
        match self.current {
            Backend::Memory(_) => now,
            Backend::Redis(_) => {
                Timestamp::from_micros(now.as_micros().saturating_add_signed(self.ahead.get()))
            }
        }
    }

    /// How many proxies a quota is divided among. One whose own counters are a store in its own right,
    /// while callers move to another or back, keeps them whole.
    fn instances(&self) -> NonZeroU32 {
        match (&self.current, &self.next) {
            (Backend::Memory(_), _) | (_, Some(Backend::Memory(_))) => NonZeroU32::MIN,
            _ => self.stores.settings.instances,
        }
    }

    /// This proxy's part of a quota.
    pub(super) fn share(&self, charge: &Charge<'_>) -> Quota {
        let share = charge.quota.share(self.instances());
        // What no part of the limit would ever have room for, the whole of it has.
        match charge.cost > share.capacity() {
            true => charge.quota.clone(),
            false => share,
        }
    }
}

/// What was decided here, but for what was left out.
fn locally(outcome: Outcome) -> Outcome {
    match outcome.decided_by {
        DecidedBy::Nobody => outcome,
        _ => Outcome { decided_by: DecidedBy::Local, ..outcome },
    }
}
