//! The standing of limits for a caller who only reads it: from a replica that may be behind, and
//! never less than this process knows.

use std::{rc::Rc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Count, Decision, Fallback, Outcome, Standing};

use super::groups::{ChargeGroup, attribute, unknown};
use crate::{
    Backend, Store, Unanswered,
    call_time::CallTime,
    redis::{PeekReply, PeekSource, Reply},
};

impl Store {
    /// The standing of the limits of `charges`, and why a store did not report that of some of
    /// them.
    pub(crate) async fn peek_groups(
        self: &Rc<Self>,
        source: PeekSource,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> (Decision, Option<Unanswered>) {
        let time = CallTime { now, deadline: Instant::now() + self.stores.settings.deadline };
        let groups = self.groups(charges, |owner| self.decider(owner));
        let peeking = groups.iter().map(|group| self.peek_group(source, group, charges, time));
        let peeked = join_all(peeking).await;
        let (mut decision, mut unanswered) = (unknown(charges, now), None);
        for (group, (peeked, error)) in groups.iter().zip(peeked) {
            group.write_into(&mut decision, &peeked);
            unanswered = unanswered.or(error);
        }
        (decision, unanswered)
    }

    /// The same of one group.
    async fn peek_group(
        self: &Rc<Self>,
        source: PeekSource,
        group: &ChargeGroup,
        all: &[Charge<'_>],
        time: CallTime,
    ) -> (Decision, Option<Unanswered>) {
        let charges = group.charges(all);
        let generation = self.stores.resets.generation();
        let ready = match group.are_keys_final {
            true => self.prepare(&charges, group.decided_by, time).await,
            false => Err(Unanswered::Away),
        };
        let peeked = match (ready, self.backend(group.decided_by)) {
            (Ok(()), Some(Backend::Memory(memory))) => {
                self.return_to_memory(&charges, time.now);
                Ok(memory.peek(&charges, time.now))
            }
            (Ok(()), Some(Backend::Disk(disk))) => {
                let thawed = disk.thaw_all(&charges, time).await;
                // What is returned is merged with what was on disk.
                self.return_to_memory(&charges, time.now);
                match thawed {
                    Ok(()) => disk.peek_when_resident(&charges, time).await,
                    Err(error) => Err(error),
                }
            }
            (Ok(()), Some(Backend::Redis(redis))) => {
                let reply = redis.peek(&charges, time, source).await;
                reply.map(|reply| self.resolve_peek(&charges, reply, generation, time.now))
            }
            (Ok(()), None) => Err(Unanswered::Away),
            (Err(error), _) => Err(error),
        };
        match peeked {
            Ok(peeked) => (attribute(peeked, group.decided_by), None),
            Err(error) => {
                tracing::debug!(%error, "the store did not report how limits stand");
                (self.peek_locally(&charges, time.now), Some(error))
            }
        }
    }

    /// The standing of `charges`, from a reply of Redis and from what this process knows. The call
    /// was made when resets had this `generation`.
    fn resolve_peek(
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
