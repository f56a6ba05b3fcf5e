//! The disk of the store: its metrics, and what the status page says of it.

mod orders;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_store::{DiskReport, Stores};

use super::exposition::{Exposition, MetricKind};

pub use self::orders::{BackupOrder, BackupReport, CheckReport, DamagedFile};

/// The disk that counters are kept on. Sizes are in bytes.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct DiskStatus {
    /// The folder.
    pub path: String,
    /// Whether this process has it open; if not, another process has taken it over.
    pub open: bool,
    /// Why counters cannot be written; none: they are.
    pub failure: Option<String>,
    /// Counters in memory.
    pub keys_in_memory: u64,
    /// Counters on disk, about: as they were last counted, and new ones since.
    pub keys_on_disk: u64,
    /// Counters on disk that are over, as they were last counted: their room is given back later.
    pub keys_over: u64,
    /// Memory that counters take.
    pub memory_bytes: u64,
    /// Memory that they may take.
    pub memory_limit_bytes: u64,
    /// Memory of the filter that knows which keys the disk may have.
    pub filter_bytes: u64,
    /// Whether the filter knows the keys: then a new caller needs no read.
    pub filter_ready: bool,
    /// The journal: what is not in the tables yet.
    pub journal_bytes: u64,
    /// The tables.
    pub tables_bytes: u64,
    /// How many tables there are.
    pub tables: u64,
    /// Counters that were read from disk.
    pub reads: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// How often a write or a sync took longer than `flush`.
    pub late_flushes: u64,
    /// How much would be lost if the process were killed now, in seconds.
    pub flush_lag_seconds: f64,
}

impl From<DiskReport> for DiskStatus {
    fn from(report: DiskReport) -> DiskStatus {
        DiskStatus {
            path: report.path.display().to_string(),
            open: report.is_open,
            failure: report.failure,
            keys_in_memory: report.keys_in_memory,
            keys_on_disk: report.keys_on_disk,
            keys_over: report.survey.map_or(0, |survey| survey.over),
            memory_bytes: report.memory_bytes,
            memory_limit_bytes: report.memory_limit_bytes,
            filter_bytes: report.filter_bytes,
            filter_ready: report.is_filter_ready,
            journal_bytes: report.journal_bytes,
            tables_bytes: report.tables_bytes,
            tables: report.tables,
            reads: report.reads_found + report.reads_absent,
            failed_reads: report.failed_reads,
            failed_writes: report.failed_writes,
            late_flushes: report.late_flushes,
            flush_lag_seconds: report.flush_lag_millis as f64 / 1000.0,
        }
    }
}

/// Writes the metrics of the disk, if there is one.
pub(super) fn write_metrics(text: &mut Exposition, stores: &Stores) {
    let Some(disk) = stores.disk() else { return };
    let report = disk.report();
    write_sizes(text, &report);
    write_work(text, &report);
}

fn write_sizes(text: &mut Exposition, report: &DiskReport) {
    let help = "Counters of the store on disk, by where they are; those on disk are an estimate.";
    text.family("tollgate_store_disk_keys", MetricKind::Gauge, help);
    text.sample(&[("where", "memory")], report.keys_in_memory);
    text.sample(&[("where", "disk")], report.keys_on_disk);
    let help = "Bytes that the store on disk takes, in memory and in files, by what for.";
    text.family("tollgate_store_disk_bytes", MetricKind::Gauge, help);
    for (of, bytes) in [
        ("counters_in_memory", report.memory_bytes),
        ("filter_in_memory", report.filter_bytes),
        ("indexes_in_memory", report.tables_memory_bytes),
        ("journal", report.journal_bytes),
        ("tables", report.tables_bytes),
    ] {
        text.sample(&[("of", of)], bytes);
    }
    let help = "Whether the filter knows the keys on disk, so that a new caller needs no read.";
    text.flag("tollgate_store_disk_filter_ready", help, report.is_filter_ready);
}

fn write_work(text: &mut Exposition, report: &DiskReport) {
    let help = "Counters that were looked for on disk, by what came of it.";
    let numbers = [("found", report.reads_found), ("absent", report.reads_absent)];
    text.counters("tollgate_store_disk_reads_total", help, "result", numbers);
    let help = "Counters that could not be read from disk.";
    text.counter("tollgate_store_disk_read_errors_total", help, report.failed_reads);
    let help = "Writes to disk that failed, and are tried again.";
    text.counter("tollgate_store_disk_write_errors_total", help, report.failed_writes);
    let help = "Whether counters cannot be written to disk at present.";
    text.flag("tollgate_store_disk_failing", help, report.failure.is_some());
    let help = "Counters that were written to the journal.";
    text.counter("tollgate_store_disk_flushed_keys_total", help, report.flushed_keys);
    let help = "Bytes that were written to the journal.";
    text.counter("tollgate_store_disk_flushed_bytes_total", help, report.flushed_bytes);
    let help = "How long the last flush took.";
    text.family("tollgate_store_disk_flush_seconds", MetricKind::Gauge, help);
    text.sample_real(&[], report.flush_micros as f64 / 1e6);
    let help = "How much would be lost if the process were killed now: the age of the last flush.";
    text.family("tollgate_store_disk_flush_lag_seconds", MetricKind::Gauge, help);
    text.sample_real(&[], report.flush_lag_millis as f64 / 1000.0);
    let help = "How often a write or a sync took longer than `flush`.";
    text.counter("tollgate_store_disk_late_flushes_total", help, report.late_flushes);
    let help = "Counters that left memory, and are on disk only.";
    text.counter("tollgate_store_disk_evicted_total", help, report.evicted);
    let help = "Counters that were over, and whose room on disk was given back.";
    text.counter("tollgate_store_disk_dropped_total", help, report.dropped);
}
