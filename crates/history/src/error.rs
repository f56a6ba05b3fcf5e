//! Why logs cannot be read at all.

use std::{
    io,
    path::{Path, PathBuf},
};

use tollgate_printable::printable;

/// Why logs cannot be read at all. A line that cannot be read is none of these: it is counted.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Nothing is named.
    #[error("no file is named")]
    Nothing,
    /// The system has no thread to read by.
    #[error("cannot start a thread that reads")]
    Thread(#[source] io::Error),
    /// A file cannot be opened.
    #[error("cannot open {}", shown(file))]
    Open {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file can be read no further.
    #[error("cannot read {}", shown(file))]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not in order of time cannot be sorted.
    #[error(
        "cannot sort {}, which is not in order of time: it needs room in the folder for temporary \
         files (TMPDIR)",
        shown(file)
    )]
    Sort {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is compressed in a way that is not read.
    #[error(
        "{} is compressed with {by}, which is not read (gzip and zstd are): decompress it into \
         standard input, as with `{by} -dc FILE | tollgate simulate --log -`",
        shown(file)
    )]
    Compression {
        /// The file.
        file: PathBuf,
        /// The program that compresses so.
        by: &'static str,
    },
    /// The first lines are in no format that is known.
    #[error(
        "cannot tell the format of {} from its first lines: pass it as --format (one of {known}), or \
         describe its columns or fields of JSON, as with --column time=when --column path=url; the \
         first line is `{}`",
        shown(file),
        printable(first)
    )]
    Undetected {
        /// The file.
        file: PathBuf,
        /// The names of all formats.
        known: String,
        /// The start of its first line.
        first: String,
    },
    /// A column is named for what no column can have.
    #[error("--column {}: no column can have that; write one of {}", printable(what), known.join(", "))]
    Unknown {
        /// What it would have.
        what: String,
        /// What columns can have.
        known: Vec<&'static str>,
    },
    /// A CSV lacks a column that it must have.
    #[error(
        "{} has no column for {what}: name it, as with --column {what}=NAME; its columns are {}",
        shown(file),
        printable(found)
    )]
    Column {
        /// The file.
        file: PathBuf,
        /// The field that has no column.
        what: String,
        /// The columns that there are.
        found: String,
    },
}

/// The name of a file, printable.
fn shown(file: &Path) -> String {
    printable(&file.to_string_lossy()).into_owned()
}
