//! What proxies hold in memory: the most that there ever was of it, and what is left in the end.

use std::sync::{Arc, Mutex};

use tollgate_store::Census;

/// What a proxy holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// The most of each kind that its processes ever held.
    pub(crate) most: Census,
    /// What it holds in the end.
    pub(crate) rest: Census,
    /// Its open connections in the end.
    pub(crate) connections: usize,
}

/// The most that the processes of one proxy have held of each kind, one after the other.
#[derive(Clone, Default)]
pub(crate) struct HighWater(Arc<Mutex<Census>>);

impl HighWater {
    /// Takes what there is now into account.
    pub(crate) fn note(&self, now: Census) {
        let mut most = self.0.lock().unwrap();
        *most = Census {
            holders: most.holders.max(now.holders),
            pending: most.pending.max(now.pending),
            waiting_refunds: most.waiting_refunds.max(now.waiting_refunds),
            settlements: most.settlements.max(now.settlements),
            calls: most.calls.max(now.calls),
            connections: most.connections.max(now.connections),
            cached: most.cached.max(now.cached),
            local: most.local.max(now.local),
            to_reseed: most.to_reseed.max(now.to_reseed),
            waiting: most.waiting.max(now.waiting),
        };
    }

    pub(crate) fn most(&self) -> Census {
        *self.0.lock().unwrap()
    }
}
