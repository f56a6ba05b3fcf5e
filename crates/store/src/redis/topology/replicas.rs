//! The replicas, and which of them may be read.

use std::{rc::Rc, time::Duration};

use tollgate_settings::RedisAddress;

use super::{Partition, Purpose, Topology};
use crate::redis::node::Node;

impl Topology {
    /// A replica of a partition that answers and is not too far behind, if there is one.
    pub(in crate::redis) fn replica(&self, partition: Partition) -> Option<Rc<Node>> {
        let mut replicas = self.replicas(partition);
        replicas.find(|node| node.config.server.is_current(self.settings.replica_lag))
    }

    /// A replica that responds, even if it is far behind: for reads while the primary is away.
    pub(in crate::redis) fn stale_replica(&self, partition: Partition) -> Option<Rc<Node>> {
        self.replicas(partition).next()
    }

    /// The replicas of a partition that respond.
    fn replicas(&self, partition: Partition) -> impl Iterator<Item = Rc<Node>> {
        let replicas = self.placement.replicas(partition).into_iter();
        let nodes = replicas.map(|address| self.node(&address, Purpose::Reads));
        // A reader must not wait for a first connection.
        nodes.filter(|node| node.is_settled() && !node.is_doubted())
    }

    /// How far behind a replica may be that is read.
    pub(in crate::redis) fn replica_lag(&self) -> Duration {
        self.settings.replica_lag
    }

    /// Connects to replicas before a reader needs them.
    pub(in crate::redis) fn connect_replicas(&self, replicas: &[RedisAddress]) {
        for address in replicas {
            self.node(address, Purpose::Reads);
        }
    }
}
