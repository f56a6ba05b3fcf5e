//! Counters in the process: sharded by owner, bounded, exact.
//!
//! All limits of one caller are under one lock. A request with several owners (a user and an
//! address) locks their shards in ascending order, so that every request is decided as if it were
//! alone.
//!
//! A live window is never evicted. When `max_keys` windows are open, a request that needs one more
//! is refused ([`StoreError::Full`]) and callers who have a window go on: a bound that a flood of
//! fresh identities could lift, or that threw out the busiest counters, would not be a limit.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use hashbrown::{HashTable, hash_table};
use smallvec::SmallVec;

use super::StoreError;
use crate::{
    clock::Timestamp,
    limit::{Charge, Decision, FixedWindow, Standings, Verdict},
};

const SHARDS: usize = 256;

/// Steps in which an owner's hash is mapped to a shard.
const SLOTS: usize = 4096;

/// Seconds between two sweeps of one shard that lack of room may cause.
const SWEEP_PAUSE_SECS: u64 = 1;

/// The in-process store.
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    shard_of_slot: Box<[u8]>,
    /// Entries in all shards, ended windows included until they are swept.
    entries: AtomicUsize,
    max_keys: usize,
    refused: AtomicU64,
    /// The shard that the next [`MemoryStore::sweep`] looks at.
    sweep_at: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    windows: HashTable<Entry>,
    swept: Timestamp,
}

struct Entry {
    key: u128,
    window: FixedWindow,
}

/// The key is the output of a pseudo-random function: any 64 bits of it are a good hash.
fn hash_of(key: u128) -> u64 {
    key as u64
}

impl MemoryStore {
    /// An empty store for at most `max_keys` counters.
    pub fn new(max_keys: usize) -> Self {
        MemoryStore {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_of_slot: staggered_shards(),
            entries: AtomicUsize::new(0),
            max_keys,
            refused: AtomicU64::new(0),
            sweep_at: AtomicUsize::new(0),
        }
    }

    /// Takes all `charges` or none, at `now`.
    ///
    /// # Errors
    /// [`StoreError::Full`] if a charge needs a new counter and there is no room for one; nothing
    /// was taken then.
    pub fn charge(&self, charges: &[Charge], now: Timestamp) -> Result<Decision, StoreError> {
        let mut shards = self.lock(charges);
        let steps: Steps = charges
            .iter()
            .map(|charge| Step::open(charge, shards.stored(self.shard_of(charge), charge), now))
            .collect();

        let denied = steps.iter().position(|step| !step.admitted);
        if denied.is_none() {
            let new = steps.iter().filter(|step| !step.known).count();
            self.make_room(new, &mut shards, now)?;
        }

        let mut standings = Standings::new();
        for (charge, step) in charges.iter().zip(&steps) {
            let window = match denied {
                None => step.window.charge(charge.cost),
                Some(_) => step.window,
            };
            if denied.is_none() || step.healed {
                let is_new = shards.store(self.shard_of(charge), charge, window);
                self.entries.fetch_add(usize::from(is_new), Ordering::Relaxed);
            }
            let mut standing = window.standing(charge.quota, now);
            if !step.admitted {
                standing.retry = step.window.retry(charge.quota, charge.cost);
            }
            standings.push(standing);
        }
        Ok(Decision { verdict: denied.map_or(Verdict::Allow, Verdict::Deny), standings })
    }

    /// Drops the ended windows of one shard that is not in use and was not swept lately. False: no
    /// shard is due, so that a flood of requests that find no room costs one round a second.
    fn try_sweep(&self, now: Timestamp) -> bool {
        for _ in 0..SHARDS {
            let index = self.sweep_at.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let Some(Ok(mut shard)) = self.shards.get(index).map(Mutex::try_lock) else { continue };
            if shard.is_due(now) {
                self.entries.fetch_sub(shard.sweep(now), Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Drops the ended windows of one shard, another one each time: called often, it keeps the
    /// store tidy while every other shard goes on.
    pub fn sweep(&self, now: Timestamp) {
        let index = self.sweep_at.fetch_add(1, Ordering::Relaxed) % SHARDS;
        if let Some(shard) = self.shards.get(index) {
            let dropped = lock(shard).sweep(now);
            self.entries.fetch_sub(dropped, Ordering::Relaxed);
        }
    }

    /// Counters in use.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether no counter is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests refused for lack of room since this was last asked.
    pub fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    fn shard_of(&self, charge: &Charge) -> usize {
        let slot = (charge.key.owner >> (u128::BITS - SLOTS.trailing_zeros())) as usize;
        self.shard_of_slot.get(slot).copied().map_or(0, usize::from)
    }

    /// Locks the shards of all owners, each once and in ascending order: two requests never wait
    /// for each other.
    fn lock(&self, charges: &[Charge]) -> LockedShards<'_> {
        let mut wanted: SmallVec<[usize; 4]> =
            charges.iter().map(|charge| self.shard_of(charge)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let locked = wanted
            .into_iter()
            .filter_map(|index| Some((index, lock(self.shards.get(index)?))))
            .collect();
        LockedShards(locked)
    }

    /// Makes sure of room for `new` counters, sweeping the locked shards if there is none.
    ///
    /// Requests that ask at the same instant may each take the last place: the bound holds but for
    /// one request a thread.
    fn make_room(
        &self,
        new: usize,
        shards: &mut LockedShards<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if new == 0 || self.len() + new <= self.max_keys {
            return Ok(());
        }
        self.entries.fetch_sub(shards.sweep(now), Ordering::Relaxed);
        for _ in 0..SHARDS {
            if self.len() + new <= self.max_keys {
                return Ok(());
            }
            if !self.try_sweep(now) {
                break;
            }
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::Full)
    }
}

/// A charge on its way through a decision.
struct Step {
    window: FixedWindow,
    known: bool,
    /// The clock had gone back: the window is written even on a denial.
    healed: bool,
    admitted: bool,
}

type Steps = SmallVec<[Step; 2]>;

impl Step {
    fn open(charge: &Charge, stored: Option<FixedWindow>, now: Timestamp) -> Step {
        let window = FixedWindow::open(stored, charge.quota, now);
        let still_open = stored.filter(|stored| !stored.is_over(now));
        Step {
            window,
            known: stored.is_some(),
            healed: still_open.is_some_and(|stored| stored != window),
            admitted: window.admits(charge.quota, charge.cost),
        }
    }
}

/// The shards that a request holds, by index.
struct LockedShards<'s>(SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>);

impl LockedShards<'_> {
    fn stored(&self, index: usize, charge: &Charge) -> Option<FixedWindow> {
        let (_, shard) = self.0.iter().find(|(locked, _)| *locked == index)?;
        shard.find(charge.key.entry)
    }

    /// Writes a window; true if its key is new.
    fn store(&mut self, index: usize, charge: &Charge, window: FixedWindow) -> bool {
        let shard = self.0.iter_mut().find(|(locked, _)| *locked == index);
        shard.is_some_and(|(_, shard)| shard.put(charge.key.entry, window))
    }

    /// Drops the ended windows of those shards that were not swept lately, so that a flood of
    /// requests that find no room costs one sweep a second and not one each.
    fn sweep(&mut self, now: Timestamp) -> usize {
        let due = self.0.iter_mut().filter(|(_, shard)| shard.is_due(now));
        due.map(|(_, shard)| shard.sweep(now)).sum()
    }
}

impl Shard {
    /// Whether it was not swept lately.
    fn is_due(&self, now: Timestamp) -> bool {
        now.saturating_since(self.swept).as_secs() >= SWEEP_PAUSE_SECS || now < self.swept
    }

    fn find(&self, key: u128) -> Option<FixedWindow> {
        self.windows.find(hash_of(key), |entry| entry.key == key).map(|entry| entry.window)
    }

    /// Writes a window; true if its key is new.
    fn put(&mut self, key: u128, window: FixedWindow) -> bool {
        let rehash = |entry: &Entry| hash_of(entry.key);
        match self.windows.entry(hash_of(key), |entry| entry.key == key, rehash) {
            hash_table::Entry::Occupied(mut occupied) => {
                occupied.get_mut().window = window;
                false
            }
            hash_table::Entry::Vacant(vacant) => {
                vacant.insert(Entry { key, window });
                true
            }
        }
    }

    /// Drops ended windows, gives memory back when few are left, and tells how many went.
    fn sweep(&mut self, now: Timestamp) -> usize {
        self.swept = now;
        let before = self.windows.len();
        self.windows.retain(|entry| !entry.window.is_over(now));
        let after = self.windows.len();
        if after < self.windows.capacity() / 4 {
            self.windows.shrink_to(after, |entry| hash_of(entry.key));
        }
        before - after
    }
}

/// A panic cannot leave a shard half-written, so a poisoned lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which shard serves which slot of the hash space: shards grow by equal factors from the first to
/// the last, which is twice as large.
///
/// Tables double when they fill. Shards of one size would all do so at the same moment: a pause,
/// and at the worst count of keys twice the memory. Spread over one doubling, they resize one by
/// one, and the memory a key stays the same whatever the count.
fn staggered_shards() -> Box<[u8]> {
    (0..SLOTS)
        .map(|slot| {
            let position = (slot as f64 + 0.5) / SLOTS as f64;
            ((1.0 + position).log2() * SHARDS as f64) as u8
        })
        .collect()
}

#[cfg(test)]
mod tests;
