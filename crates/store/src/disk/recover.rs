//! What a folder has: the tables, and what is in the journals and not in the tables.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tollgate_clock::Clock;
use tollgate_settings::{DiskSettings, SyncMode};

use super::{
    OpenError, OpenFolder,
    folder::Folder,
    journal::{Gap, Replay, cut, last_written, path_of, replay},
    live::{self, LiveJournals},
    tree::{MEMTABLE_BYTES, Tree, TreeError},
};

/// How to go on if tables are damaged.
const RESTORE: &str =
    "Put a backup in its place, or move the folder away to begin with no counters";

/// How to go on if a journal is damaged.
const REPAIR: &str = "`tollgate store check --repair` keeps what can be read and puts the damaged \
                      file aside";

/// How to go on if a journal is missing.
const ACCEPT: &str = "Put the file in its place again, or have `tollgate store check --repair` \
                      accept the loss";

/// Opens the folder of a store, with all that was written to it. Returns the secret under which its
/// keys were hashed, too; none: it is new.
///
/// # Errors
/// [`OpenError`].
pub(super) fn open_folder(
    settings: &DiskSettings,
    clock: &Clock,
) -> Result<(OpenFolder, Option<[u8; 16]>), OpenError> {
    let folder = Folder::open(&settings.path, true, clock.now())?;
    let secret = folder.secret()?;
    let tree = match secret {
        Some(_) => open_tree(&folder, clock)?,
        None => create_tree(&folder, clock)?,
    };
    let opened = OpenFolder { tree, journals: read_journals(&folder)?, folder };
    replay_journals(&opened, settings.sync, true)?;
    Ok((opened, secret))
}

/// Makes the tables of a new store.
fn create_tree(folder: &Folder, clock: &Clock) -> Result<Tree, OpenError> {
    let tables = folder.tables();
    // What is left of a store that was not made to its end.
    match fs::remove_dir_all(&tables) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.map_err(OpenError::io(&tables))?,
    }
    Tree::create(&tables, clock.clone()).map_err(|error| OpenError::Io {
        file: tables,
        error: match error {
            TreeError::Io(error) => error,
            error => io::Error::other(error.to_string()),
        },
    })
}

/// Opens the tables of a folder.
///
/// # Errors
/// [`OpenError`].
pub(super) fn open_tree(folder: &Folder, clock: &Clock) -> Result<Tree, OpenError> {
    use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    let tables = folder.tables();
    Tree::open(&tables, clock.clone()).map_err(|error| {
        let reason = match error {
            TreeError::Io(error) if error.kind() == NotFound => {
                "a file of its tables is missing, or the list of tables is damaged".to_owned()
            }
            TreeError::Io(error) if !matches!(error.kind(), UnexpectedEof | InvalidData) => {
                return OpenError::Io { file: tables, error };
            }
            error => error.to_string(),
        };
        let lost = "Its tables cannot be opened, and with them all counters would be lost";
        OpenError::damaged(tables, reason, lost, RESTORE)
    })
}

/// Reads which journals a folder should have.
///
/// # Errors
/// [`OpenError`].
pub(super) fn read_journals(folder: &Folder) -> Result<LiveJournals, OpenError> {
    let file = folder.path.join(live::NAME);
    LiveJournals::read(&folder.path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            let lost = "It says which journals there are, and without it nobody knows whether one \
                        is missing";
            let advice =
                "`tollgate store check --repair` makes it anew from the journals that are there";
            OpenError::damaged(file, error, lost, advice)
        }
        _ => OpenError::Io { file, error },
    })
}

/// Reads the journals of a folder into its tables. With `settles`, what an interrupted write has
/// left is removed.
///
/// # Errors
/// [`OpenError`]; also if parts of a journal are damaged, except those that `sync` allows for.
pub(super) fn replay_journals(
    opened: &OpenFolder,
    sync: SyncMode,
    settles: bool,
) -> Result<(), OpenError> {
    let OpenFolder { tree, journals, folder } = opened;
    let listed = OpenError::io(&folder.path);
    let ids = journals.ids().map_err(listed)?;
    if let Some(damage) = missing(folder, journals)?.into_iter().next() {
        return Err(damage);
    }
    let last = last_written(&folder.path, &ids);
    for id in &ids {
        let file = path_of(&folder.path, *id);
        // What was not synced may be lost with the power, in any order.
        let may_be_unsynced = Some(*id) >= last || journals.may_be_unsynced(*id);
        let replayed = replay_journal(folder, tree, *id, may_be_unsynced)?;
        let is_accepted = |gap: &Gap| gap.is_unwritten && (sync == SyncMode::Os || may_be_unsynced);
        if !replayed.gaps.iter().all(is_accepted) {
            return Err(damage(&file, &replayed));
        }
        if !replayed.gaps.is_empty() {
            tracing::warn!(
                file = %file.display(), bytes = lost_bytes(&replayed),
                "parts of the journal were not on disk when the power failed: counters that were \
                 charged then may be as they were before"
            );
        }
        if settles {
            cut_torn_end(&folder.path, *id, replayed.torn)?;
        }
        if tree.waiting_bytes() > MEMTABLE_BYTES {
            // If that fails, it stays in memory, and in the journal.
            let written = tree.rotate().and_then(|()| tree.write_tables());
            let written = written.map_err(|error| error.to_string());
            let ended = written
                .and_then(|()| journals.end_before(id + 1).map_err(|error| error.to_string()));
            if let Err(error) = ended {
                tracing::warn!(%error, "what is in the journals cannot be written to tables");
            }
        }
    }
    Ok(())
}

/// Reads a journal into the tables. Returns what was found.
///
/// # Errors
/// [`OpenError`]; not if parts of it are damaged.
pub(super) fn replay_journal(
    folder: &Folder,
    tree: &Tree,
    id: u64,
    is_last: bool,
) -> Result<Replay, OpenError> {
    let file = path_of(&folder.path, id);
    let apply = |frame: &[u8]| tree.apply(frame).map_err(io::Error::other);
    replay(&folder.path, id, is_last, apply).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            OpenError::damaged(file, error, WHAT_IT_HAS, REPAIR)
        }
        _ => OpenError::Io { file, error },
    })
}

const WHAT_IT_HAS: &str =
    "What was charged between the last table and the end was in it, and is lost without it";

/// What is wrong about journals that should be there and are not.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn missing(
    folder: &Folder,
    journals: &LiveJournals,
) -> Result<Vec<OpenError>, OpenError> {
    let ids = journals.missing().map_err(OpenError::io(&folder.path))?;
    let file = |id| path_of(&folder.path, id);
    let damage = |id| OpenError::damaged(file(id), "it is missing", WHAT_IT_HAS, ACCEPT);
    Ok(ids.into_iter().map(damage).collect())
}

/// What is wrong with a journal that has gaps.
pub(super) fn damage(file: &Path, replayed: &Replay) -> OpenError {
    let (begin, end) = replayed.gaps.first().map_or((0, 0), |gap| (gap.begin, gap.end));
    let reason = format!("bytes {begin} to {end} are not as they were written");
    let lost = format!(
        "{} bytes of it cannot be read: counters that were charged then may be as they were before; \
         {} other parts of it are whole",
        lost_bytes(replayed),
        replayed.frames
    );
    OpenError::damaged(file.to_owned(), reason, lost, REPAIR)
}

fn lost_bytes(replayed: &Replay) -> u64 {
    replayed.gaps.iter().map(|gap| gap.end - gap.begin).sum()
}

/// Removes a write that was interrupted: it was never acknowledged.
fn cut_torn_end(folder: &Path, id: u64, torn: u64) -> Result<(), OpenError> {
    if torn == 0 {
        return Ok(());
    }
    let file: PathBuf = path_of(folder, id);
    tracing::info!(
        file = %file.display(), bytes = torn,
        "the last write was interrupted; it was not complete and is left out"
    );
    cut(folder, id, torn).map_err(OpenError::io(file))
}
