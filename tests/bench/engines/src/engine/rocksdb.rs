//! RocksDB: an LSM tree in C++. A compaction filter drops the keys that are over.

use std::{thread, time::Duration};

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    Options, WriteBatch, WriteOptions, compaction_filter::Decision, properties,
};

use super::{Clock, Engine};
use crate::{
    args::Args,
    workload::{Key, Pair, is_over},
};

/// An open database.
pub struct Rocks {
    database: DB,
    sync: bool,
}

impl Rocks {
    pub fn open(args: &Args, clock: &Clock) -> Result<Self> {
        Ok(Self { database: DB::open(&options(args, clock)?, &args.dir)?, sync: args.sync })
    }

    fn is_idle(&self) -> Result<bool> {
        for name in [
            properties::NUM_RUNNING_COMPACTIONS,
            properties::NUM_RUNNING_FLUSHES,
            properties::COMPACTION_PENDING,
            properties::MEM_TABLE_FLUSH_PENDING,
        ] {
            if self.database.property_int_value(name)?.unwrap_or(0) > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn options(args: &Args, clock: &Clock) -> Result<Options> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_size((args.block << 10) as usize);
    blocks.set_block_cache(&Cache::new_lru_cache((args.cache << 20) as usize)?);
    blocks.set_bloom_filter(f64::from(args.bits), false);
    // What is not in the cache stays in memory as long as its table is open.
    blocks.set_cache_index_and_filter_blocks(!args.pin);
    blocks.set_format_version(5);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size((args.memtable << 20) as usize);
    options.set_target_file_size_base(args.table << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_background_jobs(args.workers as i32);
    let lz4 = if args.compress { DBCompressionType::Lz4 } else { DBCompressionType::None };
    options.set_compression_type(lz4);
    let clock = clock.clone();
    options.set_compaction_filter("ended", move |_, _, value| {
        if is_over(value, clock.now()) { Decision::Remove } else { Decision::Keep }
    });
    Ok(options)
}

impl Engine for Rocks {
    fn write(&self, batch: &[Pair]) -> Result<()> {
        let mut writes = WriteBatch::default();
        for (key, value) in batch {
            writes.put(key, value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        Ok(self.database.write_opt(writes, &options)?)
    }

    fn value(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.database.get(key)?)
    }

    fn settle(&self) -> Result<()> {
        let mut idle = 0;
        while idle < 20 {
            thread::sleep(Duration::from_millis(50));
            idle = if self.is_idle()? { idle + 1 } else { 0 };
        }
        Ok(())
    }

    fn drop_ended(&mut self) -> Result<()> {
        self.database.flush()?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.database.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.flush_wal(true)?)
    }
}
