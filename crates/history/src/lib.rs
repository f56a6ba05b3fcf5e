//! Requests of the past, as access logs tell of them: read, merged, and in the order of their time.
//!
//! A log is a file of lines in one of the formats of [`Format`]; a line becomes a [`Record`], is
//! counted as skipped (it tells of something that no limit counts), or is counted as bad. What a
//! log does not say of a request is `None` in its record.
//!
//! The way of a line: `source` decompresses, `lines` cuts, `reader` hands the line to its format,
//! which fills a `draft`, `local_clock` follows clocks that are set, and `window` puts what came
//! of it in order. `merge` gives out the earliest request of all files, and `ahead` reads while
//! others judge.
//!
//! This crate knows no policies and no limits.
//!
//! The types to know first:
//!
//! - [`History`]: the requests of all logs, in the order of their time.
//! - [`HistoryAhead`]: a history that is read by a thread of its own.
//! - [`ReadOptions`]: how logs are to be read.
//! - [`Record`]: a request, as a log describes it.
//! - [`HistorySummary`]: what was read, skipped and bad.

mod ahead;
mod alb;
mod clf;
mod columns;
mod csv;
mod detect;
mod draft;
mod duration;
mod envoy;
mod error;
mod escapes;
mod fields;
mod file;
mod format;
mod front;
mod haproxy;
mod instant;
mod kept;
mod lines;
mod local_clock;
mod log_time;
mod merge;
mod named;
mod names;
mod notes;
mod options;
mod own_json;
mod own_text;
mod prefix;
mod reader;
mod record;
mod sorting;
mod source;
mod summary;
#[cfg(test)]
mod tests;
mod value_cache;
mod w3c;
mod window;
mod words;

pub use self::{
    ahead::HistoryAhead,
    error::HistoryError,
    format::Format,
    merge::History,
    options::ReadOptions,
    record::{OwnFields, Place, Record, Target},
    summary::{BadLine, FileSummary, HistorySummary},
};
