//! Leases that this worker's requests hold: ended with their response, and renewed until then.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use smallvec::SmallVec;

use super::{Shared, tally::Tally};
use crate::{
    clock::Timestamp,
    limit::{Charge, Key, Quota, Receipt, Stance, Timing},
    store::Adjustment,
};

/// What is held, by number.
pub(super) struct LeaseBook {
    shared: Arc<Shared>,
    held: RefCell<HashMap<u64, Held>>,
    next: Cell<u64>,
}

struct Held {
    key: Key,
    quota: Quota,
    receipt: Receipt,
    lease: Duration,
    renewed: Timestamp,
}

/// A request's leases, until it is dropped: with the end of the response, when the client goes away,
/// when handling the request panics.
pub struct HeldLeases {
    book: Rc<LeaseBook>,
    numbers: SmallVec<[u64; 2]>,
}

impl LeaseBook {
    pub(super) fn new(shared: Arc<Shared>) -> Rc<LeaseBook> {
        Rc::new(LeaseBook { shared, held: RefCell::default(), next: Cell::new(0) })
    }

    /// Holds what was granted to a request; none if nothing was.
    pub(super) fn hold(self: &Rc<Self>, tally: &Tally<'_>, now: Timestamp) -> Option<HeldLeases> {
        let mut numbers = SmallVec::new();
        for (charge, receipt, lease) in tally.granted() {
            let number = self.next.get();
            self.next.set(number + 1);
            let (key, quota) = (charge.key, charge.quota.clone());
            let held = Held { key, quota, receipt, lease, renewed: now };
            self.held.borrow_mut().insert(number, held);
            numbers.push(number);
        }
        (!numbers.is_empty()).then(|| HeldLeases { book: Rc::clone(self), numbers })
    }

    /// Renews what has been held for a third of its time. Called often.
    pub(super) fn renew(&self, now: Timestamp) {
        for held in self.held.borrow_mut().values_mut() {
            if now.saturating_since(held.renewed) >= held.lease / 3 {
                held.renewed = now;
                let renewal = Adjustment::Renew(held.receipt);
                self.shared.store.settle(&held.charge(), renewal, now);
            }
        }
    }
}

impl Held {
    fn charge(&self) -> Charge<'_> {
        let (stance, timing) = (Stance::Enforce, Timing::Now);
        Charge { key: self.key, quota: &self.quota, cost: 1, stance, timing }
    }
}

impl Drop for HeldLeases {
    fn drop(&mut self) {
        let shared = &self.book.shared;
        for number in &self.numbers {
            if let Some(held) = self.book.held.borrow_mut().remove(number) {
                let end = Adjustment::GiveBack(held.receipt);
                shared.store.settle(&held.charge(), end, shared.clock.now());
            }
        }
    }
}
