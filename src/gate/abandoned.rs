//! Requests whose client has gone before their response's head, which alone tells what they cost.
//!
//! Hanging up must not make a request cheaper than waiting for it. So the exchange with the upstream
//! goes on without its client, in a task of its own, until the head is there; then the cost is
//! charged, and the rest of the response is not read. Where no head comes, or too many are waited
//! for already, the limit's `abandoned` is charged: what the policy says, else the dearest of late.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

use super::{
    HeldLeases, Shared,
    dearest::Dearest,
    respond::Reply,
    tally::{Tally, adjustment, cost_in},
};
use crate::{
    clock::Timestamp,
    limit::{Charge, Outcome, OwnedCharge},
    policy::Cost,
    store::Store,
};

/// What the upstream answers, and how long that took, if anybody asks.
pub(super) type Answered = (Reply, Option<Duration>);

/// An exchange with an upstream that can go on without the client's connection.
pub(super) struct Exchange {
    pub(super) answer: Pin<Box<dyn Future<Output = Answered>>>,
    /// Set once the upstream may have seen something of the request.
    pub(super) is_sent: Rc<Cell<bool>>,
}

/// A charge whose cost the response's head tells.
pub(super) struct Due {
    pub(super) charge: OwnedCharge,
    pub(super) outcome: Outcome,
    /// The field that tells it.
    pub(super) header: HeaderName,
    /// What costs of this limit and route are remembered by.
    pub(super) source: u64,
    /// Units without a head.
    pub(super) abandoned: u32,
}

/// What a request's head is awaited for.
pub(super) type Dues = SmallVec<[Due; 2]>;

/// The requests of a worker that go on without their client.
pub(super) struct Abandoned {
    shared: Arc<Shared>,
    store: Rc<Store>,
    awaited: RefCell<HashMap<u64, Dues>>,
    next: Cell<u64>,
    /// The worker ends: nothing is begun any more.
    is_over: Cell<bool>,
}

/// A request that goes on, until it is dropped: by then its cost is charged, one way or the other.
struct Awaited {
    book: Rc<Abandoned>,
    number: u64,
}

/// Requests of one worker that go on at most: each may take a connection to its upstream.
const MOST: usize = 64;

impl Abandoned {
    pub(super) fn new(shared: Arc<Shared>, store: Rc<Store>) -> Rc<Abandoned> {
        let (awaited, next, is_over) = (RefCell::default(), Cell::new(0), Cell::new(false));
        Rc::new(Abandoned { shared, store, awaited, next, is_over })
    }

    /// Has an exchange go on for what is due. The request's place among those in flight is kept
    /// meanwhile: the upstream still works on it.
    pub(super) fn follow(
        self: &Rc<Self>,
        exchange: Exchange,
        (tally, route): (&Tally<'_>, &str),
        leases: Option<HeldLeases>,
    ) {
        // A connection that this proxy cuts is not the client's doing.
        if self.is_over.get() {
            return;
        }
        let dues = tally.dues(route, &self.shared);
        if self.awaited.borrow().len() >= MOST {
            return self.charge(&dues, None);
        }
        let number = self.next.get();
        self.next.set(number + 1);
        self.awaited.borrow_mut().insert(number, dues);
        let awaited = Awaited { book: Rc::clone(self), number };
        tokio::task::spawn_local(async move {
            let (reply, _) = exchange.answer.await;
            if let Reply::Forwarded(response) = &reply {
                awaited.settle(response.headers());
            }
            drop((awaited, leases));
        });
    }

    /// Charges everything that is due without waiting any longer.
    pub(super) fn end_all(&self) {
        self.is_over.set(true);
        for dues in self.awaited.take().into_values() {
            self.charge(&dues, None);
        }
    }

    /// Charges what the head says; without one, what is charged then.
    fn charge(&self, dues: &Dues, head: Option<&HeaderMap>) {
        let now = self.shared.clock.now();
        for due in dues {
            let charge = due.charge.charge();
            let cost = match head {
                None => due.abandoned,
                Some(headers) => match cost_in(headers, &due.header) {
                    Some(cost) => {
                        self.shared.dearest.note(due.source, cost, now);
                        cost
                    }
                    None => continue,
                },
            };
            if let Some((adjustment, cost)) = adjustment(charge.cost, cost, due.outcome.receipt) {
                let settling = Charge { cost, ..charge };
                self.store.settle(&settling, &due.outcome, adjustment, now);
            }
        }
    }
}

impl Awaited {
    fn settle(&self, head: &HeaderMap) {
        let dues = self.book.awaited.borrow_mut().remove(&self.number);
        if let Some(dues) = dues {
            self.book.charge(&dues, Some(head));
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let dues = self.book.awaited.borrow_mut().remove(&self.number);
        if let Some(dues) = dues {
            self.book.charge(&dues, None);
        }
    }
}

/// Units that a request costs whose response's head nobody has seen, of which `reserved` were taken
/// from a limit that admits `capacity` at once: never fewer than that, and by itself never more than
/// all.
pub(super) fn units_without_head(
    cost: &Cost,
    (reserved, capacity): (u32, u32),
    (dearest, source): (&Dearest, u64),
    now: Timestamp,
) -> u32 {
    let by_itself = || dearest.of(source, now).map(|dearest| dearest.min(capacity));
    cost.abandoned.or_else(by_itself).unwrap_or(reserved).max(reserved)
}
