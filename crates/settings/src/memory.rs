//! Settings of the in-process store: its size, and where it survives a restart.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use tollgate_yaml::{Check, Spanned};

use super::{Checker, beside};

/// A file that counters are kept in from one start to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// The file.
    pub file: PathBuf,
    /// How often it is written, besides at shutdown.
    pub every: Duration,
}

/// How many counters the process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The most counters of all kinds.
    pub max_keys: usize,
    /// The percentage of these that may be counters by values that clients choose.
    pub unverified_percent: u8,
    /// The most counters by values that one client chooses. A client is an address, a network of 64
    /// bits in IPv6, or a verified caller.
    pub per_address: u32,
}

impl From<usize> for MemoryBounds {
    /// Bounds with this total, and the defaults for counters by values that clients choose.
    fn from(max_keys: usize) -> MemoryBounds {
        MemoryBounds { max_keys, ..MemoryBounds::DEFAULT }
    }
}

impl MemoryBounds {
    /// The default.
    pub const DEFAULT: MemoryBounds =
        MemoryBounds { max_keys: 2_000_000, unverified_percent: 50, per_address: 10_000 };
}

/// Counters in the process.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "memory section")]
pub(super) struct RawMemory {
    /// Counters in use at most. Past it, new callers get 503, or pass where a limit is open then
    /// (`on_store_full`). Addresses leave an eighth of them to
    /// verified callers, and IPv6 networks another to IPv4 addresses. Default: 2000000.
    #[schemars(range(min = 1))]
    #[schemars(extend("examples" = [2000000]))]
    pub(super) max_keys: Option<Spanned<u64>>,
    /// A file that counters are kept in from one start to the next. Left out: they begin anew.
    #[schemars(extend("examples" = [{ "file": "counters.snapshot" }]))]
    pub(super) snapshot: Option<RawSnapshot>,
}

/// A file that counters are kept in.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "snapshot section")]
pub(super) struct RawSnapshot {
    /// The file, from this file's folder.
    #[schemars(extend("examples" = ["counters.snapshot"]))]
    file: Spanned<String>,
    /// How often it is written, besides at shutdown, 1s to 1h. Default: 60s.
    #[schemars(extend("examples" = ["60s"]))]
    every: Option<Spanned<String>>,
}

pub(super) const DEFAULT_MAX_KEYS: usize = MemoryBounds::DEFAULT.max_keys;
const DEFAULT_SNAPSHOT_PAUSE: Duration = Duration::from_secs(60);

impl RawMemory {
    /// Whether it sets anything, rather than only names the store.
    pub(super) fn has_fields(&self) -> bool {
        self.max_keys.is_some() || self.snapshot.is_some()
    }
}

impl Checker<'_> {
    /// How many counters a store may have; none written: `default`.
    pub(super) fn max_keys(&mut self, raw: Option<&Spanned<u64>>, default: usize) -> usize {
        let Some(raw) = raw else { return default };
        match usize::try_from(raw.value) {
            Ok(keys) if keys > 0 => keys,
            _ => {
                let help = format!("write how many counters to keep: {default}");
                self.note(raw, "`max_keys` is 0", help);
                default
            }
        }
    }

    pub(super) fn snapshot(&mut self, raw: &RawSnapshot) -> Option<SnapshotSettings> {
        let is_file_name = Path::new(&raw.file.value).file_name().is_some();
        if !is_file_name {
            self.note(&raw.file, "not the path of a file", "write one such as counters.snapshot");
            return None;
        }
        let pauses = Duration::from_secs(1)..=Duration::from_secs(3600);
        let every = self.time_or(&raw.every, pauses, DEFAULT_SNAPSHOT_PAUSE);
        Some(SnapshotSettings { file: beside(self.file, &raw.file.value), every })
    }
}
