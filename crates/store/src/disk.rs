//! The disk of a store: where counters are that are not in memory, and what makes all of them
//! outlive the process.
//!
//! Decisions are made in memory ([`MemoryStore`](super::MemoryStore)). A thread of its own writes
//! what was changed to a journal, several times in each `flush` (`keeper`), which another one syncs
//! (`syncing`); one applies it to the tables' part in memory (`applying`), one makes tables of that
//! (`tables`), one merges and surveys these (`upkeep`), and a few read counters that are
//! needed again (`reads`). So no request waits for the disk, except for its own counter that is not
//! in memory.

mod applying;
mod batch;
mod filter;
mod folder;
mod journal;
mod journal_writer;
mod keeper;
mod live;
mod offline;
mod open;
mod orders;
mod reads;
mod record;
mod recover;
mod report;
mod sealed;
mod secret;
mod syncing;
mod tables;
mod tree;
mod upkeep;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tollgate_clock::{Clock, Timestamp};
use tollgate_settings::{DiskSettings, SyncMode};

use self::{
    filter::Filter,
    folder::Folder,
    live::LiveJournals,
    orders::Order,
    reads::Reads,
    record::key_bytes,
    report::Failure,
    secret::WantedSecret,
    tree::{Tree, TreeSize},
};

use crate::Unanswered;

pub(super) use self::{
    batch::{Batch, BatchEntry},
    record::Record,
};
pub use self::{
    folder::OpenError,
    offline::{CheckResult, Damage, OfflineStore, check},
    open::open,
    report::{DiskReport, Survey},
};

/// The disk of a store.
pub struct Disk {
    settings: DiskSettings,
    clock: Clock,
    /// The folder; none: this process has given it up.
    opened: ArcSwapOption<OpenFolder>,
    filter: ArcSwap<Filter>,
    /// Most counters kept in memory, from their average size.
    max_in_memory: AtomicUsize,
    /// Whether the keeper was asked to flush, and has not begun.
    is_flush_asked: AtomicBool,
    /// Notified when counters were evicted.
    pub(super) room: Notify,
    reads: Reads,
    orders: mpsc::Sender<Order>,
    /// How many flushes were begun, and the last one that is on disk.
    begun: AtomicU64,
    written: watch::Sender<u64>,
    /// When the latest flush was begun that was written.
    flushed: Mutex<Instant>,
    /// The journal that was synced last, and how many bytes of it.
    synced: Mutex<(u64, u64)>,
    /// A sync of a journal before this one has failed: what was written may be lost until all
    /// before it is in tables. 0: none has.
    lost_before: AtomicU64,
    /// What the tables took when they were last changed, and how many counters there were about.
    size: Mutex<TreeSize>,
    about: AtomicUsize,
    secret: Arc<WantedSecret>,
    /// What was applied and is in no table yet: bytes, and parts of them that wait to become
    /// tables.
    waiting_bytes: AtomicU64,
    waiting_parts: AtomicUsize,
    failure: Mutex<Option<Failure>>,
    /// Why the last tables could not be written; none: they were.
    table_failure: Mutex<Option<String>>,
    is_failing: AtomicBool,
    counts: report::Counts,
    survey: Mutex<Option<Survey>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A shorter lag may be that of a busy machine.
const SHORTEST_LAG: Duration = Duration::from_secs(1);

/// A folder that this process has open.
#[derive(Debug)]
struct OpenFolder {
    /// Before the folder, whose lock is held until the tables are closed.
    tree: Tree,
    journals: LiveJournals,
    folder: Folder,
}

impl OpenFolder {
    /// Bytes of what is not in the tables yet.
    fn journal_bytes(&self) -> u64 {
        self.journals.bytes()
    }
}

impl Disk {
    /// Whether the disk may have a counter with this key.
    pub(super) fn may_have(&self, key: u128) -> bool {
        self.filter.load().may_have(key)
    }

    /// Reads a counter from disk; none if it has none.
    pub(super) async fn read(
        &self,
        key: u128,
        deadline: tokio::time::Instant,
    ) -> Result<Option<Record>, Unanswered> {
        let asked = self.reads.ask(key_bytes(key));
        let waiting = asked.inspect_err(|_| self.counts.count_failed_read())?;
        let read = match tokio::time::timeout_at(deadline, waiting).await {
            Ok(Ok(read)) => read,
            // The thread that reads has ended.
            Ok(Err(_)) => Err(Unanswered::Away),
            Err(_) => Err(Unanswered::Timeout),
        };
        match &read {
            Ok(found) => self.counts.count_read(found.is_some()),
            Err(_) => self.counts.count_failed_read(),
        }
        read
    }

    /// Most counters kept in memory.
    pub(super) fn max_in_memory(&self) -> usize {
        self.max_in_memory.load(Ordering::Relaxed)
    }

    /// Asks the keeper to flush, and then to evict counters if there are too many in memory.
    pub(super) fn ask_for_flush(&self) {
        if !self.is_flush_asked.swap(true, Ordering::SeqCst) {
            // If it has ended, nobody can do anything about it.
            let _ = self.orders.send(Order::Flush);
        }
    }

    /// Whether counters cannot be written at present.
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Whether a request goes on only when its charges are on disk.
    pub(super) fn writes_before_answers(&self) -> bool {
        self.settings.sync == SyncMode::Every
    }

    /// Returns when all that was charged before the call is on disk. Returns false if that is not
    /// so by the deadline.
    pub(super) async fn written(&self, deadline: tokio::time::Instant) -> bool {
        let mut written = self.written.subscribe();
        let needed = self.begun.load(Ordering::SeqCst) + 1;
        self.ask_for_flush();
        let is_written = written.wait_for(|written| *written >= needed);
        matches!(tokio::time::timeout_at(deadline, is_written).await, Ok(Ok(_)))
    }

    /// Writes what is not on disk yet, and returns when that is done or has failed.
    pub fn save(&self) {
        self.order(Order::Save);
    }

    /// Writes what is not on disk yet, and evicts all that is on disk.
    pub(super) fn cool_down(&self) {
        self.order(Order::CoolDown);
    }

    /// Writes what is not on disk yet and gives the folder up, for another process to open.
    /// Counters in memory are decided still.
    pub fn release(&self) {
        self.order(Order::Release);
    }

    /// Opens the folder again that was given up, if no other process has it open.
    pub fn resume(&self) {
        self.order(Order::Resume);
    }

    /// Notes that keys are hashed under another secret from now on. This does not wait for the
    /// disk.
    pub(super) fn keep_secret(&self, secret: [u8; 16]) {
        if let Some(opened) = self.opened.load_full() {
            self.threads.lock().extend(WantedSecret::keep(&self.secret, secret, opened));
        }
    }

    /// Merges all tables, which drops what is over, and returns when that is done or has failed.
    pub fn compact(&self) -> Result<(), String> {
        let (done, is_done) = mpsc::channel();
        let is_sent = self.orders.send(Order::Compact(done)).is_ok();
        let result = is_sent.then(|| is_done.recv().ok()).flatten();
        result.unwrap_or_else(|| Err("the store is closed".to_owned()))
    }

    /// Copies all counters, as they are now, to another folder, which must be empty or not exist.
    /// Returns how many there are.
    ///
    /// # Errors
    /// The copy cannot be made.
    pub fn backup(&self, to: &Path) -> Result<u64, OpenError> {
        self.save();
        let closed = || OpenError::Missing(self.settings.path.clone());
        let opened = self.opened.load_full().ok_or_else(closed)?;
        let secret = opened.folder.secret()?.ok_or_else(closed)?;
        offline::backup(&opened.tree, secret, to, &self.clock)
    }

    /// Reads all tables, and says which are damaged. What is in the journal is in memory as well.
    ///
    /// # Errors
    /// The folder is not open.
    pub fn check(&self) -> Result<CheckResult, OpenError> {
        self.save();
        let opened = self.opened.load_full();
        let opened = opened.ok_or_else(|| OpenError::Missing(self.settings.path.clone()))?;
        let mut checked = CheckResult::default();
        offline::check_tables(&opened.tree, &opened.folder.tables(), self.now(), &mut checked);
        Ok(checked)
    }

    /// Writes what is not on disk yet, closes the folder, and ends the threads.
    pub fn finish(&self) {
        self.order(Order::Finish);
        self.reads.end();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the disk store panicked");
            }
        }
    }

    /// Gives an order, and returns when it is carried out.
    fn order(&self, order: impl FnOnce(mpsc::Sender<()>) -> Order) {
        let (done, is_done) = mpsc::channel();
        if self.orders.send(order(done)).is_ok() {
            // The receiver returns when the sender is dropped.
            let _ = is_done.recv();
        }
    }

    /// Notes that counters cannot be written, and logs it when it begins.
    fn fail(&self, failure: Failure) {
        let mut known = self.failure.lock();
        self.counts.failed_writes.fetch_add(1, Ordering::Relaxed);
        let is_new = known.as_ref().is_none_or(|known| known.error != failure.error);
        if is_new {
            let Failure { file, error, .. } = &failure;
            tracing::error!(
                file = %file.display(), %error,
                "counters cannot be written to disk: limits do as their `on_store_error` says"
            );
        }
        let since = known.as_ref().map_or(failure.since, |known| known.since);
        *known = Some(Failure { since, ..failure });
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// Notes that counters are written.
    fn recover(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            *self.failure.lock() = None;
            tracing::info!("counters are written to disk again");
        }
    }

    /// Notes that a flush was written which was begun then: it outlives the process.
    fn note_written(&self, begun: Instant) {
        *self.flushed.lock() = begun;
        if begun.elapsed() <= self.longest_lag() && self.lost_before.load(Ordering::SeqCst) == 0 {
            self.recover();
        }
    }

    /// Notes that a flush with this number, which was begun then, is as durable as it is to be.
    fn note_durable(&self, number: u64, begun: Instant) {
        if self.lost_before.load(Ordering::SeqCst) > 0 {
            // What a sync has lost is part of it. A later flush says that it is durable.
            return;
        }
        // Flushes may be noted in any order.
        self.written.send_if_modified(|written| {
            let is_later = number > *written;
            *written = number.max(*written);
            is_later
        });
        let took = begun.elapsed();
        if took > self.longest_lag() {
            self.counts.late_flushes.fetch_add(1, Ordering::Relaxed);
            let milliseconds = took.as_millis() as u64;
            tracing::warn!(milliseconds, "the disk took longer than `flush` for a sync");
        }
    }

    /// Notes that all before this journal is in tables, also what syncs of it have lost.
    fn note_in_tables(&self, journal: u64) {
        let ends = |lost: u64| (lost > 0 && lost <= journal).then_some(0);
        let _ = self.lost_before.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ends);
    }

    /// Notes what the tables take. It may wait for the disk.
    fn note_tables(&self, opened: &OpenFolder) {
        let size = opened.tree.size();
        *self.size.lock() = size;
        self.about.store(opened.tree.about(), Ordering::Relaxed);
    }

    /// Notes it when writes do not keep up: a process that is killed would lose more than is
    /// promised. Called often.
    pub(super) fn check_lag(&self) {
        if self.is_failing() || self.opened.load().is_none() {
            return;
        }
        if self.flushed.lock().elapsed() > self.longest_lag() {
            let file = self.settings.path.clone();
            let error = "writes take longer than `flush`".to_owned();
            self.counts.late_flushes.fetch_add(1, Ordering::Relaxed);
            self.fail(Failure { file, error, since: self.now() });
        }
    }

    /// How long a flush may take from its begin on. On a busy machine a short one may be late.
    fn longest_lag(&self) -> Duration {
        self.settings.flush.max(SHORTEST_LAG)
    }

    /// How often the keeper writes: twice in each `flush`, so that nothing waits for longer than
    /// that even if writing takes a while.
    fn pause(&self) -> Duration {
        self.settings.flush / 2
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests;
