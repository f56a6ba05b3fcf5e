//! Which journal is written, and when the next one begins.
//!
//! Nothing here syncs, nor makes a journal while there is one to write to: on a slow disk that
//! takes seconds, and what is charged meanwhile must be written. So a journal goes on, however long
//! it is, until the next one was made ahead.
//!
//! The thread that syncs makes the next journal only once all of the one before the present is
//! synced, or that has failed: what else was not synced when the power failed is in the last two
//! ([`LiveJournals::may_be_unsynced`](super::live::LiveJournals::may_be_unsynced)).

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, Sender},
    },
    time::Instant,
};

use tollgate_settings::SyncMode;

use super::{
    Disk, OpenFolder,
    journal::{Journal, path_of},
    syncing::{Flushed, SyncJob, WrittenJournal},
    tree::MEMTABLE_BYTES,
};

/// Bytes of a journal, from which on the next is begun.
const JOURNAL_BYTES: u64 = 64 << 20;

/// How many times longer a journal may become while the next one is being made.
const MOST_TIMES: u64 = 4;

/// Writes to the journals of a folder, one after the other.
pub(super) struct JournalWriter {
    disk: Arc<Disk>,
    syncs: Sender<SyncJob>,
    /// The journal that is written; none: it could not be begun yet, or the folder is closed.
    present: Option<Journal>,
    /// The journal that was made ahead; or why the last one was not.
    next: Result<Option<Journal>, String>,
    /// Whether the next one was asked for, and there was no answer yet.
    is_next_asked: bool,
    /// How often the folder was opened.
    opened_times: u64,
    /// Whether something was written that nobody was asked to sync.
    is_unsynced: bool,
}

/// Why a flush was not written.
pub(super) enum NotWritten {
    /// Tables are still written: the next one will be.
    Waits,
    /// What failed, and what was said.
    Failed(PathBuf, String),
}

impl JournalWriter {
    pub(super) fn new(
        disk: Arc<Disk>,
        syncs: Sender<SyncJob>,
        present: Option<Journal>,
    ) -> JournalWriter {
        JournalWriter {
            disk,
            syncs,
            present,
            next: Ok(None),
            is_next_asked: false,
            opened_times: 0,
            is_unsynced: false,
        }
    }

    /// Goes on in a folder that was just opened. Returns the journal before which all is to become
    /// tables; none: all is in tables.
    pub(super) fn take_over(&mut self, opened: &OpenFolder) -> Option<u64> {
        self.ask_for_next();
        if opened.tree.waiting_bytes() == 0 {
            self.disk.note_in_tables(u64::MAX);
            return None;
        }
        // It is empty.
        self.present()
    }

    /// Appends a frame to the present journal.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub(super) fn append(&mut self, opened: &OpenFolder, bytes: &[u8]) -> Result<(), NotWritten> {
        let folder = &opened.folder.path;
        let Some(journal) = &mut self.present else { return Err(NotWritten::Waits) };
        if is_long(&self.disk, journal, MOST_TIMES) {
            return Err(match &self.next {
                Ok(_) => NotWritten::Waits,
                Err(error) => NotWritten::Failed(folder.clone(), error.clone()),
            });
        }
        let file = path_of(folder, journal.id);
        journal.append(bytes).map_err(|error| NotWritten::Failed(file, error.to_string()))?;
        opened.journals.note_size(journal.id, journal.complete);
        self.is_unsynced = true;
        Ok(())
    }

    /// Has what a flush has written synced, where it is to be: the one with this number, which was
    /// begun then. `done` is dropped when that is done or has failed.
    pub(super) fn have_synced(&mut self, number: u64, begun: Instant, done: Option<Sender<()>>) {
        let syncs = self.disk.settings.sync != SyncMode::Os;
        let present = self.present.as_ref().filter(|_| syncs);
        let written = present.map(|journal| self.written(journal));
        let is_synced = |own: &WrittenJournal| *self.disk.synced.lock() == (own.id, own.complete);
        let journal = written.filter(|own| self.is_unsynced || !is_synced(own));
        self.is_unsynced = false;
        if journal.is_none() {
            // Nothing is left to be done for it.
            return self.disk.note_durable(number, begun);
        }
        let done = done.into_iter().collect();
        let _ = self.syncs.send(SyncJob::Sync(Flushed { number, begun, journal, done }));
    }

    /// Begins the next journal when the present one is long, or a sync of it has failed: what is in
    /// it becomes a table, and then it is of no use. Returns what [`begin_next`](Self::begin_next)
    /// does. If there is none yet, nothing can be written before one is begun.
    ///
    /// # Errors
    /// It cannot be begun.
    pub(super) fn begin_next_if_due(
        &mut self,
        opened: &OpenFolder,
    ) -> Result<Option<u64>, NotWritten> {
        let Some(journal) = &self.present else {
            let begun = self.take_next().map_or_else(|| opened.journals.begin(), Ok);
            let failed = |error: io::Error| {
                NotWritten::Failed(opened.folder.path.clone(), error.to_string())
            };
            return Ok(Some(self.present.insert(begun.map_err(failed)?).id));
        };
        let is_lost = journal.id < self.disk.lost_before.load(Ordering::SeqCst);
        let is_due = is_lost || is_long(&self.disk, journal, 1);
        Ok(is_due.then(|| self.begin_next()).flatten())
    }

    fn take_next(&mut self) -> Option<Journal> {
        self.next.as_mut().ok().and_then(Option::take)
    }

    /// Begins the next journal, and returns its number: what was written before it is to become
    /// tables. None: it was not made yet, and the present one goes on.
    pub(super) fn begin_next(&mut self) -> Option<u64> {
        if self.is_unsynced {
            // No flush that was written asks for this one.
            self.have_synced(0, Instant::now(), None);
        }
        let next = self.take_next();
        self.ask_for_next();
        next.map(|next| self.present.insert(next).id)
    }

    /// The number of the present journal.
    pub(super) fn present(&self) -> Option<u64> {
        self.present.as_ref().map(|journal| journal.id)
    }

    /// A journal as it is now, to be synced.
    fn written(&self, journal: &Journal) -> WrittenJournal {
        WrittenJournal {
            file: journal.file(),
            path: path_of(&self.disk.settings.path, journal.id),
            id: journal.id,
            complete: journal.complete,
        }
    }

    /// Has the next journal made ahead.
    fn ask_for_next(&mut self) {
        if !matches!(self.next, Ok(Some(_))) && !std::mem::replace(&mut self.is_next_asked, true) {
            let _ = self.syncs.send(SyncJob::Journal(self.opened_times));
        }
    }

    /// Takes the journal that was made ahead, in the folder that was opened this many times, or why
    /// it was not: it is asked for again when it is needed. None: the folder is closed.
    ///
    /// What was made in a folder that was given up since is no more of use. Nor is one that another
    /// overtook: journals are read in the order of their numbers. It is empty, and removed with
    /// those before the next one.
    pub(super) fn take_made(&mut self, opened_times: u64, made: Result<Option<Journal>, String>) {
        if opened_times != self.opened_times {
            return;
        }
        self.is_next_asked = false;
        let is_opened = self.disk.opened.load().is_some();
        let is_later = |next: &Journal| self.present.as_ref().is_none_or(|own| own.id < next.id);
        match made.map(|journal| journal.filter(|next| is_opened && is_later(next))) {
            Ok(None) => {}
            made => self.next = made,
        }
    }

    /// Goes on in a journal of a folder that was opened again; none: it cannot be begun yet.
    pub(super) fn reopen(&mut self, journal: Option<Journal>) {
        self.opened_times += 1;
        self.is_next_asked = false;
        self.present = journal;
    }

    /// Writes no more: the folder is closed. Returns when all is synced, or that has failed.
    pub(super) fn close(&mut self) {
        self.next = Ok(None);
        let Some(journal) = self.present.take() else { return };
        let (done, is_done) = mpsc::channel();
        let journal = Some(self.written(&journal));
        let flushed = Flushed { number: 0, begun: Instant::now(), journal, done: vec![done] };
        if self.syncs.send(SyncJob::Sync(flushed)).is_ok() {
            // The receiver returns when the sender is dropped.
            let _ = is_done.recv();
        }
    }
}

/// Whether a journal, or what of it is in no table, is this many times as long as it is to become.
fn is_long(disk: &Disk, journal: &Journal, times: u64) -> bool {
    let waiting = disk.waiting_bytes.load(Ordering::Relaxed);
    waiting >= times * MEMTABLE_BYTES || journal.complete >= times * JOURNAL_BYTES
}

/// Begins the journal that is written first; none: that is tried again with the first flush.
pub(super) fn begin_journal(opened: &OpenFolder) -> Option<Journal> {
    let begun = opened.journals.begin().and_then(|journal| {
        // Empty ones of earlier starts.
        if opened.tree.waiting_bytes() == 0 && opened.tree.waiting_parts() == 0 {
            opened.journals.end_before(journal.id)?;
        }
        Ok(journal)
    });
    begun.inspect_err(|error| tracing::warn!(%error, "no journal can be begun")).ok()
}
