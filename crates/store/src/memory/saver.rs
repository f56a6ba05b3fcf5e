//! Saves the counters in the process to a file, every so often and at the end, so that they outlive
//! a restart.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use tollgate_clock::{Clock, Timestamp};
use tollgate_settings::MemoryBounds;

use super::snapshot::{self, SnapshotError, Writer};
use crate::MemoryStore;

/// Saves a store's counters from its own thread.
pub struct SnapshotSaver {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
}

/// Requests saves from other threads, while the saver runs.
#[derive(Clone)]
pub struct SaveHandle(mpsc::Sender<Command>);

enum Command {
    /// Save now. The sender is dropped when that is done.
    Save(mpsc::Sender<()>),
    /// Save for the last time, and end.
    Finish,
    /// End without saving: another process saves to the file now.
    Abandon,
}

impl SnapshotSaver {
    /// Starts to save `store` to `file` whenever `pause` has passed.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        store: Arc<MemoryStore>,
        file: PathBuf,
        pause: Duration,
        clock: Clock,
    ) -> io::Result<SnapshotSaver> {
        let (commands, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("saver".into()).spawn(move || {
            loop {
                let command = received.recv_timeout(pause);
                if let Ok(Command::Abandon) = command {
                    return;
                }
                save(&store, &file, clock.now());
                match command {
                    Ok(Command::Save(done)) => drop(done),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        })?;
        Ok(SnapshotSaver { commands, thread })
    }

    /// A handle to request saves with.
    pub fn handle(&self) -> SaveHandle {
        SaveHandle(self.commands.clone())
    }

    /// Saves no more, not even in [`finish`](Self::finish): another process does.
    pub fn abandon(&self) {
        let _ = self.commands.send(Command::Abandon);
    }

    /// Saves the counters for the last time.
    pub fn finish(self) {
        let _ = self.commands.send(Command::Finish);
        if self.thread.join().is_err() {
            tracing::error!("counters were not saved: writing them panicked");
        }
    }
}

impl SaveHandle {
    /// Saves the counters, and returns when that is done.
    pub fn save(&self) {
        let (done, is_done) = mpsc::channel();
        if self.0.send(Command::Save(done)).is_ok() {
            // The receiver returns when the sender is dropped.
            let _ = is_done.recv();
        }
    }
}

/// Saves all counters; if that fails, the file stays as it was.
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

/// A store with the counters in `file`. None if the file does not exist, or cannot be used, which
/// is logged.
pub fn restore(file: &Path, bounds: MemoryBounds, now: Timestamp) -> Option<MemoryStore> {
    match read(file, bounds, now) {
        Ok(store) => store,
        Err(error) => {
            let file = file.display();
            tracing::warn!(%file, %error, "starting without the saved counters");
            None
        }
    }
}

fn read(
    file: &Path,
    bounds: MemoryBounds,
    now: Timestamp,
) -> Result<Option<MemoryStore>, SnapshotError> {
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
    use tollgate_limit::{AlgorithmKind, Charge, Key, LimitId, Origin, Quota};

    use super::*;
    use crate::NoRoom;

    const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);
    const HOUR: Duration = Duration::from_secs(3600);
    const SECRET: [u8; 16] = [9; 16];

    fn quotas() -> [Quota; AlgorithmKind::ALL.len()] {
        AlgorithmKind::ALL.map(|kind| Quota::plain(kind, 5, HOUR).unwrap())
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
        let store = MemoryStore::new(10_000, SECRET);
        let quotas = quotas();
        for owner in 0..500 {
            for _ in 0..=owner % 3 {
                let quota = &quotas[owner as usize % quotas.len()];
                store.charge(&[charge(owner, quota)], NOW).unwrap();
            }
        }
        save(&store, &file, NOW);

        let later = NOW + HOUR / 60;
        let restored = restore(&file, 10_000.into(), later).unwrap();
        let leases = (0..500).filter(|owner| quotas[owner % quotas.len()].holds_leases()).count();
        assert_eq!((restored.len(), restored.key_secret()), (500 - leases, SECRET));
        for owner in 0..500 {
            let charge = [charge(owner, &quotas[owner as usize % quotas.len()])];
            match charge[0].quota.holds_leases() {
                true => assert_eq!(restored.peek(&charge, later).outcomes[0].standing.used, 0),
                false => assert_eq!(restored.peek(&charge, later), store.peek(&charge, later)),
            }
        }
    }

    #[test]
    fn expired_and_excess_counters_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let store = MemoryStore::new(100, SECRET);
        let quotas = quotas();
        for owner in 0..10 {
            store.charge(&[charge(owner, &quotas[0])], NOW).unwrap();
        }
        save(&store, &file, NOW);
        assert_eq!(restore(&file, 100.into(), NOW + HOUR).unwrap().len(), 0);
        assert_eq!(restore(&file, 4.into(), NOW).unwrap().len(), 4);
    }

    #[test]
    fn counters_by_client_chosen_values_are_recognized_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let store = MemoryStore::new(100, SECRET);
        let quotas = quotas();
        let chosen =
            |owner| Charge { origin: Origin::Chosen { by: 7 }, ..charge(owner, &quotas[0]) };
        for owner in 0..3 {
            store.charge(&[chosen(owner)], NOW).unwrap();
        }
        store.charge(&[charge(9, &quotas[0])], NOW).unwrap();
        save(&store, &file, NOW);
        let bounds = MemoryBounds { per_address: 3, ..MemoryBounds::from(100) };
        let restored = restore(&file, bounds, NOW).unwrap();
        assert_eq!((restored.len(), restored.unverified()), (4, 3));
        restored.charge(&[chosen(2)], NOW).unwrap();
        assert_eq!(restored.charge(&[chosen(3)], NOW), Err(NoRoom::Client));
        restored.charge(&[charge(4, &quotas[0])], NOW).unwrap();
    }

    #[test]
    fn start_without_a_readable_file_restores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        assert!(restore(&file, 100.into(), NOW).is_none());
        std::fs::write(&file, "tollgate counters\ntorn").unwrap();
        assert!(restore(&file, 100.into(), NOW).is_none());
    }

    #[test]
    fn last_save_is_made_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let store = Arc::new(MemoryStore::new(100, SECRET));
        let quotas = quotas();
        let saver =
            SnapshotSaver::start(Arc::clone(&store), file.clone(), HOUR, Clock::System).unwrap();
        store.charge(&[charge(1, &quotas[3])], Clock::System.now()).unwrap();
        saver.finish();
        assert_eq!(restore(&file, 100.into(), Clock::System.now()).unwrap().len(), 1);
    }

    #[test]
    fn abandoned_file_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counters");
        let store = Arc::new(MemoryStore::new(100, SECRET));
        let saver = SnapshotSaver::start(store, file.clone(), HOUR, Clock::System).unwrap();
        saver.abandon();
        saver.handle().save();
        saver.finish();
        assert!(!file.exists());
    }
}
