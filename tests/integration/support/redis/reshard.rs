//! Slots that move between the primaries of a cluster, with their keys.

use super::{Cluster, Redis};

/// One slot on its way. The old primary answers `ASK` for the keys that have gone, and the new one
/// takes over when the move is finished.
#[must_use]
pub(crate) struct Move<'c> {
    cluster: &'c Cluster,
    slot: String,
    from: &'c Redis,
    to: &'c Redis,
}

impl Cluster {
    /// Moves slots to another primary, one after the other.
    pub(crate) fn reshard(&self, slots: impl IntoIterator<Item = u16>, to: usize) {
        for slot in slots {
            let on_its_way = self.begin_move(slot, to);
            on_its_way.move_keys();
            on_its_way.finish();
        }
    }

    /// Opens a slot for moving. Its keys are where they were; there will be no new ones.
    pub(crate) fn begin_move(&self, slot: u16, to: usize) -> Move<'_> {
        let from = self.node(self.primary_of(slot));
        let to = self.node(to);
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        Move { cluster: self, slot, from, to }
    }
}

impl Move<'_> {
    /// Moves all keys that there are. Returns how many.
    pub(crate) fn move_keys(&self) -> usize {
        const AT_ONCE: &str = "100";
        let port = self.to.port().to_string();
        let mut moved = 0;
        loop {
            let keys: Vec<String> =
                self.from.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, AT_ONCE]);
            if keys.is_empty() {
                return moved;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"].into_iter();
            self.from.command(&migrate.chain(keys.iter().map(String::as_str)).collect::<Vec<_>>());
            moved += keys.len();
        }
    }

    /// Announces the new owner of the slot to all nodes; to the new owner first, lest no node owns
    /// it. Then waits until all know its epoch: a node that does not know the highest one does not
    /// go beyond it when it takes a slot over, and gives the slot back, without its keys, to an
    /// earlier owner that still claims it.
    pub(crate) fn finish(self) {
        let owner = id(self.to);
        let primaries = self.cluster.up().filter(|node| node.info("role") == "master");
        for node in [self.to, self.from].into_iter().chain(primaries) {
            node.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &owner]);
        }
        self.cluster.wait_until_all_know_epoch_of(self.to);
    }
}

fn id(node: &Redis) -> String {
    node.ask(&["CLUSTER", "MYID"])
}
