//! All fetched keys that are in use, kept fresh in the background.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};

use super::{RemoteKeys, RemoteSpec, RemoteStatus};
use crate::{
    clock::{Clock, Timestamp},
    identity::fetch::Fetcher,
};

/// How often it is looked whether a fetch is due. By the clock, which in tests moves as it likes.
const LOOK: Duration = Duration::from_millis(100);

/// The fetched keys of all issuers, by how they are fetched. Keys that no policy has any more are
/// dropped.
pub struct KeyRing(Arc<Ring>);

struct Ring {
    clock: Clock,
    fetcher: Fetcher,
    keys: Mutex<HashMap<RemoteSpec, Weak<RemoteKeys>>>,
}

impl KeyRing {
    /// Starts the thread that fetches.
    ///
    /// # Errors
    /// The system gives no thread, or no event queue.
    pub fn start(clock: Clock) -> io::Result<KeyRing> {
        let fetcher = Fetcher::start()?;
        let ring = Arc::new(Ring { clock, fetcher, keys: Mutex::default() });
        ring.fetcher.spawn(keep_fresh(Arc::downgrade(&ring)));
        Ok(KeyRing(ring))
    }

    /// One that fetches nothing, and has no thread.
    pub fn offline(clock: Clock) -> KeyRing {
        let (fetcher, keys) = (Fetcher::offline(), Mutex::default());
        KeyRing(Arc::new(Ring { clock, fetcher, keys }))
    }

    /// The keys of an equal spec if somebody has them, with all that is known about them. Else new
    /// ones, whose first fetch begins at once; until it ends they are what another spec has from the
    /// same place.
    pub fn adopt(&self, spec: &RemoteSpec) -> Arc<RemoteKeys> {
        let Ring { clock, fetcher, .. } = &*self.0;
        let mut keys = self.0.keys();
        if let Some(known) = keys.get(spec).and_then(Weak::upgrade) {
            return known;
        }
        let alike = keys.iter().filter(|(other, _)| spec.has_keys_of(other));
        let alike = alike.filter_map(|(_, keys)| keys.upgrade());
        let known = alike.max_by_key(|keys| keys.fetched());
        let new = RemoteKeys::start(spec, known.as_deref(), (clock, fetcher));
        keys.insert(spec.clone(), Arc::downgrade(&new));
        new
    }

    /// How all that are in use are doing, in order of their URLs.
    pub fn statuses(&self, now: Timestamp) -> Vec<RemoteStatus> {
        let mut statuses: Vec<_> = self.0.in_use().iter().map(|keys| keys.status(now)).collect();
        statuses.sort_by(|one, other| one.url.cmp(&other.url));
        statuses
    }

    /// What fetches them, for others who have something to ask.
    pub fn fetcher(&self) -> &Fetcher {
        &self.0.fetcher
    }
}

impl Ring {
    /// Those that somebody has; the others are forgotten.
    fn in_use(&self) -> Vec<Arc<RemoteKeys>> {
        let mut keys = self.keys();
        keys.retain(|_, keys| keys.strong_count() > 0);
        keys.values().filter_map(Weak::upgrade).collect()
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<RemoteSpec, Weak<RemoteKeys>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins what is due, for as long as there is a ring.
async fn keep_fresh(ring: Weak<Ring>) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Some(ring) = ring.upgrade() else { return };
        let now = ring.clock.now();
        ring.in_use().iter().for_each(|keys| keys.tend(now));
    }
}
