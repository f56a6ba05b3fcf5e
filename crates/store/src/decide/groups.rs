//! Decides charges that one call cannot decide together: those of different servers, of different
//! cluster slots, or of different stores.
//!
//! The groups are charged at once, so a request waits no longer than for the slowest of them. When
//! one group denies, or fails closed, what the others took is given back (`reservation`). So no
//! limit ever admits too much; a request that comes before something is given back may be denied
//! needlessly. A group that may deny is therefore charged first and without the others
//! (`headroom`); of several, the one whose counters the fewest callers share. A caller that is
//! denied again and again then costs one call each time, and keeps nothing from other callers.

mod reservation;

use std::rc::Rc;

use futures_util::future::try_join_all;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Outcomes, Scope, Verdict};

use self::reservation::Reservation;
use crate::{
    Backend, Store, StoreError, Unanswered,
    call_time::CallTime,
    redis::{Partition, RedisStore, Reply},
    undecided::undecided,
};

/// Charges that one call decides.
pub(crate) struct ChargeGroup {
    pub(crate) decided_by: DecidedBy,
    /// None: the counters are in the process.
    partition: Option<Partition>,
    /// Whether its counters have these keys in the store. While the secret is awaited, keys are
    /// made with the process' own: the store must not count under them, even if the secret comes
    /// while the request waits.
    pub(crate) are_keys_final: bool,
    scope: Scope,
    /// The positions of its charges among all charges.
    members: SmallVec<[usize; 4]>,
}

/// Marks the outcomes that a store decided with that store, so that corrections come there.
pub(crate) fn attribute(mut decision: Decision, decided_by: DecidedBy) -> Decision {
    for outcome in &mut decision.outcomes {
        if outcome.decided_by == DecidedBy::Current {
            outcome.decided_by = decided_by;
        }
    }
    decision
}

impl ChargeGroup {
    /// Its charges among all charges.
    pub(crate) fn charges<'c>(&self, all: &[Charge<'c>]) -> SmallVec<[Charge<'c>; 2]> {
        self.members(all).copied().collect()
    }

    /// Its items of a list that has one for each charge.
    pub(crate) fn members<'a, T>(&self, all: &'a [T]) -> impl Iterator<Item = &'a T> {
        self.members.iter().filter_map(|member| all.get(*member))
    }
}

impl Store {
    /// Takes all `charges` or none.
    pub(crate) async fn charge_groups(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let time = CallTime { now, deadline: Instant::now() + self.stores.settings.deadline };
        let groups = self.groups(charges, |owner| self.decider(owner));
        let decision = match groups.as_slice() {
            [group] => self.charge_group(group, charges, time).await?,
            // Boxed, as other rare waits are: the future of a charge stays small.
            _ => Box::pin(self.charge_several(groups, charges, time)).await?,
        };
        self.mirror(charges, &decision, now);
        Ok(decision)
    }

    /// Takes the charges of several groups or none. If this is dropped, because the client has
    /// gone, nothing stays taken.
    async fn charge_several(
        self: &Rc<Self>,
        mut groups: SmallVec<[ChargeGroup; 2]>,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<Decision, StoreError> {
        let mut reservations: SmallVec<[Reservation<'_, '_>; 2]> = SmallVec::new();
        while !groups.is_empty() && !reservations.iter().any(Reservation::is_denied) {
            let next = self.next_groups(&mut groups, charges, time.now).into_iter();
            let reserving = next.map(|group| self.reserve(group, charges, time));
            reservations.extend(try_join_all(reserving).await?);
        }
        let is_denied = reservations.iter().any(Reservation::is_denied);
        let mut decision = unknown(charges, time.now);
        for reservation in &mut reservations {
            let own = reservation.finish(is_denied);
            reservation.group.write_into(&mut decision, &own);
        }
        Ok(decision)
    }

    /// Takes from `groups` those that are charged next: one that may deny, or all that are left.
    fn next_groups(
        &self,
        groups: &mut SmallVec<[ChargeGroup; 2]>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> SmallVec<[ChargeGroup; 2]> {
        let headrooms = &self.stores.headrooms;
        let may_deny = |group: &ChargeGroup| headrooms.may_deny(group.members(charges), now);
        match groups.iter().position(may_deny) {
            Some(first) => smallvec![groups.remove(first)],
            None => std::mem::take(groups),
        }
    }

    /// Takes the charges of one of several groups, until it is known whether all of them fit.
    async fn reserve<'t, 'c>(
        self: &'t Rc<Self>,
        group: ChargeGroup,
        all: &[Charge<'c>],
        time: CallTime,
    ) -> Result<Reservation<'t, 'c>, StoreError> {
        let charges = group.charges(all);
        let in_flight = self.stores.headrooms.begin(&charges);
        let decision = self.charge_group(&group, &charges, time).await?;
        drop(in_flight);
        self.stores.headrooms.learn(&charges, &decision, time.now);
        Ok(Reservation { store: self, group, charges, decision, now: time.now })
    }

    async fn charge_group(
        self: &Rc<Self>,
        group: &ChargeGroup,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<Decision, StoreError> {
        let generation = self.stores.resets.generation();
        let attributed =
            |decision: Result<Decision, StoreError>| Ok(attribute(decision?, group.decided_by));
        let reply = match self.backend(group.decided_by) {
            Some(Backend::Memory(memory)) => match self.prepare_here(group, charges, time).await {
                Ok(()) => return attributed(self.charge_in_process(memory, charges, time.now)),
                Err(reason) => Err(reason),
            },
            Some(Backend::Disk(disk)) => match self.prepare_here(group, charges, time).await {
                Ok(()) => {
                    let thawed = self.charge_thawed(disk, charges, group.decided_by, time);
                    return attributed(Box::pin(thawed).await);
                }
                Err(reason) => Err(reason),
            },
            Some(Backend::Redis(redis)) if group.are_keys_final => {
                self.charge_redis(redis, group, charges, time).await
            }
            Some(Backend::Redis(_)) | None => Err(Unanswered::Away),
        };
        match reply {
            Ok(reply) => {
                self.update_cache(charges, &reply, generation, time.now);
                Ok(attribute(reply.decision, group.decided_by))
            }
            Err(reason) => {
                self.stores.counts.count_unanswered(reason);
                self.fall_back(charges, group.decided_by, reason, time.now)
            }
        }
    }

    /// Makes sure that the process has all units of these counters.
    async fn prepare_here(
        self: &Rc<Self>,
        group: &ChargeGroup,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<(), Unanswered> {
        Box::pin(self.prepare(charges, group.decided_by, time)).await?;
        self.return_to_memory(charges, time.now);
        Ok(())
    }

    /// Lets Redis decide the charges of a group.
    async fn charge_redis(
        self: &Rc<Self>,
        redis: &Rc<RedisStore>,
        group: &ChargeGroup,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<Reply, Unanswered> {
        let to = group.decided_by;
        let Some(partition) = group.partition else { return Err(Unanswered::Away) };
        let mut server = self.current_server(redis, to, partition);
        loop {
            if !self.is_prepared(to) {
                Box::pin(self.prepare(charges, to, time)).await?;
            }
            let reply = redis.charge(charges, time, Some(server)).await;
            if reply.as_ref().err() != Some(&Unanswered::Away) {
                return reply;
            }
            // The charge is not sent to a server that has replaced the prepared one.
            let latest = self.current_server(redis, to, partition);
            if latest == server || Instant::now() >= time.deadline {
                return reply;
            }
            server = latest;
        }
    }

    /// Whether a store has all units of all counters: there is nothing to carry over, to reseed or
    /// to write back. It mostly has.
    fn is_prepared(&self, to: DecidedBy) -> bool {
        let stores = &self.stores;
        let is_reseeded = !stores.reseeding.counters.is_in_use();
        to == DecidedBy::Current && is_reseeded && stores.pending.is_empty()
    }

    /// Makes sure that a store has all units of these counters: those that another store counted
    /// before the move, those that a server may have lost, and those that are pending.
    ///
    /// # Errors
    /// The store is not known to have them in time.
    pub(crate) async fn prepare(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        to: DecidedBy,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        if to == DecidedBy::Next && !self.are_carried(charges) {
            // What is carried over must include what is pending for the current store.
            self.write_back(charges, DecidedBy::Current, time).await?;
        }
        self.complete(charges, to, time).await?;
        self.write_back(charges, to, time).await
    }

    /// Does the same as `prepare`, but for pending units.
    ///
    /// # Errors
    /// The store is not known to have them in time.
    pub(crate) async fn complete(
        &self,
        charges: &[Charge<'_>],
        to: DecidedBy,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        if to == DecidedBy::Next {
            self.carry_over(charges, time).await?;
        }
        self.reseed(charges, to, time).await
    }

    /// The groups, those that the fewest callers share first.
    pub(crate) fn groups(
        &self,
        charges: &[Charge<'_>],
        decider: impl Fn(u128) -> DecidedBy,
    ) -> SmallVec<[ChargeGroup; 2]> {
        let mut groups: SmallVec<[ChargeGroup; 2]> = SmallVec::new();
        for (position, charge) in charges.iter().enumerate() {
            let decided_by = decider(charge.key.owner);
            let redis = self.backend(decided_by).and_then(Backend::redis);
            let partition = redis.map(|redis| redis.partition(charge.key.owner));
            let are_keys_final = redis.is_none_or(|redis| redis.require_secret().is_ok());
            let is_same = |group: &&mut ChargeGroup| {
                (group.decided_by, group.partition) == (decided_by, partition)
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => {
                    group.scope = group.scope.max(charge.scope);
                    group.members.push(position);
                }
                None => groups.push(ChargeGroup {
                    decided_by,
                    partition,
                    are_keys_final,
                    scope: charge.scope,
                    members: smallvec![position],
                }),
            }
        }
        groups.sort_by_key(|group| group.scope);
        groups
    }
}

impl ChargeGroup {
    /// Writes the decision about this group into the one about all charges.
    pub(crate) fn write_into(&self, whole: &mut Decision, own: &Decision) {
        for (member, outcome) in self.members.iter().zip(&own.outcomes) {
            if let Some(place) = whole.outcomes.get_mut(*member) {
                *place = *outcome;
            }
        }
        // The response's times go by the clock of the limit that it reports.
        if own.verdict == Verdict::Deny || self.members.contains(&0) {
            whole.now = own.now;
        }
        if own.verdict == Verdict::Deny {
            whole.verdict = Verdict::Deny;
        }
    }
}

/// The decision before any store has decided: all is allowed, and no standing is known.
pub(crate) fn unknown(charges: &[Charge<'_>], now: Timestamp) -> Decision {
    let outcomes: Outcomes = charges.iter().map(|charge| undecided(charge, now)).collect();
    Decision { verdict: Verdict::Allow, outcomes, now }
}
