//! What the nodes of a Redis Cluster know of each other. A node that is cut off from the others
//! keeps what it knew.

use std::{collections::BTreeSet, rc::Rc};

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
            let mut server = host.server.borrow_mut();
            // What is on its way stays so.
            let known = server.cluster.take().unwrap_or_default();
            let ranges = ranges.clone();
            let view = ClusterView { is_ok: true, epoch: self.epoch.get(), ranges, ..known };
            server.cluster = Some(view);
        }
    }

    /// The pair of servers that has a slot: each has a part of all, but for those that were moved.
    pub(crate) fn pair_of(&self, slot: usize) -> usize {
        let pairs = self.hosts.len() / 2;
        let first = (0..pairs).rev().find(|pair| pair * SLOTS / pairs <= slot);
        self.moved_slots.borrow().get(&slot).copied().or(first).unwrap_or_default()
    }

    /// The server of a pair that is its primary.
    pub(crate) fn primary_of(&self, pair: usize, cut_off: Option<usize>) -> usize {
        let pair = &self.hosts[2 * pair..2 * pair + 2];
        let is_primary =
            |host: &&Rc<Host>| host.follows.get().is_none() && Some(host.number) != cut_off;
        pair.iter().find(is_primary).unwrap_or(&pair[0]).number
    }

    fn slot_ranges(&self, cut_off: Option<usize>) -> Vec<SlotRange> {
        let pairs = self.hosts.len() / 2;
        let mut begins: BTreeSet<usize> = (0..=pairs).map(|at| at * SLOTS / pairs).collect();
        begins.extend(self.moved_slots.borrow().keys().flat_map(|slot| [*slot, slot + 1]));
        let begins: Vec<_> = begins.into_iter().collect();
        let range = |part: &[usize]| {
            let pair = self.pair_of(part[0]);
            let primary = self.primary_of(pair, cut_off);
            let both = self.hosts[2 * pair..2 * pair + 2].iter();
            let replicas = both.filter(|host| host.follows.get() == Some(primary));
            SlotRange {
                slots: part[0] as u16..=(part[1] - 1) as u16,
                primary: address_of(primary),
                replicas: replicas.map(|host| address_of(host.number)).collect(),
            }
        };
        begins.windows(2).map(range).collect()
    }
}
