//! A folder that knows what of it would outlive a power failure, and whose calls can be made to
//! fail.
//!
//! A sync is the only thing that is recorded: what a file has then, or which names a folder has. So
//! it does not matter by which call anything was changed since.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};

use rustix::io::Errno;

use crate::image::{self, Ending, PAGE, Unsynced};

/// All drives, and how many there are: most programs have none.
static DRIVES: RwLock<Vec<Arc<Drive>>> = RwLock::new(Vec::new());
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A folder below which calls can fail. It is one until it is [removed](Drive::remove).
#[derive(Debug)]
pub struct Drive {
    folder: PathBuf,
    state: Mutex<State>,
}

/// What is wrong with a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveFault {
    /// It takes so many bytes more: a write is cut short, and the next one fails.
    Full(u64),
    /// Writes and syncs fail.
    Broken,
    /// Writes go well and syncs fail. What such a sync was for is lost with the power, also after a
    /// later one that goes well, as Linux has it.
    Unsyncable,
}

/// Which calls are counted until a process ends.
#[derive(Clone, Copy, Debug)]
pub enum Calls {
    /// Those for files whose names begin with this.
    Named(&'static str),
    /// Those of this thread.
    OfThread(ThreadId),
}

impl Calls {
    /// Those of the thread that says so.
    pub fn own() -> Calls {
        Calls::OfThread(thread::current().id())
    }

    fn have(self, path: &Path) -> bool {
        match self {
            Calls::Named(begin) => path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(begin.as_bytes())),
            Calls::OfThread(thread) => thread::current().id() == thread,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    fault: Option<DriveFault>,
    record: Record,
    /// The end of the process that is to come.
    coming: Option<Coming>,
    /// How the process has ended, and what it has left unsynced.
    left: Option<(Ending, Vec<Unsynced>)>,
}

/// An end at the call that is this many away.
#[derive(Debug)]
struct Coming {
    calls: Calls,
    away: u32,
    ending: Ending,
    to: PathBuf,
}

/// What was synced.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What files had, by their numbers.
    pub(crate) files: HashMap<u64, Synced>,
    /// What names folders had, by the numbers of these.
    pub(crate) folders: HashMap<u64, BTreeMap<OsString, u64>>,
}

/// A file as it was synced.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    pub(crate) bytes: Vec<u8>,
    /// What it had when a sync failed: pages that have not changed since are taken for synced, and
    /// are not.
    failed: Option<Vec<u8>>,
    /// Its number is not given to another file as long as it is open.
    _held: Option<File>,
}

/// What is about to be done.
pub(crate) enum Change<'f> {
    Sync(BorrowedFd<'f>),
    Other,
}

impl Drive {
    /// Makes a folder a drive. All that is there counts as synced.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(folder: &Path) -> io::Result<Arc<Drive>> {
        fs::create_dir_all(folder)?;
        let folder = folder.canonicalize()?;
        let mut record = Record::default();
        record.note_all(&folder)?;
        let state = Mutex::new(State { record, ..State::default() });
        let drive = Arc::new(Drive { folder, state });
        let mut drives = DRIVES.write().unwrap_or_else(PoisonError::into_inner);
        drives.push(Arc::clone(&drive));
        NUMBER.store(drives.len(), Ordering::SeqCst);
        Ok(drive)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lets the folder be one like any other.
    pub fn remove(&self) {
        let mut drives = DRIVES.write().unwrap_or_else(PoisonError::into_inner);
        drives.retain(|drive| drive.folder != self.folder);
        NUMBER.store(drives.len(), Ordering::SeqCst);
    }

    /// What is wrong with it from now on; none: nothing is.
    pub fn set_fault(&self, fault: Option<DriveFault>) {
        self.lock().fault = fault;
    }

    /// Whether nothing is wrong with it, and no end is to come.
    pub fn is_well(&self) -> bool {
        let state = self.lock();
        state.fault.is_none() && state.coming.is_none()
    }

    /// Ends the process at the call that is this many away: what is left of its files then is in
    /// the folder `to`. The process itself does not notice.
    pub fn end_at(&self, calls: Calls, away: u32, ending: Ending, to: &Path) {
        let coming = Coming { calls, away, ending, to: to.to_owned() };
        self.lock().coming = Some(coming);
    }

    /// Ends the process now, if it has not [ended](Drive::end_at) before.
    ///
    /// # Errors
    /// Those of the system.
    pub fn end(&self, ending: Ending, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.coming = None;
        if state.left.is_none() {
            let left = image::write(&self.folder, &state.record, ending, to)?;
            state.left = Some((ending, left));
        }
        Ok(())
    }

    /// How the process has ended; none: it has not.
    pub fn ended(&self) -> Option<Ending> {
        self.lock().left.as_ref().map(|(ending, _)| *ending)
    }

    /// Lets the process not end.
    pub fn spare(&self) {
        self.lock().coming = None;
    }

    /// What is left of a drive whose process has ended, as a drive: it does not have synced either
    /// what a killed process had not.
    ///
    /// # Errors
    /// Those of the system.
    pub fn left(&self, to: &Path) -> io::Result<Arc<Drive>> {
        let left = Drive::new(to)?;
        let mut record = left.lock();
        let unsynced = self.lock().left.take().map(|(_, unsynced)| unsynced);
        for Unsynced { path, synced } in unsynced.unwrap_or_default() {
            let number = fs::metadata(left.folder.join(path))?.ino();
            if let Some(file) = record.record.files.get_mut(&number) {
                file.bytes = synced;
            }
        }
        drop(record);
        Ok(left)
    }

    /// Writes, as far as it can.
    pub(crate) fn write(
        &self,
        path: &Path,
        bytes: &[u8],
        perform: impl Fn(&[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut state = self.lock();
        if let Some(Coming { ending, .. }) = state.coming(path) {
            // Some of it was written.
            let part = ending.part_of(bytes.len());
            let written = perform(bytes.get(..part).unwrap_or_default())?;
            state.end(&self.folder);
            return Ok(written);
        }
        let most = match &mut state.fault {
            _ if bytes.is_empty() => 0,
            Some(DriveFault::Broken) => return Err(Errno::IO),
            Some(DriveFault::Full(0)) => return Err(Errno::NOSPC),
            Some(DriveFault::Full(room)) => {
                let most = bytes.len().min(*room as usize);
                *room -= most as u64;
                most
            }
            Some(DriveFault::Unsyncable) | None => bytes.len(),
        };
        perform(bytes.get(..most).unwrap_or_default())
    }

    /// Changes something else.
    pub(crate) fn change(
        &self,
        change: Change<'_>,
        path: &Path,
        perform: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.coming(path).is_some() {
            state.end(&self.folder);
        }
        let Change::Sync(file) = change else { return perform() };
        let fails = matches!(state.fault, Some(DriveFault::Broken | DriveFault::Unsyncable));
        let noted = state.record.note(file, fails);
        match noted {
            Ok(()) if !fails => perform(),
            _ => Err(Errno::IO),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The end, if it is due with this call.
    fn coming(&mut self, path: &Path) -> Option<&Coming> {
        let coming = self.coming.as_mut().filter(|coming| coming.calls.have(path))?;
        coming.away = coming.away.saturating_sub(1);
        (coming.away == 0).then_some(coming)
    }

    fn end(&mut self, folder: &Path) {
        let Some(Coming { ending, to, .. }) = self.coming.take() else { return };
        let written = image::write(folder, &self.record, ending, &to);
        let left = written.unwrap_or_else(|error| panic!("{}: {error}", to.display()));
        self.left = Some((ending, left));
    }
}

impl Record {
    /// Notes that all in a folder is synced.
    fn note_all(&mut self, folder: &Path) -> io::Result<()> {
        let opened = File::open(folder)?;
        self.note(borrow(&opened), false)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => self.note_all(&path)?,
                false => self.note(borrow(&File::open(path)?), false)?,
            }
        }
        Ok(())
    }

    /// Notes that a file or folder is synced, or that it could not be.
    fn note(&mut self, file: BorrowedFd<'_>, fails: bool) -> io::Result<()> {
        // It may be open for writing only, and have no name any more.
        let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let about = fs::metadata(&place)?;
        if about.is_dir() {
            if !fails {
                let names = self.names(&place)?;
                self.folders.insert(about.ino(), names);
            }
            return Ok(());
        }
        let mut opened = File::open(&place)?;
        let mut bytes = Vec::new();
        opened.read_to_end(&mut bytes)?;
        let synced = self.files.entry(about.ino()).or_default();
        synced._held.get_or_insert(opened);
        synced.note(bytes, fails);
        Ok(())
    }

    /// The names in a folder. Files that were not seen before are empty as far as they are synced.
    fn names(&mut self, folder: &Path) -> io::Result<BTreeMap<OsString, u64>> {
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // It may be gone meanwhile.
            let Ok(about) = fs::metadata(entry.path()) else { continue };
            if about.is_file() {
                let synced = self.files.entry(about.ino()).or_default();
                if synced._held.is_none() {
                    synced._held = File::open(entry.path()).ok();
                }
            }
            names.insert(entry.file_name(), about.ino());
        }
        Ok(names)
    }
}

impl Synced {
    fn note(&mut self, bytes: Vec<u8>, fails: bool) {
        if fails {
            self.failed = Some(bytes);
            return;
        }
        let Some(failed) = &self.failed else {
            self.bytes = bytes;
            return;
        };
        let mut synced = Vec::with_capacity(bytes.len());
        for (page, new) in bytes.chunks(PAGE).enumerate() {
            let place =
                |of: &[u8]| of.get(page * PAGE..).map(|of| of[..of.len().min(PAGE)].to_vec());
            match place(failed).is_some_and(|failed| failed == new) {
                true => {
                    let mut old = place(&self.bytes).unwrap_or_default();
                    old.resize(new.len(), 0);
                    synced.extend(old);
                }
                false => synced.extend(new),
            }
        }
        self.bytes = synced;
    }
}

fn borrow(file: &File) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(file)
}

/// The drive that a path is below.
pub(crate) fn of_path(path: &Path) -> Option<Arc<Drive>> {
    if NUMBER.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let drives = DRIVES.read().unwrap_or_else(PoisonError::into_inner);
    drives.iter().find(|drive| path.starts_with(&drive.folder)).cloned()
}

/// The drive of an open file, and its path.
pub(crate) fn of_file(file: BorrowedFd<'_>) -> Option<(Arc<Drive>, PathBuf)> {
    if NUMBER.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    Some((of_path(&path)?, path))
}
