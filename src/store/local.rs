//! What becomes of charges that Redis did not decide: each limit does what it says.
//!
//! Limits that are decided here start from what Redis last said, divided among the proxies that
//! share them. While Redis answers, its answers are kept for that; so nothing has to be carried over
//! at the moment at which it goes away, nor when it is back.

use smallvec::SmallVec;

use super::{Adjustment, Store, StoreError, Unanswered, groups::undecided, redis::Reply};
use crate::{
    clock::Timestamp,
    limit::{
        Charge, DecidedBy, Decision, Fallback, Outcome, Outcomes, Quota, Stance, Standing, Verdict,
    },
};

impl Store {
    /// Keeps this proxy's part of what Redis said.
    pub(super) fn remember(&self, charges: &[Charge<'_>], reply: &Reply) {
        for (charge, count) in charges.iter().zip(&reply.counts) {
            if charge.fallback == Fallback::Local {
                let share = count.share(self.stores.settings.instances);
                self.stores.memory.adopt(charge, &share, reply.decision.now);
            }
        }
    }

    /// Decides about charges that Redis did not decide.
    ///
    /// # Errors
    /// A limit is closed then, or there is no room for its counter here.
    pub(super) fn fall_back(
        &self,
        charges: &[Charge<'_>],
        reason: Unanswered,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let is_closed = |charge: &Charge<'_>| {
            // A limit that only counts keeps nobody out.
            charge.fallback == Fallback::Closed && charge.stance == Stance::Enforce
        };
        if charges.iter().any(is_closed) {
            return Err(reason.into());
        }
        let is_local = |charge: &&Charge<'_>| charge.fallback == Fallback::Local;
        let shares: SmallVec<[Quota; 2]> =
            charges.iter().filter(is_local).map(|charge| self.share(charge)).collect();
        let of_share = |(charge, quota): (&Charge<'_>, _)| Charge { quota, ..*charge };
        let locals: SmallVec<[Charge<'_>; 2]> =
            charges.iter().filter(is_local).zip(&shares).map(of_share).collect();
        let decided = match locals.is_empty() {
            true => Decision { verdict: Verdict::Allow, outcomes: Outcomes::new(), now },
            false => self.stores.memory.charge(&locals, now)?,
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

    /// Puts right what was decided here.
    pub(super) fn settle_locally(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        let quota = &self.share(charge);
        self.stores.memory.settle(&Charge { quota, ..*charge }, adjustment, now)
    }

    /// This proxy's part of a quota.
    fn share(&self, charge: &Charge<'_>) -> Quota {
        charge.quota.share(self.stores.settings.instances)
    }
}

fn locally(outcome: Outcome) -> Outcome {
    Outcome { decided_by: DecidedBy::Local, ..outcome }
}
