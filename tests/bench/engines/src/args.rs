//! The arguments of the command line.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

/// What the caller asks for.
#[derive(Clone, Debug)]
pub struct Args {
    /// `fjall`, `redb` or `rocksdb`.
    pub engine: String,
    /// The folder that holds the data. A run clears it first.
    pub dir: PathBuf,
    /// The keys that are loaded.
    pub keys: u64,
    /// The batches that follow the load.
    pub batches: u64,
    /// The updates in a batch.
    pub batch: u64,
    /// The bytes of a value.
    pub value: usize,
    /// The least time from the start of one batch to the start of the next, in milliseconds.
    pub pace: u64,
    /// Whether the load goes in the order of the keys.
    pub sorted: bool,
    /// Whether every batch is synced to the device.
    pub sync: bool,
    /// Whether redb saves its allocator with every commit.
    pub quick_repair: bool,
    /// The engine's cache of blocks or pages, in MiB.
    pub cache: u64,
    /// The memtable of an LSM tree, in MiB.
    pub memtable: u64,
    /// The tables that an LSM tree writes, in MiB.
    pub table: u64,
    /// The threads that an LSM tree has for its work in the background.
    pub workers: usize,
    /// The data blocks of an LSM tree, in KiB.
    pub block: u32,
    /// The bits that an LSM tree's filter has for a key.
    pub bits: f32,
    /// Whether an LSM tree compresses its blocks (LZ4).
    pub compress: bool,
    /// Whether an LSM tree keeps its filters and indexes in memory.
    pub pin: bool,
    /// Whether the data stay on disk after the run.
    pub keep: bool,
    /// The phase that this process runs. The parent process sets it.
    pub phase: Option<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            engine: "fjall".into(),
            dir: std::env::temp_dir().join("engines-data"),
            keys: 1_000_000,
            batches: 600,
            batch: 10_000,
            value: 28,
            pace: 0,
            sorted: false,
            sync: false,
            quick_repair: false,
            cache: 64,
            memtable: 64,
            table: 64,
            workers: 1,
            block: 4,
            bits: 10.0,
            compress: false,
            pin: true,
            keep: false,
            phase: None,
        }
    }
}

impl Args {
    /// Reads the arguments after the program's name.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--sorted" => args.sorted = true,
                "--sync" => args.sync = true,
                "--quick-repair" => args.quick_repair = true,
                "--compress" => args.compress = true,
                "--no-pin" => args.pin = false,
                "--keep" => args.keep = true,
                flag => {
                    let value = words.next().with_context(|| format!("{flag} has no value"))?;
                    args.set(flag, &value).with_context(|| format!("{flag} {value}"))?;
                }
            }
        }
        Ok(args)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<()> {
        match flag {
            "--engine" => self.engine = value.into(),
            "--dir" => self.dir = value.into(),
            "--keys" => self.keys = value.parse()?,
            "--batches" => self.batches = value.parse()?,
            "--batch" => self.batch = value.parse()?,
            "--value" => self.value = value.parse()?,
            "--pace" => self.pace = value.parse()?,
            "--cache" => self.cache = value.parse()?,
            "--memtable" => self.memtable = value.parse()?,
            "--table" => self.table = value.parse()?,
            "--workers" => self.workers = value.parse()?,
            "--block" => self.block = value.parse()?,
            "--bits" => self.bits = value.parse()?,
            "--phase" => self.phase = Some(value.into()),
            _ => bail!("unknown flag"),
        }
        Ok(())
    }

    /// The settings in one line, for the head of the table.
    pub fn settings(&self) -> String {
        let common = format!(
            "keys {} batches {} x {} value {} B load {} sync {} pace {} ms cache {} MiB",
            self.keys,
            self.batches,
            self.batch,
            self.value,
            if self.sorted { "sorted" } else { "random" },
            self.sync,
            self.pace,
            self.cache,
        );
        if self.engine == "redb" {
            return format!("{common} quick-repair {}", self.quick_repair);
        }
        format!(
            "{common} workers {} memtable {} MiB table {} MiB block {} KiB bits {} lz4 {} pin {}",
            self.workers, self.memtable, self.table, self.block, self.bits, self.compress, self.pin,
        )
    }
}
