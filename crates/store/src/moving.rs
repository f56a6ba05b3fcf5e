//! Moves callers from one store to another without granting any of them a fresh window.
//!
//! A percentage of callers, always the same ones, is in the next store. In mode `mirror` the next
//! store is charged too (`mirror`), and its differing decisions are counted. In mode `move` the
//! next store decides, and takes over a caller's counters from the current store on the caller's
//! first request. As long as another proxy lets the current store decide, that store is charged
//! too.

mod mirror;
mod plan;

use smallvec::SmallVec;
use tollgate_limit::{AnyState, Charge, DecidedBy, Receipt};

use self::mirror::Mirror;
use super::{
    Backend, Store, Unanswered,
    call_time::CallTime,
    recent::Recent,
    redis::{CopiedState, Seeding},
};

pub(super) use self::plan::{Announcement, MoveState};
pub use self::plan::{Move, Obstacle};

/// The most counters that a worker remembers as carried over. A counter that it has forgotten is
/// carried over again.
const MAX_CARRIED: usize = 100_000;

/// Most receipts of mirrored charges that a worker keeps.
const MAX_RECEIPTS: usize = 10_000;

/// What a worker knows about callers in the next store.
#[derive(Debug, Default)]
pub(super) struct MoveRecords {
    /// Counters that were carried over since the plan was last changed.
    carried: Recent<u128, (), MAX_CARRIED>,
    changes: u32,
    /// The mirror's receipt of each charge, by the receipt of the store that decided.
    receipts: Recent<(Mirror, u128, Receipt), Receipt, MAX_RECEIPTS>,
    /// Refunds of charges to which the mirror has not replied yet.
    early: Recent<(Mirror, u128), EarlyRefunds, MAX_RECEIPTS>,
}

/// How many units were given back, by receipt.
type EarlyRefunds = SmallVec<[(Receipt, u32); 1]>;

impl Store {
    /// Which store decides about the counters of an owner.
    pub(super) fn decider(&self, owner: u128) -> DecidedBy {
        match self.move_state(owner) {
            Some(MoveState::Moved) => DecidedBy::Next,
            Some(MoveState::Mirrored) | None => DecidedBy::Current,
        }
    }

    pub(super) fn move_state(&self, owner: u128) -> Option<MoveState> {
        self.next.as_ref().and_then(|_| self.stores.moving.state_of(owner))
    }

    /// Makes sure that the next store counts what the current one counts. Reports for each counter
    /// whether the next store had counted less.
    ///
    /// # Errors
    /// One of the stores does not answer. The caller is not decided then, because the next store
    /// could grant it a fresh window.
    pub(super) async fn carry_over(
        &self,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<SmallVec<[bool; 2]>, Unanswered> {
        self.reset_carried_if_plan_changed();
        let mut carried = SmallVec::new();
        for charge in charges {
            if self.is_carried(charge) {
                carried.push(false);
                continue;
            }
            let mut seeding = self.carry(charge, time).await?;
            if seeding == Seeding::Refused {
                // This process may not have heard of the reset yet.
                self.read_resets(time.deadline).await;
                seeding = self.carry(charge, time).await?;
            }
            carried.push(seeding == Seeding::More);
            self.move_records.borrow_mut().carried.insert(charge.key.entry, ());
        }
        Ok(carried)
    }

    /// Makes sure that the next store counts what the current one counts of a counter.
    ///
    /// # Errors
    /// One of the stores does not answer.
    async fn carry(&self, charge: &Charge<'_>, time: CallTime) -> Result<Seeding, Unanswered> {
        // The read comes first: what is awaited before it gives this request's own mirrored charge
        // the time to be counted there as well.
        let resets = &self.stores.resets;
        let entry = charge.key.entry;
        let (generation, mut reset) = (resets.generation(), resets.latest(entry));
        let mut state = self.current_state(charge, time).await?;
        self.learn_resets(time.deadline).await;
        if generation != resets.generation() {
            reset = resets.latest(entry);
            state = self.current_state(charge, time).await?;
        }
        // This state is already without the units that were given back until now.
        self.move_records.borrow_mut().early.remove(&(Mirror::Next, entry));
        let is_more = match (&state, &self.next) {
            (Some(state), Some(Backend::Memory(memory))) => memory.seed(charge, state, time.now),
            (Some(state), Some(Backend::Disk(disk))) => {
                disk.thaw_all(std::slice::from_ref(charge), time).await?;
                disk.memory().seed(charge, state, time.now)
            }
            (Some(state), Some(Backend::Redis(redis))) => {
                return redis.seed(charge, CopiedState { state, reset }, time).await;
            }
            (Some(_), None) | (None, _) => false,
        };
        Ok(if is_more { Seeding::More } else { Seeding::Equal })
    }

    /// What a counter holds in the current store, and still does if it was reset while that was
    /// read.
    async fn current_state(
        &self,
        charge: &Charge<'_>,
        time: CallTime,
    ) -> Result<Option<AnyState>, Unanswered> {
        let redis = match &self.current {
            Backend::Memory(memory) => return Ok(memory.state(charge)),
            Backend::Disk(disk) => {
                disk.thaw_all(std::slice::from_ref(charge), time).await?;
                return Ok(disk.memory().state(charge));
            }
            Backend::Redis(redis) => redis,
        };
        loop {
            let generation = self.stores.resets.generation();
            let state = redis.state(charge, time).await?;
            if generation == self.stores.resets.generation() {
                return Ok(state);
            }
        }
    }

    /// Whether all of these counters are known to be carried over.
    pub(super) fn are_carried(&self, charges: &[Charge<'_>]) -> bool {
        self.reset_carried_if_plan_changed();
        charges.iter().all(|charge| self.is_carried(charge))
    }

    /// After a change of the plan, counters are carried over again: their callers may have been
    /// back in the current store meanwhile, and used it.
    fn reset_carried_if_plan_changed(&self) {
        let changes = self.stores.moving.changes();
        let mut records = self.move_records.borrow_mut();
        if records.changes != changes {
            records.changes = changes;
            records.carried = Recent::default();
        }
    }

    fn is_carried(&self, charge: &Charge<'_>) -> bool {
        self.move_records.borrow().carried.get(&charge.key.entry).is_some()
    }
}
