//! Charges that are corrected after the head of the response has left.

use std::{rc::Rc, sync::Arc};

use tollgate_limit::Charge;
use tollgate_store::Store;

use super::{Shared, awaited_cost::AwaitedCost, counting::count_adjustment, tally::adjustment};

/// Corrects charges, each once.
pub(super) struct LateCharges {
    shared: Arc<Shared>,
    store: Rc<Store>,
}

impl LateCharges {
    /// Of one worker.
    pub(super) fn new(shared: Arc<Shared>, store: Rc<Store>) -> Rc<LateCharges> {
        Rc::new(LateCharges { shared, store })
    }

    /// What all workers share.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Charges what a request has cost in the end.
    pub(super) fn charge(&self, awaited: &AwaitedCost, cost: u32) {
        let now = self.shared.clock.now();
        let charge = awaited.charge.charge();
        let outcome = &awaited.outcome;
        if let Some(counters) = &awaited.counters {
            counters.settle(charge.cost, cost);
        }
        if let Some((adjustment, cost)) = adjustment(charge.cost, cost, outcome.receipt) {
            let settling = Charge { cost, ..charge };
            if let Some(counters) = &awaited.counters {
                count_adjustment(counters, adjustment, cost);
            }
            if let Some(late) = &awaited.late {
                late.note(adjustment, cost, now);
            }
            self.store.settle(&settling, outcome, adjustment, now);
        }
    }

    /// Remembers what a response has told.
    pub(super) fn remember(&self, awaited: &AwaitedCost, cost: u32) {
        self.shared.recent_costs.note(awaited.place, cost, self.shared.clock.now());
    }
}
