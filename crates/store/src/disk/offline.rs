//! A store that no proxy has open: to count, check, copy and merge it by hand.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tollgate_clock::{Clock, Timestamp};
use tollgate_settings::SyncMode;

use super::{
    OpenFolder, Survey,
    folder::{Folder, OpenError, write_secret},
    journal::{last_written, path_of},
    live::LiveJournals,
    recover::{damage, missing, open_tree, read_journals, replay_journal, replay_journals},
    tree::{Tree, TreeError},
};

/// A store that this process has open by hand.
#[derive(Debug)]
pub struct OfflineStore {
    opened: OpenFolder,
    clock: Clock,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// Counters that can be read.
    pub counters: u64,
    /// Of these, those that are over.
    pub over: u64,
    /// Whether all were counted: not those behind the first damaged place of the tables.
    pub is_complete: bool,
    /// Files that are damaged.
    pub damaged: Vec<Damage>,
}

/// A file that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// What is wrong, and what is lost.
    pub problem: String,
    /// Whether the store goes on without it, after what can be read of it was kept.
    pub is_repaired: bool,
}

impl Damage {
    fn new(file: PathBuf, problem: String) -> Damage {
        Damage { file, problem, is_repaired: false }
    }

    /// What an error says about a file.
    ///
    /// # Errors
    /// The error, if it is another one.
    fn of(error: OpenError) -> Result<Damage, OpenError> {
        match &error {
            OpenError::Damaged { file, .. } => Ok(Damage::new(file.clone(), error.to_string())),
            _ => Err(error),
        }
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
        let opened = OpenFolder { tree, journals: read_journals(&folder)?, folder };
        replay_journals(&opened, SyncMode::Flush, false)?;
        Ok(OfflineStore { opened, clock })
    }

    /// Counts the counters. Returns bytes of tables and of journals, too.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn stat(&self) -> Result<(Survey, u64, u64), OpenError> {
        let now = self.clock.now();
        let mut survey = Survey { at: now.as_micros(), ..Survey::default() };
        let counted = self.opened.tree.for_each(|_, record| match record.is_over(now) {
            Some(true) => survey.over += 1,
            Some(false) | None => survey.live += 1,
        });
        counted.map_err(|error| self.broken(error))?;
        Ok((survey, self.opened.tree.size().bytes, self.opened.journal_bytes()))
    }

    /// Merges all tables, which drops what is over.
    ///
    /// # Errors
    /// The tables cannot be read or written.
    pub fn compact(&self) -> Result<(), OpenError> {
        let OpenFolder { tree, journals, folder } = &self.opened;
        let merged =
            tree.rotate().and_then(|()| tree.write_tables()).and_then(|()| tree.merge_all());
        merged.map_err(|error| self.broken(error))?;
        journals.end_all().map_err(OpenError::io(&folder.path))
    }

    /// Copies the store to another folder, which must be empty or not exist. Returns how many
    /// counters are in it.
    ///
    /// # Errors
    /// The store cannot be read, or the folder cannot be written.
    pub fn backup(&self, to: &Path) -> Result<u64, OpenError> {
        let OpenFolder { tree, folder, .. } = &self.opened;
        let secret = folder.secret()?.ok_or_else(|| OpenError::Missing(folder.path.clone()))?;
        backup(tree, secret, to, &self.clock)
    }

    fn broken(&self, error: TreeError) -> OpenError {
        broken(self.opened.folder.tables(), error)
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
        error => {
            let advice = "`tollgate store check` says which files are damaged";
            OpenError::damaged(tables, error, "Some of its counters cannot be read", advice)
        }
    }
}

/// Reads all of a store, and says what is damaged. With `repairs`, what can be read of the journals
/// is written to tables, and damaged ones are put aside.
///
/// # Errors
/// [`OpenError`]; not for damage that is in what is returned.
pub fn check(path: &Path, repairs: bool, clock: &Clock) -> Result<CheckResult, OpenError> {
    let folder = Folder::open(path, false, clock.now())?;
    let mut checked = CheckResult::default();
    if let Err(error) = folder.secret() {
        checked.damaged.push(Damage::of(error)?);
    }
    let tree = match open_tree(&folder, clock) {
        Ok(tree) => tree,
        Err(error) => {
            checked.damaged.push(Damage::of(error)?);
            return Ok(checked);
        }
    };
    let (journals, damaged) = check_journals(&folder, &tree)?;
    check_tables(&tree, &folder.tables(), clock.now(), &mut checked);
    match repairs && !damaged.is_empty() {
        true => {
            let repaired = repair(&folder, &tree, &journals, damaged)?;
            checked.damaged.extend(repaired);
        }
        false => checked.damaged.extend(damaged),
    }
    Ok(checked)
}

/// Writes to tables what was read of the journals, and puts damaged ones aside.
fn repair(
    folder: &Folder,
    tree: &Tree,
    journals: &LiveJournals,
    damaged: Vec<Damage>,
) -> Result<Vec<Damage>, OpenError> {
    let written = tree.rotate().and_then(|()| tree.write_tables());
    written.map_err(|error| broken(folder.tables(), error))?;
    for Damage { file, .. } in damaged.iter().filter(|damaged| damaged.file.exists()) {
        // Another name: it is not read any more, and people can still look at it.
        let mut aside = file.clone().into_os_string();
        aside.push(".damaged");
        fs::rename(file, aside).map_err(OpenError::io(file))?;
    }
    journals.end_all().map_err(OpenError::io(&folder.path))?;
    let repaired = |damaged| Damage { is_repaired: true, ..damaged };
    Ok(damaged.into_iter().map(repaired).collect())
}

/// Reads all tables.
pub(super) fn check_tables(tree: &Tree, tables: &Path, now: Timestamp, checked: &mut CheckResult) {
    for table in tree.damaged_tables() {
        let lost = "its counters cannot be read: their limits do as `on_store_error` says until \
                    their windows are over";
        let problem = format!("{}; {lost}", table.reason);
        checked.damaged.push(Damage::new(table.file, problem));
    }
    let read = tree.for_each(|_, record| {
        checked.counters += 1;
        checked.over += u64::from(record.is_over(now) == Some(true));
    });
    checked.is_complete = read.is_ok();
    if let Err(error) = read
        && checked.damaged.is_empty()
    {
        checked.damaged.push(Damage::new(tables.to_owned(), error.to_string()));
    }
}

/// Reads the journals into the tables. Returns which count, and what is wrong with them.
fn check_journals(folder: &Folder, tree: &Tree) -> Result<(LiveJournals, Vec<Damage>), OpenError> {
    let listed = |error| OpenError::io(&folder.path)(error);
    let mut damaged = Vec::new();
    let journals = match read_journals(folder) {
        Ok(journals) => journals,
        Err(error) => {
            damaged.push(Damage::of(error)?);
            LiveJournals::found(&folder.path).map_err(listed)?
        }
    };
    for error in missing(folder, &journals)? {
        damaged.push(Damage::of(error)?);
    }
    let ids = journals.ids().map_err(listed)?;
    let last = last_written(&folder.path, &ids);
    for id in &ids {
        let file = path_of(&folder.path, *id);
        let may_be_unsynced = Some(*id) >= last || journals.may_be_unsynced(*id);
        match replay_journal(folder, tree, *id, may_be_unsynced) {
            Ok(replayed) if replayed.gaps.is_empty() => {}
            Ok(replayed) => damaged.push(Damage::of(damage(&file, &replayed))?),
            Err(error) => damaged.push(Damage::of(error)?),
        }
    }
    Ok((journals, damaged))
}
