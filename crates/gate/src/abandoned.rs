//! Requests whose client went away before the head of the response, where only that head has the
//! cost, or the request counts among those in flight.
//!
//! Hanging up must not make a request cheaper than waiting for it, nor have the upstream work on
//! more requests at once than a limit lets it. So the exchange with the upstream continues without
//! its client, in a separate task, until the head arrives; then the cost is charged, and the rest
//! of the response is not read. If no head comes, or if too many such exchanges already run, the
//! limit's `abandoned` is charged: the policy's value, else the highest recent cost. In the latter
//! case the connection to the server is closed, which can see that.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
};

use http::HeaderMap;
use tollgate_limit::Charge;
use tollgate_store::{HeldLeases, Store};

use super::{
    Shared,
    awaited_cost::AwaitedCosts,
    counting::{CountedSender, count_adjustment},
    forward::{DetachedExchange, TimedReply},
    respond::Reply,
    tally::{Tally, adjustment, cost_in},
};

/// The requests of a worker that continue without their client.
pub(super) struct Abandoned {
    shared: Arc<Shared>,
    store: Rc<Store>,
    awaited: RefCell<HashMap<u64, AwaitedCosts>>,
    next: Cell<u64>,
    /// Whether the worker ends: then no further exchange continues without its client.
    is_over: Cell<bool>,
}

/// A request that continues without its client. Its cost is charged before this is dropped.
struct AbandonedRequest {
    all: Rc<Abandoned>,
    number: u64,
}

/// The most requests of one worker that continue: each may take a connection to its upstream.
const MAX_REQUESTS: usize = 64;

impl Abandoned {
    pub(super) fn new(shared: Arc<Shared>, store: Rc<Store>) -> Rc<Abandoned> {
        Rc::new(Abandoned {
            shared,
            store,
            awaited: RefCell::default(),
            next: Cell::new(0),
            is_over: Cell::new(false),
        })
    }

    /// Has an exchange go on until the costs of `tally` are known. Its leases on requests in flight
    /// are kept meanwhile: the upstream still works on the request.
    pub(super) fn follow(
        self: &Rc<Self>,
        exchange: DetachedExchange,
        tally: &Tally<'_>,
        route: &str,
        sender: &CountedSender<'_>,
        leases: Option<HeldLeases>,
    ) {
        // A connection that this proxy cuts is not the client's doing.
        if self.is_over.get() {
            return;
        }
        let costs = tally.awaited_costs(route, &self.shared, sender);
        if self.awaited.borrow().len() >= MAX_REQUESTS {
            return self.charge(&costs, None);
        }
        let number = self.next.get();
        self.next.set(number + 1);
        self.awaited.borrow_mut().insert(number, costs);
        let request = AbandonedRequest { all: Rc::clone(self), number };
        tokio::task::spawn_local(async move {
            let TimedReply { reply, .. } = exchange.response.await;
            if let Reply::Forwarded(response) = &reply {
                request.settle(Some(response.headers()));
            }
            drop((request, leases));
        });
    }

    /// Charges all awaited costs without waiting any longer.
    pub(super) fn end_all(&self) {
        self.is_over.set(true);
        for costs in self.awaited.take().into_values() {
            self.charge(&costs, None);
        }
    }

    /// Charges the costs that the head names; without a head, those of requests without one.
    fn charge(&self, costs: &AwaitedCosts, head: Option<&HeaderMap>) {
        let now = self.shared.clock.now();
        for awaited in costs {
            let charge = awaited.charge.charge();
            let cost = match head {
                None => awaited.units_without_head,
                Some(headers) => match cost_in(headers, &awaited.header) {
                    Some(cost) => {
                        self.shared.recent_costs.note(awaited.source, cost, now);
                        cost
                    }
                    None => continue,
                },
            };
            let outcome = &awaited.outcome;
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
    }
}

impl AbandonedRequest {
    /// Charges the costs, unless that was done.
    fn settle(&self, head: Option<&HeaderMap>) {
        let costs = self.all.awaited.borrow_mut().remove(&self.number);
        if let Some(costs) = costs {
            self.all.charge(&costs, head);
        }
    }
}

impl Drop for AbandonedRequest {
    fn drop(&mut self) {
        self.settle(None);
    }
}
