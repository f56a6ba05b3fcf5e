//! Primaries that know nothing of each other, each with a replica.

use super::{Options, Redis, eventually};

pub(crate) struct Shards {
    primaries: Vec<Redis>,
    replicas: Vec<Redis>,
}

impl Shards {
    /// Starts so many primaries, and waits until each has its replica.
    pub(crate) fn start(count: usize) -> Shards {
        let primaries = Options::start_all(&vec![Options::default(); count]);
        let followers = primaries.iter().map(|one| Options::default().replica_of(one.port()));
        let replicas = Options::start_all(&followers.collect::<Vec<_>>());
        replicas.iter().for_each(wait_for_link);
        Shards { primaries, replicas }
    }

    /// Their part of a settings file; the shards are `shard-0`, `shard-1` and so on.
    pub(crate) fn settings(&self) -> String {
        let shards = self.primaries.iter().zip(&self.replicas).enumerate();
        let shards = shards.map(|(number, (primary, replica))| {
            let primary = primary.url();
            let replica = replica.url();
            format!("{{ name: shard-{number}, primary: {primary}, replicas: [{replica}] }}")
        });
        format!("shards: [{}]", shards.collect::<Vec<_>>().join(", "))
    }

    pub(crate) fn primary(&self, shard: usize) -> &Redis {
        &self.primaries[shard]
    }

    pub(crate) fn replica(&self, shard: usize) -> &Redis {
        &self.replicas[shard]
    }

    pub(crate) fn count(&self) -> usize {
        self.primaries.len()
    }

    /// Makes a primary of the replica. The old primary is not notified.
    pub(crate) fn promote(&self, shard: usize) {
        self.replicas[shard].command(&["REPLICAOF", "NO", "ONE"]);
    }
}

/// Waits until a replica has the data of its primary.
pub(super) fn wait_for_link(replica: &Redis) {
    let is_linked = || replica.info("master_link_status") == "up";
    eventually("the replica follows", || is_linked().then_some(()));
}
