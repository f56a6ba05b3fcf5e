//! Redis Cluster: which node serves a key, as one node sees it, and what it tells others of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use super::{
    Address, Server, Session,
    command_error::CommandError,
    commands::{Access, Spec},
    keyspace::Keys,
    reply::Reply,
};

/// What a node knows of its cluster. The world changes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterView {
    /// Whether it serves: it does not if it has lost the majority.
    pub(crate) is_ok: bool,
    /// The newest epoch that it knows.
    pub(crate) epoch: u64,
    /// Who has which slots.
    pub(crate) ranges: Vec<SlotRange>,
    /// Slots that are being moved to other nodes.
    pub(crate) migrating: BTreeMap<u16, Address>,
    /// Slots that are being moved here.
    pub(crate) importing: BTreeSet<u16>,
}

/// Who has some slots.
#[derive(Clone, Debug)]
pub(crate) struct SlotRange {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) primary: Address,
    pub(crate) replicas: Vec<Address>,
}

/// The slot of a key: that of its first part in braces, or of all of it.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % 16_384
}

impl ClusterView {
    fn range(&self, slot: u16) -> Option<&SlotRange> {
        self.ranges.iter().find(|range| range.slots.contains(&slot))
    }

    /// Whether the node `at` may execute a command.
    ///
    /// # Errors
    /// Where to go instead, or why that is not known.
    pub(super) fn admit(
        &self,
        at: &Address,
        session: &Session,
        (spec, words): (&Spec, &[Vec<u8>]),
        keys: &mut Keys<'_>,
    ) -> Result<(), CommandError> {
        let names = spec.keys(words);
        let Some(first) = names.first() else { return Ok(()) };
        let slot = slot_of(first);
        let range = self.range(slot).ok_or(CommandError::SlotNotServed)?;
        if names.iter().any(|name| slot_of(name) != slot) {
            return Err(CommandError::CrossSlot);
        }
        if !self.is_ok {
            return Err(CommandError::ClusterDown);
        }
        let is_importing = session.is_asking && self.importing.contains(&slot);
        let migrating = self.migrating.get(&slot).filter(|_| range.primary == *at);
        let mut missing = 0;
        if is_importing || migrating.is_some() {
            missing = names.iter().filter(|name| !keys.contains(name)).count();
        }
        if let Some(to) = migrating.filter(|_| missing > 0) {
            return Err(match missing < names.len() {
                true => CommandError::TryAgain,
                false => CommandError::Ask { slot, to: to.clone() },
            });
        }
        if is_importing && missing > 0 && names.len() > 1 {
            return Err(CommandError::TryAgain);
        }
        let only_reads = spec.access().is_none_or(|access| access == Access::Reads);
        let reads_here = session.reads_replica && only_reads && range.replicas.contains(at);
        match range.primary == *at || is_importing || reads_here {
            true => Ok(()),
            false => Err(CommandError::Moved { slot, to: range.primary.clone() }),
        }
    }

    /// The reply to `CLUSTER INFO` and `CLUSTER SLOTS`.
    pub(super) fn answer(&self, words: &[Vec<u8>]) -> Result<Reply, CommandError> {
        match words[1].to_ascii_uppercase().as_slice() {
            b"INFO" => Ok(Reply::Text(self.info())),
            b"SLOTS" => Ok(Reply::Array(self.ranges.iter().map(SlotRange::reply).collect())),
            _ => Err(CommandError::UnknownSubcommand {
                command: "CLUSTER",
                subcommand: String::from_utf8_lossy(&words[1]).into_owned(),
            }),
        }
    }

    fn info(&self) -> String {
        let state = if self.is_ok { "ok" } else { "fail" };
        let assigned: usize = self.ranges.iter().map(|range| range.slots.len()).sum();
        format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\n\
             cluster_current_epoch:{}\r\n",
            self.epoch
        )
    }
}

impl Server {
    /// The names of its keys in a slot (`CLUSTER GETKEYSINSLOT`).
    pub(crate) fn keys_in_slot(&self, slot: u16) -> Vec<Vec<u8>> {
        let keys = self.keyspace.entries().keys();
        keys.filter(|key| slot_of(key) == slot).cloned().collect()
    }

    /// Moves a key to another server (`MIGRATE`).
    pub(crate) fn move_key(&mut self, key: &[u8], to: &mut Server) {
        if let Some(entry) = self.keyspace.entries().get(key).cloned() {
            to.keyspace.change((key.to_vec(), Some(entry)));
            to.record();
            self.keyspace.change((key.to_vec(), None));
            self.record();
        }
    }
}

impl SlotRange {
    fn reply(&self) -> Reply {
        let number = |number: u16| Reply::Integer(number.into());
        let node = |node: &Address| {
            let id = Reply::bulk(format!("{:0>40}", node.port));
            Reply::Array(vec![
                Reply::bulk(&*node.host),
                number(node.port),
                id,
                Reply::Array(Vec::new()),
            ])
        };
        let slots = [number(*self.slots.start()), number(*self.slots.end())].into_iter();
        let nodes = std::iter::once(&self.primary).chain(&self.replicas).map(node);
        Reply::Array(slots.chain(nodes).collect())
    }
}
