//! Counters from and to a snapshot: one shard after the other, each under its lock for as long as it
//! takes to copy.
//!
//! Shards are copied at different instants. That does no harm: all that a decision looks at together
//! is in one shard, but for limits of several owners, and what was charged between two copies is in
//! the later one only.

use std::io;

use super::{
    MemoryStore, lock,
    room::{Room, is_verified},
    table::Table,
    tag_of,
};
use crate::{
    clock::Timestamp,
    limit::{Bytes, State},
    store::snapshot::{Block, Writer},
};

/// Does something with each table of a shard that is saved; the number names its algorithm in
/// snapshots for good. Leases are not saved: who holds them does not survive a restart either.
macro_rules! for_each_table {
    ($shard:expr, ($kind:ident, $table:ident) => $body:expr) => {
        for_each_table!(@ $shard, $kind, $table, $body,
            1 fixed_window, 2 sliding_window, 3 sliding_log, 4 token_bucket, 5 gcra)
    };
    (@ $shard:expr, $kind:ident, $table:ident, $body:expr, $($number:literal $field:ident),*) => {
        $({
            let ($kind, $table) = ($number, &mut $shard.$field);
            $body
        })*
    };
}

impl MemoryStore {
    /// Writes all counters.
    ///
    /// # Errors
    /// What the writer says.
    pub(in crate::store) fn save(&self, writer: &mut Writer) -> io::Result<()> {
        for (index, shard) in self.shards.iter().enumerate() {
            let mut blocks = Vec::new();
            {
                let shard = &mut *lock(shard);
                for_each_table!(shard, (kind, table) => blocks.push((kind, encode(table))));
            }
            for (kind, (count, bytes)) in blocks {
                if count > 0 {
                    writer.block(&Block { shard: index as u16, kind, count, bytes })?;
                }
            }
        }
        Ok(())
    }

    /// Takes the counters of a snapshot's block, but for those that are over by `now` and those for
    /// which there is no room. False: these are no counters.
    pub(in crate::store) fn load(&self, block: &Block, now: Timestamp) -> bool {
        let Some(shard) = self.shards.get(usize::from(block.shard)) else { return false };
        let shard = &mut *lock(shard);
        let mut loaded = None;
        for_each_table!(shard, (kind, table) => {
            if block.kind == kind {
                loaded = decode(table, block, (&self.room, now));
            }
        });
        shard.unverified += loaded.unwrap_or_default();
        loaded.is_some()
    }
}

/// How many counters a table has, and what they are.
fn encode<S: State>(table: &Table<S>) -> (u32, Vec<u8>) {
    let mut bytes = Vec::with_capacity(table.len() * size_of::<(u128, S)>());
    for (key, state) in table.iter() {
        bytes.extend(key.to_le_bytes());
        state.encode(&mut bytes);
    }
    (table.len() as u32, bytes)
}

/// Takes the counters that there is room for, and tells how many of them nobody vouches for; none if
/// there is anything but counters.
fn decode<S: State>(
    table: &mut Table<S>,
    block: &Block,
    (room, now): (&Room, Timestamp),
) -> Option<usize> {
    let (mut bytes, mut unverified) = (Bytes(&block.bytes), 0);
    // Entries come in order: in a table that grew as they come, they would crowd at its front.
    let most = block.bytes.len() / size_of::<u128>();
    table.reserve((block.count as usize).min(most));
    for _ in 0..block.count {
        let key = u128::from_le_bytes(bytes.array()?);
        let state = S::decode(&mut bytes)?;
        let tag = tag_of(key);
        if !state.is_over(now) && room.admit(&[tag]).is_ok() {
            let (entry, is_new) = table.entry(key)?;
            *entry = state;
            if is_new {
                room.add(tag);
                unverified += usize::from(!is_verified(tag));
            }
        }
    }
    bytes.0.is_empty().then_some(unverified)
}
