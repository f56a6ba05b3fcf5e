//! What is known of a disk: for metrics, the status page and `tollgate store stat`.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Serialize;
use tollgate_clock::Timestamp;

use super::{Disk, OpenFolder};

/// Why counters cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The file or folder.
    pub(super) file: PathBuf,
    /// What the system said.
    pub(super) error: String,
    /// Since when.
    pub(super) since: Timestamp,
}

/// What a survey of all counters on disk found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// Counters that are not over.
    pub live: u64,
    /// Counters that are over and still take room.
    pub over: u64,
    /// When that was, in microseconds since the epoch.
    pub at: u64,
    /// How long it took, in milliseconds.
    pub took_millis: u64,
}

/// Totals since the start.
#[derive(Default)]
pub(super) struct Counts {
    reads_found: AtomicU64,
    reads_absent: AtomicU64,
    failed_reads: AtomicU64,
    pub(super) failed_writes: AtomicU64,
    /// How often a write or a sync took longer than `flush`.
    pub(super) late_flushes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) flushed_keys: AtomicU64,
    pub(super) flushed_bytes: AtomicU64,
    /// When the last flush that is on disk was begun, in microseconds since the epoch.
    pub(super) flush_begun: AtomicU64,
    pub(super) flush_micros: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) keys_in_memory: AtomicU64,
    pub(super) bytes_in_memory: AtomicU64,
    /// Counters that are new on disk since the last survey.
    pub(super) new_keys: AtomicU64,
}

impl Counts {
    pub(super) fn count_read(&self, is_found: bool) {
        let count = if is_found { &self.reads_found } else { &self.reads_absent };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed_read(&self) {
        self.failed_reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is known of a disk at an instant. Sizes are in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct DiskReport {
    /// The folder.
    pub path: PathBuf,
    /// Whether this process has it open.
    pub is_open: bool,
    /// Counters in memory.
    pub keys_in_memory: u64,
    /// Counters on disk that are not over, about: as they were last counted, and new ones since.
    pub keys_on_disk: u64,
    /// The last survey; none: there was none yet.
    pub survey: Option<Survey>,
    /// Memory that counters take.
    pub memory_bytes: u64,
    /// Memory that they may take.
    pub memory_limit_bytes: u64,
    /// Memory of the filter that knows which keys the disk may have.
    pub filter_bytes: u64,
    /// Whether the filter knows the keys, so that a new caller needs no read.
    pub is_filter_ready: bool,
    /// Memory of filters and indexes of tables.
    pub tables_memory_bytes: u64,
    /// The journal.
    pub journal_bytes: u64,
    /// The tables.
    pub tables_bytes: u64,
    /// The number of tables.
    pub tables: u64,
    /// Reads that found a counter.
    pub reads_found: u64,
    /// Reads that found none: the filter was wrong, or did not know the keys yet.
    pub reads_absent: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// How often a write or a sync took longer than `flush`.
    pub late_flushes: u64,
    /// Flushes that are on disk.
    pub flushes: u64,
    /// Counters that were written.
    pub flushed_keys: u64,
    /// Bytes that were written to the journal.
    pub flushed_bytes: u64,
    /// How long the last flush took, in microseconds.
    pub flush_micros: u64,
    /// How much would be lost if the process were killed now, in milliseconds.
    pub flush_lag_millis: u64,
    /// Counters that left memory.
    pub evicted: u64,
    /// Counters that were over and left the tables.
    pub dropped: u64,
    /// Why counters cannot be written; none: they are.
    pub failure: Option<String>,
}

impl Disk {
    /// What is known of the disk now.
    pub fn report(&self) -> DiskReport {
        let opened = self.opened.load_full();
        // Asking the tables themselves would wait while they are registered on a slow disk.
        let size = opened.as_ref().map(|_| *self.size.lock()).unwrap_or_default();
        let survey = *self.survey.lock();
        let counts = &self.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let begun = Timestamp::from_micros(get(&counts.flush_begun));
        let filter = self.filter.load();
        let failure = self.failure.lock().as_ref().map(|failure| {
            format!("{}: {}, since {}", failure.file.display(), failure.error, failure.since)
        });
        DiskReport {
            path: self.settings.path.clone(),
            is_open: opened.is_some(),
            keys_in_memory: get(&counts.keys_in_memory),
            keys_on_disk: survey.map_or(0, |survey| survey.live) + get(&counts.new_keys),
            survey,
            memory_bytes: get(&counts.bytes_in_memory),
            memory_limit_bytes: self.settings.memory,
            filter_bytes: filter.bytes() as u64,
            is_filter_ready: filter.is_known(),
            tables_memory_bytes: size.memory as u64,
            journal_bytes: opened.as_deref().map_or(0, OpenFolder::journal_bytes),
            tables_bytes: size.bytes,
            tables: size.tables as u64,
            reads_found: get(&counts.reads_found),
            reads_absent: get(&counts.reads_absent),
            failed_reads: get(&counts.failed_reads),
            failed_writes: get(&counts.failed_writes),
            late_flushes: get(&counts.late_flushes),
            flushes: get(&counts.flushes),
            flushed_keys: get(&counts.flushed_keys),
            flushed_bytes: get(&counts.flushed_bytes),
            flush_micros: get(&counts.flush_micros),
            flush_lag_millis: self.now().saturating_since(begun).as_millis() as u64,
            evicted: get(&counts.evicted),
            dropped: opened.map_or(0, |opened| opened.tree.dropped()),
            failure,
        }
    }
}
