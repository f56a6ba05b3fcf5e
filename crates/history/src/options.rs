//! How logs are to be read.

use std::path::PathBuf;

use super::{
    Format, HistoryError,
    columns::{Columns, KNOWN},
};

/// How logs are to be read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The files, in any order; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Their format; none: that of each file is found out from its first lines.
    pub format: Option<Format>,
    /// Which column, or field of JSON, has what: pairs of a name of [`Record`](super::Record)'s
    /// fields, such as `time` or `status`, and a column's name.
    pub columns: Vec<(String, String)>,
    /// Fields whose values callers are named by: names of JSON fields, dotted if they are nested,
    /// or of columns, or `remote_user`.
    pub wanted: Vec<String>,
    /// Whether lines may be in any order of time: all are read before the first is given out.
    /// Without this, only files that begin with their newest lines are sorted so.
    pub sort: bool,
}

/// What readers are asked for besides what their format has.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub(super) columns: Columns,
    /// See [`ReadOptions::wanted`].
    pub(super) wanted: Vec<String>,
}

impl ReadOptions {
    /// What readers are asked for.
    ///
    /// # Errors
    /// [`HistoryError::Unknown`], if a column is named for what no column can have.
    pub(super) fn asked(&self) -> Result<Asked, HistoryError> {
        let columns = Columns::new(&self.columns).map_err(|what| HistoryError::Unknown {
            what: what.to_owned(),
            known: KNOWN.iter().filter_map(|names| names.first().copied()).collect(),
        })?;
        Ok(Asked { columns, wanted: self.wanted.clone() })
    }
}
