//! Which server has a counter: a single server, a shard by rendezvous hashing, or the owner of a
//! cluster slot.
//!
//! Counters are placed by their owner, so that one call decides all limits of a caller. The servers
//! are queried about themselves (the slots of a cluster, which server is primary) in the background
//! and never while a request waits, so a server that hangs delays only callers whose counters it
//! has.

mod choice;
mod cluster;
mod election;
mod lineage;
mod placement;
mod queries;
mod rendezvous;
mod replicas;
mod sentinel;
mod shard;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

pub(crate) use self::placement::Partition;
use self::placement::Placement;
pub(super) use self::queries::Answer;
use tollgate_settings::{RedisAddress, RedisSettings};

use super::{
    SharedByWorkers, connection,
    node::{Node, NodeConfig},
    server::Server,
    server_report::ServerRole,
    servers::Servers,
    skew::Clocks,
    transport::Transport,
};
use crate::Counts;

/// Time between two reviews while all is well: a failover that no reply has indicated is noticed
/// after this time. Until then, proxies may use different servers.
const REVIEW: Duration = Duration::from_secs(2);

/// The same for a cluster, whose nodes notice themselves when they must not take charges any more.
const REVIEW_OF_CLUSTER: Duration = Duration::from_secs(10);

/// The same while something is wrong, and the least time between two reviews.
const REVIEW_IN_TROUBLE: Duration = Duration::from_millis(300);

/// How long one server may take to answer a query of a review.
const REVIEW_TIMEOUT: Duration = Duration::from_millis(250);

/// All servers, as one worker uses them.
pub(super) struct Topology {
    settings: Arc<RedisSettings>,
    /// The health of the servers, shared by all workers.
    pub(super) servers: Arc<Servers>,
    /// The servers in use, held so that `servers` does not drop them while there is no connection.
    known: RefCell<Vec<Arc<Server>>>,
    /// The skew between this process' clock and the clock of each server.
    clocks: Arc<Clocks>,
    /// How connections are opened.
    transport: Transport,
    /// How long a decision may take.
    decision_timeout: Duration,
    nodes: RefCell<HashMap<(RedisAddress, Purpose), Rc<Node>>>,
    pub(super) placement: Placement,
    /// The primary of each partition that was looked up; cleared whenever one may have changed.
    looked_up: RefCell<BTreeMap<Partition, Rc<Node>>>,
    /// Notified when a review is needed.
    trouble: Rc<Notify>,
    /// How often another server became primary.
    pub(super) elections: Cell<u64>,
    /// Has the list of rival primaries.
    counts: Arc<Counts>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// Everything that a primary does.
    Charges,
    /// Reads that may be out of date. A replica of a cluster serves them after `READONLY` only; a
    /// primary that was sent `READONLY` and becomes a replica would no longer reply `MOVED`.
    Reads,
}

impl Topology {
    /// Connects to all servers, and keeps the topology current as long as it lives. A decision may
    /// take `decision_timeout`.
    pub(super) fn start(
        settings: Arc<RedisSettings>,
        decision_timeout: Duration,
        shared: &SharedByWorkers,
    ) -> Rc<Topology> {
        let topology = Rc::new(Topology {
            placement: Placement::new(&settings.topology),
            settings,
            servers: Arc::clone(&shared.servers),
            known: RefCell::default(),
            clocks: Arc::clone(&shared.clocks),
            transport: shared.transport.clone(),
            decision_timeout,
            nodes: RefCell::default(),
            looked_up: RefCell::default(),
            trouble: Rc::new(Notify::new()),
            elections: Cell::new(0),
            counts: Arc::clone(&shared.counts),
        });
        topology.share_roles(Server::suppose_role);
        topology.servers.suppose_lacks_primary(topology.lacks_primary());
        topology.connect();
        tokio::task::spawn_local(keep_current(Rc::downgrade(&topology)));
        topology
    }

    /// The server that takes charges for a partition; none if it is not known.
    pub(super) fn primary(&self, partition: Partition) -> Option<Rc<Node>> {
        if let Some(node) = self.looked_up.borrow().get(&partition) {
            return Some(Rc::clone(node));
        }
        let address = self.placement.primary(partition)?;
        let node = self.node(&address, Purpose::Charges);
        self.looked_up.borrow_mut().insert(partition, Rc::clone(&node));
        Some(node)
    }

    /// Waits until it is known of all primaries whether they can be reached, or `deadline`.
    pub(super) async fn ready(&self, deadline: Instant) {
        let is_settled = |address: Option<RedisAddress>| {
            address.is_some_and(|address| self.node(&address, Purpose::Charges).is_settled())
        };
        while !self.placement.primaries().into_iter().all(is_settled) && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// How many connections are kept up, and how many calls on them have no reply.
    pub(super) fn census(&self) -> (usize, usize) {
        let nodes = self.nodes.borrow();
        (nodes.len(), nodes.values().map(|node| node.calls()).sum())
    }

    /// Waits until no reply is pending, or `deadline`.
    pub(super) async fn finish(&self, deadline: Instant) {
        let is_busy = || self.nodes.borrow().values().any(|node| node.is_busy());
        while is_busy() && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Records that a slot has another server, as a `MOVED` reply of the server `by` says:
    /// `address` is `host:port`.
    pub(super) fn slot_moved(
        &self,
        partition: Partition,
        address: &str,
        by: &Node,
    ) -> Option<Rc<Node>> {
        let Placement::Cluster(slots) = &self.placement else { return None };
        let address = redirected(address, by.address())?;
        slots.learn(partition.0, &address);
        self.looked_up.borrow_mut().clear();
        self.trouble.notify_one();
        Some(self.node(&address, Purpose::Charges))
    }

    /// The server that a slot is being moved to, as an `ASK` reply says.
    pub(super) fn ask_target(&self, address: &str, by: &Node) -> Option<Rc<Node>> {
        let address = redirected(address, by.address())?;
        Some(self.node(&address, Purpose::Charges))
    }

    /// Asks for a review, because a server did not do what it should.
    pub(super) fn request_review(&self) {
        self.trouble.notify_one();
    }

    /// The server at an address; a new one is connected to.
    fn node(&self, address: &RedisAddress, purpose: Purpose) -> Rc<Node> {
        let name = (address.clone(), purpose);
        if let Some(node) = self.nodes.borrow().get(&name) {
            return Rc::clone(node);
        }
        let greeting = match (&self.placement, purpose) {
            (Placement::Cluster(_), Purpose::Reads) => Some(redis::cmd("READONLY")),
            _ => None,
        };
        let node = connection::start(NodeConfig {
            address: address.clone(),
            settings: Arc::clone(&self.settings),
            transport: self.transport.clone(),
            clock: self.clocks.server_clock(address, self.settings.clock),
            greeting,
            decision_timeout: self.decision_timeout,
            server: self.servers.at(address),
            trouble: Rc::clone(&self.trouble),
        });
        self.nodes.borrow_mut().insert(name, Rc::clone(&node));
        node
    }

    /// Connects to all primaries and replicas before a request needs them, which also reveals their
    /// health.
    fn connect(&self) {
        for address in self.placement.primaries().into_iter().flatten() {
            self.node(&address, Purpose::Charges);
        }
        for (address, role) in self.placement.roles() {
            if role == ServerRole::Replica {
                self.node(&address, Purpose::Reads);
            }
        }
    }

    /// Shares the role of each server with all workers.
    fn share_roles(&self, set_role: fn(&Server, ServerRole)) {
        let share = |(address, role): (RedisAddress, ServerRole)| {
            let server = self.servers.at(&address);
            set_role(&server, role);
            server
        };
        self.known.replace(self.placement.roles().into_iter().map(share).collect());
    }

    /// Whether it is not known for some partition which server takes charges.
    fn lacks_primary(&self) -> bool {
        self.placement.primaries().contains(&None)
    }

    /// Whether no server takes charges for some partition.
    fn is_troubled(&self) -> bool {
        let is_away =
            |primary: Option<RedisAddress>| primary.is_none_or(|address| self.is_away(&address));
        self.placement.primaries().into_iter().any(is_away)
    }

    /// Queries the servers about changes.
    async fn review(self: &Rc<Self>) {
        match &self.placement {
            Placement::Shards(shards) => {
                // One shard that hangs must not delay the others.
                let mut reviews = JoinSet::new();
                for (_, election) in shards {
                    let topology = Rc::clone(self);
                    let election = Rc::clone(election);
                    reviews.spawn_local(async move { election.review(&topology).await });
                }
                while reviews.join_next().await.is_some() {}
            }
            Placement::Cluster(slots) => slots.review(self).await,
        }
        self.looked_up.borrow_mut().clear();
        let known = self.placement.addresses();
        // While a partition has no server, the next review goes on with the nodes of this one.
        if !self.is_troubled() {
            self.nodes.borrow_mut().retain(|(address, _), _| known.contains(address));
        }
        self.share_roles(Server::note_role);
        self.servers.set_lacks_primary(self.lacks_primary());
        self.connect();
    }

    /// Counts that another server has become primary.
    fn note_election(&self) {
        self.elections.set(self.elections.get() + 1);
        self.looked_up.borrow_mut().clear();
    }

    /// Whether a server is known to be away.
    fn is_away(&self, address: &RedisAddress) -> bool {
        self.node(address, Purpose::Charges).is_away()
    }
}

/// Reviews the topology from time to time, and soon when something is wrong.
async fn keep_current(topology: Weak<Topology>) {
    loop {
        let (is_troubled, review, trouble) = {
            let Some(topology) = topology.upgrade() else { return };
            topology.review().await;
            let review = match topology.placement {
                Placement::Shards(_) => REVIEW,
                Placement::Cluster(_) => REVIEW_OF_CLUSTER,
            };
            (topology.is_troubled(), review, Rc::clone(&topology.trouble))
        };
        // A lower bound, so that a flood of errors causes no flood of queries.
        sleep(REVIEW_IN_TROUBLE).await;
        if !is_troubled {
            let _ = timeout(review, trouble.notified()).await;
        }
    }
}

/// The address in a redirection: a server that does not know its own host leaves the host out.
fn redirected(address: &str, by: &RedisAddress) -> Option<RedisAddress> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() || host == "?" { &*by.host } else { host };
    Some(by.at(host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirection_without_a_host_goes_to_the_host_that_replied() {
        let replied = RedisAddress::new("10.0.0.1", 6379);
        for (address, expected) in [
            ("10.0.0.2:7000", "10.0.0.2:7000"),
            (":7000", "10.0.0.1:7000"),
            ("[::1]:7000", "[::1]:7000"),
            ("::1:7000", "[::1]:7000"),
            ("redis-3.example.com:7000", "redis-3.example.com:7000"),
        ] {
            assert_eq!(redirected(address, &replied).unwrap().to_string(), expected);
        }
        assert!(redirected("nowhere", &replied).is_none());
    }
}
