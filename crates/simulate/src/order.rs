//! Logs that are not in order of time: they are read again, and sorted.

use std::{fs, path::Path};

use tollgate_history::{HistoryAhead, HistorySummary, ReadOptions};

use super::SimulationError;

/// Ends the reading of logs.
///
/// # Errors
/// [`SimulationError::OutOfOrder`], and what the logs could not be read for.
pub(super) fn finish(history: HistoryAhead) -> Result<HistorySummary, SimulationError> {
    let summary = history.finish()?;
    if summary.is_out_of_order() {
        let HistorySummary { late, requests, .. } = summary;
        return Err(SimulationError::OutOfOrder { late, requests });
    }
    Ok(summary)
}

/// Reads logs by `attempt`, and once more, sorted, if that finds them out of order.
///
/// # Errors
/// Those of `attempt`.
pub(super) fn in_order<T>(
    read: &ReadOptions,
    mut attempt: impl FnMut(&ReadOptions) -> Result<T, SimulationError>,
) -> Result<T, SimulationError> {
    match attempt(read) {
        Err(SimulationError::OutOfOrder { .. }) if !read.sort && !is_read_once(read) => {
            attempt(&ReadOptions { sort: true, ..read.clone() })
        }
        done => done,
    }
}

/// Whether one of the logs cannot be read again: standard input, or a pipe.
pub(super) fn is_read_once(read: &ReadOptions) -> bool {
    // Who opens the file reports that it is not there, or is a folder.
    let is_read_once = |file: &Path| {
        let found = fs::metadata(file);
        file == Path::new("-") || found.is_ok_and(|found| !found.is_file() && !found.is_dir())
    };
    read.files.iter().any(|file| is_read_once(file))
}
