//! Decides about charges that one call cannot decide together: those of different servers, of
//! different slots, of different stores.
//!
//! They are taken group by group, those that are cheapest to deny first. When one group is denied,
//! or does not answer and is closed then, what the earlier ones took is given back. So no limit ever
//! lets too much through; a request that comes while something waits to be given back may be denied
//! though it need not have been.

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::{Adjustment, Backend, Store, StoreError, Unanswered, adjusted, redis::Place};
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
    /// Who made a decision that the store of this group was asked for.
    fn decider(&self, outcome: &Outcome) -> DecidedBy {
        match outcome.decided_by {
            DecidedBy::Current => self.decided_by,
            other => other,
        }
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
        if let [group] = groups.as_slice() {
            let mut decision = self.charge_group(group, charges, (now, deadline)).await?;
            for outcome in &mut decision.outcomes {
                outcome.decided_by = group.decider(outcome);
            }
            self.mirror(charges, &decision, now);
            return Ok(decision);
        }
        let mut taken = Taken::new(self, charges, now);
        for group in groups {
            let own = group.charges(charges);
            let decision = self.charge_group(&group, &own, (now, deadline)).await?;
            taken.decision.include(&group, &decision);
            if taken.decision.verdict == Verdict::Deny {
                break;
            }
        }
        let decision = taken.finish();
        self.mirror(charges, &decision, now);
        Ok(decision)
    }

    async fn charge_group(
        self: &Rc<Self>,
        group: &Group,
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<Decision, StoreError> {
        let ready = match group.decided_by {
            DecidedBy::Next => self.carry_over(charges, (now, deadline)).await.map(drop),
            _ => Ok(()),
        };
        // What is owed comes on top of what is carried over.
        let ready = match ready {
            Ok(()) => self.pay(charges, group.decided_by, (now, deadline)).await,
            error => error,
        };
        let answer = match (ready, self.backend(group.decided_by)) {
            (Ok(()), Some(Backend::Memory(memory))) => {
                self.come_home(charges, now);
                return self.charge_here(memory, charges, now);
            }
            (Ok(()), Some(Backend::Redis(redis))) => redis.charge(charges, now, deadline).await,
            (Err(reason), _) => Err(reason),
            (Ok(()), None) => Err(Unanswered::Away),
        };
        match answer {
            Ok(reply) => {
                self.learn(charges, &reply, now);
                Ok(reply.decision)
            }
            Err(reason) => {
                self.stores.counts.count_unanswered(reason);
                self.fall_back(charges, (group.decided_by, reason), now)
            }
        }
    }

    /// How the limits of `charges` stand.
    pub(super) async fn peek_groups(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let deadline = Instant::now() + self.stores.settings.deadline;
        let mut decision = unknown(charges, now);
        for group in self.groups(charges, |owner| self.decider(owner)) {
            let own = group.charges(charges);
            if group.decided_by == DecidedBy::Next
                && self.carry_over(&own, (now, deadline)).await.is_err()
            {
                continue;
            }
            let peeked = match self.backend(group.decided_by) {
                Some(Backend::Memory(memory)) => {
                    self.come_home(&own, now);
                    memory.peek(&own, now)
                }
                Some(Backend::Redis(redis)) => match redis.peek(&own, now, deadline).await {
                    Ok(told) => self.tell(&own, told, now),
                    Err(error) => {
                        tracing::debug!(%error, "redis did not tell how limits stand");
                        self.peek_locally(&own, now)
                    }
                },
                None => continue,
            };
            decision.include(&group, &peeked);
        }
        decision
    }

    /// The groups, in the order in which they are charged.
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
                *place = Outcome { decided_by: group.decider(outcome), ..*outcome };
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

/// What was taken so far. If it is dropped before all groups were decided, because one is closed or
/// the client has gone, everything is given back.
struct Taken<'t, 'c> {
    store: &'t Rc<Store>,
    charges: &'t [Charge<'c>],
    decision: Decision,
    now: Timestamp,
}

impl<'t, 'c> Taken<'t, 'c> {
    fn new(store: &'t Rc<Store>, charges: &'t [Charge<'c>], now: Timestamp) -> Self {
        Taken { store, charges, decision: unknown(charges, now), now }
    }

    /// The decision about all groups; if it is a denial, nothing stays taken.
    fn finish(mut self) -> Decision {
        if self.decision.verdict == Verdict::Deny {
            self.give_back();
        }
        let (now, verdict) = (self.decision.now, self.decision.verdict);
        let outcomes = std::mem::take(&mut self.decision.outcomes);
        Decision { verdict, outcomes, now }
    }

    fn give_back(&mut self) {
        for (charge, outcome) in self.charges.iter().zip(&mut self.decision.outcomes) {
            if let Some(receipt) = outcome.receipt {
                let adjustment = Adjustment::GiveBack(receipt);
                self.store.settle((charge, outcome), adjustment, self.now);
                outcome.standing = adjusted(outcome.standing, charge.cost, adjustment);
                outcome.receipt = None;
            }
        }
    }
}

impl Drop for Taken<'_, '_> {
    fn drop(&mut self) {
        self.give_back();
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
