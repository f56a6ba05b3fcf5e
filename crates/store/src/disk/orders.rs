//! What the threads of a store on disk ask of each other.

use std::{
    sync::{Arc, mpsc::Sender},
    time::Duration,
};

use super::{filter::Filter, tree::TreeError};

/// What the keeper is to do. Senders are dropped when it is done.
pub(super) enum Order {
    /// Write now: somebody waits for it, or for memory.
    Flush,
    /// Write now, and say when that is done.
    Save(Sender<()>),
    /// Write, and let all that is on disk leave memory.
    CoolDown(Sender<()>),
    /// Write, and give the folder up.
    Release(Sender<()>),
    /// Open the folder again.
    Resume(Sender<()>),
    /// Note that keys are hashed under this secret.
    KeepSecret([u8; 16]),
    /// Merge all tables.
    Compact(Sender<Result<(), String>>),
    /// The disk is looked through from now on: what is new from now on is not found.
    SurveyBegins,
    /// The disk was looked through.
    Surveyed(Found),
    /// Write for the last time, close, and end.
    Finish(Sender<()>),
}

/// What is to be done.
pub(super) enum Job {
    /// Merge what has to be merged.
    Merge,
    /// Merge all, and say what became of it.
    MergeAll(Sender<Result<(), String>>),
    /// Look through all counters, and put their keys into this filter.
    Survey(Arc<Filter>),
}

/// What was found by looking through the disk.
pub(super) struct Found {
    /// None: it failed, or was stopped.
    pub(super) counted: Result<Counted, TreeError>,
    pub(super) took: Duration,
}

/// Counters on disk.
pub(super) struct Counted {
    /// Those that are not over, for each tag.
    pub(super) live: Vec<u64>,
    /// Those that are.
    pub(super) over: u64,
}
