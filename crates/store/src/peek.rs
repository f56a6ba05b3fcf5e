//! The standing of limits for a caller who only reads it: from a replica that may be behind, and
//! never less than this process knows.

use std::time::Duration;

use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Count, Decision, Fallback, Outcome, Standing};

use super::{
    Store,
    redis::{PeekReply, Reply},
};

impl Store {
    /// The standing of `charges`, from a reply of Redis and from what this process knows. The call
    /// was made when resets had this `generation`.
    pub(super) fn resolve_peek(
        &self,
        charges: &[Charge<'_>],
        peeked: PeekReply,
        generation: u64,
        now: Timestamp,
    ) -> Decision {
        let (reply, behind) = match peeked {
            PeekReply::Primary(reply) => {
                self.raise_cache(charges, &reply, generation);
                return reply.decision;
            }
            PeekReply::Replica { reply, behind } => (reply, Some(behind)),
            PeekReply::StaleReplica(reply) => (reply, None),
        };
        self.raise_cache(charges, &reply, generation);
        let Reply { mut decision, .. } = reply;
        for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
            self.raise_to_cached(charge, outcome, decision.now, behind);
        }
        if behind.is_none() {
            // The primary is away: limits that are decided locally are reported as they are
            // decided.
            let local = self.peek_locally(charges, now).outcomes;
            for ((charge, outcome), local) in charges.iter().zip(&mut decision.outcomes).zip(local)
            {
                if charge.fallback == Fallback::Local {
                    *outcome = local;
                }
            }
        }
        decision
    }

    /// Replaces a standing by the cached one if that is higher than what a replica has that is
    /// `behind` at most.
    fn raise_to_cached(
        &self,
        charge: &Charge<'_>,
        outcome: &mut Outcome,
        now: Timestamp,
        behind: Option<Duration>,
    ) {
        // The cache has only a summary of a log, which keeps all units until the newest one
        // expires. A replica that has the newest unit has the better count.
        let is_outdated = |cached: &Count| match (cached.summarized_at(), behind) {
            (Some(newest), Some(behind)) => newest + behind < now,
            (None, _) | (_, None) => false,
        };
        let cached = self.cached(charge).filter(|cached| !is_outdated(cached));
        let cached = cached.and_then(|count| charge.quota.standing_of(&count.state()?, now));
        let rank = |standing: &Standing| (standing.used, standing.reset);
        if let Some(cached) = cached
            && rank(&cached) > rank(&outcome.standing)
        {
            outcome.standing = cached;
        }
    }

    /// Caches counts that are higher than the cached ones, so that a caller never reads a lower
    /// count from another replica afterwards. Only the reply to a charge lowers a cached count.
    fn raise_cache(&self, charges: &[Charge<'_>], reply: &Reply, generation: u64) {
        if generation != self.stores.resets.generation() {
            return;
        }
        let outcomes = charges.iter().zip(&reply.decision.outcomes).zip(&reply.counts);
        for ((charge, outcome), count) in outcomes {
            if outcome.standing.used > 0 {
                self.raise_cached(charge, count, reply.decision.now);
            }
        }
    }
}
