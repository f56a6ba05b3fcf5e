//! The servers of an upstream, as all workers see them: where they are, how they are, how much they
//! have to do. Kept for as long as a policy names them, whatever else of it changes.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;

use crate::policy::{Balance, Server, Upstream};

/// The servers of an upstream.
#[derive(Debug)]
pub struct Group {
    balance: Balance,
    endpoints: ArcSwap<Vec<Arc<Endpoint>>>,
    turn: AtomicUsize,
}

/// One address of one server.
#[derive(Debug)]
pub struct Endpoint {
    /// Where it is.
    pub address: SocketAddr,
    /// The server that it is an address of.
    pub server: Server,
    /// Requests that it has, of all workers.
    load: AtomicUsize,
}

/// Counts a request among those that an endpoint has.
#[derive(Debug)]
pub struct Loaded(Arc<Endpoint>);

/// What a server is chosen by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'r> {
    /// A hash that tells the caller from others.
    pub caller: u128,
    /// Those that have failed this request already: another one is better.
    pub tried: &'r [Arc<Endpoint>],
}

impl Group {
    /// The servers of `upstream`, not resolved yet.
    pub fn new(upstream: &Upstream) -> Arc<Group> {
        let endpoints = upstream.servers.iter().filter_map(|server| {
            let address = server.host.parse::<IpAddr>().ok()?;
            let address = SocketAddr::new(address, server.port);
            Some(Arc::new(Endpoint { address, server: server.clone(), load: AtomicUsize::new(0) }))
        });
        let endpoints = ArcSwap::from_pointee(endpoints.collect());
        Arc::new(Group { balance: upstream.balance, endpoints, turn: AtomicUsize::new(0) })
    }

    /// Who gets a request; none if no address of any server is known.
    pub fn choose(&self, choice: Choice<'_>) -> Option<Arc<Endpoint>> {
        let endpoints = self.endpoints.load();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let _ = (self.balance, choice);
        endpoints.get(turn % endpoints.len().max(1)).cloned()
    }
}

impl Endpoint {
    /// Counts a request until it is over.
    pub fn load(self: &Arc<Self>) -> Loaded {
        self.load.fetch_add(1, Ordering::Relaxed);
        Loaded(Arc::clone(self))
    }

    /// It has answered.
    pub fn succeed(&self) {}

    /// It has failed a request.
    pub fn fail(&self) {}
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}
