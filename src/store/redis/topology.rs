//! Which server has a counter: one server, shards by rendezvous hashing, or the slots of a cluster.
//!
//! Counters are placed by their owner, so that all limits of one caller are decided in one call.
//! What the servers say about themselves (a cluster's slots, who is primary) is asked in the
//! background, from whichever server answers, and never on a request's way: a server that hangs
//! holds up nobody but the callers whose counters it has.

mod cluster;
mod followers;
mod history;
mod primary;
mod questions;
mod rendezvous;
mod sentinel;
mod shard;
mod verdict;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

pub(super) use self::questions::Answer;
use self::{
    cluster::{Slots, slot_of, slot_of_tag},
    primary::Election,
    rendezvous::{score, seed},
};
use super::{
    SharedByWorkers,
    node::{self, Node},
    replicas,
    servers::{Server, ServerRole, Servers},
    skew::Clocks,
};
use crate::{
    settings::{Endpoint, RedisSettings, Shard, Topology as Plan},
    store::Counts,
};

/// How long what is known about the servers is good while all is well: a failover that no reply told
/// of is noticed after this. Until then, proxies may use different servers.
const REVIEW: Duration = Duration::from_secs(2);

/// The same of a cluster: its nodes find out themselves when they are not to take charges any more.
const REVIEW_OF_CLUSTER: Duration = Duration::from_secs(10);

/// The same while something is wrong, and the least time between two looks.
const REVIEW_IN_TROUBLE: Duration = Duration::from_millis(300);

/// How long one server may take to tell what it knows.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(250);

/// Counters that are together can be decided in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Place(u16);

impl Place {
    /// The place with this number.
    pub(in crate::store) fn at(index: usize) -> Place {
        Place(index as u16)
    }

    /// Its number.
    pub(in crate::store) fn index(self) -> usize {
        self.0.into()
    }
}

/// All servers, as one worker sees them.
pub(super) struct Topology {
    settings: Arc<RedisSettings>,
    /// How they are, as all workers know it.
    servers: Arc<Servers>,
    /// Those of them that are known, whether or not there is a connection.
    known: RefCell<Vec<Arc<Server>>>,
    /// This process' clock beside those of the servers.
    clocks: Arc<Clocks>,
    /// How long a decision may take.
    patience: Duration,
    nodes: RefCell<HashMap<(Endpoint, Use), Rc<Node>>>,
    placement: Placement,
    /// Primaries that were looked up, by place; forgotten whenever one may be another.
    looked_up: RefCell<HashMap<u16, Rc<Node>>>,
    /// Something may have changed.
    trouble: Rc<Notify>,
    /// How often another server was found to be primary.
    elections: Cell<u64>,
    /// Has the servers that say so too.
    counts: Arc<Counts>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Use {
    /// Whatever a primary does.
    Charges,
    /// Reads of what may be out of date. A replica of a cluster must be told that this will do; a
    /// primary that was told so and becomes a replica would no longer say that it has moved.
    Display,
}

/// How owners are placed.
enum Placement {
    /// All counters are on one server.
    One(Rc<Election>),
    /// By the highest score among named shards.
    Shards(Vec<(u64, Rc<Election>)>),
    /// By slot.
    Cluster(Slots),
}

impl Topology {
    /// Connects to all servers, and keeps what is known about them current for as long as it lives.
    /// A decision may take `patience`.
    pub(super) fn start(
        settings: Arc<RedisSettings>,
        patience: Duration,
        shared: &SharedByWorkers,
    ) -> Rc<Topology> {
        let placement = match &settings.topology {
            Plan::Single(primary) => Placement::One(Rc::new(Election::new("", primary, &[]))),
            Plan::Sharded(shards) => {
                let shard = |shard: &Shard| {
                    let Shard { name, primary, replicas } = shard;
                    (seed(name), Rc::new(Election::new(name, primary, replicas)))
                };
                Placement::Shards(shards.iter().map(shard).collect())
            }
            Plan::Cluster(endpoints) => Placement::Cluster(Slots::new(endpoints)),
        };
        let topology = Rc::new(Topology {
            settings,
            servers: Arc::clone(&shared.servers),
            known: RefCell::default(),
            clocks: Arc::clone(&shared.clocks),
            patience,
            nodes: RefCell::default(),
            placement,
            looked_up: RefCell::default(),
            trouble: Rc::new(Notify::new()),
            elections: Cell::new(0),
            counts: Arc::clone(&shared.counts),
        });
        topology.tell_roles(Server::suppose_role);
        topology.servers.suppose_lack(topology.lacks_primary());
        topology.connect();
        tokio::task::spawn_local(keep_current(Rc::downgrade(&topology)));
        tokio::task::spawn_local(replicas::keep_watch(Rc::downgrade(&topology)));
        topology
    }

    /// Where the counters of an owner are.
    pub(super) fn place(&self, owner: u128) -> Place {
        match &self.placement {
            Placement::One(_) => Place(0),
            Placement::Shards(shards) => {
                let scores = shards.iter().map(|(seed, _)| score(*seed, owner)).enumerate();
                let highest = scores.max_by_key(|(_, score)| *score);
                Place(highest.map_or(0, |(index, _)| index as u16))
            }
            Placement::Cluster(_) => Place(slot_of(owner)),
        }
    }

    /// The places where something that concerns all owners is kept, by its name: on each shard, or in
    /// one slot.
    pub(super) fn homes(&self, name: &str) -> Vec<Place> {
        match &self.placement {
            Placement::One(_) => vec![Place(0)],
            Placement::Shards(shards) => (0..shards.len()).map(|at| Place(at as u16)).collect(),
            Placement::Cluster(_) => vec![Place(slot_of_tag(name.as_bytes()))],
        }
    }

    /// The server that takes charges for a place; none if there is none that is known.
    pub(super) fn primary(&self, place: Place) -> Option<Rc<Node>> {
        if let Some(node) = self.looked_up.borrow().get(&place.0) {
            return Some(Rc::clone(node));
        }
        let endpoint = match &self.placement {
            Placement::One(election) => election.primary()?,
            Placement::Shards(shards) => shards.get(usize::from(place.0))?.1.primary()?,
            Placement::Cluster(slots) => slots.primary(place.0)?,
        };
        let node = self.node(&endpoint, Use::Charges);
        self.looked_up.borrow_mut().insert(place.0, Rc::clone(&node));
        Some(node)
    }

    /// Waits until it is known of all servers that take charges whether they are there, or
    /// `deadline`.
    pub(super) async fn ready(&self, deadline: Instant) {
        let is_settled = |endpoint: Option<Endpoint>| {
            endpoint.is_some_and(|endpoint| self.node(&endpoint, Use::Charges).is_settled())
        };
        while !self.primaries().into_iter().all(is_settled) && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until no reply is awaited any more, or `deadline`.
    pub(super) async fn finish(&self, deadline: Instant) {
        let is_busy = || self.nodes.borrow().values().any(|node| node.is_busy());
        while is_busy() && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// A slot has another server, as the one that was asked says: `address` is `host:port`.
    pub(super) fn moved(&self, place: Place, address: &str, by: &Node) -> Option<Rc<Node>> {
        let Placement::Cluster(slots) = &self.placement else { return None };
        let endpoint = redirected(address, by.endpoint())?;
        slots.learn(place.0, &endpoint);
        self.looked_up.borrow_mut().clear();
        self.trouble.notify_one();
        Some(self.node(&endpoint, Use::Charges))
    }

    /// The server that a slot is being moved to.
    pub(super) fn asked(&self, address: &str, by: &Node) -> Option<Rc<Node>> {
        let endpoint = redirected(address, by.endpoint())?;
        Some(self.node(&endpoint, Use::Charges))
    }

    /// Says that a server did not do what it should be able to.
    pub(super) fn doubt(&self) {
        self.trouble.notify_one();
    }

    /// The server at an address; it is connected to if it is not known.
    fn node(&self, endpoint: &Endpoint, purpose: Use) -> Rc<Node> {
        let name = (endpoint.clone(), purpose);
        if let Some(node) = self.nodes.borrow().get(&name) {
            return Rc::clone(node);
        }
        let greeting = match (&self.placement, purpose) {
            (Placement::Cluster(_), Use::Display) => Some(redis::cmd("READONLY")),
            _ => None,
        };
        let node = Node::start(node::Plan {
            endpoint: endpoint.clone(),
            settings: Arc::clone(&self.settings),
            clock: self.clocks.beside(endpoint, self.settings.clock),
            greeting,
            patience: self.patience,
            server: self.servers.at(endpoint),
            trouble: Rc::clone(&self.trouble),
        });
        self.nodes.borrow_mut().insert(name, Rc::clone(&node));
        node
    }

    /// Connects to all servers that take charges, and to those that may be read, before anybody needs
    /// them; so it is known, too, how they are.
    fn connect(&self) {
        for endpoint in self.primaries().into_iter().flatten() {
            self.node(&endpoint, Use::Charges);
        }
        for (endpoint, role) in self.roles() {
            if role == ServerRole::Replica {
                self.node(&endpoint, Use::Display);
            }
        }
    }

    /// What each server is for.
    fn roles(&self) -> Vec<(Endpoint, ServerRole)> {
        match &self.placement {
            Placement::One(election) => election.roles(),
            Placement::Shards(shards) => {
                shards.iter().flat_map(|(_, election)| election.roles()).collect()
            }
            Placement::Cluster(slots) => slots.roles(),
        }
    }

    /// Lets all workers know what each server is for.
    fn tell_roles(&self, tell: fn(&Server, ServerRole)) {
        let tell = |(endpoint, role): (Endpoint, ServerRole)| {
            let server = self.servers.at(&endpoint);
            tell(&server, role);
            server
        };
        self.known.replace(self.roles().into_iter().map(tell).collect());
    }

    /// Whether it is not known who takes the charges of some callers.
    fn lacks_primary(&self) -> bool {
        self.primaries().contains(&None)
    }

    /// All servers that are asked for anything.
    fn endpoints(&self) -> Vec<Endpoint> {
        match &self.placement {
            Placement::One(election) => election.endpoints(),
            Placement::Shards(shards) => {
                shards.iter().flat_map(|(_, election)| election.endpoints()).collect()
            }
            Placement::Cluster(slots) => slots.endpoints(),
        }
    }

    /// Whether there are counters that nobody takes charges for.
    fn is_troubled(&self) -> bool {
        let is_away =
            |primary: Option<Endpoint>| primary.is_none_or(|endpoint| self.is_away(&endpoint));
        self.primaries().into_iter().any(is_away)
    }

    /// The servers that take charges; none where it is not known who does.
    fn primaries(&self) -> Vec<Option<Endpoint>> {
        match &self.placement {
            Placement::One(election) => vec![election.primary()],
            Placement::Shards(shards) => {
                shards.iter().map(|(_, election)| election.primary()).collect()
            }
            Placement::Cluster(slots) => match slots.primaries() {
                primaries if primaries.is_empty() => vec![None],
                primaries => primaries.into_iter().map(Some).collect(),
            },
        }
    }

    /// Asks the servers what has changed.
    async fn review(self: &Rc<Self>) {
        match &self.placement {
            Placement::One(election) => election.review(self).await,
            Placement::Shards(shards) => {
                // One that hangs holds up no other.
                let mut reviews = JoinSet::new();
                for (_, election) in shards {
                    let (topology, election) = (Rc::clone(self), Rc::clone(election));
                    reviews.spawn_local(async move { election.review(&topology).await });
                }
                while reviews.join_next().await.is_some() {}
            }
            Placement::Cluster(slots) => slots.review(self).await,
        }
        self.looked_up.borrow_mut().clear();
        let known = self.endpoints();
        // While nobody takes charges, the next look begins where this one ended.
        if !self.is_troubled() {
            self.nodes.borrow_mut().retain(|(endpoint, _), _| known.contains(endpoint));
        }
        self.tell_roles(Server::note_role);
        self.servers.note_lack(self.lacks_primary());
        self.connect();
    }

    /// How a server is, as all workers know it.
    pub(super) fn server(&self, endpoint: &Endpoint) -> Arc<Server> {
        self.servers.at(endpoint)
    }

    /// Another server is primary than before.
    fn note_election(&self) {
        self.elections.set(self.elections.get() + 1);
        self.looked_up.borrow_mut().clear();
    }

    /// How often that was so.
    pub(super) fn elections(&self) -> u64 {
        self.elections.get()
    }

    /// Whether a server is known to be away.
    fn is_away(&self, endpoint: &Endpoint) -> bool {
        self.node(endpoint, Use::Charges).is_away()
    }
}

/// Reviews what is known from time to time, and soon when something is wrong.
async fn keep_current(topology: Weak<Topology>) {
    loop {
        let (is_troubled, review, trouble) = {
            let Some(topology) = topology.upgrade() else { return };
            topology.review().await;
            let review = match topology.placement {
                Placement::One(_) | Placement::Shards(_) => REVIEW,
                Placement::Cluster(_) => REVIEW_OF_CLUSTER,
            };
            (topology.is_troubled(), review, Rc::clone(&topology.trouble))
        };
        // However much goes wrong, the servers are not asked more often than this.
        sleep(REVIEW_IN_TROUBLE).await;
        if !is_troubled {
            let _ = timeout(review, trouble.notified()).await;
        }
    }
}

/// The address in a redirection: a server that does not know its own host leaves it out.
fn redirected(address: &str, by: &Endpoint) -> Option<Endpoint> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() || host == "?" { by.host() } else { host };
    Some(by.at(host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirection_without_a_host_is_to_the_host_that_was_asked() {
        let asked = Endpoint::new("10.0.0.1", 6379);
        for (address, expected) in [
            ("10.0.0.2:7000", "10.0.0.2:7000"),
            (":7000", "10.0.0.1:7000"),
            ("[::1]:7000", "[::1]:7000"),
            ("::1:7000", "[::1]:7000"),
            ("redis-3.example.com:7000", "redis-3.example.com:7000"),
        ] {
            assert_eq!(redirected(address, &asked).unwrap().to_string(), expected);
        }
        assert!(redirected("nowhere", &asked).is_none());
    }
}
