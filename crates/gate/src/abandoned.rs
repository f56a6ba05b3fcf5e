//! Requests whose client went away before the response has told what they cost, or while they count
//! among those in flight.
//!
//! Hanging up must not make a request cheaper than waiting for it, nor have the upstream work on
//! more requests at once than a limit lets it. So the exchange with the upstream continues without
//! its client, in a separate task, until the cost is known: until the head has arrived, or, where
//! the body tells the cost, to the end of that; any other body is not read. If no head comes, or if
//! too many such exchanges already run, the limit's `abandoned` is charged: the policy's value,
//! else the highest recent cost. In the latter case the connection to the server is closed, which
//! can see that.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use http::Response;
use hyper::body::Body as _;
use tollgate_policy::CostSource;
use tollgate_response::{Body, BodyTap, FinalCosts};
use tollgate_store::{HeldLeases, Store};
use tollgate_upstream::UpstreamBody;

use super::{
    Shared,
    awaited_cost::AwaitedCosts,
    cost_tap::{CostTap, Measures},
    counting::CountedSender,
    forward::{DetachedExchange, TimedReply},
    late_charges::LateCharges,
    respond::Reply,
    tally::{Tally, cost_in},
};

/// The requests of a worker that continue without their client.
pub(super) struct Abandoned {
    charges: Rc<LateCharges>,
    /// Of those without a head.
    awaited: RefCell<HashMap<u64, AwaitedCosts>>,
    /// Of those whose body is read.
    taps: RefCell<HashMap<u64, Rc<RefCell<CostTap>>>>,
    next: Cell<u64>,
    /// Whether the worker ends: then no further exchange continues without its client.
    is_over: Cell<bool>,
}

/// The body of a response that may outlast its client.
pub(super) struct FollowedBody {
    all: Rc<Abandoned>,
    tap: CostTap,
}

/// A request that continues without its client. Its cost is charged before this is dropped.
struct AbandonedRequest {
    all: Rc<Abandoned>,
    number: u64,
}

/// The most requests of one worker that continue: each may take a connection to its upstream.
const MAX_REQUESTS: usize = 64;

/// The longest body that is read without a client.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// The longest time for which one is read.
const MAX_BODY_TIME: Duration = Duration::from_secs(600);

impl Abandoned {
    pub(super) fn new(shared: Arc<Shared>, store: Rc<Store>) -> Rc<Abandoned> {
        Rc::new(Abandoned {
            charges: LateCharges::new(shared, store),
            awaited: RefCell::default(),
            taps: RefCell::default(),
            next: Cell::new(0),
            is_over: Cell::new(false),
        })
    }

    /// Makes the charges.
    pub(super) fn charges(&self) -> &Rc<LateCharges> {
        &self.charges
    }

    /// Has an exchange go on until the costs of `tally` are known. Its leases on requests in flight
    /// are kept meanwhile: the upstream still works on the request.
    pub(super) fn follow(
        self: &Rc<Self>,
        exchange: DetachedExchange,
        measures: Measures,
        (tally, route): (&Tally<'_>, &str),
        sender: &CountedSender<'_>,
        leases: Option<HeldLeases>,
    ) {
        // A connection that this proxy cuts is not the client's doing.
        if self.is_over.get() {
            return;
        }
        let costs = tally.awaited_costs(route, self.charges.shared(), Some(sender));
        let Some(number) = self.number() else {
            return costs
                .iter()
                .for_each(|cost| self.charges.charge(cost, cost.units_without_head));
        };
        self.awaited.borrow_mut().insert(number, costs);
        let request = AbandonedRequest { all: Rc::clone(self), number };
        tokio::task::spawn_local(async move {
            let TimedReply { reply, .. } = exchange.response.await;
            if let Reply::Forwarded(response) = reply {
                request.settle_by(response, measures, leases);
            }
        });
    }

    /// Has the body of a response be read to its end for what it says, unless there is no room for
    /// that, or nothing in it is wanted.
    pub(super) fn read_on(
        self: &Rc<Self>,
        tap: CostTap,
        mut rest: Box<UpstreamBody>,
        leases: Option<HeldLeases>,
    ) {
        let Some(number) = self.number().filter(|_| tap.reads_on() && !self.is_over.get()) else {
            // Dropped, it charges what it has seen.
            return drop(tap);
        };
        let tap = Rc::new(RefCell::new(tap));
        self.taps.borrow_mut().insert(number, Rc::clone(&tap));
        let all = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let reading = async {
                let mut room = MAX_BODY_BYTES;
                loop {
                    let frame = poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await;
                    let Some(Ok(frame)) = frame else { return frame.is_none() };
                    let Some(data) = frame.data_ref() else { continue };
                    tap.borrow_mut().read(data);
                    match room.checked_sub(data.len() as u64) {
                        Some(left) => room = left,
                        None => return false,
                    }
                }
            };
            let read = tokio::time::timeout(MAX_BODY_TIME, reading).await;
            all.taps.borrow_mut().remove(&number);
            tap.borrow_mut().settle(read.unwrap_or(false));
            drop(leases);
        });
    }

    /// A number for another request that continues; none: there are too many.
    fn number(&self) -> Option<u64> {
        let count = self.awaited.borrow().len() + self.taps.borrow().len();
        (count < MAX_REQUESTS).then(|| self.next.replace(self.next.get() + 1))
    }

    /// Charges all awaited costs without waiting any longer.
    pub(super) fn end_all(&self) {
        self.is_over.set(true);
        for costs in self.awaited.take().into_values() {
            costs.iter().for_each(|cost| self.charges.charge(cost, cost.units_without_head));
        }
        for tap in self.taps.take().into_values() {
            tap.borrow_mut().settle(false);
        }
    }
}

impl FollowedBody {
    /// A body that is followed by `tap`.
    pub(super) fn new(all: &Rc<Abandoned>, tap: CostTap) -> FollowedBody {
        FollowedBody { all: Rc::clone(all), tap }
    }
}

impl BodyTap for FollowedBody {
    fn read(&mut self, data: &[u8]) {
        self.tap.read(data);
    }

    fn end(mut self: Box<Self>) -> FinalCosts {
        self.tap.settle(true)
    }

    fn leave(self: Box<Self>, rest: Box<UpstreamBody>, leases: Option<HeldLeases>) {
        self.all.read_on(self.tap, rest, leases);
    }
}

impl AbandonedRequest {
    /// Charges the costs that the head of the response names. Those that its body tells are charged
    /// when that has ended.
    fn settle_by(
        &self,
        mut response: Response<Body>,
        measures: Measures,
        leases: Option<HeldLeases>,
    ) {
        let Some(costs) = self.take() else { return };
        let mut of_body = AwaitedCosts::new();
        for cost in costs {
            let CostSource::Header(name) = &*cost.source else {
                of_body.push(cost);
                continue;
            };
            if let Some(units) = cost_in(response.headers(), name) {
                self.all.charges.remember(&cost, units);
                self.all.charges.charge(&cost, units);
            }
        }
        if of_body.is_empty() {
            return;
        }
        let tap = CostTap::new(&self.all.charges, of_body, response.headers(), measures);
        if let Some(rest) = response.body_mut().take_upstream() {
            self.all.read_on(tap, rest, leases);
        }
    }

    fn take(&self) -> Option<AwaitedCosts> {
        self.all.awaited.borrow_mut().remove(&self.number)
    }
}

impl Drop for AbandonedRequest {
    fn drop(&mut self) {
        for cost in self.take().into_iter().flatten() {
            self.all.charges.charge(&cost, cost.units_without_head);
        }
    }
}
