//! Gives back what was charged on another counter than the one that has it by now: decided alone
//! and written to the store since, or decided by a store whose callers were moved.
//!
//! A refund of a charge that is still pending makes what is pending less. Any other one is pending
//! itself, and sent after the charges of its counter (`pending`). It is executed at most once, and
//! never gives back more than the receipt allows in the counter that it is sent to.

use std::rc::Rc;

use tollgate_clock::Timestamp;
use tollgate_limit::{AnyState, Charge, DecidedBy, Outcome, Receipt, Standing};

use super::{
    cache::is_lease,
    pending::{PendingCounter, PendingCounters},
    waiting_refunds::{Refund, Refunds},
};
use crate::{Adjustment, Backend, Store, Stores, Unanswered, adjusted, call_time::CallTime};

impl Store {
    /// Whether another store decides about a charge by now than the one that has decided.
    pub(crate) fn is_moved(&self, charge: &Charge<'_>, decided_by: DecidedBy) -> bool {
        let has_stayed = || decided_by == self.decider(charge.key.owner);
        matches!(decided_by, DecidedBy::Current | DecidedBy::Next)
            && !has_stayed()
            && !is_lease(charge)
    }

    /// Whether a charge is corrected in another counter than the one that it was decided by.
    pub fn is_decided_elsewhere(&self, charge: &Charge<'_>, decided_by: DecidedBy) -> bool {
        decided_by == DecidedBy::Local || self.is_moved(charge, decided_by)
    }

    /// Corrects a charge whose counter another store decides by now.
    pub(crate) fn settle_moved(
        &self,
        charge: &Charge<'_>,
        outcome: &Outcome,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        match adjustment {
            Adjustment::GiveBack(receipt) => {
                let from = Some(outcome.decided_by);
                let refund = Refund { receipt, units: charge.cost, from };
                self.queue_refund(&mut self.stores.pending.lock(), charge, refund);
                Some(adjusted(outcome.standing, charge.cost, adjustment))
            }
            // What is pending goes to the store that decides by now.
            Adjustment::Take => self.take_locally(charge, now),
            // Leases stay where they were granted.
            Adjustment::Renew(_) => None,
        }
    }

    /// Gives a charge back that was decided here.
    pub(super) fn give_back_locally(
        &self,
        charge: &Charge<'_>,
        outcome: &Outcome,
        receipt: Receipt,
        now: Timestamp,
    ) -> Option<Standing> {
        let now = self.local_time(now);
        let refund = Refund { receipt, units: charge.cost, from: None };
        let mut counters = self.stores.pending.lock();
        let Some(counter) = counters.get_mut(charge.key.entry) else {
            // The store has it all. What this process still has of the counter follows.
            let quota = &self.share(charge);
            let adjustment = Adjustment::GiveBack(receipt);
            self.stores.local.settle(&Charge { quota, ..*charge }, adjustment, now);
            let receipt = charge.quota.receipt_of_share(receipt, self.instances(), now);
            self.queue_refund(&mut counters, charge, Refund { receipt, ..refund });
            return Some(adjusted(outcome.standing, charge.cost, adjustment));
        };
        // What is being written, the store may have or not.
        counter.unapplied.add(refund);
        if counter.is_due() {
            self.apply_refunds(counter, now);
        }
        self.stores
            .local
            .state(charge)
            .and_then(|state| self.share(charge).standing_of(&state, now))
    }

    /// Gives back of a counter that is not being written: first of what is pending, and the rest in
    /// the store.
    pub(super) fn apply_refunds(&self, counter: &mut PendingCounter, now: Timestamp) {
        for Refund { receipt, units, from } in std::mem::take(&mut counter.unapplied).0 {
            let charge = Charge { cost: units, ..counter.charge.charge() };
            let quota = &self.share(&counter.charge.charge());
            let used = |state: &AnyState| {
                quota.standing_of(state, now).map_or(0, |standing| standing.used)
            };
            let Stores { local, .. } = &*self.stores;
            let before = local.state(&charge);
            let pending =
                before.as_ref().and_then(|it| quota.beyond(it, counter.base.as_ref(), now));
            let pending = pending.as_ref().map_or(0, used);
            local.settle(&Charge { quota, ..charge }, Adjustment::GiveBack(receipt), now);
            let after = local.state(&charge);
            let units = if before == after {
                // This process does not have the charge: the store does.
                units
            } else {
                let [had, has] = [&before, &after].map(|it| it.as_ref().map_or(0, used));
                let given = had.saturating_sub(has);
                if given <= pending {
                    continue;
                }
                counter.base = after;
                given - pending
            };
            let receipt = charge.quota.receipt_of_share(receipt, self.instances(), now);
            counter.refunds.add(Refund { receipt, units, from });
        }
    }

    /// Queues a refund that the store is to make.
    fn queue_refund(&self, counters: &mut PendingCounters, charge: &Charge<'_>, refund: Refund) {
        let to = self.decider(charge.key.owner);
        let base = self.stores.local.state(charge);
        if !self.stores.pending.begin(counters, charge, to, base) {
            return tracing::debug!("too many counters wait for their store: a refund was dropped");
        }
        if let Some(counter) = counters.get_mut(charge.key.entry) {
            counter.refunds.add(refund);
        }
    }

    /// Makes refunds in the store that has the charges. Returns those that were not sent.
    pub(super) async fn send_refunds(
        self: &Rc<Self>,
        charge: &Charge<'_>,
        to: DecidedBy,
        refunds: Refunds,
        time: CallTime,
    ) -> Refunds {
        let mut left = Refunds::default();
        for refund in refunds.0 {
            let charge = Charge { cost: refund.units, ..*charge };
            match self.send_refund(&charge, to, refund, time).await {
                Ok(()) => {}
                Err(reason) if reason.is_undone() => left.add(refund),
                Err(reason) => tracing::debug!(error = %reason, "a refund was lost"),
            }
        }
        left
    }

    /// Makes one refund.
    ///
    /// # Errors
    /// Why the store is not known to have made it.
    async fn send_refund(
        self: &Rc<Self>,
        charge: &Charge<'_>,
        to: DecidedBy,
        refund: Refund,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        let Refund { receipt, units, from } = refund;
        let state = match self.backend(to) {
            // Nothing is changed by a read, so it may be repeated.
            Some(Backend::Redis(redis)) => {
                redis.state(charge, time).await.map_err(|_| Unanswered::Away)?
            }
            Some(Backend::Memory(memory)) => memory.state(charge),
            Some(Backend::Disk(disk)) => {
                disk.thaw_all(std::slice::from_ref(charge), time)
                    .await
                    .map_err(|_| Unanswered::Away)?;
                disk.memory().state(charge)
            }
            None => None,
        };
        let own = state.and_then(|state| charge.quota.receipt_in(&state, receipt, units));
        if let Some(own) = own {
            let adjustment = Adjustment::GiveBack(own);
            match self.backend(to) {
                Some(Backend::Redis(redis)) => {
                    redis.settle_now(charge, adjustment, time).await?;
                    self.settle_cached(charge, adjustment, time.now);
                }
                Some(Backend::Memory(_) | Backend::Disk(_)) | None => {
                    self.settle_at(to, charge, adjustment, time.now);
                }
            }
        }
        // Only now: what was carried over before had the charge.
        if let Some(from) = from.filter(|from| *from != to) {
            self.settle_at(from, charge, Adjustment::GiveBack(receipt), time.now);
        }
        Ok(())
    }
}
