//! The thread that makes tables of what waits in memory, and removes the journals that are of no
//! use then.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use super::{Disk, OpenFolder, lock, orders::Job, tree::TreeError};

/// How long until it is tried again, if tables could not be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The outcome of the last tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableOutcome {
    Done,
    Failed(String),
}

/// Asks for tables.
#[derive(Clone)]
pub(super) struct TableJobs {
    wanted: Sender<u64>,
    last: Arc<Mutex<TableOutcome>>,
}

/// Takes the requests of [`TableJobs`].
pub(super) struct TableWriter {
    wanted: Receiver<u64>,
    last: Arc<Mutex<TableOutcome>>,
}

/// Both ends.
pub(super) fn table_jobs() -> (TableJobs, TableWriter) {
    let (sender, wanted) = channel();
    let last = Arc::new(Mutex::new(TableOutcome::Done));
    (TableJobs { wanted: sender, last: Arc::clone(&last) }, TableWriter { wanted, last })
}

impl TableJobs {
    /// Requests tables of all that was written before the journal with this number.
    pub(super) fn write(&self, journal: u64) {
        let _ = self.wanted.send(journal);
    }

    /// The outcome of the last ones.
    pub(super) fn last(&self) -> TableOutcome {
        lock(&self.last).clone()
    }
}

/// Makes tables until no more can be requested.
pub(super) fn run(disk: &Disk, jobs: TableWriter, upkeep: &Sender<Job>) {
    let mut waiting = None;
    loop {
        let journal = match waiting {
            None => jobs.wanted.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => jobs.wanted.recv_timeout(RETRY_PAUSE),
        };
        let journal = match (journal, waiting) {
            (Ok(journal), _) => journal,
            (Err(RecvTimeoutError::Timeout), Some(journal)) => journal,
            (Err(_), _) => return,
        };
        let Some(opened) = disk.opened.load_full() else {
            waiting = None;
            continue;
        };
        match write(&opened, journal) {
            Ok(()) => {
                waiting = None;
                *lock(&jobs.last) = TableOutcome::Done;
                let _ = upkeep.send(Job::Merge);
            }
            Err(error) => {
                if waiting.is_none() {
                    tracing::warn!(%error, "tables cannot be written; this is tried again");
                }
                waiting = Some(journal);
                *lock(&jobs.last) = TableOutcome::Failed(error.to_string());
            }
        }
    }
}

fn write(opened: &OpenFolder, journal: u64) -> Result<(), TreeError> {
    opened.tree.write_tables()?;
    Ok(opened.journals.end_before(journal)?)
}
