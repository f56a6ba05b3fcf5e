//! Keeps counters from one start to the next, in a file that is written from time to time and at the
//! end.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use super::{
    Bounds, MemoryStore,
    snapshot::{self, SnapshotError, Writer},
};
use crate::clock::{Clock, Timestamp};

/// Writes a store's counters on a thread of its own.
pub struct Keeper {
    orders: mpsc::Sender<Order>,
    thread: JoinHandle<()>,
}

/// Has counters written between times, for as long as their keeper is there.
#[derive(Clone)]
pub struct Saver(mpsc::Sender<Order>);

enum Order {
    /// Write now, and tell when that is done.
    Save(mpsc::Sender<()>),
    /// Write for the last time.
    Finish,
    /// Leave the file to whoever writes it now.
    Leave,
}

impl Keeper {
    /// Starts to write `store` to `file` each time that `pause` has passed.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(
        store: Arc<MemoryStore>,
        file: PathBuf,
        pause: Duration,
        clock: Clock,
    ) -> io::Result<Keeper> {
        let (orders, coming) = mpsc::channel();
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || {
            loop {
                let order = coming.recv_timeout(pause);
                if let Ok(Order::Leave) = order {
                    return;
                }
                save(&store, &file, clock.now());
                match order {
                    Ok(Order::Save(done)) => drop(done),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        })?;
        Ok(Keeper { orders, thread })
    }

    /// Has counters written between times.
    pub fn saver(&self) -> Saver {
        Saver(self.orders.clone())
    }

    /// Writes the counters no more, not even when this finishes: another process does.
    pub fn leave(&self) {
        let _ = self.orders.send(Order::Leave);
    }

    /// Writes the counters for the last time.
    pub fn finish(self) {
        let _ = self.orders.send(Order::Finish);
        if self.thread.join().is_err() {
            tracing::error!("counters were not saved: writing them panicked");
        }
    }
}

impl Saver {
    /// Writes the counters, and returns when they are written.
    pub fn save(&self) {
        let (done, is_done) = mpsc::channel();
        if self.0.send(Order::Save(done)).is_ok() {
            // Told by the other end's being dropped.
            let _ = is_done.recv();
        }
    }
}

/// Writes all counters; if that fails, the file stays as it was.
fn save(store: &MemoryStore, file: &Path, now: Timestamp) {
    let saved = Writer::create(file, store.key_secret(), now).and_then(|mut writer| {
        store.save(&mut writer)?;
        writer.finish()
    });
    match saved {
        Ok(()) => tracing::debug!(counters = store.len(), "counters were saved"),
        Err(error) => tracing::warn!(file = %file.display(), %error, "cannot save counters"),
    }
}

/// A store with the counters that `file` holds. None: there is no such file, or nothing of ours in
/// it, which is logged.
pub fn restore(file: &Path, bounds: Bounds, now: Timestamp) -> Option<MemoryStore> {
    match read(file, bounds, now) {
        Ok(store) => store,
        Err(error) => {
            let file = file.display();
            tracing::warn!(%file, %error, "starting without the saved counters");
            None
        }
    }
}

fn read(file: &Path, bounds: Bounds, now: Timestamp) -> Result<Option<MemoryStore>, SnapshotError> {
    let Some(mut snapshot) = snapshot::read(file)? else { return Ok(None) };
    let store = MemoryStore::new(bounds, snapshot.secret);
    while let Some(block) = snapshot.next_block()? {
        if !store.load(&block, now) {
            return Err(SnapshotError::Torn);
        }
    }
    tracing::info!(counters = store.len(), taken = %snapshot.taken, "counters were restored");
    Ok(Some(store))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{
        AlgorithmKind, Align, Charge, Concurrency, FixedWindow, Gcra, Key, LimitId, Origin, Quota,
        SlidingLog, SlidingWindow, TokenBucket,
    };
    use crate::store::NoRoom;

    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);
    const HOUR: Duration = Duration::from_secs(3600);
    const SECRET: [u8; 16] = [9; 16];

    fn quotas() -> [Quota; AlgorithmKind::ALL.len()] {
        [
            Quota::FixedWindow(FixedWindow { limit: 5, align: Align::FirstRequest(HOUR) }),
            Quota::SlidingWindow(SlidingWindow::new(5, HOUR).unwrap()),
            Quota::SlidingLog(SlidingLog { limit: 5, window: HOUR }),
            Quota::TokenBucket(TokenBucket {
                capacity: 5,
                refill: 1,
                interval: HOUR,
                strict: false,
            }),
            Quota::Gcra(Gcra::new(5, HOUR, 5, 5).unwrap()),
            Quota::Concurrency(Concurrency { limit: 5, lease: HOUR, retry_after: HOUR }),
        ]
    }

    fn charge(owner: u64, quota: &Quota) -> Charge<'_> {
        let owner = u128::from(owner.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64 | 1;
        let key = Key::new(owner, owner, LimitId::new("test", "core", "", 0));
        Charge::new(key, quota, 1)
    }

    #[test]
    fn every_kind_of_counter_survives_but_leases() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let (store, quotas) = (MemoryStore::new(10_000, SECRET), quotas());
        for owner in 0..500 {
            for _ in 0..=owner % 3 {
                let quota = &quotas[owner as usize % quotas.len()];
                store.charge(&[charge(owner, quota)], NOW).unwrap();
            }
        }
        save(&store, &file, NOW);

        let later = NOW + HOUR / 60;
        let restored = restore(&file, 10_000.into(), later).unwrap();
        assert_eq!((restored.len(), restored.key_secret()), (500 - 83, SECRET));
        for owner in 0..500 {
            let charge = [charge(owner, &quotas[owner as usize % quotas.len()])];
            match charge[0].quota.holds_leases() {
                true => assert_eq!(restored.peek(&charge, later).outcomes[0].standing.used, 0),
                false => assert_eq!(restored.peek(&charge, later), store.peek(&charge, later)),
            }
        }
    }

    #[test]
    fn counters_that_are_over_or_too_many_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let (store, quotas) = (MemoryStore::new(100, SECRET), quotas());
        for owner in 0..10 {
            store.charge(&[charge(owner, &quotas[0])], NOW).unwrap();
        }
        save(&store, &file, NOW);
        assert_eq!(restore(&file, 100.into(), NOW + HOUR).unwrap().len(), 0);
        assert_eq!(restore(&file, 4.into(), NOW).unwrap().len(), 4);
    }

    #[test]
    fn counters_by_what_clients_choose_are_known_as_such_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let (store, quotas) = (MemoryStore::new(100, SECRET), quotas());
        let chosen =
            |owner| Charge { origin: Origin::Chosen { by: 7 }, ..charge(owner, &quotas[0]) };
        for owner in 0..3 {
            store.charge(&[chosen(owner)], NOW).unwrap();
        }
        store.charge(&[charge(9, &quotas[0])], NOW).unwrap();
        save(&store, &file, NOW);
        let bounds = Bounds { per_address: 3, ..Bounds::from(100) };
        let restored = restore(&file, bounds, NOW).unwrap();
        assert_eq!((restored.len(), restored.unverified()), (4, 3));
        restored.charge(&[chosen(2)], NOW).unwrap();
        assert_eq!(restored.charge(&[chosen(3)], NOW), Err(NoRoom::Client.into()));
        restored.charge(&[charge(4, &quotas[0])], NOW).unwrap();
    }

    #[test]
    fn start_without_a_good_file_is_a_fresh_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        assert!(restore(&file, 100.into(), NOW).is_none());
        std::fs::write(&file, "tollgate counters\ntorn").unwrap();
        assert!(restore(&file, 100.into(), NOW).is_none());
    }

    #[test]
    fn last_words_are_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let (store, quotas) = (Arc::new(MemoryStore::new(100, SECRET)), quotas());
        let keeper = Keeper::start(Arc::clone(&store), file.clone(), HOUR, Clock::System).unwrap();
        store.charge(&[charge(1, &quotas[3])], Clock::System.now()).unwrap();
        keeper.finish();
        assert_eq!(restore(&file, 100.into(), Clock::System.now()).unwrap().len(), 1);
    }

    #[test]
    fn file_that_is_somebody_elses_now_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let store = Arc::new(MemoryStore::new(100, SECRET));
        let keeper = Keeper::start(store, file.clone(), HOUR, Clock::System).unwrap();
        keeper.leave();
        keeper.saver().save();
        keeper.finish();
        assert!(!file.exists());
    }
}
