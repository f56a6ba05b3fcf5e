//! The thread that writes: what was changed goes to the journal several times in each `flush`, and
//! counters that are on disk and were not used for a while are evicted when memory is needed.
//!
//! It is the only one that writes and the only one that evicts. So a counter is evicted only after
//! its write was acknowledged, without another lock.

use std::{
    sync::{
        Arc, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate_clock::Timestamp;

use super::{
    Batch, Disk, Failure, OpenFolder, Survey,
    applying::{Applied, ApplyJob},
    filter::Filter,
    journal::Journal,
    journal_writer::{JournalWriter, NotWritten, begin_journal},
    orders::{Job, Order, SurveyResult},
    recover::open_folder,
    syncing::SyncJob,
};
use crate::memory::DiskStore;

/// Bytes of memory that a counter takes, until it is known better.
pub(super) const BYTES_A_KEY: usize = 48;

/// Bytes of a batch, from which on it is written.
const BATCH_BYTES: usize = 4 << 20;

/// Batches that may wait to be applied.
const MAX_APPLYING: usize = 64;

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
    writer: JournalWriter,
    helpers: Helpers,
    /// Batches that were written and are not applied yet, and parts that are not ended yet.
    applying: usize,
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

/// The threads that work for the keeper.
pub(super) struct Helpers {
    pub(super) upkeep: Sender<Job>,
    pub(super) syncs: Sender<SyncJob>,
    pub(super) batches: Sender<ApplyJob>,
    pub(super) applied: Receiver<Applied>,
}

/// A survey in progress.
struct SurveyInProgress {
    filter: Arc<Filter>,
    /// Jobs that were given before it, and have to be done before it can begin: it does not find
    /// what is not applied, and its filter does not have that.
    waits_for: usize,
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
        helpers: Helpers,
        journal: Option<Journal>,
    ) -> Keeper {
        let writer = JournalWriter::new(Arc::clone(&disk), helpers.syncs.clone(), journal);
        Keeper {
            disk,
            store,
            orders,
            writer,
            helpers,
            applying: 0,
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
            Order::NextJournal(opened_times, made) => self.writer.take_made(opened_times, made),
            Order::Compact(done) => {
                self.settle(store);
                if self.disk.opened.load().is_some() {
                    // Without a next one, the present one has what is in tables, too: whole states
                    // may be read twice.
                    let begun = self.writer.begin_next().or(self.writer.present());
                    self.end_part(begun);
                    self.wait_until_applied(store);
                }
                let _ = self.helpers.upkeep.send(Job::MergeAll(done));
            }
            Order::Resume(_done) => {
                self.reopens = true;
                self.resume();
            }
            Order::Release(_done) => {
                self.flush(store);
                self.close();
            }
            Order::Save(done) => {
                self.flush_for(store, Some(done.clone()));
                self.wait_until_applied(store);
            }
            Order::Finish(_done) => self.flush(store),
            Order::CoolDown(_done) => {
                self.settle(store);
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
        let begun = self.writer.take_over(&opened);
        self.end_part(begun);
        let _ = self.helpers.upkeep.send(Job::Merge);
    }

    /// Writes what is not on disk yet.
    fn flush(&mut self, store: &DiskStore) {
        self.flush_for(store, None);
    }

    /// The same for somebody who waits until it is synced, too.
    fn flush_for(&mut self, store: &DiskStore, done: Option<Sender<()>>) {
        // Before the flush begins: what is charged from now on may need another one.
        self.disk.is_flush_asked.store(false, Ordering::SeqCst);
        let (begun, at) = (Instant::now(), self.disk.now());
        let number = self.disk.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let flushed = self.try_flush(store, at);
        self.note_usage(store);
        match flushed {
            Ok(()) => {
                let counts = &self.disk.counts;
                counts.flushes.fetch_add(1, Ordering::Relaxed);
                counts.flush_begun.store(at.as_micros(), Ordering::Relaxed);
                let took = self.disk.now().saturating_since(at).as_micros() as u64;
                counts.flush_micros.store(took, Ordering::Relaxed);
                self.disk.note_written(begun);
                self.writer.have_synced(number, begun, done);
            }
            Err(NotWritten::Waits) => {}
            Err(NotWritten::Failed(file, error)) => {
                self.disk.fail(Failure { file, error, since: at });
            }
        }
    }

    /// Writes what is not on disk yet, and waits until it is applied.
    fn settle(&mut self, store: &DiskStore) {
        self.flush(store);
        self.wait_until_applied(store);
    }

    fn wait_until_applied(&mut self, store: &DiskStore) {
        while self.applying > 0 {
            let Ok(applied) = self.helpers.applied.recv() else { return };
            self.take_applied(store, applied);
        }
    }

    /// Takes note of the batches that were applied meanwhile.
    fn take_all_applied(&mut self, store: &DiskStore) {
        while self.applying >= MAX_APPLYING {
            let Ok(applied) = self.helpers.applied.recv() else { return };
            self.take_applied(store, applied);
        }
        while let Ok(applied) = self.helpers.applied.try_recv() {
            self.take_applied(store, applied);
        }
    }

    /// Only when all are applied is it known that the disk has what was removed no more.
    fn take_applied(&mut self, store: &DiskStore, Applied { batch, result }: Applied) {
        self.applying = self.applying.saturating_sub(1);
        let is_applied = result.is_ok();
        if let Err(error) = result {
            store.take_back(&batch.collected);
            let (file, error) = (self.disk.settings.path.clone(), error.to_string());
            self.disk.fail(Failure { file, error, since: self.disk.now() });
        }
        if self.applying == 0 && is_applied {
            store.acknowledge();
        }
        if let Some(surveying) = &mut self.surveying
            && surveying.waits_for > 0
        {
            surveying.waits_for -= 1;
            self.begin_survey();
        }
    }

    fn try_flush(&mut self, store: &DiskStore, now: Timestamp) -> Result<(), NotWritten> {
        // Another process has taken over, and writes.
        let opened = self.disk.opened.load_full().ok_or(NotWritten::Waits)?;
        self.take_all_applied(store);
        self.check_tables(&opened)?;
        let begun = self.writer.begin_next_if_due(&opened)?;
        self.end_part(begun);
        let mut first = 0;
        for part in 0..DiskStore::PARTS {
            store.collect(part, &mut self.batch, now);
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.write(store, &opened, first..part + 1)?;
                first = part + 1;
            }
        }
        self.write(store, &opened, first..DiskStore::PARTS)
    }

    /// Notes the memory that counters take, and how many may be there: also while the disk takes
    /// nothing, or they would outgrow their bound.
    fn note_usage(&self, store: &DiskStore) {
        let (mut keys, mut bytes) = (0, 0);
        for part in 0..DiskStore::PARTS {
            let usage = store.usage(part);
            keys += usage.keys;
            bytes += usage.bytes;
        }
        let counts = &self.disk.counts;
        counts.keys_in_memory.store(keys as u64, Ordering::Relaxed);
        counts.bytes_in_memory.store(bytes as u64, Ordering::Relaxed);
        let most = self.disk.settings.memory as u128 * keys as u128 / bytes.max(1) as u128;
        let least = self.disk.settings.memory as usize / BYTES_A_KEY;
        let most = if keys < FEWEST_IN_MEMORY { least } else { most as usize };
        self.disk.max_in_memory.store(most.max(FEWEST_IN_MEMORY), Ordering::Relaxed);
    }

    /// Parts that wait to become tables take memory. If they cannot become tables, nothing more is
    /// written.
    fn check_tables(&self, opened: &OpenFolder) -> Result<(), NotWritten> {
        if self.disk.waiting_parts.load(Ordering::Relaxed) < MAX_PARTS {
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
        if written.is_err() {
            store.take_back(&self.batch.collected);
            self.batch.clear();
            return written;
        }
        store.note_written(parts);
        self.note_written();
        self.applying += 1;
        let _ = self.helpers.batches.send(ApplyJob::Batch(std::mem::take(&mut self.batch)));
        Ok(())
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
        self.writer.append(opened, &self.batch.bytes)
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

    /// What was written before this journal becomes tables; none: no other journal was begun.
    fn end_part(&mut self, begun: Option<u64>) {
        if let Some(journal) = begun {
            self.applying += 1;
            let _ = self.helpers.batches.send(ApplyJob::Rotate(journal));
        }
    }

    /// Evicts counters if there are too many in memory.
    fn keep_within_memory(&mut self, store: &DiskStore) {
        self.take_all_applied(store);
        if self.applying > 0 {
            // What is not applied yet cannot be read again.
            return;
        }
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
        if self.disk.opened.load().is_none() || self.surveying.is_some() || !is_due {
            return;
        }
        // Room for those that come until the next survey; each one costs memory.
        let about = self.disk.about.load(Ordering::Relaxed);
        let filter = Arc::new(Filter::new(about + about / 4));
        let waits_for = self.applying;
        self.surveying = Some(SurveyInProgress { filter, waits_for, new: vec![0; TAGS] });
        self.begin_survey();
    }

    /// Begins the survey that was requested, if all is applied that was written before.
    fn begin_survey(&mut self) {
        let Some(SurveyInProgress { filter, waits_for: 0, .. }) = &self.surveying else { return };
        if self.helpers.upkeep.send(Job::Survey(Arc::clone(filter))).is_err() {
            self.surveying = None;
        }
    }

    fn take_survey(&mut self, store: &DiskStore, found: SurveyResult) {
        let took = found.took;
        self.next_survey = Instant::now() + SURVEY_PAUSE.max(took * SURVEY_PART);
        let Some(SurveyInProgress { filter, new, .. }) = self.surveying.take() else { return };
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
        while self.applying > 0 && self.helpers.applied.recv().is_ok() {
            self.applying -= 1;
        }
        let Some(opened) = self.disk.opened.swap(None) else { return };
        opened.tree.stop();
        self.writer.close();
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
                self.disk.note_tables(&opened);
                self.writer.reopen(begin_journal(&opened));
                self.disk.opened.store(Some(Arc::new(opened)));
                self.reopens = false;
                *self.disk.flushed.lock() = Instant::now();
                self.take_over();
            }
            // The other process may be about to end.
            Err(error) => {
                tracing::warn!(%error, "the store cannot be opened yet; this is tried again")
            }
        }
    }
}
