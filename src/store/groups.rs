//! Decides about charges that one call cannot decide together: those of different servers, of
//! different slots, of different stores.
//!
//! Groups of them are taken at once, so that a request waits no longer than for the slowest of them.
//! When one group denies, or does not answer and is closed then, what the others took is given back
//! (`taken`). So no limit ever lets too much through; a request that comes while something waits to be
//! given back may be denied though it need not have been. A group that may deny is therefore taken
//! before the others and alone (`headroom`); of several, the one that is shared by the fewest. What
//! denies again and again costs one call then, and nobody else notices.

mod taken;

use std::rc::Rc;

use futures_util::future::{join_all, try_join_all};
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use self::taken::Taken;
use super::{
    Backend, Store, StoreError, Unanswered,
    redis::{Place, RedisStore, Reply},
};
use crate::{
    clock::Timestamp,
    limit::{Charge, DecidedBy, Decision, Outcome, Outcomes, Retry, Scope, Standing, Verdict},
};

/// Charges that one call decides about.
pub(super) struct Group {
    decided_by: DecidedBy,
    /// None: they are in the process.
    place: Option<Place>,
    scope: Scope,
    /// Their positions among all charges.
    members: SmallVec<[usize; 4]>,
}

impl Group {
    /// A decision that the store of this group made, if it did, with its name to it.
    fn sign(&self, mut decision: Decision) -> Decision {
        for outcome in &mut decision.outcomes {
            if outcome.decided_by == DecidedBy::Current {
                outcome.decided_by = self.decided_by;
            }
        }
        decision
    }

    /// Its part of all charges.
    pub(super) fn charges<'c>(&self, all: &[Charge<'c>]) -> SmallVec<[Charge<'c>; 2]> {
        self.members(all).copied().collect()
    }

    /// Its part of what there is for each charge.
    pub(super) fn members<'a, T>(&self, all: &'a [T]) -> impl Iterator<Item = &'a T> {
        self.members.iter().filter_map(|member| all.get(*member))
    }
}

impl Store {
    /// Takes all `charges` or none.
    pub(super) async fn charge_groups(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let deadline = Instant::now() + self.stores.settings.deadline;
        let groups = self.groups(charges, |owner| self.decider(owner));
        let decision = match groups.as_slice() {
            [group] => self.charge_group(group, charges, (now, deadline)).await?,
            _ => self.charge_at_once(groups, charges, (now, deadline)).await?,
        };
        self.mirror(charges, &decision, now);
        Ok(decision)
    }

    /// Takes the charges of several groups or none. If this is dropped, because the client has gone,
    /// none.
    async fn charge_at_once(
        self: &Rc<Self>,
        mut groups: SmallVec<[Group; 2]>,
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<Decision, StoreError> {
        let mut taken: SmallVec<[Taken<'_, '_>; 2]> = SmallVec::new();
        while !groups.is_empty() && !taken.iter().any(Taken::is_denied) {
            let taking = self.next(&mut groups, charges, now).into_iter();
            let taking = taking.map(|group| self.take(group, charges, (now, deadline)));
            taken.extend(try_join_all(taking).await?);
        }
        let is_denied = taken.iter().any(Taken::is_denied);
        let mut decision = unknown(charges, now);
        for part in &mut taken {
            let own = part.finish(is_denied);
            decision.include(&part.group, &own);
        }
        Ok(decision)
    }

    /// The groups that are taken next: one that may deny, or all that are left.
    fn next(
        &self,
        groups: &mut SmallVec<[Group; 2]>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> SmallVec<[Group; 2]> {
        let may_deny = |group: &Group| self.stores.headrooms.may_deny(group.members(charges), now);
        match groups.iter().position(may_deny) {
            Some(first) => smallvec![groups.remove(first)],
            None => std::mem::take(groups),
        }
    }

    /// Takes the charges of one of several groups.
    async fn take<'t, 'c>(
        self: &'t Rc<Self>,
        group: Group,
        all: &[Charge<'c>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<Taken<'t, 'c>, StoreError> {
        let charges = group.charges(all);
        let asked = self.stores.headrooms.ask(&charges);
        let decision = self.charge_group(&group, &charges, (now, deadline)).await?;
        drop(asked);
        self.stores.headrooms.learn(&charges, &decision, now);
        Ok(Taken::new(self, (group, charges), decision, now))
    }

    async fn charge_group(
        self: &Rc<Self>,
        group: &Group,
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<Decision, StoreError> {
        let answer = match self.backend(group.decided_by) {
            Some(Backend::Memory(memory)) => {
                match self.prepare(charges, group.decided_by, (now, deadline)).await {
                    Ok(()) => {
                        self.come_home(charges, now);
                        let decision = self.charge_here(memory, charges, now);
                        return decision.map(|decision| group.sign(decision));
                    }
                    Err(reason) => Err(reason),
                }
            }
            Some(Backend::Redis(redis)) => {
                self.charge_redis((redis, group), charges, (now, deadline)).await
            }
            None => Err(Unanswered::Away),
        };
        match answer {
            Ok(reply) => {
                self.learn(charges, &reply, now);
                Ok(group.sign(reply.decision))
            }
            Err(reason) => {
                self.stores.counts.count_unanswered(reason);
                self.fall_back(charges, (group.decided_by, reason), now)
            }
        }
    }

    /// Has Redis decide about the charges of a group.
    async fn charge_redis(
        self: &Rc<Self>,
        (redis, group): (&Rc<RedisStore>, &Group),
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<Reply, Unanswered> {
        let (to, Some(place)) = (group.decided_by, group.place) else {
            return Err(Unanswered::Away);
        };
        let mut server = self.meet_server((redis, to), place);
        loop {
            self.prepare(charges, to, (now, deadline)).await?;
            let answer = redis.charge(charges, (now, deadline), Some(server)).await;
            if answer.as_ref().err() != Some(&Unanswered::Away) {
                return answer;
            }
            // It was not sent to a server that took the other's place meanwhile.
            let latest = self.meet_server((redis, to), place);
            if latest == server || Instant::now() >= deadline {
                return answer;
            }
            server = latest;
        }
    }

    /// Makes sure that a store has all that there is of these counters: what was counted in the store
    /// before, what it may have lost, and on top of that what it is owed.
    ///
    /// # Errors
    /// It is not known to have it in time.
    async fn prepare(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        to: DecidedBy,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<(), Unanswered> {
        if to == DecidedBy::Next && !self.are_carried(charges) {
            // What is carried over is all that there is.
            self.pay(charges, DecidedBy::Current, (now, deadline)).await?;
        }
        self.complete(charges, to, (now, deadline)).await?;
        self.pay(charges, to, (now, deadline)).await
    }

    /// The same without what it is owed.
    ///
    /// # Errors
    /// It is not known to have it in time.
    pub(super) async fn complete(
        &self,
        charges: &[Charge<'_>],
        to: DecidedBy,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<(), Unanswered> {
        if to == DecidedBy::Next {
            self.carry_over(charges, (now, deadline)).await?;
        }
        self.bring(charges, to, (now, deadline)).await
    }

    /// How the limits of `charges` stand.
    pub(super) async fn peek_groups(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Decision {
        let deadline = Instant::now() + self.stores.settings.deadline;
        let groups = self.groups(charges, |owner| self.decider(owner));
        let peeking = groups.iter().map(|group| self.peek_group(group, charges, (now, deadline)));
        let peeked = join_all(peeking).await;
        let mut decision = unknown(charges, now);
        for (group, peeked) in groups.iter().zip(peeked) {
            decision.include(group, &peeked);
        }
        decision
    }

    /// How the limits of one group stand.
    async fn peek_group(
        self: &Rc<Self>,
        group: &Group,
        all: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Decision {
        let charges = group.charges(all);
        let ready = self.prepare(&charges, group.decided_by, (now, deadline)).await;
        let peeked = match (ready, self.backend(group.decided_by)) {
            (Ok(()), Some(Backend::Memory(memory))) => {
                self.come_home(&charges, now);
                Ok(memory.peek(&charges, now))
            }
            (Ok(()), Some(Backend::Redis(redis))) => {
                redis.peek(&charges, now, deadline).await.map(|told| self.tell(&charges, told, now))
            }
            (Ok(()), None) => Err(Unanswered::Away),
            (Err(error), _) => Err(error),
        };
        group.sign(peeked.unwrap_or_else(|error| {
            tracing::debug!(%error, "redis did not tell how limits stand");
            self.peek_locally(&charges, now)
        }))
    }

    /// The groups, those that are shared by the fewest first.
    pub(super) fn groups(
        &self,
        charges: &[Charge<'_>],
        decider: impl Fn(u128) -> DecidedBy,
    ) -> SmallVec<[Group; 2]> {
        let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
        for (position, charge) in charges.iter().enumerate() {
            let decided_by = decider(charge.key.owner);
            let place = match self.backend(decided_by) {
                Some(Backend::Redis(redis)) => Some(redis.place(charge.key.owner)),
                Some(Backend::Memory(_)) | None => None,
            };
            let is_same =
                |group: &&mut Group| (group.decided_by, group.place) == (decided_by, place);
            match groups.iter_mut().find(is_same) {
                Some(group) => {
                    group.scope = group.scope.max(charge.scope);
                    group.members.push(position);
                }
                None => {
                    let (scope, members) = (charge.scope, smallvec![position]);
                    groups.push(Group { decided_by, place, scope, members });
                }
            }
        }
        groups.sort_by_key(|group| group.scope);
        groups
    }
}

impl Decision {
    /// Takes over what was decided about a group.
    fn include(&mut self, group: &Group, decision: &Decision) {
        for (member, outcome) in group.members.iter().zip(&decision.outcomes) {
            if let Some(place) = self.outcomes.get_mut(*member) {
                *place = *outcome;
            }
        }
        // What the client is told is told by the clock of what it is told about.
        if decision.verdict == Verdict::Deny || group.members.contains(&0) {
            self.now = decision.now;
        }
        if decision.verdict == Verdict::Deny {
            self.verdict = Verdict::Deny;
        }
    }
}

/// A decision by nobody yet: all is allowed, and nothing is known.
fn unknown(charges: &[Charge<'_>], now: Timestamp) -> Decision {
    let outcomes: Outcomes = charges.iter().map(|charge| undecided(charge, now)).collect();
    Decision { verdict: Verdict::Allow, outcomes, now }
}

/// What is known about a limit that nobody was asked about.
pub(super) fn undecided(charge: &Charge<'_>, now: Timestamp) -> Outcome {
    let limit = charge.quota.capacity();
    let standing =
        Standing { limit, remaining: limit, used: 0, reset: now, next: now, retry: Retry::Now };
    Outcome { standing, receipt: None, decided_by: DecidedBy::Nobody }
}
