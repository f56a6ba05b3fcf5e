//! How much a worker holds at the moment. Simulations check that it does not grow, and that nothing
//! is left when all has been sent and answered.

use std::rc::Rc;

use crate::Store;

/// How much there is of what a worker, or all workers of its process, hold for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Tasks and others that hold the worker's store.
    pub holders: usize,
    /// Counters with charges or refunds that Redis is still to have, or with room for them.
    pub pending: usize,
    /// Refunds of these counters.
    pub waiting_refunds: usize,
    /// Adjustments that wait or are being sent.
    pub settlements: usize,
    /// Calls of Redis without a reply.
    pub calls: usize,
    /// Connections to servers that are kept up.
    pub connections: usize,
    /// Counters of Redis as they were last known.
    pub cached: usize,
    /// Counters that are decided here while Redis is away.
    pub local: usize,
    /// Counters that a server may have lost.
    pub to_reseed: usize,
    /// Requests that wait until they fit.
    pub waiting: usize,
}

impl Store {
    /// Counts all of it.
    pub fn census(self: &Rc<Self>) -> Census {
        let stores = &self.stores;
        let mut census = Census {
            holders: Rc::strong_count(self),
            cached: stores.cache.own(),
            local: stores.local.own(),
            to_reseed: stores.to_reseed(),
            waiting: stores.waiting.number(),
            ..Census::default()
        };
        (census.pending, census.waiting_refunds) = stores.pending.lock().census();
        for redis in self.redis() {
            let (settlements, connections, calls) = redis.census();
            census.settlements += settlements;
            census.connections += connections;
            census.calls += calls;
        }
        census
    }
}
