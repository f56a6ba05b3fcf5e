//! The slots of a Redis Cluster, and which server has each, as the cluster reports it.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
};

use redis::Value;
use tollgate_settings::RedisAddress;

use super::{
    Topology,
    queries::{Answer, is_outdated},
};
use crate::redis::{info::field, script::slot_tag, server_report::ServerRole};

const SLOTS: usize = 16_384;

/// The slot of an owner's counters: that of the hash tag in their names.
pub(super) fn slot_of(owner: u128) -> u16 {
    slot_of_tag(&slot_tag(owner))
}

/// The slot of a hash tag, or of a name that has none.
pub(super) fn slot_of_tag(tag: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag) % SLOTS as u16
}

/// Which server has which slots.
pub(in crate::redis) struct Slots {
    /// The servers in the settings: queried first, and whenever no other server answers.
    pub(super) seeds: Vec<RedisAddress>,
    map: RefCell<SlotMap>,
    /// The epoch of the node that reported this map.
    epoch: Cell<u64>,
    /// Which of several equally current nodes is queried first the next time.
    next_first: Cell<usize>,
}

/// A node's view of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeView {
    /// It serves. The newest epoch that it knows; each failover has a newer one, which a node that
    /// is cut off does not learn. Zero if `CLUSTER INFO` is not permitted.
    Serving(u64),
    /// It does not serve, because it has lost the majority, or slots have no server.
    Failing,
}

/// The map of slots.
#[derive(Default, Debug, PartialEq, Eq)]
struct SlotMap {
    shards: Vec<ClusterShard>,
    /// For each slot, the position of its shard plus one; zero: no server has it.
    by_slot: Vec<u16>,
}

/// The servers that have the same slots.
#[derive(Debug, PartialEq, Eq)]
struct ClusterShard {
    primary: RedisAddress,
    replicas: Vec<RedisAddress>,
}

impl Slots {
    pub(super) fn new(seeds: &[RedisAddress]) -> Self {
        Slots {
            seeds: seeds.to_vec(),
            map: RefCell::default(),
            epoch: Cell::new(0),
            next_first: Cell::new(0),
        }
    }

    /// The server that takes charges for a slot.
    pub(super) fn primary(&self, slot: u16) -> Option<RedisAddress> {
        match self.map.borrow().shard(slot) {
            Some(shard) => Some(shard.primary.clone()),
            // Before the map is known, any server will do: it redirects.
            None => self.seeds.first().cloned(),
        }
    }

    /// The replicas of a slot's primary.
    pub(super) fn replicas(&self, slot: u16) -> Vec<RedisAddress> {
        self.map.borrow().shard(slot).map_or_else(Vec::new, |shard| shard.replicas.clone())
    }

    /// All primaries.
    pub(super) fn primaries(&self) -> Vec<RedisAddress> {
        self.map.borrow().shards.iter().map(|shard| shard.primary.clone()).collect()
    }

    /// All primaries, each with its replicas.
    pub(super) fn shards(&self) -> Vec<(RedisAddress, Vec<RedisAddress>)> {
        let map = self.map.borrow();
        map.shards.iter().map(|shard| (shard.primary.clone(), shard.replicas.clone())).collect()
    }

    /// The role of each server.
    pub(super) fn roles(&self) -> Vec<(RedisAddress, ServerRole)> {
        let map = self.map.borrow();
        if map.shards.is_empty() {
            return self.seeds.iter().map(|seed| (seed.clone(), ServerRole::Unknown)).collect();
        }
        let of_shard = |shard: &ClusterShard| {
            let replicas = shard.replicas.iter().map(|it| (it.clone(), ServerRole::Replica));
            let primary = (shard.primary.clone(), ServerRole::Primary);
            std::iter::once(primary).chain(replicas).collect::<Vec<_>>()
        };
        map.shards.iter().flat_map(of_shard).collect()
    }

    /// Records that a server has a slot.
    pub(super) fn learn(&self, slot: u16, address: &RedisAddress) {
        self.map.borrow_mut().give(slot, address);
    }

    /// Queries the primaries and the seeds for the map of slots; if none reports it, all other
    /// servers.
    pub(super) async fn review(&self, topology: &Topology) {
        let mut first = self.primaries();
        let next_first = self.next_first.replace(self.next_first.get().wrapping_add(1));
        if let Some(next_first) = next_first.checked_rem(first.len()) {
            first.rotate_left(next_first);
        }
        add_new(&mut first, &self.seeds);
        if self.update_from(topology, &first).await {
            return;
        }
        let mut others = Vec::new();
        for (_, replicas) in self.shards() {
            add_new(&mut others, &replicas);
        }
        others.retain(|address| !first.contains(address));
        if !others.is_empty() {
            self.update_from(topology, &others).await;
        }
    }

    /// Uses the map of the node with the newest epoch. False if no node reports one.
    async fn update_from(&self, topology: &Topology, addresses: &[RedisAddress]) -> bool {
        let command = |subcommand: &str| {
            let mut command = redis::cmd("CLUSTER");
            command.arg(subcommand);
            command
        };
        let answers = topology.query_all(addresses, [command("INFO")]).await;
        let views: Vec<Option<NodeView>> =
            answers.iter().map(|[answer]| NodeView::read(answer)).collect();
        let answered = views.iter().flatten().count();
        let serving = addresses.iter().zip(&views).filter_map(|(address, view)| match view {
            Some(NodeView::Serving(epoch)) => Some((*epoch, address)),
            Some(NodeView::Failing) | None => None,
        });
        let mut serving: Vec<(u64, &RedisAddress)> = serving.collect();
        // The sort is stable: nodes with the same epoch keep their order.
        serving.sort_by_key(|(epoch, _)| Reverse(*epoch));
        for (epoch, address) in serving {
            if is_outdated(epoch, self.epoch.get(), answered, addresses.len()) {
                break;
            }
            let Answer::Replied(reply) = topology.query(address, command("SLOTS")).await else {
                continue;
            };
            if let Some(map) = SlotMap::read(&reply, address) {
                self.map.replace(map);
                self.epoch.set(epoch);
                return true;
            }
        }
        false
    }
}

/// Adds those that are not in the list yet.
fn add_new(addresses: &mut Vec<RedisAddress>, more: &[RedisAddress]) {
    for address in more {
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }
}

impl NodeView {
    /// Reads the answer to `CLUSTER INFO`; none if there is none.
    fn read(answer: &Answer) -> Option<NodeView> {
        let info = match answer {
            Answer::Silent => return None,
            Answer::Refused => return Some(NodeView::Serving(0)),
            Answer::Replied(_) => answer.text()?,
        };
        match field(info, "cluster_state") {
            Some("ok") => {
                let epoch =
                    field(info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
                Some(NodeView::Serving(epoch.unwrap_or(0)))
            }
            Some(_) | None => Some(NodeView::Failing),
        }
    }
}

impl SlotMap {
    fn shard(&self, slot: u16) -> Option<&ClusterShard> {
        let index = self.by_slot.get(usize::from(slot))?.checked_sub(1)?;
        self.shards.get(usize::from(index))
    }

    fn give(&mut self, slot: u16, address: &RedisAddress) {
        let known = self.shards.iter().position(|shard| shard.primary == *address);
        let index = known.unwrap_or_else(|| {
            self.shards.push(ClusterShard { primary: address.clone(), replicas: Vec::new() });
            self.shards.len() - 1
        });
        self.by_slot.resize(SLOTS, 0);
        if let Some(entry) = self.by_slot.get_mut(usize::from(slot)) {
            *entry = index as u16 + 1;
        }
    }

    /// Reads the reply to `CLUSTER SLOTS` of the server at `queried`; none if it cannot be read or
    /// has no slots.
    fn read(reply: &Value, queried: &RedisAddress) -> Option<SlotMap> {
        let Value::Array(ranges) = reply else { return None };
        let mut map = SlotMap { shards: Vec::new(), by_slot: vec![0; SLOTS] };
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = range.as_slice()
            else {
                return None;
            };
            let shard = ClusterShard {
                primary: address_of(primary, queried)?,
                replicas: replicas.iter().filter_map(|node| address_of(node, queried)).collect(),
            };
            let known = map.shards.iter().position(|known| *known == shard);
            let index = known.unwrap_or_else(|| {
                map.shards.push(shard);
                map.shards.len() - 1
            });
            let slots = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            map.by_slot.get_mut(slots)?.fill(index as u16 + 1);
        }
        (!map.shards.is_empty()).then_some(map)
    }
}

/// A server in a reply: `[host, port, …]`. A server that does not know its own host leaves it out.
fn address_of(node: &Value, queried: &RedisAddress) -> Option<RedisAddress> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), ..] = node.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    let host = if host.is_empty() || host == "?" { &*queried.host } else { host };
    Some(queried.at(host, u16::try_from(*port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64) -> Value {
        let host = match host {
            "" => Value::Nil,
            host => Value::BulkString(host.as_bytes().to_vec()),
        };
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    fn slots(first: i64, last: i64, nodes: &[Value]) -> Value {
        let mut range = vec![Value::Int(first), Value::Int(last)];
        range.extend(nodes.iter().cloned());
        Value::Array(range)
    }

    #[test]
    fn slots_are_read_with_their_replicas() {
        let queried = RedisAddress::new("10.0.0.9", 7000);
        let reply = Value::Array(vec![
            slots(0, 100, &[node("10.0.0.1", 7001), node("10.0.0.2", 7002)]),
            slots(101, 16_383, &[node("", 7003)]),
        ]);
        let map = SlotMap::read(&reply, &queried).unwrap();
        assert_eq!(map.shard(100).unwrap().primary, queried.at("10.0.0.1", 7001));
        assert_eq!(map.shard(100).unwrap().replicas, [queried.at("10.0.0.2", 7002)]);
        assert_eq!(map.shard(101).unwrap().primary, queried.at("10.0.0.9", 7003));
        assert_eq!(map.shard(16_383).unwrap().replicas, []);
    }

    #[test]
    fn reply_without_a_map_of_slots_is_refused() {
        let queried = RedisAddress::new("10.0.0.9", 7000);
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![slots(0, 16_384, &[node("a", 1)])]),
            Value::Array(vec![slots(-1, 5, &[node("a", 1)])]),
            Value::Array(vec![slots(9, 5, &[node("a", 1)])]),
            Value::Array(vec![slots(0, 5, &[node("a", 99_999)])]),
            Value::Array(vec![slots(0, 5, &[])]),
        ] {
            assert_eq!(SlotMap::read(&reply, &queried), None, "{reply:?}");
        }
    }

    #[test]
    fn view_of_a_node_is_read() {
        let said = |text: &str| Answer::Replied(Value::BulkString(text.as_bytes().to_vec()));
        let fields = "cluster_state:ok\r\ncluster_my_epoch:2\r\ncluster_current_epoch:7\r\n";
        for (answer, expected) in [
            (said(fields), Some(NodeView::Serving(7))),
            (said(&fields.replace("ok", "fail")), Some(NodeView::Failing)),
            (said("cluster_state:ok\r\n"), Some(NodeView::Serving(0))),
            (said(""), Some(NodeView::Failing)),
            (Answer::Refused, Some(NodeView::Serving(0))),
            (Answer::Silent, None),
        ] {
            assert_eq!(NodeView::read(&answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn slot_that_moved_has_its_new_server_at_once() {
        let old = RedisAddress::new("a", 1);
        let new = RedisAddress::new("b", 2);
        let slots = Slots::new(std::slice::from_ref(&old));
        assert_eq!(slots.primary(7), Some(old.clone()));
        slots.learn(7, &new);
        assert_eq!(slots.primary(7), Some(new));
        assert_eq!(slots.primary(8), Some(old));
    }
}
