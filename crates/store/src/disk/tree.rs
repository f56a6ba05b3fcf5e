//! The tables: counters that have left the journal, in sorted files (a log-structured merge tree,
//! O'Neil, Cheng, Gawlick, O'Neil, 1996), by the crate `lsm-tree`.
//!
//! That crate is the tree under fjall, without its threads and its journal: so nothing here sleeps
//! in the place of a caller, an error is returned to who caused it, and a full disk is no reason to
//! stop. See `docs/design/disk-store.md`.

mod expiry;
mod settle;

use std::{
    fs::File,
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, Guard, SeqNo, SequenceNumberCounter,
    UserKey, UserValue,
    compaction::Leveled,
    config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy},
};
use parking_lot::{Mutex, RwLock};
use tollgate_clock::{Clock, Timestamp};
use xxhash_rust::xxh3::Xxh3Default;

use self::expiry::{Expiry, ExpiryFactory};
use super::{
    batch::{Change, Changes},
    record::{KEY_BYTES, Record, key_of},
};

/// Memory for blocks of tables that were read lately.
const CACHE_BYTES: u64 = 32 << 20;

/// The file that names the list of tables, `v` and its number, with a checksum of it.
const CURRENT: &str = "current";

/// Counters that are read between two looks whether the store is being closed.
const STRETCH: u64 = 1024;

/// Tables that are open at once.
const OPEN_FILES: usize = 256;

/// Bytes of a table.
const TABLE_BYTES: u64 = 64 << 20;

/// Bytes of counters that wait in memory to become a table.
pub(super) const MEMTABLE_BYTES: u64 = 24 << 20;

/// Why the tables do not serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    /// The system says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What was read is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// The library has a mistake.
    #[error("the library of the tables panicked: {0}")]
    Panicked(String),
    /// The store is being closed.
    #[error("the store is being closed")]
    Stopped,
}

impl From<lsm_tree::Error> for TreeError {
    fn from(error: lsm_tree::Error) -> TreeError {
        match error {
            lsm_tree::Error::Io(error) => TreeError::Io(error),
            lsm_tree::Error::ChecksumMismatch { .. } => {
                TreeError::Damaged("a checksum does not match what was read".to_owned())
            }
            lsm_tree::Error::Unrecoverable => {
                TreeError::Damaged("files of the tables are missing".to_owned())
            }
            error => TreeError::Damaged(format!("what was read is no table: {error:?}")),
        }
    }
}

/// The tables, and what waits in memory to become one.
pub(super) struct Tree {
    tree: AnyTree,
    folder: PathBuf,
    /// Numbers the writes: the latest one of a key counts.
    sequence: SequenceNumberCounter,
    strategy: Arc<Leveled>,
    expiry: Arc<Expiry>,
    /// Held while a snapshot is taken: its number is read, and then the tables of that number.
    taking_snapshot: RwLock<()>,
    /// Held while tables are merged.
    merging: Mutex<()>,
    /// Whether a change of the tables has failed, and what is on disk was not put right since.
    is_in_doubt: AtomicBool,
}

/// What the tables take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeSize {
    /// Bytes of all tables.
    pub(super) bytes: u64,
    pub(super) tables: usize,
    /// Bytes in memory: filters and indexes of tables.
    pub(super) memory: usize,
}

/// A table that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DamagedTable {
    pub(super) file: PathBuf,
    pub(super) reason: String,
}

impl Tree {
    /// Makes a folder without tables.
    ///
    /// # Errors
    /// [`TreeError`]; also if there are tables.
    pub(super) fn create(folder: &Path, clock: Clock) -> Result<Tree, TreeError> {
        match folder.join(CURRENT).try_exists()? {
            false => Tree::open_or_create(folder, clock),
            true => Err(io::Error::from(io::ErrorKind::AlreadyExists).into()),
        }
    }

    /// Opens the tables in a folder.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn open(folder: &Path, clock: Clock) -> Result<Tree, TreeError> {
        // Without this file the library would make a tree that is empty.
        match folder.join(CURRENT).try_exists()? {
            true => Tree::open_or_create(folder, clock),
            false => Err(TreeError::Damaged(format!("the file `{CURRENT}` is missing"))),
        }
    }

    fn open_or_create(folder: &Path, clock: Clock) -> Result<Tree, TreeError> {
        let sequence = SequenceNumberCounter::default();
        let visible = SequenceNumberCounter::default();
        let is_stopped = AtomicBool::new(false);
        let expiry = Arc::new(Expiry { clock, is_stopped, dropped: AtomicU64::new(0) });
        let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
        let mut config = Config::new(folder, sequence.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES))))
            // The filter in memory has found the key already: it is mostly in the last level, which
            // needs no filter of its own.
            .expect_point_read_hits(true)
            .filter_policy(FilterPolicy::all(bloom))
            // In parts, only the index of the parts would stay in memory.
            .filter_block_partitioning_policy(PinningPolicy::all(false))
            .index_block_partitioning_policy(PinningPolicy::all(false))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true));
        config.compaction_filter_factory = Some(Arc::new(ExpiryFactory(Arc::clone(&expiry))));
        let tree = guarded(|| Ok(config.open()?))?;
        let latest = tree.get_highest_seqno().map_or(0, |latest| latest + 1);
        sequence.fetch_max(latest);
        visible.fetch_max(latest);
        let strategy = Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES));
        Ok(Tree {
            tree,
            folder: folder.to_owned(),
            sequence,
            strategy,
            expiry,
            taking_snapshot: RwLock::default(),
            merging: Mutex::default(),
            is_in_doubt: AtomicBool::new(false),
        })
    }

    /// Applies the changes of a frame.
    ///
    /// # Errors
    /// [`TreeError::Damaged`] if the bytes are not those of a batch.
    pub(super) fn apply(&self, frame: &[u8]) -> Result<(), TreeError> {
        guarded(|| {
            for change in Changes(frame) {
                let number = self.sequence.next();
                match change {
                    Some(Change::Put(key, value)) => self.tree.insert(&key[..], value, number),
                    Some(Change::Remove(key)) => self.tree.remove(&key[..], number),
                    None => return Err(TreeError::Damaged("not the bytes of a batch".to_owned())),
                };
            }
            Ok(())
        })
    }

    /// Reads a counter. It may read from disk.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn get(&self, key: &[u8; KEY_BYTES]) -> Result<Option<Record>, TreeError> {
        // The latest state there is. A number that was read before could be gone by now.
        let value = guarded(|| Ok(self.tree.get(key, SeqNo::MAX)?))?;
        value.map(|value| Record::read(&value).ok_or_else(unknown_form)).transpose()
    }

    /// Passes all counters, as they are now, to `each`.
    ///
    /// # Errors
    /// [`TreeError`]; also if a value is not that of a counter.
    pub(super) fn for_each(&self, mut each: impl FnMut(u128, Record)) -> Result<(), TreeError> {
        self.for_each_entry(|key, value| {
            let counter = key_of(&key).zip(Record::read(&value));
            let (key, record) = counter.ok_or_else(unknown_form)?;
            each(key, record);
            Ok(())
        })
    }

    fn for_each_entry(
        &self,
        mut each: impl FnMut(UserKey, UserValue) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let mut entries = {
            let _taking = self.taking_snapshot.read();
            guarded(|| Ok(self.tree.iter(self.sequence.get(), None)))?
        };
        let mut seen = 0_u64;
        while let Some(next) = guarded(|| Ok(entries.next()))? {
            seen += 1;
            if seen.is_multiple_of(STRETCH) && self.expiry.is_stopped.load(Ordering::Relaxed) {
                return Err(TreeError::Stopped);
            }
            let (key, value) = guarded(|| Ok(next.into_inner()?))?;
            each(key, value)?;
        }
        Ok(())
    }

    /// A number that no snapshot which is still to get its tables is below: what only earlier ones
    /// would read may go.
    fn oldest_snapshot(&self) -> SeqNo {
        let _nobody_takes_one = self.taking_snapshot.write();
        self.sequence.get()
    }

    /// Bytes of counters that wait to become a table.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.tree.active_memtable().size()
    }

    /// Parts that wait to become tables, besides the one that is written.
    pub(super) fn waiting_parts(&self) -> usize {
        self.tree.sealed_memtable_count()
    }

    /// Ends the part that is written: what is written from now on is in another one.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn rotate(&self) -> Result<(), TreeError> {
        guarded(|| {
            self.tree.rotate_memtable();
            Ok(())
        })
    }

    /// Makes tables of the parts that wait, and returns when these are on the disk itself.
    ///
    /// # Errors
    /// [`TreeError`]; then the parts wait still.
    pub(super) fn write_tables(&self) -> Result<(), TreeError> {
        self.settle(None)?;
        let written = guarded(|| {
            let lock = self.tree.get_flush_lock();
            self.tree.flush(&lock, self.oldest_snapshot())?;
            Ok(())
        });
        if written.is_err() {
            self.note_failure(None);
        }
        written
    }

    /// Merges tables as long as there is something to merge and `goes_on` says so.
    ///
    /// # Errors
    /// [`TreeError`]; then the tables are as they were.
    pub(super) fn merge(&self, goes_on: impl Fn() -> bool) -> Result<(), TreeError> {
        while goes_on() {
            let before = self.tree.current_version().id();
            self.while_merging(|| {
                let strategy = Arc::clone(&self.strategy);
                Ok(self.tree.compact(strategy, self.oldest_snapshot())?)
            })?;
            if self.tree.current_version().id() == before {
                break;
            }
        }
        Ok(())
    }

    fn while_merging(
        &self,
        merge: impl FnOnce() -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let merging = self.merging.lock();
        self.settle(Some(&merging))?;
        let merged = guarded(merge);
        if merged.is_err() {
            self.note_failure(Some(&merging));
        }
        merged
    }

    /// Merges all tables into the fewest, and drops what is over.
    ///
    /// # Errors
    /// [`TreeError`]; then the tables are as they were.
    pub(super) fn merge_all(&self) -> Result<(), TreeError> {
        self.while_merging(|| Ok(self.tree.major_compact(TABLE_BYTES, self.oldest_snapshot())?))
    }

    /// Has what takes long end before it is done.
    pub(super) fn stop(&self) {
        self.expiry.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Counters that were over when tables were merged, and went.
    pub(super) fn dropped(&self) -> u64 {
        self.expiry.dropped.load(Ordering::Relaxed)
    }

    /// How many counters there are about, with earlier states of them.
    pub(super) fn about(&self) -> usize {
        self.tree.approximate_len()
    }

    /// What the tables take.
    pub(super) fn size(&self) -> TreeSize {
        TreeSize {
            bytes: self.tree.disk_space(),
            tables: self.tree.table_count(),
            memory: self.tree.pinned_filter_size() + self.tree.pinned_block_index_size(),
        }
    }

    /// Calls this while nobody may read which tables there are, as while tables are being
    /// registered on a slow disk.
    #[cfg(test)]
    pub(super) fn while_registering<T>(&self, call: impl FnOnce() -> T) -> T {
        let _registering = self.tree.get_version_history_lock();
        call()
    }

    /// Reads all tables, and returns those that are not as they were written. If the store is
    /// closed meanwhile, that is all.
    pub(super) fn damaged_tables(&self) -> Vec<DamagedTable> {
        let version = self.tree.current_version();
        let check = |table: &lsm_tree::Table| {
            let file = self.folder.join("tables").join(table.id().to_string());
            let reason = match digest(&file) {
                Ok(found) if found == table.checksum().into_u128() => return None,
                Ok(_) => "it was changed since it was written".to_owned(),
                Err(error) => error.to_string(),
            };
            Some(DamagedTable { file, reason })
        };
        let is_open = |_: &&lsm_tree::Table| !self.expiry.is_stopped.load(Ordering::Relaxed);
        version.iter_tables().take_while(is_open).filter_map(check).collect()
    }

    /// Writes the counters that are not over to new tables in an empty folder. Returns how many.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn copy_to(&self, folder: &Path, now: Timestamp) -> Result<u64, TreeError> {
        let copy = Tree::create(folder, self.expiry.clock.clone())?;
        let mut count = 0;
        let mut copied = Ok(());
        let mut writer = guarded(|| Ok(copy.tree.ingestion()?))?;
        self.for_each_entry(|key, value| {
            match Record::read(&value).and_then(|record| record.is_over(now)) {
                Some(true) => {}
                Some(false) => {
                    guarded(|| Ok(writer.write(key, value)?))?;
                    count += 1;
                }
                None => copied = Err(unknown_form()),
            }
            Ok(())
        })?;
        guarded(|| Ok(writer.finish()?))?;
        copied.map(|()| count)
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn unknown_form() -> TreeError {
    TreeError::Damaged("a counter has a form that is not known".to_owned())
}

/// The checksum of a file, as its tree has noted it.
fn digest(file: &Path) -> io::Result<u128> {
    let mut file = File::open(file)?;
    let mut hash = Xxh3Default::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.digest128()),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

/// Calls the library. A panic in it is an error: it must not end the thread that writes counters.
fn guarded<T>(call: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(TreeError::Panicked(text.unwrap_or_else(|| "for no known reason".to_owned())))
    })
}
