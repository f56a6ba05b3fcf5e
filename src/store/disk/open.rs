//! Opens a store: the folder, the tables, and what is in the journals and not in the tables.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
        mpsc,
    },
    thread,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Notify, watch};

use super::{
    Disk, OpenError, Opened, Reads,
    filter::Filter,
    folder::Folder,
    journal::{Replayed, cut, journals, path_of, replay},
    keeper::{Keeper, Links},
    lock, reads,
    report::Counts,
    tables::{self, table_jobs},
    tree::{MEMTABLE_BYTES, Tree, TreeError},
    upkeep,
};
use crate::{
    clock::Clock,
    settings::{DiskSettings, MemoryBounds},
    store::memory::MemoryStore,
};

/// Bytes of memory that a counter takes, until it is known better.
pub(super) const BYTES_A_KEY: usize = 48;

/// How to go on if tables are damaged.
const RESTORE: &str =
    "Put a backup in its place, or move the folder away to begin with no counters";

/// How to go on if a journal is damaged.
const REPAIR: &str = "`tollgate store check --repair` keeps what can be read and puts the damaged \
                      file aside";

/// Opens the store that `settings` describe, or makes it, and starts its threads. `secret` is the one
/// that keys are hashed with; none: that of the store or, if it is new, one that is made.
///
/// # Errors
/// [`OpenError`].
pub fn open(
    settings: &DiskSettings,
    bounds: MemoryBounds,
    secret: Option<[u8; 16]>,
    clock: Clock,
) -> Result<Arc<MemoryStore>, OpenError> {
    let (opened, found) = open_folder(settings, &clock)?;
    let secret = match (found, secret) {
        (Some(found), Some(secret)) if found != secret => {
            return Err(OpenError::Secret(settings.path.clone()));
        }
        (Some(found), _) => found,
        (None, secret) => {
            let mut random = [0; 16];
            aws_lc_rs::rand::fill(&mut random).map_err(|_| OpenError::NoRandomness)?;
            let secret = secret.unwrap_or(random);
            opened.folder.keep_secret(secret)?;
            secret
        }
    };
    let is_empty = opened.tree.about() == 0;
    // There is nothing to look through in a new store.
    let filter = if is_empty { Filter::new(0) } else { Filter::unknown() };
    let (orders, for_keeper) = mpsc::channel();
    let now = clock.now();
    let counts = Counts::default();
    counts.flush_begun.store(now.as_micros(), std::sync::atomic::Ordering::Relaxed);
    let disk = Arc::new(Disk {
        settings: settings.clone(),
        clock,
        opened: ArcSwapOption::from_pointee(opened),
        filter: ArcSwap::from_pointee(filter),
        max_in_memory: AtomicUsize::new((settings.memory as usize / BYTES_A_KEY).max(1000)),
        is_flush_asked: AtomicBool::new(false),
        room: Notify::new(),
        reads: Reads::new(),
        orders: orders.clone(),
        begun: AtomicU64::new(0),
        written: watch::Sender::new(0),
        failure: Mutex::default(),
        is_failing: AtomicBool::new(false),
        counts,
        survey: Mutex::default(),
        threads: Mutex::default(),
    });
    let store = Arc::new(MemoryStore::before(Arc::clone(&disk), bounds, secret));
    start(&disk, &store, orders, for_keeper).map_err(OpenError::io(&settings.path))?;
    Ok(store)
}

fn start(
    disk: &Arc<Disk>,
    store: &Arc<MemoryStore>,
    orders: mpsc::Sender<super::Order>,
    for_keeper: mpsc::Receiver<super::Order>,
) -> io::Result<()> {
    let (table_jobs, table_writer) = table_jobs();
    let (upkeep_jobs, for_upkeep) = mpsc::channel();
    let links = Links { orders: for_keeper, tables: table_jobs, upkeep: upkeep_jobs.clone() };
    let keeper = Keeper::new(Arc::clone(disk), Arc::downgrade(store), links);
    let mut threads = vec![spawn("disk-keeper", move || keeper.run())?];
    let of = Arc::clone(disk);
    threads.push(spawn("disk-tables", move || tables::run(&of, table_writer, &upkeep_jobs))?);
    let of = Arc::clone(disk);
    threads.push(spawn("disk-upkeep", move || upkeep::run(&of, &for_upkeep, &orders))?);
    for _ in 0..reads::READERS {
        let of = Arc::clone(disk);
        threads.push(spawn("disk-read", move || reads::run(&of))?);
    }
    lock(&disk.threads).extend(threads);
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

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
