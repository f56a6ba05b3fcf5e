//! The folder of a store: what is in it, whose it is, and who has it open.
//!
//! `counters` says that it is a store, in which form, and under which secret callers' names were
//! hashed; `lock` says which process has it open; `tables` and `journal-*` have the counters.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64;

use crate::{clock::Timestamp, limit::Bytes};

/// How the file `counters` begins, before the number of its form.
const MAGIC: &[u8; 15] = b"tollgate store\n";
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
    _lock: File,
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
        } else if !path.join("counters").exists() {
            return Err(OpenError::Missing(path.to_owned()));
        }
        let is_store = path.join("counters").exists();
        if !is_store && has_foreign_files(path).map_err(OpenError::io(path))? {
            return Err(OpenError::Foreign(path.to_owned()));
        }
        let lock = lock(path, now)?;
        Ok(Folder { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    /// The secret under which keys were hashed; none: the store is new.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn secret(&self) -> Result<Option<[u8; 16]>, OpenError> {
        let file = self.path.join("counters");
        let bytes = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(OpenError::io(&file))?,
        };
        let damaged = || OpenError::Damaged {
            file: file.clone(),
            reason: "it is not as it was written".to_owned(),
            lost: "It has the secret under which callers are hashed, and without it no counter is \
                   found"
                .to_owned(),
            advice: "Put the file of a backup in its place, or move the folder away to begin with \
                     no counters",
        };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let mut fields = Bytes(rest);
        let format = fields.u32().ok_or_else(damaged)?;
        if format != FORMAT {
            return Err(OpenError::Format { folder: self.path.clone(), format });
        }
        let secret: [u8; 16] = fields.array().ok_or_else(damaged)?;
        let sum = fields.u64().filter(|_| fields.0.is_empty()).ok_or_else(damaged)?;
        match sum == xxh3_64(bytes.get(..bytes.len() - 8).unwrap_or_default()) {
            true => Ok(Some(secret)),
            false => Err(damaged()),
        }
    }

    /// Notes the secret under which keys are hashed.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(super) fn keep_secret(&self, secret: [u8; 16]) -> Result<(), OpenError> {
        write_secret(&self.path, secret).map_err(OpenError::io(self.path.join("counters")))
    }
}

/// Makes the file `counters` of a folder.
///
/// # Errors
/// Those of the system.
pub(super) fn write_secret(folder: &Path, secret: [u8; 16]) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(secret);
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    let draft = folder.join("counters.new");
    let _ = fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&draft, folder.join("counters"))?;
    File::open(folder)?.sync_all()
}

/// Whether a folder has files that are none of ours.
fn has_foreign_files(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let is_ours = ["lock", "counters.new", "lost+found"].iter().any(|own| name == *own);
        if !is_ours {
            return Ok(true);
        }
    }
    Ok(false)
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
    fn every_changed_byte_of_the_secret_is_noticed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(parent.path(), true, NOW).unwrap();
        folder.keep_secret([7; 16]).unwrap();
        let file = parent.path().join("counters");
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&file, &changed).unwrap();
            assert!(folder.secret().is_err(), "byte {at}");
            fs::write(&file, &whole[..at]).unwrap();
            assert!(folder.secret().is_err(), "{at} bytes");
        }
    }
}
