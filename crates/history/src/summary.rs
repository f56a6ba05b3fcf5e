//! What was read, and what could not be.

use std::collections::BTreeMap;

use super::Format;

/// Of bad lines, so many are kept.
pub(super) const MAX_BAD_LINES: usize = 10;
/// Of a bad line, so many characters are kept.
pub(super) const MAX_BAD_CHARS: usize = 200;

/// What was read so far. `requests + bad`, and what was skipped, are `lines`.
#[derive(Clone, Debug, Default)]
pub struct HistorySummary {
    /// Of each file, in the order in which they were named.
    pub files: Vec<FileSummary>,
    /// Lines of all files, without empty ones.
    pub lines: u64,
    /// Requests that were read, whether they have been given out yet or not.
    pub requests: u64,
    /// Lines that could not be read.
    pub bad: u64,
    /// The first of these, at most ten.
    pub bad_lines: Vec<BadLine>,
    /// Lines that were understood and tell of nothing that a limit counts, by the reason.
    pub skipped: BTreeMap<String, u64>,
    /// Requests that came in another order than the lines of their file, and were put in order.
    pub reordered: u64,
    /// Requests that came too late to be put in order: they got the time of the latest one that was
    /// given out before.
    pub late: u64,
    /// What a reader of a report has to know of the logs: a sentence each.
    pub notes: Vec<String>,
}

impl HistorySummary {
    /// Whether more than one request of a hundred came too late: what is counted of such a log is
    /// wrong.
    pub fn is_out_of_order(&self) -> bool {
        self.late.saturating_mul(100) > self.requests
    }
}

/// What was read of a file.
#[derive(Clone, Debug)]
pub struct FileSummary {
    /// Its name, as it was given.
    pub name: String,
    /// Its format; none: it is empty.
    pub format: Option<Format>,
    /// Lines, without empty ones.
    pub lines: u64,
    /// Of these, lines that could not be read.
    pub bad: u64,
    /// The grain of its times, in seconds: 1, 0.001 or 0.000001; none: it has no request.
    pub grain_seconds: Option<f64>,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The name of its file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u64,
    /// What is wrong, and what to do.
    pub reason: String,
    /// The line, its first 200 characters.
    pub text: String,
}
