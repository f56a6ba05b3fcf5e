//! A Redis Cluster: three primaries, each with a replica.

use std::time::{Duration, Instant};

use super::{Options, Redis, eventually, shards::wait_for_link};

/// How many slots there are.
const SLOTS: u16 = 16_384;

const PRIMARIES: usize = 3;
const NODES: usize = 2 * PRIMARIES;

/// Six nodes, by number. At first, node `n` below three is the primary of the `n`th third of the
/// slots, and node `n + 3` is its replica.
pub(crate) struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts the nodes, and waits until they all agree.
    pub(crate) fn start() -> Cluster {
        let options = Options::default()
            .set("cluster-enabled", &["yes"])
            .set("cluster-node-timeout", &["1500"])
            .set("cluster-announce-ip", &["127.0.0.1"])
            // Two of three primaries go on without the third.
            .set("cluster-require-full-coverage", &["no"])
            // A replica takes over however long its primary was silent.
            .set("cluster-replica-validity-factor", &["0"])
            // No replica leaves its primary for another.
            .set("cluster-migration-barrier", &["9"]);
        let cluster = Cluster { nodes: Options::start_all(&vec![options; NODES]) };
        cluster.form();
        cluster
    }

    /// Introduces all to all: faster than their talk about each other.
    fn form(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            // None of them has to find out that two have the same.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < PRIMARIES {
                let slots = (0..SLOTS).filter(|slot| first_primary(*slot) == number);
                let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter();
                node.command(&words.chain(slots.iter().map(String::as_str)).collect::<Vec<_>>());
            }
            for other in &self.nodes[..number] {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
            }
        }
        self.wait_until_all_see("each other", |seen| {
            seen.len() == NODES && !seen.iter().any(|node| node.is("handshake"))
        });
        for (primary, replica) in self.nodes.iter().zip(&self.nodes[PRIMARIES..]) {
            let id: String = primary.ask(&["CLUSTER", "MYID"]);
            replica.command(&["CLUSTER", "REPLICATE", &id]);
        }
        self.wait_until_all_see("which node replicates which", |seen| {
            seen.iter().filter(|node| node.is("slave")).count() == NODES - PRIMARIES
        });
        self.nodes[PRIMARIES..].iter().for_each(wait_for_link);
        self.wait_until_ok();
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Its part of a settings file.
    pub(crate) fn settings(&self) -> String {
        format!("cluster: [{}]", self.urls().join(", "))
    }

    pub(crate) fn node(&self, number: usize) -> &Redis {
        &self.nodes[number]
    }

    pub(crate) fn slot_of(&self, key: &str) -> u16 {
        self.any().ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// The primary of a slot, as the nodes that are up see it. While it changes there is none.
    pub(crate) fn primary_of(&self, slot: u16) -> usize {
        let owner = || see(self.any()).into_iter().find(|node| node.has(slot));
        self.number_of(&eventually("somebody has the slot", owner))
    }

    /// The replica of a primary.
    pub(crate) fn replica_of(&self, primary: usize) -> usize {
        let seen = see(self.any());
        let id = &self.seen_as(&seen, primary).id;
        let replica = seen.iter().find(|node| node.primary == *id);
        self.number_of(replica.expect("each primary has a replica"))
    }

    /// The slots of a primary, in order.
    pub(crate) fn slots_of(&self, primary: usize) -> impl Iterator<Item = u16> + use<> {
        let seen = see(self.any());
        let ranges = self.seen_as(&seen, primary).slots.clone();
        ranges.into_iter().flat_map(|(first, last)| first..=last)
    }

    /// Waits until another node has the slots of one that is gone, and all agree on it. Returns
    /// how long that took from now on.
    pub(crate) fn wait_for_failover(&self, gone: usize) -> Duration {
        let begun = Instant::now();
        self.wait_until_all_see("another primary", |seen| {
            self.seen_as(seen, gone).slots.is_empty()
        });
        self.wait_until_ok();
        begun.elapsed()
    }

    /// Has a primary forget all other nodes, and its replica take over its slots without notifying
    /// it: it goes on serving them to all clients.
    pub(crate) fn leave_behind(&self, primary: usize) {
        let replica = self.replica_of(primary);
        for other in see(&self.nodes[primary]) {
            if !other.is("myself") {
                self.nodes[primary].command(&["CLUSTER", "FORGET", &other.id]);
            }
        }
        self.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    }

    /// Waits until a node that has come back follows the one that took its place.
    pub(crate) fn wait_for_return(&self, number: usize) {
        self.wait_until_all_see("a node come back", |seen| {
            let node = self.seen_as(seen, number);
            node.is("slave") && !node.is("fail")
        });
        wait_for_link(&self.nodes[number]);
    }

    /// The nodes that run.
    pub(super) fn up(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|node| node.is_up())
    }

    fn any(&self) -> &Redis {
        self.up().next().expect("a node is up")
    }

    /// Waits until all nodes know the epoch of this one.
    pub(super) fn wait_until_all_know_epoch_of(&self, node: &Redis) {
        let epoch_of = |seen: &[Seen]| {
            seen.iter().find(|other| other.port == node.port()).map(|other| other.epoch)
        };
        let epoch = epoch_of(&see(node));
        self.wait_until_all_see("an epoch", |seen| epoch_of(seen) == epoch);
    }

    fn wait_until_all_see(&self, what: &str, is_so: impl Fn(&[Seen]) -> bool) {
        eventually(&format!("all nodes see {what}"), || {
            self.up().all(|node| is_so(&see(node))).then_some(())
        });
    }

    fn wait_until_ok(&self) {
        // A node is content with itself before it knows who has which slot.
        let is_ok = |node: &Redis| {
            let info: String = node.ask(&["CLUSTER", "INFO"]);
            ["cluster_state:ok", "cluster_slots_assigned:16384"].iter().all(|it| info.contains(it))
        };
        eventually("the cluster is well", || self.up().all(is_ok).then_some(()));
    }

    fn number_of(&self, seen: &Seen) -> usize {
        self.nodes.iter().position(|node| node.port() == seen.port).expect("it is one of ours")
    }

    fn seen_as<'s>(&self, seen: &'s [Seen], number: usize) -> &'s Seen {
        let port = self.nodes[number].port();
        seen.iter().find(|node| node.port == port).expect("all nodes know each other")
    }
}

fn first_primary(slot: u16) -> usize {
    usize::from(slot) * PRIMARIES / usize::from(SLOTS)
}

/// A node as another one sees it.
struct Seen {
    id: String,
    port: u16,
    flags: Vec<String>,
    /// The id of its primary.
    primary: String,
    /// Of two that claim a slot, the one with the higher epoch is believed.
    epoch: u64,
    /// First and last of each range.
    slots: Vec<(u16, u16)>,
}

impl Seen {
    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|is| is == flag)
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// All nodes as this one sees them.
fn see(node: &Redis) -> Vec<Seen> {
    let lines: String = node.ask(&["CLUSTER", "NODES"]);
    lines.lines().map(parse).collect()
}

/// `<id> <host>:<port>@<bus> <flag>,... <primary> <ping> <pong> <epoch> <link> <slots>...`, where
/// slots on the move are in brackets, and beside the rest.
fn parse(line: &str) -> Seen {
    let words: Vec<&str> = line.split(' ').collect();
    let (_, port) = words[1].split_once(':').unwrap();
    let (port, _) = port.split_once('@').unwrap();
    let range = |word: &&str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        (first.parse().unwrap(), last.parse().unwrap())
    };
    Seen {
        id: words[0].to_owned(),
        port: port.parse().unwrap(),
        flags: words[2].split(',').map(str::to_owned).collect(),
        primary: words[3].to_owned(),
        epoch: words[6].parse().unwrap(),
        slots: words[8..].iter().filter(|word| !word.starts_with('[')).map(range).collect(),
    }
}
