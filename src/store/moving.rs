//! Moves callers from one store to another without giving anybody a fresh window.
//!
//! So many of a hundred callers, always the same, are in the next store. `mirror` only looks: the
//! next store is charged too, and decisions in which it disagrees are counted. `move` is in earnest:
//! the next store decides, and takes a caller's counters over from the present one on its first
//! request.

use std::{
    rc::Rc,
    sync::atomic::{AtomicU16, AtomicU32, Ordering},
};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Adjustment, Backend, Store, Unanswered, recent::Recent};
use crate::{
    clock::Timestamp,
    limit::{Charge, DecidedBy, Decision, Outcome, OwnedCharge, Receipt, Verdict},
    settings::{MoveMode, Moving},
};

/// Callers of whom a worker knows that they were moved, at most. One that it has forgotten is looked
/// up once more.
const KNOWN: usize = 100_000;

/// Receipts of mirrored charges that a worker keeps, at most.
const RECEIPTS: usize = 10_000;

/// What a worker keeps of a counter that was given back before the next store answered, at most.
const EARLY: usize = 64;

/// Who is in the next store. It changes while requests are served.
#[derive(Debug, Default)]
pub struct Move {
    /// How many of a hundred, plus what says in which way: one number, so that nobody reads one
    /// without the other.
    plan: AtomicU16,
    /// How often that was changed.
    changes: AtomicU32,
}

const MIRROR: u16 = 1 << 8;
const MOVE: u16 = 2 << 8;

impl Move {
    /// As the settings say at the start.
    pub fn new(moving: Option<&Moving>) -> Self {
        let plan = Move::default();
        if let Some(moving) = moving {
            plan.set(moving.percent, moving.mode);
        }
        plan
    }

    /// From now on so many of a hundred callers are in the next store, in this way.
    pub fn set(&self, percent: u8, mode: MoveMode) {
        let mode = match mode {
            MoveMode::Mirror => MIRROR,
            MoveMode::Move => MOVE,
        };
        self.plan.store(mode + u16::from(percent), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// How many of a hundred callers are in the next store, and in which way; none if nobody ever
    /// was.
    pub fn plan(&self) -> Option<(u8, MoveMode)> {
        let plan = self.plan.load(Ordering::Relaxed);
        let percent = plan as u8;
        match plan - u16::from(percent) {
            MIRROR => Some((percent, MoveMode::Mirror)),
            MOVE => Some((percent, MoveMode::Move)),
            _ => None,
        }
    }

    /// How an owner is in the next store; none if it is not.
    fn of(&self, owner: u128) -> Option<MoveMode> {
        let (percent, mode) = self.plan()?;
        let percentile = (u64::from((owner >> 16) as u32) * 100) >> 32;
        (percentile < u64::from(percent)).then_some(mode)
    }
}

/// What a worker knows about callers in the next store.
#[derive(Debug)]
pub(super) struct Moved {
    /// Counters that were carried over since the plan was last changed.
    carried: Recent<u128, ()>,
    changes: u32,
    /// What the next store has taken, by what the present one has.
    receipts: Recent<(u128, Receipt), Receipt>,
    /// What was given back of charges that the next store has not answered yet.
    early: Recent<u128, SmallVec<[(Receipt, u32); 1]>>,
}

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
        match self.move_of(owner) {
            Some(MoveMode::Move) => DecidedBy::Next,
            Some(MoveMode::Mirror) | None => DecidedBy::Current,
        }
    }

    pub(super) fn move_of(&self, owner: u128) -> Option<MoveMode> {
        self.next.as_ref().and_then(|_| self.stores.moving.of(owner))
    }

    /// Makes sure that the next store has what the present one had of these counters. Tells which
    /// of them it had nothing of until now.
    ///
    /// # Errors
    /// One of the stores does not answer: nobody gets a fresh window for that.
    pub(super) async fn carry_over(
        &self,
        charges: &[Charge<'_>],
        (now, deadline): (Timestamp, Instant),
    ) -> Result<SmallVec<[bool; 2]>, Unanswered> {
        let changes = self.stores.moving.changes.load(Ordering::Relaxed);
        if self.moved.borrow().changes != changes {
            // Callers may have gone back meanwhile, and gone on there.
            let mut moved = self.moved.borrow_mut();
            (moved.changes, moved.carried) = (changes, Recent::new(KNOWN));
        }
        let mut carried = SmallVec::new();
        for charge in charges {
            if self.is_carried(charge) {
                carried.push(false);
                continue;
            }
            let count = match &self.current {
                Backend::Memory(memory) => memory.count(charge),
                Backend::Redis(redis) => redis.count(charge, now, deadline).await?,
            };
            // What was given back until now is not in this count.
            self.moved.borrow_mut().early.remove(&charge.key.entry);
            carried.push(match (count, &self.next) {
                (Some(count), Some(Backend::Memory(memory))) => memory.seed(charge, &count, now),
                (Some(count), Some(Backend::Redis(redis))) => {
                    redis.seed(charge, &count, (now, deadline)).await?
                }
                _ => false,
            });
            self.moved.borrow_mut().carried.insert(charge.key.entry, ());
        }
        Ok(carried)
    }

    fn is_carried(&self, charge: &Charge<'_>) -> bool {
        self.moved.borrow().carried.get(&charge.key.entry).is_some()
    }

    /// Asks the next store too about the charges of callers that are mirrored there, and counts
    /// whether it agrees.
    pub(super) fn mirror(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        decision: &Decision,
        now: Timestamp,
    ) {
        let is_mirrored = |(charge, _): &(&Charge<'_>, &Outcome)| {
            self.move_of(charge.key.owner) == Some(MoveMode::Mirror)
        };
        let pairs = charges.iter().zip(&decision.outcomes).filter(is_mirrored);
        let (charges, outcomes): (Vec<OwnedCharge>, Vec<Outcome>) =
            pairs.map(|(charge, outcome)| (OwnedCharge::from(charge), *outcome)).unzip();
        if !charges.is_empty() {
            let (store, verdict) = (Rc::clone(self), decision.verdict);
            tokio::task::spawn_local(async move {
                let charges: Vec<Charge<'_>> = charges.iter().map(OwnedCharge::charge).collect();
                store.compare(&charges, (verdict, &outcomes), now).await;
            });
        }
    }

    async fn compare(
        &self,
        charges: &[Charge<'_>],
        (verdict, outcomes): (Verdict, &[Outcome]),
        now: Timestamp,
    ) {
        let deadline = Instant::now() + self.stores.settings.deadline;
        let (mut agrees, mut is_answered, mut is_missed) = (true, false, false);
        for group in self.groups(charges, |_| DecidedBy::Next) {
            let (own, theirs) = (group.charges(charges), group.members(outcomes));
            let carried = match self.carry_over(&own, (now, deadline)).await {
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
                        if let Some(cost) = self.pair(charge, receipt, receipt) {
                            let charge = Charge { cost, ..*charge };
                            self.settle_next(&charge, Adjustment::GiveBack(receipt), now);
                        }
                    }
                    (true, None) => {}
                    (false, _) => asked.push((*charge, theirs)),
                }
            }
            if asked.is_empty() {
                continue;
            }
            let Some(answer) = self.ask_next(&asked, (now, deadline)).await else {
                is_missed = true;
                continue;
            };
            is_answered = true;
            for ((charge, theirs), ours) in asked.iter().zip(&answer.outcomes) {
                agrees &= ours.fits() == theirs.fits();
                match (theirs.receipt, ours.receipt) {
                    (Some(theirs), Some(ours)) => {
                        if let Some(cost) = self.pair(charge, theirs, ours) {
                            let charge = Charge { cost, ..*charge };
                            self.settle_next(&charge, Adjustment::GiveBack(ours), now);
                        }
                    }
                    // The request was denied for another reason.
                    (None, Some(ours)) if verdict == Verdict::Deny => {
                        self.settle_next(charge, Adjustment::GiveBack(ours), now);
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

    /// What the next store decides about charges of one place; none if it does not answer.
    async fn ask_next(
        &self,
        asked: &[(Charge<'_>, &Outcome)],
        (now, deadline): (Timestamp, Instant),
    ) -> Option<Decision> {
        let charges: SmallVec<[Charge<'_>; 2]> = asked.iter().map(|(charge, _)| *charge).collect();
        match self.next.as_ref()? {
            Backend::Memory(memory) => memory.charge(&charges, now).ok(),
            Backend::Redis(redis) => match redis.charge(&charges, now, deadline).await {
                Ok(reply) => Some(reply.decision),
                Err(error) => {
                    tracing::debug!(%error, "a decision could not be mirrored");
                    None
                }
            },
        }
    }

    /// Remembers what a charge is known by in both stores. Tells how much of it was given back in the
    /// present one before that was known.
    fn pair(&self, charge: &Charge<'_>, current: Receipt, next: Receipt) -> Option<u32> {
        let (mut moved, name) = (self.moved.borrow_mut(), (charge.key.entry, current));
        moved.receipts.insert(name, next);
        let early = moved.early.get_mut(&charge.key.entry)?;
        let position = early.iter().position(|(receipt, _)| *receipt == current)?;
        Some(early.swap_remove(position).1)
    }

    /// Puts right in the next store what is put right in the present one.
    pub(super) fn settle_mirrored(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) {
        if self.move_of(charge.key.owner) != Some(MoveMode::Mirror) {
            return;
        }
        let name = |receipt| (charge.key.entry, receipt);
        let ours = |receipt| self.moved.borrow().receipts.get(&name(receipt)).copied();
        let adjustment = match adjustment {
            Adjustment::Take => Adjustment::Take,
            Adjustment::GiveBack(receipt) => match ours(receipt) {
                Some(ours) => Adjustment::GiveBack(ours),
                None => {
                    let mut moved = self.moved.borrow_mut();
                    let early = moved.early.entry(charge.key.entry);
                    // A next store that never answers must not have them pile up.
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
        self.settle_next(charge, adjustment, now);
    }

    fn settle_next(&self, charge: &Charge<'_>, adjustment: Adjustment, now: Timestamp) {
        match &self.next {
            Some(Backend::Memory(memory)) => {
                memory.settle(charge, adjustment, now);
            }
            Some(Backend::Redis(redis)) => redis.settle(charge, adjustment, now),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_callers_is_what_the_settings_say_and_always_the_same() {
        let plan = Move::default();
        plan.set(10, MoveMode::Move);
        let hasher = crate::limit::KeyHasher::new([7; 16]);
        let owner = |number: u32| hasher.hash([(b'u', number.to_le_bytes().as_slice())]);
        let is_moved = |number: &u32| plan.of(owner(*number)) == Some(MoveMode::Move);
        let tenth: Vec<u32> = (0..100_000).filter(is_moved).collect();
        assert!((9_500..10_500).contains(&tenth.len()), "{}", tenth.len());

        plan.set(20, MoveMode::Move);
        assert!(tenth.iter().all(is_moved), "who was moved stays moved");
        plan.set(100, MoveMode::Mirror);
        assert!((0..1000).all(|number| plan.of(owner(number)) == Some(MoveMode::Mirror)));
        plan.set(0, MoveMode::Move);
        assert!((0..1000).all(|number| plan.of(owner(number)).is_none()));
    }
}
