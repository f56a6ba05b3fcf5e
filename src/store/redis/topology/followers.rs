//! The servers that follow those that take charges, and may be read.

use std::{rc::Rc, time::Duration};

use super::{Election, Place, Placement, Topology, Use};
use crate::{settings::Endpoint, store::redis::node::Node};

impl Topology {
    /// A replica that answers and is not too far behind, if there is one: it can tell how counters of a
    /// place stand, if not always by the latest count.
    pub(in crate::store::redis) fn replica(&self, place: Place) -> Option<Rc<Node>> {
        let mut replicas = self.replicas(place);
        replicas.find(|node| node.server.is_current(self.settings.replica_lag))
    }

    /// A replica that answers, however far behind: all that there is while nobody takes charges.
    pub(in crate::store::redis) fn straggler(&self, place: Place) -> Option<Rc<Node>> {
        self.replicas(place).next()
    }

    /// The replicas of a place that answer.
    fn replicas(&self, place: Place) -> impl Iterator<Item = Rc<Node>> {
        let replicas = match &self.placement {
            Placement::One(election) => election.replicas(),
            Placement::Shards(shards) => {
                let shard = shards.get(usize::from(place.0));
                shard.map(|(_, election)| election.replicas()).unwrap_or_default()
            }
            Placement::Cluster(slots) => slots.replicas(place.0),
        };
        let nodes = replicas.into_iter().map(|endpoint| self.node(&endpoint, Use::Display));
        // Nobody waits for a first connection.
        nodes.filter(|node| node.is_settled() && !node.is_doubted())
    }

    /// How far behind a replica may be that is read.
    pub(in crate::store::redis) fn replica_lag(&self) -> Duration {
        self.settings.replica_lag
    }

    /// The servers that take charges and have replicas, with these.
    pub(in crate::store::redis) fn followed(&self) -> Vec<(Endpoint, Vec<Endpoint>)> {
        let of = |election: &Election| Some((election.primary()?, election.replicas()));
        let mut groups: Vec<_> = match &self.placement {
            Placement::One(election) => of(election).into_iter().collect(),
            Placement::Shards(shards) => {
                shards.iter().filter_map(|(_, election)| of(election)).collect()
            }
            Placement::Cluster(slots) => slots.groups(),
        };
        groups.retain(|(_, replicas)| !replicas.is_empty());
        groups
    }

    /// Connects to replicas that are read, before anybody needs them.
    pub(in crate::store::redis) fn connect_replicas(&self, replicas: &[Endpoint]) {
        for endpoint in replicas {
            self.node(endpoint, Use::Display);
        }
    }
}
