//! A store that no proxy has open: to count, check, copy and merge it by hand.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Survey,
    folder::{Folder, OpenError, write_secret},
    journal::{journal_bytes, journals, path_of, replay},
    recover::{damage, open_tree, replay_journals},
    tree::{Tree, TreeError},
};
use crate::clock::{Clock, Timestamp};

/// A store that this process has open by hand.
#[derive(Debug)]
pub struct OfflineStore {
    tree: Tree,
    folder: Folder,
    clock: Clock,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Counters that can be read.
    pub counters: u64,
    /// Of these, those that are over.
    pub over: u64,
    /// Files that are damaged.
    pub damaged: Vec<Damaged>,
}

/// A file that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The file.
    pub file: PathBuf,
    /// What is wrong, and what is lost.
    pub problem: String,
    /// Whether it was put aside, after what can be read of it was kept.
    pub is_aside: bool,
}

impl Damaged {
    fn new(file: PathBuf, problem: String) -> Damaged {
        Damaged { file, problem, is_aside: false }
    }
}

impl OfflineStore {
    /// Opens the store in a folder. What an interrupted write left is not touched.
    ///
    /// # Errors
    /// [`OpenError`]; also if a proxy has the store open.
    pub fn open(path: &Path, clock: Clock) -> Result<OfflineStore, OpenError> {
        let folder = Folder::open(path, false, clock.now())?;
        folder.secret()?;
        let tree = open_tree(&folder, &clock)?;
        for (id, replayed) in replay_journals(&folder, &tree)? {
            let file = path_of(&folder.path, id);
            if let Some(damage) = damage(&file, &replayed) {
                return Err(damage);
            }
        }
        Ok(OfflineStore { tree, folder, clock })
    }

    /// Counts the counters. Returns bytes of tables and of journals, too.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn stat(&self) -> Result<(Survey, u64, u64), OpenError> {
        let now = self.clock.now();
        let mut survey = Survey { at: now.as_micros(), ..Survey::default() };
        let counted = self.tree.for_each(|_, record| {
            match record.is_over(now) {
                Some(true) => survey.over += 1,
                _ => survey.live += 1,
            }
            true
        });
        counted.map_err(|error| self.broken(error))?;
        Ok((survey, self.tree.size().bytes, journal_bytes(&self.folder.path)))
    }

    /// Merges all tables, which lets go what is over.
    ///
    /// # Errors
    /// The tables cannot be read or written.
    pub fn compact(&self) -> Result<(), OpenError> {
        let merged = self
            .tree
            .rotate()
            .and_then(|()| self.tree.write_tables())
            .and_then(|()| self.tree.merge_all());
        merged.map_err(|error| self.broken(error))?;
        for id in journals(&self.folder.path).map_err(OpenError::io(&self.folder.path))? {
            let file = path_of(&self.folder.path, id);
            fs::remove_file(&file).map_err(OpenError::io(file))?;
        }
        Ok(())
    }

    /// Copies the store to another folder, which must be empty or not exist. Returns how many
    /// counters are in it.
    ///
    /// # Errors
    /// The store cannot be read, or the folder cannot be written.
    pub fn backup(&self, to: &Path) -> Result<u64, OpenError> {
        let secret =
            self.folder.secret()?.ok_or_else(|| OpenError::Missing(self.folder.path.clone()))?;
        backup(&self.tree, secret, to, &self.clock)
    }

    fn broken(&self, error: TreeError) -> OpenError {
        broken(self.folder.tables(), error)
    }
}

/// Copies a store to another folder, which must be empty or not exist.
pub(super) fn backup(
    tree: &Tree,
    secret: [u8; 16],
    to: &Path,
    clock: &Clock,
) -> Result<u64, OpenError> {
    let target = Folder::open(to, true, clock.now())?;
    if target.secret()?.is_some() {
        return Err(OpenError::Foreign(to.to_owned()));
    }
    let copied = tree.copy_to(&target.tables(), clock.now());
    let count = copied.map_err(|error| broken(target.tables(), error))?;
    // Last: a copy that was interrupted is no store.
    write_secret(to, secret).map_err(OpenError::io(to))?;
    Ok(count)
}

fn broken(tables: PathBuf, error: TreeError) -> OpenError {
    match error {
        TreeError::Io(error) => OpenError::Io { file: tables, error },
        error => OpenError::Damaged {
            file: tables,
            reason: error.to_string(),
            lost: "Some of its counters cannot be read".to_owned(),
            advice: "`tollgate store check` says which files are damaged",
        },
    }
}

/// Reads all of a store, and says what is damaged. With `repairs` it puts damaged journals aside,
/// after what can be read of them was written to tables.
///
/// # Errors
/// [`OpenError`]; not for damage that is in what is returned.
pub fn check(path: &Path, repairs: bool, clock: &Clock) -> Result<Checked, OpenError> {
    let folder = Folder::open(path, false, clock.now())?;
    let mut checked = Checked::default();
    if let Err(error) = folder.secret() {
        checked.damaged.push(Damaged::new(folder.path.join("counters"), error.to_string()));
    }
    let tree = match open_tree(&folder, clock) {
        Ok(tree) => tree,
        Err(error @ OpenError::Damaged { .. }) => {
            checked.damaged.push(Damaged::new(folder.tables(), error.to_string()));
            return Ok(checked);
        }
        Err(error) => return Err(error),
    };
    let damaged_journals = check_journals(&folder, &tree, &mut checked)?;
    check_tables(&tree, &folder.tables(), clock.now(), &mut checked);
    if repairs && !damaged_journals.is_empty() {
        let written = tree.rotate().and_then(|()| tree.write_tables());
        written.map_err(|error| broken(folder.tables(), error))?;
        for file in damaged_journals {
            // Another name: it is not read any more, and people can still look at it.
            let mut aside = file.clone().into_os_string();
            aside.push(".damaged");
            fs::rename(&file, aside).map_err(OpenError::io(&file))?;
            let own = checked.damaged.iter_mut().filter(|damaged| damaged.file == file);
            own.for_each(|damaged| damaged.is_aside = true);
        }
    }
    Ok(checked)
}

/// Reads all tables.
pub(super) fn check_tables(tree: &Tree, tables: &Path, now: Timestamp, checked: &mut Checked) {
    for table in tree.damaged_tables() {
        let lost = "its counters cannot be read: their limits do as `on_store_error` says until \
                    their windows are over";
        let problem = format!("{}; {lost}", table.reason);
        checked.damaged.push(Damaged::new(table.file, problem));
    }
    let read = tree.for_each(|_, record| {
        checked.counters += 1;
        checked.over += u64::from(record.is_over(now) == Some(true));
        true
    });
    if let Err(error) = read
        && checked.damaged.is_empty()
    {
        checked.damaged.push(Damaged::new(tables.to_owned(), error.to_string()));
    }
}

/// Reads the journals into the tables, and returns those that are damaged.
fn check_journals(
    folder: &Folder,
    tree: &Tree,
    checked: &mut Checked,
) -> Result<Vec<PathBuf>, OpenError> {
    let mut damaged = Vec::new();
    for id in journals(&folder.path).map_err(OpenError::io(&folder.path))? {
        let file = path_of(&folder.path, id);
        let apply = |frame: &[u8]| tree.apply(frame).map_err(std::io::Error::other);
        let problem = match replay(&folder.path, id, apply) {
            Ok(replayed) => damage(&file, &replayed).map(|damage| damage.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            checked.damaged.push(Damaged::new(file.clone(), problem));
            damaged.push(file);
        }
    }
    Ok(damaged)
}
