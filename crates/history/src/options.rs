//! How logs are to be read.

use std::path::PathBuf;

use super::Format;

/// How logs are to be read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The files, in any order; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Their format; none: that of each file is found out from its first lines.
    pub format: Option<Format>,
    /// Which column of a CSV has what: pairs of a name of [`Record`](super::Record)'s fields, such
    /// as `time` or `status`, and a column's name.
    pub columns: Vec<(String, String)>,
    /// Fields whose values callers are named by: names of JSON fields, dotted if they are nested,
    /// or of columns, or `remote_user`.
    pub wanted: Vec<String>,
}
