//! What the threads of a store on disk ask of each other.

use std::{
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use super::{filter::Filter, journal::Journal, tree::TreeError};

/// What the keeper is to do. Senders are dropped when it is done.
pub(super) enum Order {
    /// Write now: a request waits for it, or for memory.
    Flush,
    /// Write now, and say when that is synced, and can be read.
    Save(Sender<()>),
    /// Write, and evict all that is on disk.
    CoolDown(Sender<()>),
    /// Write, and give the folder up.
    Release(Sender<()>),
    /// Open the folder again.
    Resume(Sender<()>),
    /// Merge all tables.
    Compact(Sender<Result<(), String>>),
    /// The next journal was made ahead, in the folder that was opened this many times, or why it
    /// cannot be made; none: the folder is closed.
    NextJournal(u64, Result<Option<Journal>, String>),
    /// A survey begins: what is new from now on is not in it.
    SurveyBegins,
    /// The survey has ended.
    Surveyed(SurveyResult),
    /// Write for the last time, close, and end.
    Finish(Sender<()>),
}

/// What is to be done.
pub(super) enum Job {
    /// Merge what has to be merged.
    Merge,
    /// Merge all, and say what became of it.
    MergeAll(Sender<Result<(), String>>),
    /// Survey all counters, and put their keys into this filter.
    Survey(Arc<Filter>),
}

/// What came of a survey.
pub(super) struct SurveyResult {
    /// None: it failed, or was stopped.
    pub(super) counted: Result<SurveyCounts, TreeError>,
    pub(super) took: Duration,
}

/// Counters on disk.
pub(super) struct SurveyCounts {
    /// Those that are not over, for each tag.
    pub(super) live: Vec<u64>,
    /// Those that are.
    pub(super) over: u64,
}
