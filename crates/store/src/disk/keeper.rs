//! The thread that writes: what was changed goes to the journal several times in each `flush`, and
//! counters that are on disk and were not used for a while are evicted when memory is needed.
//!
//! It is the only one that writes and the only one that evicts. So a counter is evicted only after
//! its write was acknowledged, without another lock.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate_clock::Timestamp;
use tollgate_settings::SyncMode;

use super::{
    Batch, Disk, Failure, OpenFolder, Survey,
    filter::Filter,
    journal::Journal,
    orders::{Job, Order, SurveyResult},
    recover::open_folder,
    tree::MEMTABLE_BYTES,
};
use crate::memory::DiskStore;

/// Bytes of memory that a counter takes, until it is known better.
pub(super) const BYTES_A_KEY: usize = 48;

/// Bytes of a batch, from which on it is written.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes of a journal, from which on the next is begun.
const JOURNAL_BYTES: u64 = 64 << 20;

/// Parts that may wait to become tables.
const MAX_PARTS: usize = 4;

/// How long a folder that is given up may still be used by others of this process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The least time between two surveys of the disk, and how much of all time they may take.
const SURVEY_PAUSE: Duration = Duration::from_secs(60);
const SURVEY_PART: u32 = 20;

/// The fewest counters that may be in memory, however small it is.
const FEWEST_IN_MEMORY: usize = 1000;

/// Writes counters, and keeps memory within its bound.
pub(super) struct Keeper {
    disk: Arc<Disk>,
    store: Weak<DiskStore>,
    orders: Receiver<Order>,
    journal: Option<Journal>,
    /// Asks for tables of all that was written before the journal with this number.
    tables: Sender<u64>,
    upkeep: Sender<Job>,
    /// The survey in progress.
    surveying: Option<SurveyInProgress>,
    next_survey: Instant,
    /// The part of memory that is evicted next.
    next_part: usize,
    batch: Batch,
    /// Whether the folder is to be opened again: the process that it was given up to does not
    /// serve.
    reopens: bool,
}

/// A survey in progress.
struct SurveyInProgress {
    filter: Arc<Filter>,
    /// Counters that are new on disk since it has begun, for each tag.
    new: Vec<u64>,
}

/// Tags, of 16 bits.
const TAGS: usize = 1 << 16;

impl Keeper {
    pub(super) fn new(
        disk: Arc<Disk>,
        store: Weak<DiskStore>,
        orders: Receiver<Order>,
        tables: Sender<u64>,
        upkeep: Sender<Job>,
    ) -> Keeper {
        Keeper {
            disk,
            store,
            orders,
            journal: None,
            tables,
            upkeep,
            surveying: None,
            next_survey: Instant::now(),
            next_part: 0,
            batch: Batch::default(),
            reopens: false,
        }
    }

    /// Writes until the order to end, or nobody uses the store any more.
    pub(super) fn run(mut self) {
        self.take_over();
        let mut due = Instant::now() + self.disk.pause();
        loop {
            let order = self.orders.recv_timeout(due.saturating_duration_since(Instant::now()));
            let Some(store) = self.store.upgrade() else {
                self.disk.reads.end();
                return self.close();
            };
            // What was charged while it writes must not wait for longer than what comes after.
            let begun = Instant::now();
            let order = match order {
                Ok(Order::Finish(_done)) => {
                    self.flush(&store);
                    if self.disk.is_failing() {
                        tracing::error!(
                            "counters were not written to disk, and what was not is lost"
                        );
                    }
                    return self.close();
                }
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => Order::Flush,
                Err(RecvTimeoutError::Disconnected) => return self.close(),
            };
            if self.carry_out(&store, order) {
                self.keep_within_memory(&store);
                self.survey_if_due();
                due = begun + self.disk.pause();
            }
        }
    }

    /// Carries out any order but the last. Returns whether it stood for the write that was due.
    fn carry_out(&mut self, store: &DiskStore, order: Order) -> bool {
        let is_write =
            matches!(order, Order::Flush | Order::Save(_) | Order::CoolDown(_) | Order::Resume(_));
        match order {
            Order::SurveyBegins => {
                if let Some(surveying) = &mut self.surveying {
                    surveying.new.fill(0);
                }
            }
            Order::Surveyed(found) => self.take_survey(store, found),
            Order::KeepSecret(secret) => self.keep_secret(secret),
            Order::Compact(done) => {
                self.flush(store);
                if let Some(opened) = self.disk.opened.load_full() {
                    self.begin_journal(&opened);
                }
                let _ = self.upkeep.send(Job::MergeAll(done));
            }
            Order::Resume(_done) => {
                self.reopens = true;
                self.resume();
            }
            Order::Release(_done) => {
                self.flush(store);
                self.close();
            }
            Order::Save(_done) | Order::Finish(_done) => self.flush(store),
            Order::CoolDown(_done) => {
                self.flush(store);
                // The first time around finds out what is not used.
                for part in (0..DiskStore::PARTS).chain(0..DiskStore::PARTS) {
                    store.evict(part);
                }
            }
            Order::Flush => {
                if self.reopens {
                    self.resume();
                }
                self.flush(store);
            }
        }
        is_write
    }

    /// What was found in journals becomes tables, so that it is not read again at the next start.
    fn take_over(&mut self) {
        let Some(opened) = self.disk.opened.load_full() else { return };
        if opened.tree.waiting_bytes() > 0 {
            self.begin_journal(&opened);
        }
        let _ = self.upkeep.send(Job::Merge);
    }

    /// Writes what is not on disk yet.
    fn flush(&mut self, store: &DiskStore) {
        // Before the flush begins: what is charged from now on may need another one.
        self.disk.is_flush_asked.store(false, Ordering::SeqCst);
        let begun = self.disk.now();
        let number = self.disk.begun.fetch_add(1, Ordering::SeqCst) + 1;
        match self.try_flush(store, begun) {
            Ok(()) => {
                let counts = &self.disk.counts;
                counts.flushes.fetch_add(1, Ordering::Relaxed);
                counts.flush_begun.store(begun.as_micros(), Ordering::Relaxed);
                let took = self.disk.now().saturating_since(begun).as_micros() as u64;
                counts.flush_micros.store(took, Ordering::Relaxed);
                self.disk.recover();
                self.disk.written.send_replace(number);
            }
            Err(NotWritten::Waits) => {}
            Err(NotWritten::Failed(file, error)) => {
                self.disk.fail(Failure { file, error, since: begun });
            }
        }
    }

    fn try_flush(&mut self, store: &DiskStore, now: Timestamp) -> Result<(), NotWritten> {
        // Another process has taken over, and writes.
        let opened = self.disk.opened.load_full().ok_or(NotWritten::Waits)?;
        self.check_tables(&opened)?;
        let (mut keys, mut bytes) = (0, 0);
        let mut first = 0;
        for part in 0..DiskStore::PARTS {
            let usage = store.collect(part, &mut self.batch, now);
            keys += usage.keys;
            bytes += usage.bytes;
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.write(store, &opened, first..part + 1)?;
                first = part + 1;
            }
        }
        self.write(store, &opened, first..DiskStore::PARTS)?;
        let counts = &self.disk.counts;
        counts.keys_in_memory.store(keys as u64, Ordering::Relaxed);
        counts.bytes_in_memory.store(bytes as u64, Ordering::Relaxed);
        let most = self.disk.settings.memory as u128 * keys as u128 / bytes.max(1) as u128;
        let least = self.disk.settings.memory as usize / BYTES_A_KEY;
        let most = if keys < FEWEST_IN_MEMORY { least } else { most as usize };
        self.disk.max_in_memory.store(most.max(FEWEST_IN_MEMORY), Ordering::Relaxed);
        self.begin_journal_if_due(&opened);
        Ok(())
    }

    /// Parts that wait to become tables take memory. If they cannot become tables, nothing more is
    /// written.
    fn check_tables(&self, opened: &OpenFolder) -> Result<(), NotWritten> {
        if opened.tree.waiting_parts() < MAX_PARTS {
            return Ok(());
        }
        match self.disk.table_failure.lock().clone() {
            Some(error) => Err(NotWritten::Failed(opened.folder.tables(), error)),
            None => Err(NotWritten::Waits),
        }
    }

    /// Writes a batch that was collected of these parts, and empties it.
    fn write(
        &mut self,
        store: &DiskStore,
        opened: &OpenFolder,
        parts: std::ops::Range<usize>,
    ) -> Result<(), NotWritten> {
        if self.batch.bytes.is_empty() {
            return Ok(());
        }
        let written = self.append(opened);
        match &written {
            Ok(()) => {
                store.acknowledge(parts);
                self.note_written();
            }
            Err(_) => store.take_back(&self.batch.collected),
        }
        self.batch.clear();
        written
    }

    fn append(&mut self, opened: &OpenFolder) -> Result<(), NotWritten> {
        // The filter first: no counter may be evicted while it says that the disk has none.
        let filter = self.disk.filter.load();
        for key in &self.batch.kept {
            filter.add(*key);
            if let Some(surveying) = &self.surveying {
                surveying.filter.add(*key);
            }
        }
        let folder = &opened.folder.path;
        let failed =
            |file: PathBuf| move |error: io::Error| NotWritten::Failed(file, error.to_string());
        if self.journal.is_none() {
            let begun = opened.journals.begin();
            self.journal = Some(begun.map_err(failed(folder.clone()))?);
        }
        let Some(journal) = &mut self.journal else { return Err(NotWritten::Waits) };
        let syncs = match self.disk.settings.sync {
            SyncMode::Flush | SyncMode::Every => true,
            SyncMode::Os => false,
        };
        let file = super::journal::path_of(folder, journal.id);
        journal.append(&self.batch.bytes, syncs).map_err(failed(file))?;
        opened
            .tree
            .apply(&self.batch.bytes)
            .map_err(|error| NotWritten::Failed(opened.folder.tables(), error.to_string()))
    }

    fn note_written(&mut self) {
        let counts = &self.disk.counts;
        counts.flushed_keys.fetch_add(self.batch.collected.len() as u64, Ordering::Relaxed);
        counts.flushed_bytes.fetch_add(self.batch.bytes.len() as u64, Ordering::Relaxed);
        counts.new_keys.fetch_add(self.batch.new.len() as u64, Ordering::Relaxed);
        if let Some(surveying) = &mut self.surveying {
            for tag in &self.batch.new {
                if let Some(count) = surveying.new.get_mut(usize::from(*tag)) {
                    *count += 1;
                }
            }
        }
    }

    /// Begins the next journal when the present one is long: what is in it becomes a table, and
    /// then it is of no use.
    fn begin_journal_if_due(&mut self, opened: &OpenFolder) {
        let Some(journal) = &self.journal else { return };
        if opened.tree.waiting_bytes() < MEMTABLE_BYTES && journal.complete < JOURNAL_BYTES {
            return;
        }
        self.begin_journal(opened);
    }

    fn begin_journal(&mut self, opened: &OpenFolder) {
        match opened.journals.begin() {
            Ok(next) => {
                if let Err(error) = opened.tree.rotate() {
                    tracing::error!(%error, "the tables do not take a new part");
                    return;
                }
                let _ = self.tables.send(next.id);
                self.journal = Some(next);
            }
            // The present one goes on; it is tried again with the next flush.
            Err(error) => tracing::warn!(%error, "the next journal cannot be begun"),
        }
    }

    /// Evicts counters if there are too many in memory.
    fn keep_within_memory(&mut self, store: &DiskStore) {
        let most = self.disk.max_in_memory();
        let target = most - most / 10;
        let mut evicted = 0;
        // Twice around: once to find out what is not used, once to evict it.
        for _ in 0..2 * DiskStore::PARTS {
            if store.in_memory() <= if evicted == 0 { most } else { target } {
                break;
            }
            evicted += store.evict(self.next_part);
            self.next_part = (self.next_part + 1) % DiskStore::PARTS;
        }
        if evicted > 0 {
            self.disk.counts.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        }
        self.disk.room.notify_waiters();
    }

    /// Requests a survey of the disk, if it is time: it counts the counters that are over, and
    /// makes the filter anew from the others.
    fn survey_if_due(&mut self) {
        let is_due = Instant::now() >= self.next_survey || self.disk.filter.load().is_full();
        let Some(opened) = self.disk.opened.load_full() else { return };
        if self.surveying.is_some() || !is_due {
            return;
        }
        // Room for those that come until the next survey; each one costs memory.
        let about = opened.tree.about();
        let filter = Arc::new(Filter::new(about + about / 4));
        let surveying = SurveyInProgress { filter: Arc::clone(&filter), new: vec![0; TAGS] };
        self.surveying = Some(surveying);
        if self.upkeep.send(Job::Survey(filter)).is_err() {
            self.surveying = None;
        }
    }

    fn take_survey(&mut self, store: &DiskStore, found: SurveyResult) {
        let took = found.took;
        self.next_survey = Instant::now() + SURVEY_PAUSE.max(took * SURVEY_PART);
        let Some(SurveyInProgress { filter, new }) = self.surveying.take() else { return };
        let Ok(counted) = found.counted else { return };
        let mut by_tag = counted.live;
        let live: u64 = by_tag.iter().sum();
        for (count, new) in by_tag.iter_mut().zip(&new) {
            *count += new;
        }
        let new: u64 = new.iter().sum();
        store.count_unsaved(&mut by_tag);
        store.recount(&by_tag);
        self.disk.filter.store(filter);
        self.disk.counts.new_keys.store(new, Ordering::Relaxed);
        *self.disk.survey.lock() = Some(Survey {
            live,
            over: counted.over,
            at: self.disk.now().as_micros(),
            took_millis: took.as_millis() as u64,
        });
    }

    /// Closes the folder, and returns when it is closed.
    fn close(&mut self) {
        let Some(opened) = self.disk.opened.swap(None) else { return };
        opened.tree.stop();
        if let Some(journal) = self.journal.take()
            && let Err(error) = journal.sync()
        {
            tracing::warn!(%error, "the journal was not synced");
        }
        self.surveying = None;
        // Those that use it do so for a short while.
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut opened = opened;
        loop {
            match Arc::try_unwrap(opened) {
                Ok(closed) => return drop(closed),
                Err(used) if Instant::now() < deadline => {
                    opened = used;
                    thread::park_timeout(Duration::from_millis(1));
                }
                Err(_used) => return tracing::warn!("the store is closed late: it is in use"),
            }
        }
    }

    /// Opens a folder again that was given up.
    fn resume(&mut self) {
        if self.disk.opened.load().is_some() {
            self.reopens = false;
            return;
        }
        match open_folder(&self.disk.settings, &self.disk.clock) {
            Ok((opened, _)) => {
                // Another process may have written to it.
                self.disk.filter.store(Arc::new(Filter::unknown()));
                self.next_survey = Instant::now();
                self.disk.opened.store(Some(Arc::new(opened)));
                self.reopens = false;
                self.take_over();
            }
            // The other process may be about to end.
            Err(error) => {
                tracing::warn!(%error, "the store cannot be opened yet; this is tried again")
            }
        }
    }

    fn keep_secret(&self, secret: [u8; 16]) {
        let opened = self.disk.opened.load_full();
        let kept = opened.map(|opened| opened.folder.keep_secret(secret));
        if let Some(Err(error)) = kept {
            tracing::error!(%error, "the key secret was not written to disk");
        }
    }
}

/// Why a flush was not written.
enum NotWritten {
    /// Tables are still written: the next one will be.
    Waits,
    /// What failed, and what was said.
    Failed(PathBuf, String),
}
