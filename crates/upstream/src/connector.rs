//! What a worker keeps for each upstream between requests: connection pools, dialer, retry budget.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tollgate_clock::deadline::Ticker;
use tollgate_policy::{Protocol, Transport, Upstream};

use super::{
    Choice, Destination, Group, Member, UpstreamError, answers::UpstreamCounters, dial::Dialer,
    pool::Pool, retry::Budget, unread::Unread,
};

/// A worker's connectors, one for each upstream.
pub(super) struct Connectors {
    ticker: Rc<Ticker>,
    /// A short list: only policies name upstreams.
    connectors: RefCell<Vec<Rc<Connector>>>,
}

/// A worker's pools, dialer and retry budget for one upstream.
pub(super) struct Connector {
    group: Arc<Group>,
    transport: Transport,
    protocol: Protocol,
    pub(super) dialer: Dialer,
    pub(super) budget: Budget,
    /// What this worker counts of the upstream.
    pub(super) counters: Arc<UpstreamCounters>,
    keep_alive: Cell<Duration>,
    ticker: Rc<Ticker>,
    pools: RefCell<Vec<Rc<Pool>>>,
}

impl Connectors {
    pub(super) fn new(ticker: Rc<Ticker>) -> Self {
        Connectors { ticker, connectors: RefCell::default() }
    }

    /// The connector of an upstream; created at first use, and kept until the upstream's protocol
    /// or transport changes.
    pub(super) fn to(&self, destination: Destination<'_>) -> Rc<Connector> {
        let Destination { upstream, group } = destination;
        let mut connectors = self.connectors.borrow_mut();
        let found = connectors.iter().find(|connector| connector.serves(group, upstream));
        if let Some(connector) = found {
            connector.keep_alive.set(upstream.keep_alive);
            return Rc::clone(connector);
        }
        let connector = Rc::new(Connector {
            group: Arc::clone(group),
            transport: upstream.transport.clone(),
            protocol: upstream.protocol,
            dialer: Dialer::new(upstream),
            budget: Budget::new(),
            counters: group.take_counters(),
            keep_alive: Cell::new(upstream.keep_alive),
            ticker: Rc::clone(&self.ticker),
            pools: RefCell::default(),
        });
        connectors.push(Rc::clone(&connector));
        connector
    }

    /// Closes connections that have been idle for too long, and drops upstreams that no policy
    /// names any more.
    pub(super) fn close_idle(&self) {
        for connector in self.connectors.borrow().iter() {
            connector.close_idle();
        }
        self.connectors.borrow_mut().retain(|connector| !connector.group.is_retired());
    }
}

impl Connector {
    fn serves(&self, group: &Arc<Group>, upstream: &Upstream) -> bool {
        Arc::ptr_eq(&self.group, group)
            && self.protocol == upstream.protocol
            && self.transport == upstream.transport
    }

    /// The server for the first attempt of a request of `caller`. If the server's name was never
    /// looked up, waits for that, at most for the connect timeout.
    pub(super) async fn first(
        &self,
        caller: u128,
        upstream: &Upstream,
    ) -> Result<Arc<Member>, UpstreamError> {
        let choice = Choice { caller, tried: &[] };
        if let Some(member) = self.group.choose(choice) {
            return Ok(member);
        }
        self.group.resolved(upstream.connect_timeout).await;
        self.group.choose(choice).ok_or(UpstreamError::NoAddress)
    }

    /// The server for the next attempt, after failed ones.
    pub(super) fn next(&self, choice: Choice<'_>) -> Option<Arc<Member>> {
        self.group.choose(choice)
    }

    /// This worker's connections to a server; the pool is created at first use.
    pub(super) fn pool(&self, member: &Arc<Member>) -> Rc<Pool> {
        let mut pools = self.pools.borrow_mut();
        if let Some(pool) = pools.iter().find(|pool| Arc::ptr_eq(&pool.member, member)) {
            return Rc::clone(pool);
        }
        let pool = Pool::new(member, &self.ticker, self.protocol);
        pools.push(Rc::clone(&pool));
        pool
    }

    /// What is held of the upstream's responses for clients.
    pub(super) fn unread(&self) -> &Arc<Unread> {
        self.group.unread()
    }

    fn close_idle(&self) {
        let mut pools = self.pools.borrow_mut();
        pools.iter().for_each(|pool| pool.close_idle(self.keep_alive.get()));
        // A dropped pool is created again when needed. Connections in use close with their
        // requests.
        pools.retain(|pool| !pool.is_empty() && !pool.member.has_left());
    }
}
