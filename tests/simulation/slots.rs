//! What the nodes of a Redis Cluster know of each other. A node that is cut off from the others
//! keeps what it knew.

use std::rc::Rc;

use crate::{
    host::{Host, address_of},
    layout::Layout,
    model::{ClusterView, SlotRange},
    world::World,
};

/// All slots of a cluster.
const SLOTS: usize = 16_384;

impl World {
    /// Tells all nodes of a cluster, but for one that is cut off, who has which slots by now.
    pub(crate) fn announce_slots(&self, cut_off: Option<usize>) {
        if self.layout != Layout::Cluster {
            return;
        }
        self.epoch.set(self.epoch.get() + 1);
        let ranges = self.slot_ranges(cut_off);
        for host in self.hosts.iter().filter(|host| Some(host.number) != cut_off) {
            let epoch = self.epoch.get();
            let view =
                ClusterView { is_ok: true, epoch, ranges: ranges.clone(), ..Default::default() };
            host.server.borrow_mut().cluster = Some(view);
        }
    }

    /// Each pair of servers has a part of the slots.
    fn slot_ranges(&self, cut_off: Option<usize>) -> Vec<SlotRange> {
        let pairs = self.hosts.len() / 2;
        let range = |(at, pair): (usize, &[Rc<Host>])| {
            let is_primary =
                |host: &&Rc<Host>| host.follows.get().is_none() && Some(host.number) != cut_off;
            let primary = pair.iter().find(is_primary).unwrap_or(&pair[0]).number;
            let replicas = pair.iter().filter(|host| host.follows.get() == Some(primary));
            SlotRange {
                slots: (at * SLOTS / pairs) as u16..=((at + 1) * SLOTS / pairs - 1) as u16,
                primary: address_of(primary),
                replicas: replicas.map(|host| address_of(host.number)).collect(),
            }
        };
        self.hosts.chunks(2).enumerate().map(range).collect()
    }
}
