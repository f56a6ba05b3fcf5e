//! Leases that the requests of one worker hold on limits of requests in flight: ended with their
//! response, and renewed until then.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};

use smallvec::SmallVec;
use tollgate_clock::{Clock, Timestamp};
use tollgate_limit::{Charge, Outcome, OwnedCharge, Receipt};

use super::{Adjustment, Store};

/// A lease that a store has granted.
pub struct GrantedLease<'g> {
    /// The charge that it was granted for.
    pub charge: &'g Charge<'g>,
    /// What the store decided.
    pub outcome: &'g Outcome,
    /// The proof of it.
    pub receipt: Receipt,
    /// How long it is good without being renewed.
    pub duration: Duration,
}

/// The leases that a worker holds, by number.
pub struct LeaseBook {
    store: Rc<Store>,
    clock: Clock,
    held: RefCell<HashMap<u64, Lease>>,
    next: Cell<u64>,
}

struct Lease {
    charge: OwnedCharge,
    outcome: Outcome,
    receipt: Receipt,
    duration: Duration,
    renewed: Timestamp,
}

/// A request's leases. They end when this is dropped: at the end of the response, when the client
/// goes away, or when handling the request panics.
pub struct HeldLeases {
    book: Rc<LeaseBook>,
    numbers: SmallVec<[u64; 2]>,
}

impl LeaseBook {
    /// No leases yet.
    pub fn new(store: Rc<Store>, clock: Clock) -> Rc<LeaseBook> {
        Rc::new(LeaseBook { store, clock, held: RefCell::default(), next: Cell::new(0) })
    }

    /// Holds the leases that a request was granted; none if it was granted none.
    pub fn hold<'g>(
        self: &Rc<Self>,
        granted: impl Iterator<Item = GrantedLease<'g>>,
        now: Timestamp,
    ) -> Option<HeldLeases> {
        let mut numbers = SmallVec::new();
        for GrantedLease { charge, outcome, receipt, duration } in granted {
            let number = self.next.get();
            self.next.set(number + 1);
            let charge = charge.into();
            let lease = Lease { charge, outcome: *outcome, receipt, duration, renewed: now };
            self.held.borrow_mut().insert(number, lease);
            numbers.push(number);
        }
        (!numbers.is_empty()).then(|| HeldLeases { book: Rc::clone(self), numbers })
    }

    /// Ends all leases, of requests that do not end by themselves.
    pub fn end_all(&self) {
        for lease in self.held.take().into_values() {
            self.end(&lease);
        }
    }

    fn end(&self, lease: &Lease) {
        let end = Adjustment::GiveBack(lease.receipt);
        self.store.settle(&lease.charge.charge(), &lease.outcome, end, self.clock.now());
    }

    /// Renews each lease that was held for a third of its time. Called often.
    pub fn renew(&self, now: Timestamp) {
        for lease in self.held.borrow_mut().values_mut() {
            if now.saturating_since(lease.renewed) >= lease.duration / 3 {
                lease.renewed = now;
                let renewal = Adjustment::Renew(lease.receipt);
                self.store.settle(&lease.charge.charge(), &lease.outcome, renewal, now);
            }
        }
    }
}

impl Drop for HeldLeases {
    fn drop(&mut self) {
        for number in &self.numbers {
            let lease = self.book.held.borrow_mut().remove(number);
            if let Some(lease) = lease {
                self.book.end(&lease);
            }
        }
    }
}
