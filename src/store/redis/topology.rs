//! Which server has a counter: one server, shards by rendezvous hashing, or the slots of a cluster.
//!
//! Counters are placed by their owner, so that all limits of one caller are decided in one call.
//! What the servers say about themselves (a cluster's slots, who is primary) is asked in the
//! background, from whichever server answers, and never on a request's way: a server that hangs
//! holds up nobody but the callers whose counters it has.

mod cluster;
mod primary;

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use self::{
    cluster::{Slots, slot_of, slot_of_tag},
    primary::Election,
};
use super::{
    node::{self, Node},
    skew::Clocks,
};
use crate::settings::{Endpoint, RedisSettings, Shard, Topology as Plan};

/// How long what is known about the servers is good while all is well: a failover that no reply told
/// of is noticed after this.
const REVIEW: Duration = Duration::from_secs(10);

/// The same while something is wrong, and the least time between two looks.
const REVIEW_IN_TROUBLE: Duration = Duration::from_millis(300);

/// How long one server may take to tell what it knows.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(250);

/// Counters that are together can be decided in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Place(u16);

/// All servers, as one worker sees them.
pub(super) struct Topology {
    settings: Arc<RedisSettings>,
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
    One(Election),
    /// By the highest score among named shards.
    Shards(Vec<(u64, Election)>),
    /// By slot.
    Cluster(Slots),
}

impl Topology {
    /// Connects to all servers, and keeps what is known about them current for as long as it lives.
    /// A decision may take `patience`.
    pub(super) fn start(
        settings: Arc<RedisSettings>,
        patience: Duration,
        clocks: Arc<Clocks>,
    ) -> Rc<Topology> {
        let placement = match &settings.topology {
            Plan::Single(primary) => Placement::One(Election::new(primary, &[])),
            Plan::Sharded(shards) => {
                let shard = |shard: &Shard| {
                    (seed(&shard.name), Election::new(&shard.primary, &shard.replicas))
                };
                Placement::Shards(shards.iter().map(shard).collect())
            }
            Plan::Cluster(endpoints) => Placement::Cluster(Slots::new(endpoints)),
        };
        let topology = Rc::new(Topology {
            settings,
            clocks,
            patience,
            nodes: RefCell::default(),
            placement,
            looked_up: RefCell::default(),
            trouble: Rc::new(Notify::new()),
        });
        topology.connect_primaries();
        tokio::task::spawn_local(keep_current(Rc::downgrade(&topology)));
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

    /// A replica that answers, if there is one: it can tell how counters of a place stand, if not
    /// always by the latest count.
    pub(super) fn replica(&self, place: Place) -> Option<Rc<Node>> {
        let replicas = match &self.placement {
            Placement::One(election) => election.replicas(),
            Placement::Shards(shards) => shards.get(usize::from(place.0))?.1.replicas(),
            Placement::Cluster(slots) => slots.replicas(place.0),
        };
        let mut nodes = replicas.iter().map(|endpoint| self.node(endpoint, Use::Display));
        nodes.find(|node| !node.is_away())
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
            trouble: Rc::clone(&self.trouble),
        });
        self.nodes.borrow_mut().insert(name, Rc::clone(&node));
        node
    }

    /// Connects to all servers that take charges, before anybody needs them.
    fn connect_primaries(&self) {
        for endpoint in self.primaries().into_iter().flatten() {
            self.node(&endpoint, Use::Charges);
        }
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
    async fn review(&self) {
        match &self.placement {
            Placement::One(election) => election.review(self).await,
            Placement::Shards(shards) => {
                for (_, election) in shards {
                    election.review(self).await;
                    self.looked_up.borrow_mut().clear();
                }
            }
            Placement::Cluster(slots) => slots.review(self).await,
        }
        self.looked_up.borrow_mut().clear();
        let known = self.endpoints();
        // While nobody takes charges, the next look begins where this one ended.
        if !self.is_troubled() {
            self.nodes.borrow_mut().retain(|(endpoint, _), _| known.contains(endpoint));
        }
        self.connect_primaries();
    }

    /// What a server answers, if it does so soon.
    async fn ask(&self, endpoint: &Endpoint, command: redis::Cmd) -> Option<redis::Value> {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        self.node(endpoint, Use::Charges).call(command, deadline).await.ok()
    }

    /// Whether a server is known to be away.
    fn is_away(&self, endpoint: &Endpoint) -> bool {
        self.node(endpoint, Use::Charges).is_away()
    }
}

/// Reviews what is known from time to time, and soon when something is wrong.
async fn keep_current(topology: Weak<Topology>) {
    loop {
        let (is_troubled, trouble) = {
            let Some(topology) = topology.upgrade() else { return };
            topology.review().await;
            (topology.is_troubled(), Rc::clone(&topology.trouble))
        };
        // However much goes wrong, the servers are not asked more often than this.
        sleep(REVIEW_IN_TROUBLE).await;
        if !is_troubled {
            let _ = timeout(REVIEW, trouble.notified()).await;
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

/// What a shard's name contributes to its scores: FNV-1a, which is the same in every process.
fn seed(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// A shard's score for an owner: whoever scores highest has its counters (rendezvous hashing, Thaler
/// and Ravishankar 1998). A shard that is added or taken away moves only what it wins or had.
///
/// The mixing steps are those of SplitMix64.
fn score(seed: u64, owner: u128) -> u64 {
    let mut hash = seed ^ (owner >> 64) as u64;
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xbf58_476d_1ce4_e5b9] {
        hash = (hash ^ (hash >> 30)).wrapping_mul(factor);
    }
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn winner(names: &[&str], owner: u128) -> String {
        let highest = names.iter().max_by_key(|name| score(seed(name), owner));
        (*highest.expect("there is a shard")).to_owned()
    }

    proptest! {
        #[test]
        fn prop_removing_a_shard_moves_only_its_own_owners(owner: u128) {
            let all = winner(&["a", "b", "c", "d"], owner);
            let fewer = winner(&["a", "b", "d"], owner);
            prop_assert!(all == "c" || all == fewer);
        }
    }

    #[test]
    fn shards_have_equal_shares() {
        let names = ["shard-1", "shard-2", "shard-3"];
        let mut counts = std::collections::HashMap::new();
        let hasher = crate::limit::KeyHasher::new([7; 16]);
        for number in 0..30_000_u32 {
            let owner = hasher.hash([(b'u', number.to_le_bytes().as_slice())]);
            *counts.entry(winner(&names, owner)).or_insert(0) += 1;
        }
        assert!(counts.values().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn places_are_the_same_in_every_process() {
        let owners = [1_u128 << 64, 0xDEAD_BEEF << 64, u128::MAX];
        let places = owners.map(|owner| winner(&["a", "b", "c"], owner));
        assert_eq!(places, ["a", "a", "a"].map(str::to_owned));
    }

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
