//! redb: a B-tree in one file. The keys that are over are deleted range by range.

use std::{fs::OpenOptions, io};

use anyhow::Result;
use redb::{
    Database, ReadableDatabase as _, StorageBackend, TableDefinition, backends::FileBackend,
};

use super::{Clock, Engine};
use crate::{
    args::Args,
    workload::{Key, Pair, is_over},
};

const COUNTERS: TableDefinition<&Key, &[u8]> = TableDefinition::new("counters");

/// The ranges of keys that are cleaned, each in a transaction of its own.
const RANGES: u32 = 1024;

/// An open database.
pub struct Redb {
    database: Database,
    clock: Clock,
    quick_repair: bool,
}

impl Redb {
    pub fn open(args: &Args, clock: &Clock) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(args.dir.join("counters.redb"))?;
        let backend = Backend { file: FileBackend::new(file)?, sync: args.sync };
        let database = Database::builder()
            .set_cache_size((args.cache << 20) as usize)
            .create_with_backend(backend)?;
        Ok(Self { database, clock: clock.clone(), quick_repair: args.quick_repair })
    }

    fn clean(&self, range: u32, now: u64) -> Result<()> {
        let bound = |range: u32| {
            let mut key = [0; 16];
            key[..4].copy_from_slice(&(range << 22).to_be_bytes());
            key
        };
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(self.quick_repair);
        {
            let mut table = transaction.open_table(COUNTERS)?;
            let (from, to) = (bound(range), bound(range + 1));
            let live = |_: &Key, value: &[u8]| !is_over(value, now);
            if range + 1 == RANGES {
                table.retain_in::<&Key, _>(&from.., live)?;
            } else {
                table.retain_in::<&Key, _>(&from..&to, live)?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Engine for Redb {
    fn write(&self, batch: &[Pair]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(self.quick_repair);
        {
            let mut table = transaction.open_table(COUNTERS)?;
            let mut batch: Vec<_> = batch.iter().collect();
            // The tree's pages are touched in order, which costs redb less.
            batch.sort_by_key(|(key, _)| *key);
            for (key, value) in batch {
                table.insert(key, value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn value(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let table = self.database.begin_read()?.open_table(COUNTERS)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn drop_ended(&mut self) -> Result<()> {
        let now = self.clock.now();
        for range in 0..RANGES {
            self.clean(range, now)?;
        }
        while self.database.compact()? {}
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

/// A file whose syncs can be left out, so that a commit reaches the kernel and no further.
#[derive(Debug)]
struct Backend {
    file: FileBackend,
    sync: bool,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.sync { self.file.sync_data() } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
}
