//! Settings of a store that keeps its counters on disk. Each default is written here, once.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_keyword::keywords;
use tollgate_yaml::{Check, Choice, Node, Size, Spanned};

use super::{Checker, beside};

/// Counters on disk, of which those that are in use are in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// The folder.
    pub path: PathBuf,
    /// Bytes of memory for counters.
    pub memory: u64,
    /// The most that is lost if the process is killed: what was charged in so long.
    pub flush: Duration,
    /// When writes are synced to the disk itself.
    pub sync: SyncMode,
    /// The most counters, in memory and on disk together.
    pub max_keys: usize,
}

/// When writes are synced to the disk itself, so that they outlive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// With each flush.
    Flush,
    /// Before the request goes on whose charges are written.
    Every,
    /// When the operating system does it by itself.
    Os,
}

keywords! { SyncMode { Flush = "flush", Every = "every", Os = "os" } }

/// Counters on disk.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "disk section")]
pub(super) struct RawDisk {
    /// The folder, from this file's folder. It is made if it does not exist, and is for one process
    /// at a time.
    #[schemars(extend("examples" = ["counters"]))]
    pub(super) path: Spanned<String>,
    /// Memory for counters that are in use, 1MiB to 1TiB. Others are only on disk. Default: 256MiB.
    #[schemars(with = "Option<Size>")]
    #[schemars(extend("examples" = ["256MiB"]))]
    pub(super) memory: Option<Node>,
    /// The most that is lost if the process is killed: what was charged in so long, 10ms to 60s.
    /// Default: 1s.
    #[schemars(extend("examples" = ["1s"]))]
    pub(super) flush: Option<Spanned<String>>,
    /// When writes are synced, so that they outlive a power failure. `flush`: with each flush;
    /// `every`: before the request goes on, so that nothing is lost that was answered in time (past
    /// the `deadline`, each limit does as its `on_store_error` says); `os`: when the operating
    /// system does it. Default: flush.
    pub(super) sync: Option<Spanned<Choice<SyncMode>>>,
    /// Counters in use at most, in memory and on disk together. Past it, new callers get 503, or
    /// pass where a limit is open then (`on_store_full`). Default: 100000000.
    #[schemars(range(min = 1))]
    #[schemars(extend("examples" = [100_000_000]))]
    pub(super) max_keys: Option<Spanned<u64>>,
}

const DEFAULT_MEMORY: u64 = 256 << 20;
const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 40;
const DEFAULT_FLUSH: Duration = Duration::from_secs(1);
const FLUSHES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const DEFAULT_MAX_KEYS: usize = 100_000_000;

impl Checker<'_> {
    pub(super) fn disk(&mut self, raw: &RawDisk) -> Option<DiskSettings> {
        if raw.path.value.trim().is_empty() {
            self.note(&raw.path, "no folder", "write the path of one, such as counters");
            return None;
        }
        let sync = raw.sync.as_ref().and_then(|raw| self.keyword(raw));
        Some(DiskSettings {
            path: beside(self.file, &raw.path.value),
            memory: self.bytes_or(&raw.memory, MEMORY, DEFAULT_MEMORY),
            flush: self.time_or(&raw.flush, FLUSHES, DEFAULT_FLUSH),
            sync: sync.unwrap_or(SyncMode::Flush),
            max_keys: self.max_keys(raw.max_keys.as_ref(), DEFAULT_MAX_KEYS),
        })
    }
}
