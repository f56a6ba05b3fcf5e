//! A worker's ways to the upstreams: what it keeps for each between requests.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use super::{
    Choice, Destination, Endpoint, Group, UpstreamError, dial::Dialer, pool::Pool, retry::Budget,
};
use crate::{
    deadline::Ticker,
    policy::{Protocol, Transport, Upstream},
};

/// A worker's ways to all upstreams.
pub(super) struct Ways {
    ticker: Rc<Ticker>,
    /// Few: upstreams are named by policies only.
    ways: RefCell<Vec<Rc<Way>>>,
}

/// A worker's way to one upstream.
pub(super) struct Way {
    group: Arc<Group>,
    transport: Transport,
    protocol: Protocol,
    pub(super) dialer: Dialer,
    pub(super) budget: Budget,
    keep_alive: Cell<Duration>,
    ticker: Rc<Ticker>,
    pools: RefCell<Vec<Rc<Pool>>>,
}

impl Ways {
    pub(super) fn new(ticker: Rc<Ticker>) -> Self {
        Ways { ticker, ways: RefCell::default() }
    }

    /// The way to an upstream; made when first asked for, and kept for as long as its servers are
    /// spoken to in the same manner.
    pub(super) fn to(&self, destination: Destination<'_>) -> Rc<Way> {
        let Destination { upstream, group } = destination;
        let mut ways = self.ways.borrow_mut();
        if let Some(way) = ways.iter().find(|way| way.leads_to(group, upstream)) {
            way.keep_alive.set(upstream.keep_alive);
            return Rc::clone(way);
        }
        let way = Rc::new(Way {
            group: Arc::clone(group),
            transport: upstream.transport.clone(),
            protocol: upstream.protocol,
            dialer: Dialer::new(upstream),
            budget: Budget::new(),
            keep_alive: Cell::new(upstream.keep_alive),
            ticker: Rc::clone(&self.ticker),
            pools: RefCell::default(),
        });
        ways.push(Rc::clone(&way));
        way
    }

    /// Closes connections that nobody has needed for a while, and forgets upstreams that no policy
    /// names any more.
    pub(super) fn close_idle(&self) {
        for way in self.ways.borrow().iter() {
            way.close_idle();
        }
        self.ways.borrow_mut().retain(|way| !way.group.is_retired());
    }
}

impl Way {
    fn leads_to(&self, group: &Arc<Group>, upstream: &Upstream) -> bool {
        Arc::ptr_eq(&self.group, group)
            && self.protocol == upstream.protocol
            && self.transport == upstream.transport
    }

    /// The server that a request of `caller` is sent to first. Waits for the name to be looked up if
    /// it never was, as long as connecting may take.
    pub(super) async fn first(
        &self,
        caller: u128,
        upstream: &Upstream,
    ) -> Result<Arc<Endpoint>, UpstreamError> {
        let choice = Choice { caller, tried: &[] };
        if let Some(endpoint) = self.group.choose(choice) {
            return Ok(endpoint);
        }
        self.group.resolved(upstream.connect_timeout).await;
        self.group.choose(choice).ok_or(UpstreamError::NoAddress)
    }

    /// The server that it is sent to after it was tried in vain.
    pub(super) fn next(&self, choice: Choice<'_>) -> Option<Arc<Endpoint>> {
        self.group.choose(choice)
    }

    /// This worker's connections to a server; made when first asked for.
    pub(super) fn pool(&self, endpoint: &Arc<Endpoint>) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.iter().find(|pool| Arc::ptr_eq(&pool.endpoint, endpoint)) {
            return Rc::clone(pool);
        }
        let pool = Pool::new(endpoint, &self.ticker, self.protocol);
        pools.push(Rc::clone(&pool));
        pool
    }

    fn close_idle(&self) {
        let mut pools = self.pools.borrow_mut();
        pools.iter().for_each(|pool| pool.close_idle(self.keep_alive.get()));
        // One that is needed again is made again. Connections in use close with what they are used for.
        pools.retain(|pool| !pool.is_empty() && !pool.endpoint.has_left());
    }
}
