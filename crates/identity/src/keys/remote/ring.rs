//! The fetched keys of all issuers, refreshed in the background.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_clock::{Clock, Timestamp};

use super::{RemoteKeys, RemoteSpec, RemoteStatus};
use crate::fetch::Fetcher;

/// How often fetches that are due are started. Short, since the clock of tests can jump.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The fetched keys of all issuers, by spec. Keys that no policy has any more are dropped.
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
    /// The system cannot create a thread or an event queue.
    pub fn start(clock: Clock) -> io::Result<KeyRing> {
        let fetcher = Fetcher::start()?;
        let ring = Arc::new(Ring { clock, fetcher, keys: Mutex::default() });
        ring.fetcher.spawn(refresh_in_background(Arc::downgrade(&ring)));
        Ok(KeyRing(ring))
    }

    /// A ring without a thread, which fetches nothing.
    pub fn offline(clock: Clock) -> KeyRing {
        KeyRing(Arc::new(Ring { clock, fetcher: Fetcher::offline(), keys: Mutex::default() }))
    }

    /// The keys of an equal spec, if a policy has them. Otherwise new keys, whose first fetch
    /// starts at once; until it ends, they are the keys of another spec with the same location, if
    /// there is one.
    pub fn adopt(&self, spec: &RemoteSpec) -> Arc<RemoteKeys> {
        let Ring { clock, fetcher, .. } = &*self.0;
        let mut keys = self.0.keys.lock();
        if let Some(known) = keys.get(spec).and_then(Weak::upgrade) {
            return known;
        }
        let alike = keys.iter().filter(|(other, _)| spec.has_keys_of(other));
        let alike = alike.filter_map(|(_, keys)| keys.upgrade());
        let known = alike.max_by_key(|keys| keys.fetched());
        let new = RemoteKeys::start(spec, known.as_deref(), clock, fetcher);
        keys.insert(spec.clone(), Arc::downgrade(&new));
        new
    }

    /// The state of all keys that are in use, sorted by URL.
    pub fn statuses(&self, now: Timestamp) -> Vec<RemoteStatus> {
        let mut statuses: Vec<_> = self.0.in_use().iter().map(|keys| keys.status(now)).collect();
        statuses.sort_by(|one, other| one.url.cmp(&other.url));
        statuses
    }

    /// The fetcher of the keys, which introspection uses too.
    pub fn fetcher(&self) -> &Fetcher {
        &self.0.fetcher
    }
}

impl Ring {
    /// The keys that a policy has; the others are removed.
    fn in_use(&self) -> Vec<Arc<RemoteKeys>> {
        let mut keys = self.keys.lock();
        keys.retain(|_, keys| keys.strong_count() > 0);
        keys.values().filter_map(Weak::upgrade).collect()
    }
}

/// Starts the fetches that are due, as long as the ring exists.
async fn refresh_in_background(ring: Weak<Ring>) {
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(ring) = ring.upgrade() else { return };
        let now = ring.clock.now();
        ring.in_use().iter().for_each(|keys| keys.fetch_if_due(now));
    }
}
