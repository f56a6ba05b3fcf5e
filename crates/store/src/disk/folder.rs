//! The folder of a store: what is in it, whose it is, and who has it open.
//!
//! `counters` says that it is a store, in which form, and under which secret callers' names were
//! hashed; `lock` says which process has it open; `tables` and `journal-*` have the counters, and
//! `journals` says which journals there are.
//!
//! A new store gets `counters` last: a folder without it is not finished, and has no counter.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use tollgate_clock::Timestamp;
use tollgate_limit::Bytes;

use super::sealed;

/// The file that says that a folder is a store.
const NAME: &str = "counters";

/// How that file begins, before the number of its form.
const WORDS: &[u8; 15] = b"tollgate store\n";
const FORMAT: u32 = 1;

/// Why a folder cannot be used as a store. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{folder} is in use by {holder}: stop that process, or name another folder")]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Who has it open, as it has said.
        holder: String,
    },
    /// It has files, and is not a store.
    #[error(
        "{0} has files and is not a store of tollgate: name a folder that is empty or does not exist"
    )]
    Foreign(PathBuf),
    /// There is no store.
    #[error("{0} is not a store of tollgate, which a proxy makes when it starts")]
    Missing(PathBuf),
    /// Another version wrote it.
    #[error(
        "{folder} has the form {format}, and only {FORMAT} is known: use the version of tollgate \
         that wrote it, or name another folder"
    )]
    Format {
        /// The folder.
        folder: PathBuf,
        /// The form that it has.
        format: u32,
    },
    /// A file is not as it was written.
    #[error("{file} is damaged: {reason}. {lost}. {advice}")]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What is lost.
        lost: String,
        /// How to go on.
        advice: &'static str,
    },
    /// Its counters are of other callers.
    #[error(
        "{0} was written under another key secret, so none of its counters can be found: use the \
         secret that it was written with, or name another folder"
    )]
    Secret(PathBuf),
    /// The system says so.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomness,
}

impl OpenError {
    pub(super) fn damaged(
        file: PathBuf,
        reason: impl ToString,
        lost: impl Into<String>,
        advice: &'static str,
    ) -> OpenError {
        OpenError::Damaged { file, reason: reason.to_string(), lost: lost.into(), advice }
    }

    pub(super) fn io(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> OpenError {
        let file = file.into();
        move |error| OpenError::Io { file, error }
    }
}

/// A folder that this process has open.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Held as long as the folder is open.
    lock: File,
}

impl Folder {
    /// Opens a folder; with `makes` it is made if it does not exist.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn open(path: &Path, makes: bool, now: Timestamp) -> Result<Folder, OpenError> {
        if makes {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(path);
            made.map_err(OpenError::io(path))?;
        }
        if !path.join(NAME).exists() {
            match find(path).map_err(OpenError::io(path))? {
                Content::Counters => return Err(no_secret(path, "it is missing")),
                _ if !makes => return Err(OpenError::Missing(path.to_owned())),
                Content::Foreign => return Err(OpenError::Foreign(path.to_owned())),
                Content::Nothing => {}
            }
        }
        let lock = lock(path, now)?;
        Ok(Folder { path: path.to_owned(), lock })
    }

    pub(super) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    /// The secret under which keys were hashed; none: the store is new.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn secret(&self) -> Result<Option<[u8; 16]>, OpenError> {
        let damaged = || no_secret(&self.path, "it is not as it was written");
        let fields = match sealed::read(&self.path, NAME, WORDS) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged()),
            fields => fields.map_err(OpenError::io(self.path.join(NAME)))?,
        };
        let Some(fields) = fields else { return Ok(None) };
        let mut fields = Bytes(&fields);
        let format = fields.u32().ok_or_else(damaged)?;
        if format != FORMAT {
            return Err(OpenError::Format { folder: self.path.clone(), format });
        }
        let secret = fields.array().filter(|_| fields.0.is_empty());
        secret.map(Some).ok_or_else(damaged)
    }

    /// Notes the secret under which keys are hashed.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn keep_secret(&self, secret: [u8; 16]) -> Result<(), OpenError> {
        write_secret(&self.path, secret).map_err(OpenError::io(self.path.join(NAME)))
    }
}

/// Makes the file `counters` of a folder.
///
/// # Errors
/// Those of the system.
pub(super) fn write_secret(folder: &Path, secret: [u8; 16]) -> io::Result<()> {
    sealed::write(folder, NAME, WORDS, &[&FORMAT.to_le_bytes()[..], &secret].concat())
}

/// What a folder has that does not say that it is a store.
enum Content {
    /// Nothing, or what is left of a store that was not made to its end.
    Nothing,
    /// Counters of a store.
    Counters,
    /// Files of others.
    Foreign,
}

/// Looks what is in a folder.
fn find(path: &Path) -> io::Result<Content> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Nothing),
        entries => entries?,
    };
    let mut content = Content::Nothing;
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        match &*name {
            "lock" | "counters.new" | "lost+found" => {}
            // Those of a store that was just made are empty.
            "tables" if is_empty(&path.join("tables/tables"))? => {}
            "tables" if path.join("tables/current").exists() => return Ok(Content::Counters),
            "journals" => return Ok(Content::Counters),
            name if name.starts_with("journal-") => return Ok(Content::Counters),
            _ => content = Content::Foreign,
        }
    }
    Ok(content)
}

/// Whether a folder has nothing in it, or does not exist.
fn is_empty(folder: &Path) -> io::Result<bool> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        entries => Ok(entries?.next().is_none()),
    }
}

/// A process that is started meanwhile has the file, too, until its program runs: to close it here
/// would leave the folder locked for so long.
impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::debug!(%error, "the folder is unlocked when its file is closed");
        }
    }
}

/// Without the file `counters` of a folder, its counters are of no use.
fn no_secret(folder: &Path, reason: &str) -> OpenError {
    let lost =
        "It has the secret under which callers are hashed, and without it no counter is found";
    let advice =
        "Put the file of a backup in its place, or move the folder away to begin with no counters";
    OpenError::damaged(folder.join(NAME), reason, lost, advice)
}

/// Locks a folder, and says by whom it is locked.
fn lock(folder: &Path, now: Timestamp) -> Result<File, OpenError> {
    let path = folder.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(OpenError::io(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                holder => holder.to_owned(),
            };
            return Err(OpenError::InUse { folder: folder.to_owned(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(OpenError::io(&path)(error)),
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let holder = format!("process {} on {host}, since {now}\n", std::process::id());
    let written = file
        .set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(holder.as_bytes()));
    // Who holds the lock is for people only. A full disk must not keep a proxy from starting.
    if let Err(error) = written {
        tracing::debug!(%error, "the lock does not say who holds it");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

    #[test]
    fn folder_is_made_keeps_its_secret_and_is_for_one_process() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("new/store");
        let folder = Folder::open(&path, true, NOW).unwrap();
        assert_eq!(folder.secret().unwrap(), None);
        folder.keep_secret([7; 16]).unwrap();
        assert_eq!(folder.secret().unwrap(), Some([7; 16]));
        let error = Folder::open(&path, true, NOW).unwrap_err().to_string();
        let process = format!("process {} on ", std::process::id());
        assert!(error.contains(&process) && error.contains("2026"), "{error}");
        drop(folder);
        assert_eq!(Folder::open(&path, false, NOW).unwrap().secret().unwrap(), Some([7; 16]));
    }

    #[test]
    fn folder_that_was_given_up_is_free_while_another_has_its_lock_file() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path(), true, NOW).unwrap();
        // As a process has it that is being started.
        let inherited = folder.lock.try_clone().unwrap();
        drop(folder);
        Folder::open(parent.path(), true, NOW).unwrap();
        drop(inherited);
    }

    #[test]
    fn folder_of_others_is_refused_and_stays_as_it_is() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("notes.txt"), "mine").unwrap();
        let error = Folder::open(parent.path(), true, NOW).unwrap_err();
        assert!(matches!(error, OpenError::Foreign(_)), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
        let error = Folder::open(&parent.path().join("none"), false, NOW).unwrap_err();
        assert!(matches!(error, OpenError::Missing(_)), "{error}");
    }

    #[test]
    fn folder_whose_secret_is_damaged_or_gone_says_what_is_lost() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path(), true, NOW).unwrap();
        folder.keep_secret([7; 16]).unwrap();
        let file = parent.path().join("counters");
        fs::write(&file, &fs::read(&file).unwrap()[1..]).unwrap();
        let error = folder.secret().unwrap_err().to_string();
        assert!(error.contains("counters is damaged: it is not as it was written"), "{error}");
        drop(folder);
        fs::remove_file(file).unwrap();
        fs::write(parent.path().join("journal-3"), "").unwrap();
        for makes in [true, false] {
            let error = Folder::open(parent.path(), makes, NOW).unwrap_err().to_string();
            assert!(error.contains("it is missing. It has the secret"), "{error}");
        }
    }

    #[test]
    fn store_that_was_not_made_to_its_end_is_no_store_yet() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir_all(parent.path().join("tables/tables")).unwrap();
        fs::write(parent.path().join("tables/current"), "").unwrap();
        let folder = Folder::open(parent.path(), true, NOW).unwrap();
        assert_eq!(folder.secret().unwrap(), None);
        let error = Folder::open(parent.path(), false, NOW).unwrap_err();
        assert!(matches!(error, OpenError::Missing(_)), "{error}");
    }
}
