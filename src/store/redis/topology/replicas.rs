//! The replicas, and which of them may be read.

use std::{rc::Rc, time::Duration};

use super::{Election, Partition, Placement, Purpose, Topology};
use crate::{settings::Endpoint, store::redis::node::Node};

impl Topology {
    /// A replica of a partition that answers and is not too far behind, if there is one.
    pub(in crate::store::redis) fn replica(&self, partition: Partition) -> Option<Rc<Node>> {
        let mut replicas = self.replicas(partition);
        replicas.find(|node| node.server.is_current(self.settings.replica_lag))
    }

    /// A replica that answers, however far behind: for reads while the primary is away.
    pub(in crate::store::redis) fn stale_replica(&self, partition: Partition) -> Option<Rc<Node>> {
        self.replicas(partition).next()
    }

    /// The replicas of a partition that answer.
    fn replicas(&self, partition: Partition) -> impl Iterator<Item = Rc<Node>> {
        let replicas = match &self.placement {
            Placement::One(election) => election.replicas(),
            Placement::Shards(shards) => {
                let shard = shards.get(usize::from(partition.0));
                shard.map(|(_, election)| election.replicas()).unwrap_or_default()
            }
            Placement::Cluster(slots) => slots.replicas(partition.0),
        };
        let nodes = replicas.into_iter().map(|endpoint| self.node(&endpoint, Purpose::Reads));
        // A reader must not wait for a first connection.
        nodes.filter(|node| node.is_settled() && !node.is_doubted())
    }

    /// How far behind a replica may be that is read.
    pub(in crate::store::redis) fn replica_lag(&self) -> Duration {
        self.settings.replica_lag
    }

    /// The primaries that have replicas, each with its replicas.
    pub(in crate::store::redis) fn replicated_primaries(&self) -> Vec<(Endpoint, Vec<Endpoint>)> {
        let of = |election: &Election| Some((election.primary()?, election.replicas()));
        let mut primaries: Vec<_> = match &self.placement {
            Placement::One(election) => of(election).into_iter().collect(),
            Placement::Shards(shards) => {
                shards.iter().filter_map(|(_, election)| of(election)).collect()
            }
            Placement::Cluster(slots) => slots.shards(),
        };
        primaries.retain(|(_, replicas)| !replicas.is_empty());
        primaries
    }

    /// Connects to replicas before a reader needs them.
    pub(in crate::store::redis) fn connect_replicas(&self, replicas: &[Endpoint]) {
        for endpoint in replicas {
            self.node(endpoint, Purpose::Reads);
        }
    }
}
