//! Counters that are on disk come into memory before they are charged.
//!
//! The worker goes on with other requests meanwhile. If a counter cannot be read in time, its limit
//! does as its `on_store_error` says: a counter that cannot be read must not count as a new one.

use std::{rc::Rc, sync::Arc};

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Fallback, OwnedCharge, Stance, Standing};

use super::groups::unknown;
use crate::{
    Adjustment, DiskStore, Store, StoreError, Unanswered,
    call_time::CallTime,
    memory::{Cold, NotCharged, ThawOutcome, bare_key, is_kept},
    undecided::undecided,
};

/// How often a counter is read again whose shard has lost others in the meantime.
const MAX_READS: usize = 8;

impl Store {
    /// Takes all `charges` or none, in memory, as soon as their counters are there.
    pub(crate) async fn charge_thawed(
        self: &Rc<Self>,
        store: &Arc<DiskStore>,
        charges: &[Charge<'_>],
        decider: DecidedBy,
        time: CallTime,
    ) -> Result<Decision, StoreError> {
        let disk = store.disk();
        if disk.is_failing() {
            return self.charge_unwritten(store, charges, decider, time).await;
        }
        let decision = match store.charge_when_resident(charges, time).await {
            Ok(decision) => decision,
            Err(StoreError::Unanswered(reason)) => {
                self.stores.counts.count_unanswered(reason);
                return self.fall_back(charges, decider, reason, time.now);
            }
            Err(error @ StoreError::NoRoom(_)) => return Err(error),
        };
        self.count_left_out(&decision);
        let is_taken = decision.outcomes.iter().any(|outcome| outcome.receipt.is_some());
        if is_taken && disk.writes_before_answers() && !disk.written(time.deadline).await {
            return self.answer_unwritten(store, charges, decision, time.now);
        }
        Ok(decision)
    }

    /// Decides while nothing can be written to disk: a counter that is in memory still counts, but
    /// would be lost with the process. Each limit does as its `on_store_error` says.
    async fn charge_unwritten(
        self: &Rc<Self>,
        store: &DiskStore,
        charges: &[Charge<'_>],
        decider: DecidedBy,
        time: CallTime,
    ) -> Result<Decision, StoreError> {
        let reason = Unanswered::DiskWrite;
        self.stores.counts.count_unanswered(reason);
        if charges.iter().any(fails_closed) {
            return Err(reason.into());
        }
        let is_open =
            |charge: &Charge<'_>| is_kept(charge.quota) && charge.fallback == Fallback::Open;
        let counted: SmallVec<[Charge<'_>; 2]> =
            charges.iter().filter(|charge| !is_open(charge)).copied().collect();
        if counted.is_empty() {
            return Ok(unknown(charges, time.now));
        }
        if store.thaw_all(&counted, time).await.is_err() {
            return self.fall_back(charges, decider, reason, time.now);
        }
        let decided = match store.charge(&counted, time.now) {
            Ok(decided) => decided,
            Err(NotCharged::NoRoom(reason)) => return Err(reason.into()),
            Err(NotCharged::Cold | NotCharged::Crowded) => {
                return self.fall_back(charges, decider, reason, time.now);
            }
        };
        let mut own = decided.outcomes.iter();
        let outcomes = charges
            .iter()
            .map(|charge| {
                let own = (!is_open(charge)).then(|| own.next()).flatten();
                own.copied().unwrap_or_else(|| undecided(charge, time.now))
            })
            .collect();
        Ok(Decision { outcomes, ..decided })
    }

    /// What is answered if charges were taken in memory, and were to be on disk before the answer
    /// and are not: they stand, unless a limit is closed then.
    fn answer_unwritten(
        self: &Rc<Self>,
        store: &Arc<DiskStore>,
        charges: &[Charge<'_>],
        decision: Decision,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        if !charges.iter().any(fails_closed) {
            return Ok(decision);
        }
        for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
            if let Some(receipt) = outcome.receipt {
                self.settle_on_disk(store, charge, Adjustment::GiveBack(receipt), now);
            }
        }
        self.stores.counts.count_unanswered(Unanswered::DiskWrite);
        Err(Unanswered::DiskWrite.into())
    }

    /// Corrects a charge, later if its counter has left memory since. Returns the new standing of
    /// its limit; none if it is not known yet, or the counter is gone.
    pub(crate) fn settle_on_disk(
        self: &Rc<Self>,
        disk: &Arc<DiskStore>,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        if let Ok(standing) = disk.settle(charge, adjustment, now) {
            return standing;
        }
        let store = Rc::clone(self);
        let disk = Arc::clone(disk);
        let charge = OwnedCharge::from(charge);
        self.thawing.set(self.thawing.get() + 1);
        tokio::task::spawn_local(async move {
            let deadline = Instant::now() + store.background_timeout();
            let time = CallTime { now, deadline };
            let settled = disk.settle_when_resident(&charge.charge(), adjustment, time).await;
            if let Err(error) = settled {
                tracing::debug!(%error, "a charge on disk was not corrected");
            }
            store.thawing.set(store.thawing.get().saturating_sub(1));
        });
        None
    }
}

impl DiskStore {
    /// Takes all `charges` or none, as soon as their counters are in memory.
    ///
    /// # Errors
    /// There is no room for a counter, or it cannot be read in time; nothing was taken then.
    pub(crate) async fn charge_when_resident(
        &self,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<Decision, StoreError> {
        loop {
            // Before the try: what is evicted after it must be noticed.
            let room = self.disk().room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.charge(charges, time.now) {
                Ok(decision) => return Ok(decision),
                Err(NotCharged::NoRoom(reason)) => return Err(reason.into()),
                Err(NotCharged::Cold) => self.thaw_all(charges, time).await?,
                Err(NotCharged::Crowded) => {
                    self.disk().ask_for_flush();
                    if timeout_at(time.deadline, room).await.is_err() {
                        return Err(Unanswered::MemoryFull.into());
                    }
                }
            }
        }
    }

    /// How the limits of `charges` stand, as soon as their counters are in memory.
    ///
    /// # Errors
    /// One of them cannot be read in time.
    pub(crate) async fn peek_when_resident(
        &self,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<Decision, Unanswered> {
        loop {
            match self.peek(charges, time.now) {
                Ok(decision) => return Ok(decision),
                Err(Cold) => self.thaw_all(charges, time).await?,
            }
        }
    }

    async fn settle_when_resident(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        // The counter may be evicted again between the two steps.
        while let Err(Cold) = self.settle(charge, adjustment, time.now) {
            self.thaw_all(std::slice::from_ref(charge), time).await?;
        }
        Ok(())
    }

    /// Brings the counters of these charges into memory that may be on disk.
    ///
    /// # Errors
    /// One of them cannot be read in time.
    pub(crate) async fn thaw_all(
        &self,
        charges: &[Charge<'_>],
        time: CallTime,
    ) -> Result<(), Unanswered> {
        for charge in self.cold(charges) {
            let mut reads = 0;
            loop {
                let evictions = self.evictions(charge);
                let key = bare_key(charge.key.entry);
                let record = self.disk().read(key, time.deadline).await?;
                let thawed = self.thaw(charge, record.as_ref(), evictions, time.now);
                reads += 1;
                if thawed == ThawOutcome::Resident {
                    break;
                }
                if reads == MAX_READS {
                    return Err(Unanswered::Busy);
                }
            }
        }
        Ok(())
    }
}

/// Whether a charge denies its request while its counter cannot be written.
fn fails_closed(charge: &Charge<'_>) -> bool {
    is_kept(charge.quota) && charge.stance == Stance::Enforce && charge.fallback == Fallback::Closed
}
