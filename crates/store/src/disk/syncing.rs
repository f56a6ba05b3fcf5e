//! The thread that syncs journals, and makes the next one ahead: a disk may take seconds for that,
//! and what was charged meanwhile must be written all the same, so that it outlives the process.

use std::{
    fs::File,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
    time::Instant,
};

use super::{Disk, Failure, orders::Order};

/// What is to be done.
pub(super) enum SyncJob {
    /// Sync what a flush has written.
    Sync(Flushed),
    /// Make the next journal, of the folder that was opened this many times.
    Journal(u64),
}

/// What a flush has written, or one before it.
pub(super) struct Flushed {
    /// Its number.
    pub(super) number: u64,
    /// When it was begun.
    pub(super) begun: Instant,
    /// The journal; none: there is none yet.
    pub(super) journal: Option<WrittenJournal>,
    /// Those that wait for it: dropped when it is synced, or has failed.
    pub(super) done: Vec<Sender<()>>,
}

/// A journal that has something to be synced.
pub(super) struct WrittenJournal {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) id: u64,
    /// Bytes of it that are to be synced.
    pub(super) complete: u64,
}

/// Works until no more can be requested.
pub(super) fn run(disk: &Disk, jobs: &Receiver<SyncJob>, orders: &Sender<Order>) {
    while let Ok(first) = jobs.recv() {
        // One sync is for all flushes that were written while the last one took its time.
        let mut flushed: Option<Flushed> = None;
        for job in std::iter::once(first).chain(jobs.try_iter()) {
            match job {
                SyncJob::Sync(later) => flushed = Some(later.after(disk, flushed)),
                SyncJob::Journal(opened) => {
                    // First all of the journal before the present one: see `journal_writer`.
                    if let Some(flushed) = flushed.take() {
                        sync(disk, &flushed);
                    }
                    make_journal(disk, opened, orders);
                }
            }
        }
        if let Some(flushed) = flushed {
            sync(disk, &flushed);
        }
    }
}

impl Flushed {
    /// This with those that wait for an earlier one. One of another journal is synced at once.
    fn after(self, disk: &Disk, earlier: Option<Flushed>) -> Flushed {
        let Some(mut earlier) = earlier else { return self };
        let id = |flushed: &Flushed| flushed.journal.as_ref().map(|journal| journal.id);
        if id(&earlier) != id(&self) {
            sync(disk, &earlier);
            return self;
        }
        earlier.done.extend(self.done);
        Flushed { done: earlier.done, ..self }
    }
}

fn sync(disk: &Disk, flushed: &Flushed) {
    let Flushed { number, begun, journal, done: _ } = flushed;
    if let Some(WrittenJournal { file, path, id, complete }) = journal {
        if let Err(error) = file.sync_data() {
            // What it had is made a table of, and the next journal goes on.
            disk.lost_before.fetch_max(id + 1, Ordering::SeqCst);
            let (file, error) = (path.clone(), error.to_string());
            return disk.fail(Failure { file, error, since: disk.now() });
        }
        *disk.synced.lock() = (*id, *complete);
    }
    disk.note_durable(*number, *begun);
}

fn make_journal(disk: &Disk, opened_times: u64, orders: &Sender<Order>) {
    let made = disk.opened.load_full().map(|opened| opened.journals.begin()).transpose();
    let made = made.map_err(|error| {
        // It is tried again when it is needed.
        tracing::warn!(%error, "the next journal cannot be made ahead");
        error.to_string()
    });
    let _ = orders.send(Order::NextJournal(opened_times, made));
}
