//! Leases that this worker's requests hold: ended with their response, and renewed until then.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};

use smallvec::SmallVec;

use super::tally::Tally;
use crate::{
    clock::{Clock, Timestamp},
    limit::{Outcome, OwnedCharge, Receipt},
    store::{Adjustment, Store},
};

/// What is held, by number.
pub(super) struct LeaseBook {
    store: Rc<Store>,
    clock: Clock,
    held: RefCell<HashMap<u64, Held>>,
    next: Cell<u64>,
}

struct Held {
    charge: OwnedCharge,
    outcome: Outcome,
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
    pub(super) fn new(store: Rc<Store>, clock: Clock) -> Rc<LeaseBook> {
        Rc::new(LeaseBook { store, clock, held: RefCell::default(), next: Cell::new(0) })
    }

    /// Holds what was granted to a request; none if nothing was.
    pub(super) fn hold(self: &Rc<Self>, tally: &Tally<'_>, now: Timestamp) -> Option<HeldLeases> {
        let mut numbers = SmallVec::new();
        for (item, receipt, lease) in tally.granted() {
            let number = self.next.get();
            self.next.set(number + 1);
            let (charge, outcome) = (item.charge.into(), *item.outcome);
            let held = Held { charge, outcome, receipt, lease, renewed: now };
            self.held.borrow_mut().insert(number, held);
            numbers.push(number);
        }
        (!numbers.is_empty()).then(|| HeldLeases { book: Rc::clone(self), numbers })
    }

    /// Ends all that is held, by requests that will not end by themselves.
    pub(super) fn end_all(&self) {
        for held in self.held.take().into_values() {
            self.end(&held);
        }
    }

    fn end(&self, held: &Held) {
        let end = Adjustment::GiveBack(held.receipt);
        self.store.settle(&held.charge.charge(), &held.outcome, end, self.clock.now());
    }

    /// Renews what has been held for a third of its time. Called often.
    pub(super) fn renew(&self, now: Timestamp) {
        for held in self.held.borrow_mut().values_mut() {
            if now.saturating_since(held.renewed) >= held.lease / 3 {
                held.renewed = now;
                let renewal = Adjustment::Renew(held.receipt);
                self.store.settle(&held.charge.charge(), &held.outcome, renewal, now);
            }
        }
    }
}

impl Drop for HeldLeases {
    fn drop(&mut self) {
        for number in &self.numbers {
            let held = self.book.held.borrow_mut().remove(number);
            if let Some(held) = held {
                self.book.end(&held);
            }
        }
    }
}
