//! What one of several groups took, until it is known whether all did.

use std::rc::Rc;

use smallvec::SmallVec;

use super::Group;
use crate::{
    clock::Timestamp,
    limit::{Charge, Decision, Verdict},
    store::{Adjustment, Store, adjusted},
};

/// The decision about a group. If this is dropped before it is known that all groups were taken,
/// because another one is closed or the client has gone, what it took is given back.
pub(super) struct Taken<'t, 'c> {
    store: &'t Rc<Store>,
    pub(super) group: Group,
    charges: SmallVec<[Charge<'c>; 2]>,
    decision: Decision,
    now: Timestamp,
}

impl<'t, 'c> Taken<'t, 'c> {
    /// What was decided about the charges of a group that were asked for at `now`.
    pub(super) fn new(
        store: &'t Rc<Store>,
        (group, charges): (Group, SmallVec<[Charge<'c>; 2]>),
        decision: Decision,
        now: Timestamp,
    ) -> Self {
        Taken { store, group, charges, decision, now }
    }

    /// Whether this group denies.
    pub(super) fn is_denied(&self) -> bool {
        self.decision.verdict == Verdict::Deny
    }

    /// The decision, now that it is known whether the request is denied, by this group or another:
    /// then nothing stays taken.
    pub(super) fn finish(&mut self, is_denied: bool) -> Decision {
        if is_denied {
            self.give_back();
        }
        let outcomes = std::mem::take(&mut self.decision.outcomes);
        let Decision { verdict, now, .. } = self.decision;
        Decision { verdict, outcomes, now }
    }

    fn give_back(&mut self) {
        for (charge, outcome) in self.charges.iter().zip(&mut self.decision.outcomes) {
            if let Some(receipt) = outcome.receipt {
                let adjustment = Adjustment::GiveBack(receipt);
                // A request is mirrored once all of it is decided.
                self.store.settle_unmirrored((charge, outcome), adjustment, self.now);
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
