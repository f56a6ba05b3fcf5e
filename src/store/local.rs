//! What becomes of charges that Redis did not decide: each limit does what it says.
//!
//! Limits that are decided here start from what Redis last said (`known`), divided among the proxies
//! that share them. From the first decision without Redis until its next reply, a counter is kept here
//! as this proxy's own part: what is taken of it is owed (`owed`), and a reply ends it.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use super::{
    Adjustment, Backend, Store, StoreError, Unanswered, groups::undecided, known::is_leased,
    owed::Debts,
};
use crate::{
    clock::Timestamp,
    limit::{
        Charge, Count, DecidedBy, Decision, Fallback, Outcome, Outcomes, Quota, Stance, Standing,
        Verdict,
    },
};

impl Store {
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
        let decided = match locals.is_empty() {
            true => Decision { verdict: Verdict::Allow, outcomes: Outcomes::new(), now },
            false => {
                let whole = charges.iter().filter(is_local);
                self.charge_alone((whole, &locals), asked, now)?
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

    /// Makes sure that this proxy's own part of a counter is there to be decided about, if anything is
    /// known of it, and that what is taken of it from now on is owed to the store that was `asked`.
    pub(super) fn go_alone(
        &self,
        debts: &mut Debts,
        (charge, asked): (&Charge<'_>, DecidedBy),
        now: Timestamp,
    ) {
        if is_leased(charge) || debts.contains(charge.key.entry) {
            return;
        }
        let alone = &self.stores.alone;
        if alone.count(charge).is_none()
            && let Some(count) = self.last_known(charge)
        {
            alone.adopt(charge, &count.share(self.instances()), now);
        }
        if !self.stores.owed.begin(debts, charge, (asked, alone.state(charge))) {
            self.stores.counts.count_unowed();
        }
    }

    /// Redis has told how a counter stands: what comes without it begins from there, unless it does
    /// not have all that was decided alone.
    pub(super) fn stop_alone(&self, charge: &Charge<'_>) {
        let alone = &self.stores.alone;
        if alone.is_in_use() && !is_leased(charge) && alone.count(charge).is_some() {
            let debts = self.stores.owed.lock();
            if !debts.contains(charge.key.entry) {
                alone.remove(charge);
            }
        }
    }

    /// What is known of a counter that Redis decides about: from Redis, or from before its caller was
    /// moved there.
    pub(super) fn last_known(&self, charge: &Charge<'_>) -> Option<Count> {
        self.known(charge).or_else(|| match &self.current {
            Backend::Memory(memory) if !is_leased(charge) => memory.count(charge),
            _ => None,
        })
    }

    /// How limits stand while Redis does not tell: those that are decided here by this proxy's part,
    /// the others by what is known of them.
    pub(super) fn peek_locally(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let now = self.local_time(now);
        let outcomes = charges.iter().map(|charge| match charge.fallback {
            Fallback::Local => self.peek_alone(charge, now),
            Fallback::Open | Fallback::Closed => self.peek_known(charge, now),
        });
        Decision { verdict: Verdict::Allow, outcomes: outcomes.collect(), now }
    }

    /// How this proxy's own part of a counter stands, or would if it were decided about now.
    fn peek_alone(&self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let (alone, quota) = (&self.stores.alone, &self.share(charge));
        let count = match alone.count(charge) {
            Some(_) => None,
            None => self.last_known(charge),
        };
        let standing = match count {
            Some(count) => {
                let share = count.share(self.instances()).state();
                share.and_then(|share| quota.standing_of(&share, now))
            }
            None => {
                let peeked = alone.peek(&[Charge { quota, ..*charge }], now);
                peeked.outcomes.first().map(|outcome| outcome.standing)
            }
        };
        let undecided = undecided(charge, now);
        match standing {
            Some(standing) => locally(Outcome { standing, ..undecided }),
            None => undecided,
        }
    }

    /// How a counter in Redis stood by what is known of it; if nothing is, as if it were unused.
    fn peek_known(&self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let known = self.last_known(charge).and_then(|count| count.state());
        let known = known.and_then(|state| charge.quota.standing_of(&state, now));
        let standing = known.unwrap_or_else(|| charge.quota.standing_of_unused(now));
        Outcome { standing, ..undecided(charge, now) }
    }

    /// Puts right what was decided here.
    pub(super) fn settle_locally(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        let (quota, now) = (&self.share(charge), self.local_time(now));
        let mut debts = self.stores.owed.lock();
        if let Adjustment::Take = adjustment
            && self.has_room_alone(charge, now)
        {
            self.go_alone(&mut debts, (charge, self.decider(charge.key.owner)), now);
        }
        self.stores.alone.settle(&Charge { quota, ..*charge }, adjustment, now)
    }

    /// What time it is for counters that are decided here while Redis does not: they are as Redis
    /// left them, by its clock.
    pub(super) fn local_time(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros().saturating_add_signed(self.ahead.get()))
    }

    /// How many proxies a quota is divided among. While callers are moved from the process to Redis,
    /// each proxy still has its own whole limit for those who are not, and may come back.
    pub(super) fn instances(&self) -> NonZeroU32 {
        match &self.current {
            Backend::Memory(_) => NonZeroU32::MIN,
            Backend::Redis(_) => self.stores.settings.instances,
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
