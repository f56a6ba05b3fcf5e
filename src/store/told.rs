//! What a caller is told who only asks how its limits stand: by a replica that may be behind, and
//! never less than this process knows.

use std::time::Duration;

use super::{
    Store,
    redis::{Reply, Told},
};
use crate::{
    clock::Timestamp,
    limit::{Charge, Count, Decision, Fallback, Outcome, Standing},
};

impl Store {
    /// What is told of `charges` by what Redis said.
    pub(super) fn tell(&self, charges: &[Charge<'_>], told: Told, now: Timestamp) -> Decision {
        let (reply, behind) = match told {
            Told::Primary(reply) => {
                self.learn_more(charges, &reply);
                return reply.decision;
            }
            Told::Replica { reply, behind } => (reply, Some(behind)),
            Told::Straggler(reply) => (reply, None),
        };
        self.learn_more(charges, &reply);
        let Reply { mut decision, .. } = reply;
        for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
            self.tell_no_less(charge, outcome, (decision.now, behind));
        }
        if behind.is_none() {
            // Limits that are decided here meanwhile are told as they are decided.
            let alone = self.peek_locally(charges, now).outcomes;
            for ((charge, outcome), here) in charges.iter().zip(&mut decision.outcomes).zip(alone) {
                if charge.fallback == Fallback::Local {
                    *outcome = here;
                }
            }
        }
        decision
    }

    /// Tells of a limit what is known here, if that is more than a replica has that is so far `behind`
    /// at most.
    fn tell_no_less(
        &self,
        charge: &Charge<'_>,
        outcome: &mut Outcome,
        (now, behind): (Timestamp, Option<Duration>),
    ) {
        // Of a log only a summary is known, which forgets nothing before its newest charge is over:
        // the replica that has that charge knows better.
        let is_outdated = |known: &Count| match (known.summarized_at(), behind) {
            (Some(newest), Some(behind)) => newest + behind < now,
            (None, _) | (_, None) => false,
        };
        let known = self.known(charge).filter(|known| !is_outdated(known));
        let known = known.and_then(|known| charge.quota.standing_of(&known.state()?, now));
        let rank = |standing: &Standing| (standing.used, standing.reset);
        if let Some(known) = known
            && rank(&known) > rank(&outcome.standing)
        {
            outcome.standing = known;
        }
    }

    /// Keeps what is more than was known: what is told once is not taken back by who knows less. An
    /// answer to a charge is what makes it less.
    fn learn_more(&self, charges: &[Charge<'_>], reply: &Reply) {
        let outcomes = charges.iter().zip(&reply.decision.outcomes).zip(&reply.counts);
        for ((charge, outcome), count) in outcomes {
            if outcome.standing.used > 0 {
                self.know_at_least(charge, count, reply.decision.now);
            }
        }
    }
}
