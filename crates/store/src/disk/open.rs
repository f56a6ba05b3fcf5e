//! Opens a store, and starts its threads.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
        mpsc,
    },
    thread,
    time::Instant,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tollgate_clock::Clock;
use tollgate_settings::{DiskSettings, MemoryBounds};

use super::{
    Disk, OpenError, Reads, applying,
    filter::Filter,
    folder::Folder,
    journal::Journal,
    journal_writer::begin_journal,
    keeper::{BYTES_A_KEY, Helpers, Keeper},
    orders::Order,
    reads,
    recover::open_folder,
    report::Counts,
    syncing, tables, upkeep,
};
use crate::memory::DiskStore;

/// Opens the store that `settings` describe, or makes it, and starts its threads. `secret` is the
/// one that keys are hashed with; none: that of the store or, if it is new, one that is made.
///
/// # Errors
/// [`OpenError`].
pub fn open(
    settings: &DiskSettings,
    bounds: MemoryBounds,
    secret: Option<[u8; 16]>,
    clock: Clock,
) -> Result<Arc<DiskStore>, OpenError> {
    let (opened, found) = open_folder(settings, &clock)?;
    let secret = match (found, secret) {
        (Some(found), Some(secret)) if found != secret => {
            return Err(OpenError::Secret(settings.path.clone()));
        }
        (Some(found), _) => found,
        (None, secret) => begin_secret(&opened.folder, secret)?,
    };
    // Before anything is charged: a slow disk takes a while for it.
    let journal = begin_journal(&opened);
    let waiting_bytes = opened.tree.waiting_bytes();
    let (size, about) = (opened.tree.size(), opened.tree.about());
    // There is nothing to survey in a new store.
    let filter = if about == 0 { Filter::new(0) } else { Filter::unknown() };
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
        flushed: Mutex::new(Instant::now()),
        waiting_bytes: AtomicU64::new(waiting_bytes),
        waiting_parts: AtomicUsize::new(0),
        synced: Mutex::default(),
        lost_before: AtomicU64::new(0),
        size: Mutex::new(size),
        about: AtomicUsize::new(about),
        secret: Arc::default(),
        failure: Mutex::default(),
        table_failure: Mutex::default(),
        is_failing: AtomicBool::new(false),
        counts,
        survey: Mutex::default(),
        threads: Mutex::default(),
    });
    let store = Arc::new(DiskStore::new(Arc::clone(&disk), bounds, secret));
    let threads = start(&disk, &store, journal, orders, for_keeper);
    disk.threads.lock().extend(threads.map_err(OpenError::io(&settings.path))?);
    Ok(store)
}

/// The secret of a new store, which it keeps.
fn begin_secret(folder: &Folder, given: Option<[u8; 16]>) -> Result<[u8; 16], OpenError> {
    let mut random = [0; 16];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| OpenError::NoRandomness)?;
    let secret = given.unwrap_or(random);
    folder.keep_secret(secret)?;
    Ok(secret)
}

fn start(
    disk: &Arc<Disk>,
    store: &Arc<DiskStore>,
    journal: Option<Journal>,
    orders: mpsc::Sender<Order>,
    for_keeper: mpsc::Receiver<Order>,
) -> io::Result<Vec<thread::JoinHandle<()>>> {
    let (tables, for_tables) = mpsc::channel();
    let (upkeep_jobs, for_upkeep) = mpsc::channel();
    let (syncs, for_sync) = mpsc::channel();
    let (batches, for_applying) = mpsc::channel();
    let (applied_batches, applied) = mpsc::channel();
    let helpers = Helpers { upkeep: upkeep_jobs.clone(), syncs, batches, applied };
    let (of, served) = (Arc::clone(disk), Arc::downgrade(store));
    let keeper = Keeper::new(of, served, for_keeper, helpers, journal);
    let mut threads = vec![spawn("disk-keeper", move || keeper.run())?];
    let (of, own_orders) = (Arc::clone(disk), orders.clone());
    threads.push(spawn("disk-sync", move || syncing::run(&of, &for_sync, &own_orders))?);
    let of = Arc::clone(disk);
    threads.push(spawn("disk-apply", move || {
        applying::run(&of, &for_applying, &applied_batches, &tables);
    })?);
    let of = Arc::clone(disk);
    threads.push(spawn("disk-tables", move || tables::run(&of, &for_tables, &upkeep_jobs))?);
    let of = Arc::clone(disk);
    threads.push(spawn("disk-upkeep", move || upkeep::run(&of, &for_upkeep, &orders))?);
    for _ in 0..reads::READERS {
        let of = Arc::clone(disk);
        threads.push(spawn("disk-read", move || reads::run(&of))?);
    }
    Ok(threads)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}
