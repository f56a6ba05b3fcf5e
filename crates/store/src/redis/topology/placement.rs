//! Which server has the counters of an owner, and the role of each server.

use std::rc::Rc;

use tollgate_settings::{RedisAddress, Shard, Topology as TopologySettings};

use super::{
    cluster::{Slots, slot_of, slot_of_tag},
    election::Election,
    rendezvous::{score, seed},
};
use crate::redis::server_report::ServerRole;

/// One call can decide all charges of a partition: a single server, a shard or a cluster slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Partition(pub(super) u16);

impl Partition {
    /// The partition with this number.
    pub(crate) fn at(index: usize) -> Partition {
        Partition(index as u16)
    }

    /// Its number: that of the slot in a cluster.
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// How owners are placed.
pub(in crate::redis) enum Placement {
    /// By the highest score among named shards; a single server is the only shard.
    Shards(Vec<(u64, Rc<Election>)>),
    /// By slot.
    Cluster(Slots),
}

impl Placement {
    pub(super) fn new(settings: &TopologySettings) -> Placement {
        match settings {
            TopologySettings::Single(primary) => {
                Placement::Shards(vec![(0, Rc::new(Election::new("", primary, &[])))])
            }
            TopologySettings::Sharded(shards) => {
                let shard = |shard: &Shard| {
                    let Shard { name, primary, replicas } = shard;
                    (seed(name), Rc::new(Election::new(name, primary, replicas)))
                };
                Placement::Shards(shards.iter().map(shard).collect())
            }
            TopologySettings::Cluster(addresses) => Placement::Cluster(Slots::new(addresses)),
        }
    }

    /// The partition of an owner's counters.
    pub(in crate::redis) fn partition(&self, owner: u128) -> Partition {
        match self {
            Placement::Shards(shards) => {
                let scores = shards.iter().map(|(seed, _)| score(*seed, owner)).enumerate();
                let highest = scores.max_by_key(|(_, score)| *score);
                Partition(highest.map_or(0, |(index, _)| index as u16))
            }
            Placement::Cluster(_) => Partition(slot_of(owner)),
        }
    }

    /// The partitions that have a copy of a key that concerns all owners: one on each shard, or the
    /// key's slot.
    pub(in crate::redis) fn partitions_of(&self, key: &str) -> Vec<Partition> {
        match self {
            Placement::Shards(shards) => (0..shards.len()).map(Partition::at).collect(),
            Placement::Cluster(_) => vec![Partition(slot_of_tag(key.as_bytes()))],
        }
    }

    /// The server that takes charges for a partition; none if it is not known.
    pub(super) fn primary(&self, partition: Partition) -> Option<RedisAddress> {
        match self {
            Placement::Shards(shards) => shards.get(partition.index())?.1.primary(),
            Placement::Cluster(slots) => slots.primary(partition.0),
        }
    }

    /// The replicas of a partition's primary.
    pub(super) fn replicas(&self, partition: Partition) -> Vec<RedisAddress> {
        match self {
            Placement::Shards(shards) => {
                let shard = shards.get(partition.index());
                shard.map(|(_, election)| election.replicas()).unwrap_or_default()
            }
            Placement::Cluster(slots) => slots.replicas(partition.0),
        }
    }

    /// The primaries; none where the primary is not known.
    pub(super) fn primaries(&self) -> Vec<Option<RedisAddress>> {
        match self {
            Placement::Shards(shards) => {
                shards.iter().map(|(_, election)| election.primary()).collect()
            }
            Placement::Cluster(slots) => match slots.primaries() {
                primaries if primaries.is_empty() => vec![None],
                primaries => primaries.into_iter().map(Some).collect(),
            },
        }
    }

    /// The primaries that have replicas, each with its replicas.
    pub(in crate::redis) fn replicated_primaries(&self) -> Vec<(RedisAddress, Vec<RedisAddress>)> {
        let of = |election: &Election| Some((election.primary()?, election.replicas()));
        let mut primaries: Vec<_> = match self {
            Placement::Shards(shards) => {
                shards.iter().filter_map(|(_, election)| of(election)).collect()
            }
            Placement::Cluster(slots) => slots.shards(),
        };
        primaries.retain(|(_, replicas)| !replicas.is_empty());
        primaries
    }

    /// The role of each server.
    pub(super) fn roles(&self) -> Vec<(RedisAddress, ServerRole)> {
        match self {
            Placement::Shards(shards) => {
                shards.iter().flat_map(|(_, election)| election.roles()).collect()
            }
            Placement::Cluster(slots) => slots.roles(),
        }
    }

    /// All servers that are queried or charged.
    pub(super) fn addresses(&self) -> Vec<RedisAddress> {
        let mut addresses: Vec<_> = self.roles().into_iter().map(|(address, _)| address).collect();
        if let Placement::Cluster(slots) = self {
            addresses.extend_from_slice(&slots.seeds);
        }
        addresses
    }
}
