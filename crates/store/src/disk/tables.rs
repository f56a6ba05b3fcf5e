//! The thread that makes tables of what waits in memory, and removes the journals that are of no
//! use then.

use std::{
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use super::{Disk, OpenFolder, orders::Job, tree::TreeError};

/// How long until it is tried again, if tables could not be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Makes tables until no more can be requested: `wanted` has the number of a journal, of all before
/// which tables are made.
pub(super) fn run(disk: &Disk, wanted: &Receiver<u64>, upkeep: &Sender<Job>) {
    let mut waiting = None;
    loop {
        let journal = match waiting {
            None => wanted.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => wanted.recv_timeout(RETRY_PAUSE),
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
                *disk.table_failure.lock() = None;
                disk.waiting_parts.store(opened.tree.waiting_parts(), Ordering::Relaxed);
                disk.note_in_tables(journal);
                disk.note_tables(&opened);
                let _ = upkeep.send(Job::Merge);
            }
            Err(error) => {
                if waiting.is_none() {
                    tracing::warn!(%error, "tables cannot be written; this is tried again");
                }
                waiting = Some(journal);
                *disk.table_failure.lock() = Some(error.to_string());
            }
        }
    }
}

fn write(opened: &OpenFolder, journal: u64) -> Result<(), TreeError> {
    opened.tree.write_tables()?;
    Ok(opened.journals.end_before(journal)?)
}
