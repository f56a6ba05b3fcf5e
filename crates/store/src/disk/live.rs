//! Which journals have counters that are in no table yet. That is written down, so that a journal
//! that is missing is noticed.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use tollgate_limit::Bytes;

use super::{
    journal::{Journal, journals, path_of},
    sealed,
};

/// The file that says which they are.
pub(super) const NAME: &str = "journals";

/// How that file begins.
const WORDS: &[u8; 21] = b"tollgate journals 1\n\0";

/// The journals of a folder that count.
#[derive(Debug)]
pub(super) struct LiveJournals {
    folder: PathBuf,
    /// Their numbers.
    live: Mutex<Range<u64>>,
    /// Bytes of those that exist. A lock of its own: the other one is held while files are synced.
    sizes: Mutex<BTreeMap<u64, u64>>,
}

impl LiveJournals {
    /// Reads which journals count.
    ///
    /// # Errors
    /// Those of the system, and [`io::ErrorKind::InvalidData`] if what says it is damaged.
    pub(super) fn read(folder: &Path) -> io::Result<LiveJournals> {
        let Some(fields) = sealed::read(folder, NAME, WORDS)? else {
            return LiveJournals::found(folder);
        };
        let mut fields = Bytes(&fields);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it has another form");
        let (first, next) = fields.u64().zip(fields.u64()).ok_or_else(damaged)?;
        LiveJournals::new(folder, first..next, &journals(folder)?)
    }

    /// The journals that exist. Nobody knows whether one is missing.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn found(folder: &Path) -> io::Result<LiveJournals> {
        let ids = journals(folder)?;
        let first = ids.first().copied().unwrap_or_default();
        let next = ids.last().map_or(first, |last| last + 1);
        LiveJournals::new(folder, first..next, &ids)
    }

    fn new(folder: &Path, live: Range<u64>, found: &[u64]) -> io::Result<LiveJournals> {
        let size = |id: &u64| Ok((*id, fs::metadata(path_of(folder, *id))?.len()));
        let sizes = found.iter().map(size).collect::<io::Result<_>>()?;
        Ok(LiveJournals {
            folder: folder.to_owned(),
            live: Mutex::new(live),
            sizes: Mutex::new(sizes),
        })
    }

    /// Notes how long a journal is.
    pub(super) fn note_size(&self, id: u64, bytes: u64) {
        self.sizes.lock().insert(id, bytes);
    }

    /// Bytes of all journals, as far as is known without asking the system.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.lock().values().sum()
    }

    /// Whether a journal may lack what was not synced when the power failed: that of which the next
    /// one was made, and, until there is one, that before it. When the next one was made, all of
    /// the one before the present was synced, or its sync had failed, which is reported.
    pub(super) fn may_be_unsynced(&self, id: u64) -> bool {
        id + 2 >= self.live.lock().end
    }

    /// The numbers of those that count, in ascending order.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn ids(&self) -> io::Result<Vec<u64>> {
        let first = self.live.lock().start;
        let ids = journals(&self.folder)?;
        // One that was begun last may not be written down.
        Ok(ids.into_iter().filter(|id| *id >= first).collect())
    }

    /// Those that count and are not there.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn missing(&self) -> io::Result<Vec<u64>> {
        let ids = journals(&self.folder)?;
        Ok(self.live.lock().clone().filter(|id| !ids.contains(id)).collect())
    }

    /// Begins the next journal.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn begin(&self) -> io::Result<Journal> {
        let mut live = self.live.lock();
        let found = journals(&self.folder)?.last().map_or(0, |last| last + 1);
        let id = live.end.max(found);
        let journal = Journal::create(&self.folder, id)?;
        // Before anything is in it.
        let first = if live.is_empty() { id } else { live.start };
        if let Err(error) = self.write(first..id + 1) {
            // The next try must not find it.
            let _ = fs::remove_file(path_of(&self.folder, id));
            return Err(error);
        }
        *live = first..id + 1;
        self.note_size(id, journal.complete);
        Ok(journal)
    }

    /// What was written before this journal is in tables: those before it count no more.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn end_before(&self, id: u64) -> io::Result<()> {
        let mut live = self.live.lock();
        let next = live.end.max(id);
        if live.start < id {
            self.write(id..next)?;
            *live = id..next;
        }
        for ended in journals(&self.folder)?.into_iter().filter(|ended| *ended < id) {
            fs::remove_file(path_of(&self.folder, ended))?;
        }
        self.sizes.lock().retain(|known, _| *known >= id);
        Ok(())
    }

    /// What was written to any journal is in tables.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn end_all(&self) -> io::Result<()> {
        let found = journals(&self.folder)?.last().map_or(0, |last| last + 1);
        let next = self.live.lock().end.max(found);
        self.end_before(next)
    }

    /// Lets nobody begin or end a journal, as while the disk is slow.
    #[cfg(test)]
    pub(super) fn hold(&self) -> parking_lot::MutexGuard<'_, Range<u64>> {
        self.live.lock()
    }

    fn write(&self, live: Range<u64>) -> io::Result<()> {
        let fields = [live.start.to_le_bytes(), live.end.to_le_bytes()].concat();
        sealed::write(&self.folder, NAME, WORDS, &fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_that_is_missing_is_noticed_until_its_loss_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let journals = LiveJournals::read(folder).unwrap();
        for id in 0..4 {
            assert_eq!(journals.begin().unwrap().id, id);
        }
        journals.end_before(1).unwrap();
        let again = LiveJournals::read(folder).unwrap();
        assert_eq!((again.ids().unwrap(), again.missing().unwrap()), (vec![1, 2, 3], vec![]));

        fs::remove_file(path_of(folder, 1)).unwrap();
        fs::remove_file(path_of(folder, 3)).unwrap();
        let again = LiveJournals::read(folder).unwrap();
        assert_eq!((again.ids().unwrap(), again.missing().unwrap()), (vec![2], vec![1, 3]));
        again.end_all().unwrap();
        let again = LiveJournals::read(folder).unwrap();
        assert_eq!((again.ids().unwrap(), again.missing().unwrap()), (vec![], vec![]));
        assert_eq!(again.begin().unwrap().id, 4, "no number is given twice");
    }

    #[test]
    fn journals_that_ended_do_not_count_even_if_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let journals = LiveJournals::read(folder).unwrap();
        (0..2).for_each(|_| drop(journals.begin().unwrap()));
        let ended = fs::read(path_of(folder, 0)).unwrap();
        journals.end_before(1).unwrap();
        fs::write(path_of(folder, 0), ended).unwrap();
        assert_eq!(LiveJournals::read(folder).unwrap().ids().unwrap(), [1]);
    }
}
