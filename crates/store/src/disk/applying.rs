//! The thread that puts what was written to the journal into the tables' part in memory. That waits
//! as long as tables are being registered on a slow disk, and the journal must not.

use std::sync::{
    atomic::Ordering,
    mpsc::{Receiver, Sender},
};

use super::{Batch, Disk, tree::TreeError};

/// What is to be done.
pub(super) enum ApplyJob {
    /// Apply what was written.
    Batch(Batch),
    /// What was applied so far becomes tables, all that is in journals before this one.
    Rotate(u64),
}

/// What became of a job.
pub(super) struct Applied {
    /// Empty: it was another job.
    pub(super) batch: Batch,
    pub(super) result: Result<(), TreeError>,
}

/// Works until no more can be requested. The folder stays open until all was applied.
pub(super) fn run(
    disk: &Disk,
    jobs: &Receiver<ApplyJob>,
    applied: &Sender<Applied>,
    tables: &Sender<u64>,
) {
    while let Ok(job) = jobs.recv() {
        let _ = applied.send(carry_out(disk, job, tables));
    }
}

fn carry_out(disk: &Disk, job: ApplyJob, tables: &Sender<u64>) -> Applied {
    let opened = disk.opened.load_full();
    match (job, opened) {
        (ApplyJob::Batch(batch), None) => {
            let result = Err(TreeError::Damaged("the store is closed".to_owned()));
            Applied { batch, result }
        }
        (ApplyJob::Batch(batch), Some(opened)) => {
            let result = opened.tree.apply(&batch.bytes);
            disk.waiting_bytes.store(opened.tree.waiting_bytes(), Ordering::Relaxed);
            disk.about.store(opened.tree.about(), Ordering::Relaxed);
            Applied { batch, result }
        }
        (ApplyJob::Rotate(journal), opened) => {
            match opened.map(|opened| (opened.tree.rotate(), opened.tree.waiting_parts())) {
                Some((Ok(()), waiting)) => {
                    disk.waiting_bytes.store(0, Ordering::Relaxed);
                    disk.waiting_parts.store(waiting, Ordering::Relaxed);
                    let _ = tables.send(journal);
                }
                Some((Err(error), _)) => {
                    tracing::error!(%error, "the tables do not take a new part");
                }
                None => {}
            }
            Applied { batch: Batch::default(), result: Ok(()) }
        }
    }
}
