//! The charges that one of several groups took, until it is known whether all groups did.

use std::rc::Rc;

use smallvec::SmallVec;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Decision, Verdict};

use super::ChargeGroup;
use crate::{Adjustment, Store, adjusted};

/// The decision about a group. If this is dropped before it is known that all groups fit, because
/// another one fails closed or the client has gone, what it took is given back.
pub(super) struct Reservation<'t, 'c> {
    pub(super) store: &'t Rc<Store>,
    pub(super) group: ChargeGroup,
    pub(super) charges: SmallVec<[Charge<'c>; 2]>,
    pub(super) decision: Decision,
    pub(super) now: Timestamp,
}

impl Reservation<'_, '_> {
    /// Whether this group denies.
    pub(super) fn is_denied(&self) -> bool {
        self.decision.verdict == Verdict::Deny
    }

    /// The final decision. If this group or another one denies, its charges are given back.
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
                // A request is mirrored only after all of it is decided.
                self.store.settle_decided(charge, outcome, adjustment, self.now);
                outcome.standing = adjusted(outcome.standing, charge.cost, adjustment);
                outcome.receipt = None;
            }
        }
    }
}

impl Drop for Reservation<'_, '_> {
    fn drop(&mut self) {
        self.give_back();
    }
}
