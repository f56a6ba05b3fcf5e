//! fjall: an LSM tree. A compaction filter drops the keys that are over.

use std::{sync::Arc, thread, time::Duration};

use anyhow::Result;
use fjall::{
    AbstractTree as _, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    compaction::{
        Leveled,
        filter::{
            CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
        },
    },
    config::{
        BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy,
        FilterPolicyEntry, PartitioningPolicy, PinningPolicy,
    },
};

use super::{Clock, Engine};
use crate::{
    args::Args,
    workload::{Key, Pair, is_over},
};

/// An open database with its one keyspace.
pub struct Fjall {
    database: Database,
    keyspace: Keyspace,
    sync: bool,
}

impl Fjall {
    pub fn open(args: &Args, clock: &Clock) -> Result<Self> {
        let clock = clock.clone();
        let database = Database::builder(&args.dir)
            .cache_size(args.cache << 20)
            .worker_threads(args.workers)
            .with_compaction_filter_factories(Arc::new(move |_| {
                Some(Arc::new(Filters(clock.clone())) as Arc<dyn Factory>)
            }))
            .open()?;
        let keyspace = database.keyspace("counters", || options(args))?;
        Ok(Self { database, keyspace, sync: args.sync })
    }

    fn is_idle(&self) -> bool {
        self.database.outstanding_flushes() == 0
            && self.database.active_compactions() == 0
            && self.keyspace.tree.sealed_memtable_count() == 0
    }
}

fn options(args: &Args) -> KeyspaceCreateOptions {
    let compression = if args.compress { CompressionType::Lz4 } else { CompressionType::None };
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(args.bits));
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(args.memtable << 20)
        .data_block_size_policy(BlockSizePolicy::all(args.block << 10))
        .data_block_compression_policy(CompressionPolicy::all(compression))
        .filter_policy(FilterPolicy::all(bloom))
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(args.table << 20)));
    if !args.pin {
        return options;
    }
    // A partitioned filter or index pins its top level alone, so pinned ones stay whole.
    options
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
}

impl Engine for Fjall {
    fn write(&self, batch: &[Pair]) -> Result<()> {
        let mode = if self.sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut writes = self.database.batch().durability(Some(mode));
        for (key, value) in batch {
            writes.insert(&self.keyspace, *key, value.as_slice());
        }
        Ok(writes.commit()?)
    }

    fn value(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.keyspace.get(key)?.map(|value| value.to_vec()))
    }

    fn settle(&self) -> Result<()> {
        let mut idle = 0;
        while idle < 20 {
            thread::sleep(Duration::from_millis(50));
            idle = if self.is_idle() { idle + 1 } else { 0 };
        }
        Ok(())
    }

    fn drop_ended(&mut self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        Ok(self.keyspace.major_compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

/// Makes a filter for each compaction.
struct Filters(Clock);

impl Factory for Filters {
    fn name(&self) -> &str {
        "ended"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Ended(self.0.now()))
    }
}

/// Drops what is over at one instant.
struct Ended(u64);

impl CompactionFilter for Ended {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        // An older state of a key never ends later, so it may come to light: it is over as well.
        Ok(if is_over(&item.value()?, self.0) { Verdict::Destroy } else { Verdict::Keep })
    }
}
