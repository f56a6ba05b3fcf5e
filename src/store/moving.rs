//! Moves callers from one store to another without giving anybody a fresh window.
//!
//! So many of a hundred callers, always the same, are in the next store. `mirror` only looks: the
//! next store is charged too, and decisions in which it disagrees are counted. `move` is in earnest:
//! the next store decides, and takes a caller's counters over from the present one on its first
//! request. As long as another proxy decides by the present one, that is charged too.

mod plan;

use std::rc::Rc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Adjustment, Backend, Store, Unanswered, recent::Recent};
use crate::{
    clock::Timestamp,
    limit::{Charge, DecidedBy, Decision, Outcome, OwnedCharge, Receipt, Verdict},
};

pub(super) use self::plan::{Announcement, Way};
pub use self::plan::{Move, Obstacle};

/// Callers of whom a worker knows that they were moved, at most. One that it has forgotten is looked
/// up once more.
const KNOWN: usize = 100_000;

/// Receipts of mirrored charges that a worker keeps, at most.
const RECEIPTS: usize = 10_000;

/// What a worker keeps of a counter that was given back before the next store answered, at most.
const EARLY: usize = 64;

/// The store that does not decide about a caller, and is charged all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Watcher {
    /// The present one: the caller is moved, and other proxies decide by it.
    Current,
    /// The next one: the caller is mirrored.
    Next,
}

/// What a worker knows about callers in the next store.
#[derive(Debug)]
pub(super) struct Moved {
    /// Counters that were carried over since the plan was last changed.
    carried: Recent<u128, ()>,
    changes: u32,
    /// What the store that is asked too has taken, by what the one that decides has.
    receipts: Recent<(Watcher, u128, Receipt), Receipt>,
    /// What was given back of charges that the store that is asked too has not answered yet.
    early: Recent<(Watcher, u128), Early>,
}

/// By receipt, how much was given back.
type Early = SmallVec<[(Receipt, u32); 1]>;

impl Default for Moved {
    fn default() -> Self {
        Moved {
            carried: Recent::new(KNOWN),
            changes: 0,
            receipts: Recent::new(RECEIPTS),
            early: Recent::new(RECEIPTS),
        }
    }
}

impl Store {
    /// Which store decides about the counters of an owner.
    pub(super) fn decider(&self, owner: u128) -> DecidedBy {
        match self.way_of(owner) {
            Some(Way::Moved) => DecidedBy::Next,
            Some(Way::Mirrored) | None => DecidedBy::Current,
        }
    }

    pub(super) fn way_of(&self, owner: u128) -> Option<Way> {
        self.next.as_ref().and_then(|_| self.stores.moving.of(owner))
    }

    /// Which store is charged too for the counters of an owner. Nobody else decides by what is in
    /// this process.
    fn watcher(&self, owner: u128) -> Option<Watcher> {
        match self.way_of(owner)? {
            Way::Mirrored => Some(Watcher::Next),
            Way::Moved => (self.current.redis().is_some() && self.stores.moving.charges_both())
                .then_some(Watcher::Current),
        }
    }

    fn watching(&self, watcher: Watcher) -> Option<&Backend> {
        match watcher {
            Watcher::Current => Some(&self.current),
            Watcher::Next => self.next.as_ref(),
        }
    }

    /// Makes sure that the next store counts what the present one does of these counters. Tells of
    /// which it counted less until now.
    ///
    /// # Errors
    /// One of the stores does not answer: nobody gets a fresh window for that.
    pub(super) async fn carry_over(
        &self,
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<SmallVec<[bool; 2]>, Unanswered> {
        self.keep_carried_current();
        let mut carried = SmallVec::new();
        for charge in charges {
            if self.is_carried(charge) {
                carried.push(false);
                continue;
            }
            let state = match &self.current {
                Backend::Memory(memory) => memory.state(charge),
                Backend::Redis(redis) => redis.state(charge, now, deadline).await?,
            };
            // What was given back until now is not in this state.
            self.moved.borrow_mut().early.remove(&(Watcher::Next, charge.key.entry));
            carried.push(match (state, &self.next) {
                (Some(state), Some(Backend::Memory(memory))) => memory.seed(charge, &state, now),
                (Some(state), Some(Backend::Redis(redis))) => {
                    redis.seed(charge, &state, (now, deadline)).await?
                }
                _ => false,
            });
            self.moved.borrow_mut().carried.insert(charge.key.entry, ());
        }
        Ok(carried)
    }

    /// Whether all of these counters are known to be carried over.
    pub(super) fn are_carried(&self, charges: &[Charge<'_>]) -> bool {
        self.keep_carried_current();
        charges.iter().all(|charge| self.is_carried(charge))
    }

    /// Forgets what was carried over when the plan has changed: callers may have gone back meanwhile,
    /// and gone on there.
    fn keep_carried_current(&self) {
        let (changes, mut moved) = (self.stores.moving.changes(), self.moved.borrow_mut());
        if moved.changes != changes {
            (moved.changes, moved.carried) = (changes, Recent::new(KNOWN));
        }
    }

    fn is_carried(&self, charge: &Charge<'_>) -> bool {
        self.moved.borrow().carried.get(&charge.key.entry).is_some()
    }

    /// Asks the store that does not decide about callers too, where it is to know of them, and counts
    /// whether it agrees.
    pub(super) fn mirror(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        decision: &Decision,
        now: Timestamp,
    ) {
        if self.next.is_none() {
            return;
        }
        for watcher in [Watcher::Next, Watcher::Current] {
            let is_mirrored = |(charge, _): &(&Charge<'_>, &Outcome)| {
                self.watcher(charge.key.owner) == Some(watcher)
            };
            let pairs = charges.iter().zip(&decision.outcomes).filter(is_mirrored);
            let (charges, outcomes): (Vec<OwnedCharge>, Vec<Outcome>) =
                pairs.map(|(charge, outcome)| (OwnedCharge::from(charge), *outcome)).unzip();
            if !charges.is_empty() {
                let (store, verdict) = (Rc::clone(self), decision.verdict);
                tokio::task::spawn_local(async move {
                    let charges: Vec<Charge<'_>> =
                        charges.iter().map(OwnedCharge::charge).collect();
                    store.compare(watcher, &charges, (verdict, &outcomes), now).await;
                });
            }
        }
    }

    async fn compare(
        &self,
        watcher: Watcher,
        charges: &[Charge<'_>],
        (verdict, outcomes): (Verdict, &[Outcome]),
        now: Timestamp,
    ) {
        let deadline = Instant::now() + self.stores.settings.deadline;
        let (mut agrees, mut is_answered, mut is_missed) = (true, false, false);
        let decided_by = match watcher {
            Watcher::Current => DecidedBy::Current,
            Watcher::Next => DecidedBy::Next,
        };
        for group in self.groups(charges, |_| decided_by) {
            let (own, theirs) = (group.charges(charges), group.members(outcomes));
            let carried = match watcher {
                // It has what it had.
                Watcher::Current => Ok(own.iter().map(|_| false).collect()),
                Watcher::Next => self.carry_over(&own, (now, deadline)).await,
            };
            let carried = match carried {
                Ok(carried) => carried,
                Err(error) => {
                    tracing::debug!(%error, "a caller could not be mirrored");
                    is_missed = true;
                    continue;
                }
            };
            // What was carried over just now includes this charge, under the same receipt.
            let mut asked = SmallVec::<[(Charge<'_>, &Outcome); 2]>::new();
            for ((charge, theirs), is_carried) in own.iter().zip(theirs).zip(carried) {
                is_answered |= is_carried;
                match (is_carried, theirs.receipt) {
                    (true, Some(receipt)) => {
                        if let Some(cost) = self.pair((watcher, charge), receipt, receipt) {
                            let charge = Charge { cost, ..*charge };
                            self.settle_in(watcher, &charge, Adjustment::GiveBack(receipt), now);
                        }
                    }
                    (true, None) => {}
                    (false, _) => asked.push((*charge, theirs)),
                }
            }
            if asked.is_empty() {
                continue;
            }
            let Some(answer) = self.ask_too(watcher, &asked, (now, deadline)).await else {
                is_missed = true;
                continue;
            };
            is_answered = true;
            for ((charge, theirs), ours) in asked.iter().zip(&answer.outcomes) {
                agrees &= ours.fits() == theirs.fits();
                match (theirs.receipt, ours.receipt) {
                    (Some(theirs), Some(ours)) => {
                        if let Some(cost) = self.pair((watcher, charge), theirs, ours) {
                            let charge = Charge { cost, ..*charge };
                            self.settle_in(watcher, &charge, Adjustment::GiveBack(ours), now);
                        }
                    }
                    // The request was denied for another reason.
                    (None, Some(ours)) if verdict == Verdict::Deny => {
                        self.settle_in(watcher, charge, Adjustment::GiveBack(ours), now);
                    }
                    _ => {}
                }
            }
        }
        if is_answered {
            self.stores.counts.count_mirrored(agrees);
        }
        if is_missed {
            self.stores.counts.count_unmirrored();
        }
    }

    /// What the store that is asked too decides about charges of one place; none if it does not
    /// answer.
    async fn ask_too(
        &self,
        watcher: Watcher,
        asked: &[(Charge<'_>, &Outcome)],
        (now, deadline): (Timestamp, Instant),
    ) -> Option<Decision> {
        let charges: SmallVec<[Charge<'_>; 2]> = asked.iter().map(|(charge, _)| *charge).collect();
        match self.watching(watcher)? {
            Backend::Memory(memory) => memory.charge(&charges, now).ok(),
            Backend::Redis(redis) => match redis.charge(&charges, (now, deadline), None).await {
                Ok(reply) => Some(reply.decision),
                Err(error) => {
                    tracing::debug!(%error, "a decision could not be mirrored");
                    None
                }
            },
        }
    }

    /// Remembers what a charge is known by in both stores. Tells how much of it was given back in the
    /// one that decided before that was known.
    fn pair(
        &self,
        (watcher, charge): (Watcher, &Charge<'_>),
        decided: Receipt,
        asked: Receipt,
    ) -> Option<u32> {
        let (mut moved, entry) = (self.moved.borrow_mut(), charge.key.entry);
        moved.receipts.insert((watcher, entry, decided), asked);
        let early = moved.early.get_mut(&(watcher, entry))?;
        let position = early.iter().position(|(receipt, _)| *receipt == decided)?;
        Some(early.swap_remove(position).1)
    }

    /// Puts right in the store that was asked too what is put right in the one that has decided.
    pub(super) fn settle_mirrored(
        &self,
        (charge, decided_by): (&Charge<'_>, DecidedBy),
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        let watcher = match (self.watcher(charge.key.owner), decided_by) {
            (Some(Watcher::Next), DecidedBy::Current) => Watcher::Next,
            (Some(Watcher::Current), DecidedBy::Next) => Watcher::Current,
            _ => return,
        };
        let name = |receipt| (watcher, charge.key.entry, receipt);
        let ours = |receipt| self.moved.borrow().receipts.get(&name(receipt)).copied();
        let adjustment = match adjustment {
            Adjustment::Take => Adjustment::Take,
            Adjustment::GiveBack(receipt) => match ours(receipt) {
                Some(ours) => Adjustment::GiveBack(ours),
                None => {
                    let mut moved = self.moved.borrow_mut();
                    let early = moved.early.entry((watcher, charge.key.entry));
                    // A store that never answers must not have them pile up.
                    if early.len() < EARLY {
                        early.push((receipt, charge.cost));
                    }
                    return;
                }
            },
            Adjustment::Renew(receipt) => match ours(receipt) {
                Some(ours) => Adjustment::Renew(ours),
                None => return,
            },
        };
        self.settle_in(watcher, charge, adjustment, now);
    }

    fn settle_in(
        &self,
        watcher: Watcher,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        match self.watching(watcher) {
            Some(Backend::Memory(memory)) => {
                memory.settle(charge, adjustment, now);
            }
            Some(Backend::Redis(redis)) => redis.settle(charge, adjustment, now),
            None => {}
        }
    }
}
