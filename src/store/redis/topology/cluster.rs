//! The slots of a Redis Cluster: which server has each, as the cluster tells it.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
};

use redis::Value;

use super::{
    Topology,
    questions::{Answer, is_outdated},
};
use crate::{
    settings::Endpoint,
    store::redis::{script::slot_tag, servers::ServerRole},
};

const SLOTS: usize = 16_384;

/// The slot of an owner's counters: that of the hash tag in their names.
pub(super) fn slot_of(owner: u128) -> u16 {
    slot_of_tag(slot_tag(owner).as_bytes())
}

/// The slot of a hash tag, or of a name that has none.
pub(super) fn slot_of_tag(tag: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag) % SLOTS as u16
}

/// Who has which slots.
pub(super) struct Slots {
    /// Where to ask first, and whenever nobody else answers.
    seeds: Vec<Endpoint>,
    map: RefCell<Map>,
    /// The epoch of those who told this map.
    epoch: Cell<u64>,
    /// Who tells first the next time of several that know as much.
    turn: Cell<usize>,
}

/// What a node says of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// It serves. The newest epoch that it knows of; each failover has a newer one, and one that is
    /// cut off does not hear of it. Zero if it does not let us ask.
    Well(u64),
    /// It has lost the others, or they have lost slots: it does not serve.
    Failing,
}

/// What a cluster says about itself.
#[derive(Default, Debug, PartialEq, Eq)]
struct Map {
    groups: Vec<Group>,
    /// For each slot its group's position and one more; zero: nobody has it.
    by_slot: Vec<u16>,
}

/// Servers that have the same slots.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    primary: Endpoint,
    replicas: Vec<Endpoint>,
}

impl Slots {
    pub(super) fn new(seeds: &[Endpoint]) -> Self {
        let (epoch, turn) = (Cell::new(0), Cell::new(0));
        Slots { seeds: seeds.to_vec(), map: RefCell::default(), epoch, turn }
    }

    /// The server that takes charges for a slot.
    pub(super) fn primary(&self, slot: u16) -> Option<Endpoint> {
        match self.map.borrow().group(slot) {
            Some(group) => Some(group.primary.clone()),
            // Before the cluster was asked, any server will do: it knows who has the slot.
            None => self.seeds.first().cloned(),
        }
    }

    /// The servers that follow it.
    pub(super) fn replicas(&self, slot: u16) -> Vec<Endpoint> {
        self.map.borrow().group(slot).map_or_else(Vec::new, |group| group.replicas.clone())
    }

    /// All servers that take charges.
    pub(super) fn primaries(&self) -> Vec<Endpoint> {
        self.map.borrow().groups.iter().map(|group| group.primary.clone()).collect()
    }

    /// The servers that take charges, each with those that follow it.
    pub(super) fn groups(&self) -> Vec<(Endpoint, Vec<Endpoint>)> {
        let map = self.map.borrow();
        map.groups.iter().map(|group| (group.primary.clone(), group.replicas.clone())).collect()
    }

    /// What each server is for.
    pub(super) fn roles(&self) -> Vec<(Endpoint, ServerRole)> {
        let map = self.map.borrow();
        if map.groups.is_empty() {
            return self.seeds.iter().map(|seed| (seed.clone(), ServerRole::Unknown)).collect();
        }
        let of_group = |group: &Group| {
            let replicas = group.replicas.iter().map(|it| (it.clone(), ServerRole::Replica));
            let primary = (group.primary.clone(), ServerRole::Primary);
            std::iter::once(primary).chain(replicas).collect::<Vec<_>>()
        };
        map.groups.iter().flat_map(of_group).collect()
    }

    /// All servers that are known.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let map = self.map.borrow();
        let of_group = |group: &Group| [vec![group.primary.clone()], group.replicas.clone()];
        let known = map.groups.iter().flat_map(of_group).flatten();
        known.chain(self.seeds.iter().cloned()).collect()
    }

    /// A server was told to have a slot.
    pub(super) fn learn(&self, slot: u16, endpoint: &Endpoint) {
        self.map.borrow_mut().give(slot, endpoint);
    }

    /// Asks those who take charges, and the seeds, who has which slots; else all others. Of several
    /// answers the newest is right.
    pub(super) async fn review(&self, topology: &Topology) {
        let mut first = self.primaries();
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        if let Some(turn) = turn.checked_rem(first.len()) {
            first.rotate_left(turn);
        }
        add_new(&mut first, &self.seeds);
        if self.ask(topology, &first).await {
            return;
        }
        let mut others = Vec::new();
        add_new(&mut others, &self.endpoints());
        others.retain(|endpoint| !first.contains(endpoint));
        if !others.is_empty() {
            self.ask(topology, &others).await;
        }
    }

    /// Takes the map of the one that knows most. False if nobody tells.
    async fn ask(&self, topology: &Topology, endpoints: &[Endpoint]) -> bool {
        let command = |word: &str| {
            let mut command = redis::cmd("CLUSTER");
            command.arg(word);
            command
        };
        let answers = topology.ask_all(endpoints, [command("INFO")]).await;
        let views: Vec<Option<View>> = answers.iter().map(|[answer]| View::read(answer)).collect();
        let answered = views.iter().flatten().count();
        let well = endpoints.iter().zip(&views).filter_map(|(endpoint, view)| match view {
            Some(View::Well(epoch)) => Some((*epoch, endpoint)),
            Some(View::Failing) | None => None,
        });
        let mut well: Vec<(u64, &Endpoint)> = well.collect();
        // Those that know as much stay in their order.
        well.sort_by_key(|(epoch, _)| Reverse(*epoch));
        for (epoch, endpoint) in well {
            if is_outdated(epoch, self.epoch.get(), (answered, endpoints.len())) {
                break;
            }
            let Answer::Said(reply) = topology.ask(endpoint, command("SLOTS")).await else {
                continue;
            };
            if let Some(map) = Map::read(&reply, endpoint) {
                self.map.replace(map);
                self.epoch.set(epoch);
                return true;
            }
        }
        false
    }
}

/// Adds those that are not there yet.
fn add_new(endpoints: &mut Vec<Endpoint>, more: &[Endpoint]) {
    for endpoint in more {
        if !endpoints.contains(endpoint) {
            endpoints.push(endpoint.clone());
        }
    }
}

impl View {
    /// Reads the answer to `CLUSTER INFO`; none if there is none.
    fn read(answer: &Answer) -> Option<View> {
        let info = match answer {
            Answer::Silent => return None,
            Answer::Refused => return Some(View::Well(0)),
            Answer::Said(_) => answer.text()?,
        };
        let field = |name: &str| {
            info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        match field("cluster_state") {
            Some("ok") => {
                let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok());
                Some(View::Well(epoch.unwrap_or(0)))
            }
            Some(_) | None => Some(View::Failing),
        }
    }
}

impl Map {
    fn group(&self, slot: u16) -> Option<&Group> {
        let index = self.by_slot.get(usize::from(slot))?.checked_sub(1)?;
        self.groups.get(usize::from(index))
    }

    fn give(&mut self, slot: u16, endpoint: &Endpoint) {
        let known = self.groups.iter().position(|group| group.primary == *endpoint);
        let index = known.unwrap_or_else(|| {
            self.groups.push(Group { primary: endpoint.clone(), replicas: Vec::new() });
            self.groups.len() - 1
        });
        self.by_slot.resize(SLOTS, 0);
        if let Some(place) = self.by_slot.get_mut(usize::from(slot)) {
            *place = index as u16 + 1;
        }
    }

    /// Reads a reply to `CLUSTER SLOTS` from the server at `asked`; none if it is no such reply, or
    /// tells of no slots.
    fn read(reply: &Value, asked: &Endpoint) -> Option<Map> {
        let Value::Array(ranges) = reply else { return None };
        let mut map = Map { groups: Vec::new(), by_slot: vec![0; SLOTS] };
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = range.as_slice()
            else {
                return None;
            };
            let group = Group {
                primary: endpoint(primary, asked)?,
                replicas: replicas.iter().filter_map(|node| endpoint(node, asked)).collect(),
            };
            let known = map.groups.iter().position(|known| *known == group);
            let index = known.unwrap_or_else(|| {
                map.groups.push(group);
                map.groups.len() - 1
            });
            let slots = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            map.by_slot.get_mut(slots)?.fill(index as u16 + 1);
        }
        (!map.groups.is_empty()).then_some(map)
    }
}

/// A server in a reply: `[host, port, …]`. One that does not know its own host leaves it out.
fn endpoint(node: &Value, asked: &Endpoint) -> Option<Endpoint> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), ..] = node.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    let host = if host.is_empty() || host == "?" { asked.host() } else { host };
    Some(asked.at(host, u16::try_from(*port).ok()?))
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
        let asked = Endpoint::new("10.0.0.9", 7000);
        let reply = Value::Array(vec![
            slots(0, 100, &[node("10.0.0.1", 7001), node("10.0.0.2", 7002)]),
            slots(101, 16_383, &[node("", 7003)]),
        ]);
        let map = Map::read(&reply, &asked).unwrap();
        assert_eq!(map.group(100).unwrap().primary, asked.at("10.0.0.1", 7001));
        assert_eq!(map.group(100).unwrap().replicas, [asked.at("10.0.0.2", 7002)]);
        assert_eq!(map.group(101).unwrap().primary, asked.at("10.0.0.9", 7003));
        assert_eq!(map.group(16_383).unwrap().replicas, []);
    }

    #[test]
    fn what_is_no_map_of_slots_is_not_taken_for_one() {
        let asked = Endpoint::new("10.0.0.9", 7000);
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
            assert_eq!(Map::read(&reply, &asked), None, "{reply:?}");
        }
    }

    #[test]
    fn view_of_a_node_is_read() {
        let said = |text: &str| Answer::Said(Value::BulkString(text.as_bytes().to_vec()));
        let fields = "cluster_state:ok\r\ncluster_my_epoch:2\r\ncluster_current_epoch:7\r\n";
        for (answer, expected) in [
            (said(fields), Some(View::Well(7))),
            (said(&fields.replace("ok", "fail")), Some(View::Failing)),
            (said("cluster_state:ok\r\n"), Some(View::Well(0))),
            (said(""), Some(View::Failing)),
            (Answer::Refused, Some(View::Well(0))),
            (Answer::Silent, None),
        ] {
            assert_eq!(View::read(&answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn slot_that_moved_has_its_new_server_at_once() {
        let (old, new) = (Endpoint::new("a", 1), Endpoint::new("b", 2));
        let slots = Slots::new(std::slice::from_ref(&old));
        assert_eq!(slots.primary(7), Some(old.clone()));
        slots.learn(7, &new);
        assert_eq!(slots.primary(7), Some(new));
        assert_eq!(slots.primary(8), Some(old));
    }
}
