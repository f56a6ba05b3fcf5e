//! What a folder has: the tables, and what is in the journals and not in the tables.

use std::{io, path::Path};

use super::{
    OpenError, Opened,
    folder::Folder,
    journal::{Replayed, cut, journals, path_of, replay},
    tree::{MEMTABLE_BYTES, Tree, TreeError},
};
use crate::{clock::Clock, settings::DiskSettings};

/// How to go on if tables are damaged.
const RESTORE: &str =
    "Put a backup in its place, or move the folder away to begin with no counters";

/// How to go on if a journal is damaged.
const REPAIR: &str = "`tollgate store check --repair` keeps what can be read and puts the damaged \
                      file aside";

/// Opens the folder of a store, with all that was written to it. Returns the secret under which its
/// keys were hashed, too; none: it is new.
///
/// # Errors
/// [`OpenError`].
pub(super) fn open_folder(
    settings: &DiskSettings,
    clock: &Clock,
) -> Result<(Opened, Option<[u8; 16]>), OpenError> {
    let folder = Folder::open(&settings.path, true, clock.now())?;
    let secret = folder.secret()?;
    let tree = open_tree(&folder, clock)?;
    let opened = Opened { tree, folder };
    for (id, replayed) in replay_journals(&opened.folder, &opened.tree)? {
        let file = path_of(&opened.folder.path, id);
        match damage(&file, &replayed) {
            Some(damage) => return Err(damage),
            None => cut_torn_end(&opened.folder.path, id, replayed.torn)?,
        }
    }
    Ok((opened, secret))
}

/// Opens the tables of a folder.
///
/// # Errors
/// [`OpenError`].
pub(super) fn open_tree(folder: &Folder, clock: &Clock) -> Result<Tree, OpenError> {
    let tables = folder.tables();
    Tree::open(&tables, clock.clone()).map_err(|error| match error {
        TreeError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            OpenError::Io { file: tables, error }
        }
        error => OpenError::Damaged {
            file: tables,
            reason: error.to_string(),
            lost: "Its tables cannot be opened, and with them all counters would be lost"
                .to_owned(),
            advice: RESTORE,
        },
    })
}

/// Reads the journals of a folder into its tables. Returns what was found in each.
///
/// # Errors
/// [`OpenError`]; not if parts of a journal are damaged.
pub(super) fn replay_journals(
    folder: &Folder,
    tree: &Tree,
) -> Result<Vec<(u64, Replayed)>, OpenError> {
    let ids = journals(&folder.path).map_err(OpenError::io(&folder.path))?;
    let mut all = Vec::new();
    for id in ids {
        let file = path_of(&folder.path, id);
        let apply = |frame: &[u8]| tree.apply(frame).map_err(io::Error::other);
        let replayed = replay(&folder.path, id, apply).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::Other => OpenError::Damaged {
                file: file.clone(),
                reason: error.to_string(),
                lost: "What was charged between the last table and the end is in it".to_owned(),
                advice: REPAIR,
            },
            _ => OpenError::Io { file: file.clone(), error },
        })?;
        all.push((id, replayed));
        if tree.waiting_bytes() > MEMTABLE_BYTES {
            // If that fails, it stays in memory, and in the journal.
            let written = tree.rotate().and_then(|()| tree.write_tables());
            if let Err(error) = written {
                tracing::warn!(%error, "what is in the journals cannot be written to tables");
            }
        }
    }
    Ok(all)
}

/// What is wrong with a journal, if its frames are not all there.
pub(super) fn damage(file: &Path, replayed: &Replayed) -> Option<OpenError> {
    let (begin, end) = *replayed.damaged.first()?;
    let bytes: u64 = replayed.damaged.iter().map(|(begin, end)| end - begin).sum();
    Some(OpenError::Damaged {
        file: file.to_owned(),
        reason: format!("bytes {begin} to {end} are not as they were written"),
        lost: format!(
            "{bytes} bytes of it cannot be read: counters that were charged then may be as they \
             were before; {} other parts of it are whole",
            replayed.frames
        ),
        advice: REPAIR,
    })
}

/// Removes a write that was interrupted: it was never acknowledged.
fn cut_torn_end(folder: &Path, id: u64, torn: u64) -> Result<(), OpenError> {
    if torn == 0 {
        return Ok(());
    }
    let file = path_of(folder, id);
    tracing::info!(
        file = %file.display(), bytes = torn,
        "the last write was interrupted; it was not complete and is left out"
    );
    cut(folder, id, torn).map_err(OpenError::io(file))
}
