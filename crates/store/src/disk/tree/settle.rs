//! Putting right what a change of the tables that failed has left on disk.

use std::{collections::HashSet, fs, io, sync::atomic::Ordering};

use lsm_tree::AbstractTree;
use parking_lot::MutexGuard;

use super::{CURRENT, Tree, TreeError, digest, guarded};
use crate::disk::sealed;

impl Tree {
    /// Notes that a change of the tables has failed.
    pub(super) fn note_failure(&self, merging: Option<&MutexGuard<'_, ()>>) {
        self.is_in_doubt.store(true, Ordering::SeqCst);
        if let Err(error) = self.settle(merging) {
            tracing::debug!(%error, "what a failure left of tables cannot be removed yet");
        }
    }

    /// Puts right what a change that failed has left on disk. `merging`: the lock, if it is held.
    ///
    /// The file `current` may name a list that the tree does not have in memory: it was replaced,
    /// and then could not be synced. The tree would write its next list over that one, in place,
    /// and a crash meanwhile would leave no list at all. So `current` names the earlier list again,
    /// before anything else is written. Tables that were not written whole are removed then: on a
    /// full disk they would take the room that the next try needs.
    ///
    /// # Errors
    /// [`TreeError`]; then the next change tries it again, and is not made before that.
    pub(super) fn settle(&self, merging: Option<&MutexGuard<'_, ()>>) -> Result<(), TreeError> {
        if !self.is_in_doubt.load(Ordering::SeqCst) {
            return Ok(());
        }
        let own = match merging {
            Some(_) => None,
            None => self.merging.try_lock(),
        };
        if merging.is_none() && own.is_none() {
            // Some of the tables are still written. The merge settles it if it has to wait.
            return match self.names_current_list()? {
                true => Ok(()),
                false => Err(io::Error::from(io::ErrorKind::ResourceBusy).into()),
            };
        }
        guarded(|| {
            let _flushing = self.tree.get_flush_lock();
            if !self.names_current_list()? {
                self.name_current_list()?;
            }
            self.remove_unfinished()?;
            self.is_in_doubt.store(false, Ordering::SeqCst);
            Ok(())
        })
    }

    /// Whether the disk names the list of tables that the tree has in memory.
    fn names_current_list(&self) -> Result<bool, TreeError> {
        // This waits until a list that is being written is there.
        let id = self.tree.current_version().id();
        let bytes = fs::read(self.folder.join(CURRENT))?;
        let named = bytes.first_chunk().map(|named| u64::from_le_bytes(*named));
        Ok(named == Some(id) && self.tree.current_version().id() == id)
    }

    /// Makes the disk name the list of tables that the tree has in memory.
    fn name_current_list(&self) -> io::Result<()> {
        let id = self.tree.current_version().id();
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend(digest(&self.folder.join(format!("v{id}")))?.to_le_bytes());
        // The kind of the checksum.
        bytes.push(0);
        sealed::replace(&self.folder, CURRENT, &bytes)
    }

    /// Removes files of tables that are in no list.
    fn remove_unfinished(&self) -> io::Result<()> {
        let version = self.tree.current_version();
        let known: HashSet<u64> = version.iter_tables().map(lsm_tree::Table::id).collect();
        for entry in fs::read_dir(self.folder.join("tables"))? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if id.is_some_and(|id| !known.contains(&id)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}
