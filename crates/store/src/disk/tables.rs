//! The thread that makes tables of what waits in memory, and removes the journals that are of no use
//! then.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use super::{Disk, Opened, lock, orders::Job, tree::TreeError};

/// How long until it is tried again, if tables could not be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What became of the last tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    Failed(String),
}

/// Asks for tables.
#[derive(Clone)]
pub(super) struct TableJobs {
    wanted: Sender<u64>,
    last: Arc<Mutex<Written>>,
}

/// Takes the questions of [`TableJobs`].
pub(super) struct TableWriter {
    wanted: Receiver<u64>,
    last: Arc<Mutex<Written>>,
}

/// Both ends.
pub(super) fn table_jobs() -> (TableJobs, TableWriter) {
    let (sender, wanted) = channel();
    let last = Arc::new(Mutex::new(Written::Done));
    (TableJobs { wanted: sender, last: Arc::clone(&last) }, TableWriter { wanted, last })
}

impl TableJobs {
    /// Has tables made of all that was written before the journal with this number.
    pub(super) fn write(&self, journal: u64) {
        let _ = self.wanted.send(journal);
    }

    /// What became of the last ones.
    pub(super) fn last(&self) -> Written {
        lock(&self.last).clone()
    }
}

/// Makes tables until nobody asks any more.
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
                *lock(&jobs.last) = Written::Done;
                let _ = upkeep.send(Job::Merge);
            }
            Err(error) => {
                if waiting.is_none() {
                    tracing::warn!(%error, "tables cannot be written; this is tried again");
                }
                waiting = Some(journal);
                *lock(&jobs.last) = Written::Failed(error.to_string());
            }
        }
    }
}

fn write(opened: &Opened, journal: u64) -> Result<(), TreeError> {
    opened.tree.write_tables()?;
    Ok(opened.journals.end_before(journal)?)
}
