//! Counters from and to a snapshot: one shard after the other, each under its lock only while it is
//! copied.
//!
//! Shards are copied at different instants. That does no harm: all counters of one owner are in one
//! shard, and of a charge on limits of several owners between two copies, the later copy has its
//! part.
//!
//! Leases are not saved: the process that holds them does not survive a restart either.

use std::io;

use tollgate_clock::Timestamp;
use tollgate_limit::{Bytes, State};

use super::{
    MemoryStore,
    room::{Room, is_verified},
    snapshot::{Block, Writer},
    table::Table,
    tables::for_each_table,
    tagged_key::tag_of,
};

impl MemoryStore {
    /// Writes all counters.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn save(&self, writer: &mut Writer) -> io::Result<()> {
        for (index, shard) in self.shards.iter().enumerate() {
            let mut blocks = Vec::new();
            {
                let shard = &mut *shard.lock();
                for_each_table!(&mut shard.tables, (kind, table) => {
                    if !kind.holds_leases() {
                        blocks.push((kind.number(), encode(table)));
                    }
                });
            }
            for (kind, (count, bytes)) in blocks {
                if count > 0 {
                    writer.block(&Block { shard: index as u16, kind, count, bytes })?;
                }
            }
        }
        Ok(())
    }

    /// Loads the counters of a snapshot's block, except those that are over by `now` and those for
    /// which there is no room. Returns false if the block is not valid.
    pub(crate) fn load(&self, block: &Block, now: Timestamp) -> bool {
        let Some(shard) = self.shards.get(usize::from(block.shard)) else { return false };
        let shard = &mut *shard.lock();
        let mut loaded = None;
        for_each_table!(&mut shard.tables, (kind, table) => {
            if block.kind == kind.number() && !kind.holds_leases() {
                loaded = decode(table, block, &self.room, now);
            }
        });
        shard.unverified += loaded.unwrap_or_default();
        loaded.is_some()
    }
}

/// The number of a table's counters, and their bytes.
fn encode<S: State>(table: &Table<S>) -> (u32, Vec<u8>) {
    let mut bytes = Vec::with_capacity(table.len() * size_of::<(u128, S)>());
    for (key, state) in table.iter() {
        bytes.extend(key.to_le_bytes());
        state.encode(&mut bytes);
    }
    (table.len() as u32, bytes)
}

/// Loads the counters for which there is room, and returns how many of them are not verified; none
/// if the block is not valid.
fn decode<S: State>(
    table: &mut Table<S>,
    block: &Block,
    room: &Room,
    now: Timestamp,
) -> Option<usize> {
    let mut bytes = Bytes(&block.bytes);
    let mut unverified = 0;
    // Entries come in the order of their keys: a table that grew while they are inserted would have
    // all of them at its front.
    let most = block.bytes.len() / size_of::<u128>();
    table.reserve((block.count as usize).min(most));
    for _ in 0..block.count {
        let key = u128::from_le_bytes(bytes.array()?);
        let state = S::decode(&mut bytes)?;
        let tag = tag_of(key);
        if !state.is_over(now) && room.admit(&[tag]).is_ok() {
            let (entry, is_new) = table.entry(key)?;
            *entry.state = state;
            if is_new {
                room.add(tag);
                unverified += usize::from(!is_verified(tag));
            }
        }
    }
    bytes.0.is_empty().then_some(unverified)
}
