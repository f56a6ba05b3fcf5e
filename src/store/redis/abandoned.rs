//! Charges whose reply nobody waits for any more: because it came too late, or the client has gone.
//! The request was decided otherwise, so whatever a server takes for it is given back.

use std::rc::{Rc, Weak};

use redis::Value;

use super::{Adjustment, RedisStore, batch::Orphan, node::CallError, script};
use crate::{
    limit::{Charge, OwnedCharge},
    store::Unanswered,
};

/// Charges that were sent, until their reply is there. If this is dropped before, they are given back
/// as soon as a reply says that they were taken.
pub(super) struct Pending<'p, 'c> {
    store: &'p Rc<RedisStore>,
    charges: &'p [Charge<'c>],
    orphan: Rc<Orphan>,
    is_known: bool,
}

impl<'p, 'c> Pending<'p, 'c> {
    /// Of nothing that was sent yet.
    pub(super) fn new(store: &'p Rc<RedisStore>, charges: &'p [Charge<'c>]) -> Self {
        Pending { store, charges, orphan: Rc::default(), is_known: false }
    }

    /// What becomes of a late reply: nothing for as long as somebody waits.
    pub(super) fn orphan(&self) -> &Rc<Orphan> {
        &self.orphan
    }

    /// What came of them.
    pub(super) fn finish(mut self, reply: Result<Value, Unanswered>) -> Result<Value, Unanswered> {
        // Only after silence may there still be a reply.
        self.is_known = reply != Err(Unanswered::Timeout);
        if reply == Err(Unanswered::Lost) {
            self.store.counts.count_unknown(self.charges.len());
        }
        reply
    }
}

impl Drop for Pending<'_, '_> {
    fn drop(&mut self) {
        if !self.is_known {
            let charges: Vec<OwnedCharge> = self.charges.iter().map(OwnedCharge::from).collect();
            let store = Rc::downgrade(self.store);
            self.orphan.adopt(move |result| give_back(&store, &charges, result));
        }
    }
}

/// Gives back what a late reply says was taken. Charges whose reply is lost may have been taken, and
/// stay: what is given back without having been taken would be a gift.
fn give_back(store: &Weak<RedisStore>, charges: &[OwnedCharge], result: Result<Value, CallError>) {
    let Some(store) = store.upgrade() else { return };
    let charges: Vec<Charge<'_>> = charges.iter().map(OwnedCharge::charge).collect();
    let reply = match result {
        Ok(value) => script::read(&charges, &value),
        Err(CallError::Lost) => return store.counts.count_unknown(charges.len()),
        // It was not executed.
        Err(_) => return,
    };
    let Ok(script::Reply { decision, .. }) = reply else { return };
    for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
        if let Some(receipt) = outcome.receipt {
            store.settle(charge, Adjustment::GiveBack(receipt), decision.now);
        }
    }
}
