//! Charges whose reply came too late or whose client has gone. The request was decided without
//! them, so what a server took for it is given back.

use std::rc::{Rc, Weak};

use redis::Value;
use tollgate_limit::{Charge, OwnedCharge};

use super::{Adjustment, RedisStore, call::CallError, call::LateReply, script};
use crate::Unanswered;

/// Charges that were sent. If this is dropped before their reply, they are given back as soon as a
/// reply says that they were taken.
pub(super) struct SentCharges<'p, 'c> {
    store: &'p Rc<RedisStore>,
    charges: &'p [Charge<'c>],
    pub(super) late_reply: Rc<LateReply>,
    is_known: bool,
}

impl<'p, 'c> SentCharges<'p, 'c> {
    /// Begins with charges that are not sent yet.
    pub(super) fn new(store: &'p Rc<RedisStore>, charges: &'p [Charge<'c>]) -> Self {
        SentCharges { store, charges, late_reply: Rc::default(), is_known: false }
    }

    /// Records the outcome of the call.
    pub(super) fn finish(mut self, reply: Result<Value, Unanswered>) -> Result<Value, Unanswered> {
        // Only after a timeout may the reply still come.
        self.is_known = !matches!(reply, Err(Unanswered::Timeout));
        if let Err(Unanswered::Lost) = reply {
            self.store.counts.unknown.add(self.charges.len());
        }
        reply
    }
}

impl Drop for SentCharges<'_, '_> {
    fn drop(&mut self) {
        if !self.is_known {
            let charges: Vec<OwnedCharge> = self.charges.iter().map(OwnedCharge::from).collect();
            let store = Rc::downgrade(self.store);
            self.late_reply.on_reply(move |result| give_back(&store, &charges, result));
        }
    }
}

/// Gives back what a late reply says was taken. Charges whose reply was lost may have been taken,
/// and are not given back: if they were not taken, that would grant more than the limit.
fn give_back(store: &Weak<RedisStore>, charges: &[OwnedCharge], result: Result<Value, CallError>) {
    let Some(store) = store.upgrade() else { return };
    let charges: Vec<Charge<'_>> = charges.iter().map(OwnedCharge::charge).collect();
    let reply = match result {
        Ok(value) => script::read(&charges, &value),
        Err(CallError::Lost) => return store.counts.unknown.add(charges.len()),
        // The call was not executed.
        Err(_) => return,
    };
    let Ok(script::Reply { decision, .. }) = reply else { return };
    for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
        if let Some(receipt) = outcome.receipt {
            store.settle(charge, Adjustment::GiveBack(receipt), decision.now);
        }
    }
}
