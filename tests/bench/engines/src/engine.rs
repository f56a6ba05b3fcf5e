//! What the bench asks of an engine.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Result, bail};

use crate::{
    args::Args,
    workload::{Key, Pair, START},
};

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

/// An open store.
pub trait Engine: Send + Sync {
    /// Commits the writes as one batch.
    fn write(&self, batch: &[Pair]) -> Result<()>;

    /// Reads the value of a key and says whether there is one.
    fn read(&self, key: &Key) -> Result<bool> {
        Ok(self.value(key)?.is_some())
    }

    /// Reads the value of a key.
    fn value(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Waits until no work in the background is left.
    fn settle(&self) -> Result<()>;

    /// Drops the keys that are over by the clock, and gives their space back.
    fn drop_ended(&mut self) -> Result<()>;

    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The instant that compaction filters go by. The bench moves it by hand.
#[derive(Clone)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(START)))
    }

    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// Opens the store of the engine that the arguments name, and makes it if there is none.
pub fn open(args: &Args, clock: &Clock) -> Result<Box<dyn Engine>> {
    match args.engine.as_str() {
        #[cfg(feature = "fjall")]
        "fjall" => Ok(Box::new(fjall::Fjall::open(args, clock)?)),
        #[cfg(feature = "redb")]
        "redb" => Ok(Box::new(redb::Redb::open(args, clock)?)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Ok(Box::new(rocksdb::Rocks::open(args, clock)?)),
        name => bail!("{name} is not an engine of this build"),
    }
}
