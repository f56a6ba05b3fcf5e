//! Which journal is written, and when the next one begins.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering, mpsc::Sender},
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

/// Writes to the journals of a folder, one after the other.
pub(super) struct JournalWriter {
    disk: Arc<Disk>,
    syncs: Sender<SyncJob>,
    /// The journal that is written; none: it could not be begun yet, or the folder is closed.
    present: Option<Journal>,
    /// The journal that was made ahead.
    next: Option<Journal>,
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
        JournalWriter { disk, syncs, present, next: None, opened_times: 0, is_unsynced: false }
    }

    /// Goes on in a folder that was just opened. Returns the journal before which all is to become
    /// tables, as [`begin_next`](Self::begin_next) does.
    pub(super) fn take_over(&mut self, opened: &OpenFolder) -> Option<u64> {
        self.ask_for_next();
        if opened.tree.waiting_bytes() == 0 {
            return None;
        }
        match &self.present {
            // It is empty.
            Some(journal) => Some(journal.id),
            None => self.begin_next(opened),
        }
    }

    /// Appends a frame to the present journal.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub(super) fn append(&mut self, opened: &OpenFolder, bytes: &[u8]) -> Result<(), NotWritten> {
        let folder = &opened.folder.path;
        let failed =
            |file: PathBuf| move |error: io::Error| NotWritten::Failed(file, error.to_string());
        if self.present.is_none() {
            let begun = self.take_next(opened);
            self.present = Some(begun.map_err(failed(folder.clone()))?);
        }
        let Some(journal) = &mut self.present else { return Err(NotWritten::Waits) };
        journal.append(bytes).map_err(failed(path_of(folder, journal.id)))?;
        self.is_unsynced = true;
        Ok(())
    }

    /// Has what a flush has written synced, where it is to be: the one with this number, which was
    /// begun then. `done` is dropped when that is done or has failed.
    pub(super) fn have_synced(&mut self, number: u64, begun: Instant, done: Option<Sender<()>>) {
        let syncs = self.disk.settings.sync != SyncMode::Os;
        let written = self.present.as_ref().filter(|_| syncs).map(|journal| WrittenJournal {
            file: journal.file(),
            path: path_of(&self.disk.settings.path, journal.id),
            id: journal.id,
            complete: journal.complete,
        });
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

    /// Begins the next journal when the present one is long: what is in it becomes a table, and
    /// then it is of no use. Returns what [`begin_next`](Self::begin_next) does.
    ///
    /// Only the last journal may end with what was not synced when the power failed. So this waits
    /// until the present one is synced, unless it becomes far too long.
    pub(super) fn begin_next_if_due(&mut self, opened: &OpenFolder) -> Option<u64> {
        let journal = self.present.as_ref()?;
        let waiting = self.disk.waiting_bytes.load(Ordering::Relaxed);
        let is_long = |times: u64| {
            waiting >= times * MEMTABLE_BYTES || journal.complete >= times * JOURNAL_BYTES
        };
        let is_due = is_long(2) || (is_long(1) && self.is_synced(journal));
        is_due.then(|| self.begin_next(opened)).flatten()
    }

    /// Begins the next journal, and returns its number: what was written before it is to become
    /// tables. None: the present one goes on.
    pub(super) fn begin_next(&mut self, opened: &OpenFolder) -> Option<u64> {
        if let Some(journal) = &self.present
            && !self.is_synced(journal)
            && let Err(error) = journal.sync()
        {
            tracing::warn!(%error, "the journal was not synced");
        }
        let next = self.take_next(opened);
        self.ask_for_next();
        match next {
            Ok(next) => Some(self.present.insert(next).id),
            // It is tried again with the next flush.
            Err(error) => {
                tracing::warn!(%error, "the next journal cannot be begun");
                None
            }
        }
    }

    /// Whether all of a journal is synced that is to be.
    fn is_synced(&self, journal: &Journal) -> bool {
        self.disk.settings.sync == SyncMode::Os
            || *self.disk.synced.lock() == (journal.id, journal.complete)
    }

    /// The journal that was made ahead, or a new one.
    fn take_next(&mut self, opened: &OpenFolder) -> io::Result<Journal> {
        self.next.take().map_or_else(|| opened.journals.begin(), Ok)
    }

    /// Has the next journal made ahead.
    fn ask_for_next(&mut self) {
        let _ = self.syncs.send(SyncJob::Journal(self.opened_times));
    }

    /// Takes the journal that was made ahead, in the folder that was opened this many times.
    ///
    /// What was made in a folder that was given up since is no more of use. Nor is one that another
    /// overtook: journals are read in the order of their numbers. It is empty, and removed with
    /// those before the next one.
    pub(super) fn take_made(&mut self, opened_times: u64, journal: Journal) {
        let is_next =
            self.present.as_ref().is_none_or(|own| own.id < journal.id) && self.next.is_none();
        let is_opened = self.disk.opened.load().is_some();
        if opened_times == self.opened_times && is_opened && is_next {
            self.next = Some(journal);
        }
    }

    /// Notes that the folder was opened again.
    pub(super) fn note_opened(&mut self) {
        self.opened_times += 1;
    }

    /// Writes no more: the folder is closed.
    pub(super) fn close(&mut self) {
        self.next = None;
        if let Some(journal) = self.present.take()
            && let Err(error) = journal.sync()
        {
            tracing::warn!(%error, "the journal was not synced");
        }
    }
}
