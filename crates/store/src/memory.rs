//! Counters in the process: sharded by owner, bounded, exact.
//!
//! All limits of one caller are under one lock. A request with several owners (a user and an
//! address) locks their shards in ascending order, so that every request is decided as if it were
//! the only one.
//!
//! A live counter is never evicted. When there is no room for one more, a request that needs it is
//! refused ([`NoRoom`]), and callers that have one continue: a bound that a flood of
//! new identities could lift, or that evicted the busiest counters, would not be a limit. How much
//! room there is depends on who vouches for a counter's key (`room`).

mod carry;
mod client_time;
mod lacking;
mod persist;
mod residency;
mod room;
pub(crate) mod saver;
mod shard;
pub(crate) mod snapshot;
mod table;
mod tables;
mod tagged_key;
mod unsaved;
pub(crate) mod watermark;

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

pub use self::residency::DiskStore;
pub(super) use self::{
    residency::{Cold, NotCharged, ThawOutcome},
    tagged_key::bare_key,
    unsaved::is_kept,
};
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, Decision, Outcome, Outcomes, Stance, Standing, Verdict};
use tollgate_settings::MemoryBounds;

use self::{
    lacking::Omissions,
    room::{Needs, Room, Tag, tag},
    shard::{Admission, SWEEP_PAUSE, Shard, untaken},
    watermark::Watermark,
};
use super::{Adjustment, NoRoom, undecided::undecided};

const SHARDS: usize = 1024;

/// By what factor a shard may exceed its even share of all counters, and what each may have at
/// least.
const UNEVENNESS: usize = 4;
const MIN_KEYS_A_SHARD: usize = 10_000;

/// Shards that one [`MemoryStore::sweep`] sweeps, one lock after the other.
const SHARDS_A_SWEEP: usize = 8;

/// Counters that one request sweeps in other shards if there is no room: less than a millisecond.
const COUNTERS_A_REQUEST: usize = 10_000;

/// The in-process store.
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    /// Counts the counters of all shards, including those that are over and not yet swept.
    room: Room,
    /// Counters that one shard may have, verified ones and others separately: an owner with very
    /// many counters fills a shard, not the store, and no shard takes long to sweep or to grow.
    max_keys_a_shard: usize,
    /// The secret that its keys were hashed with: without it, they identify no caller.
    key_secret: Mutex<[u8; 16]>,
    /// The shard that the next [`MemoryStore::sweep`] begins with.
    sweep_at: AtomicUsize,
    /// Until when, in microseconds since the epoch, no request sweeps other shards.
    idle_until: AtomicU64,
    /// By what its counters are over; none: by the clock.
    watermark: Option<Arc<Watermark>>,
}

impl MemoryStore {
    /// An empty store for at most so many counters, whose keys are hashed with `key_secret`.
    pub fn new(bounds: impl Into<MemoryBounds>, key_secret: [u8; 16]) -> Self {
        let bounds = bounds.into();
        let max_keys_a_shard = (bounds.max_keys / SHARDS * UNEVENNESS).max(MIN_KEYS_A_SHARD);
        MemoryStore::empty(Room::new(bounds), max_keys_a_shard, key_secret)
    }

    /// An empty store with counters of its own: the bounds of this one hold for both together.
    pub(super) fn beside(&self) -> MemoryStore {
        MemoryStore::empty(self.room.beside(), self.max_keys_a_shard, self.key_secret())
    }

    fn empty(room: Room, max_keys_a_shard: usize, key_secret: [u8; 16]) -> MemoryStore {
        MemoryStore {
            shards: (0..SHARDS).map(|index| Mutex::new(Shard::new(stagger(index)))).collect(),
            room,
            max_keys_a_shard,
            key_secret: Mutex::new(key_secret),
            sweep_at: AtomicUsize::new(0),
            idle_until: AtomicU64::new(0),
            watermark: None,
        }
    }

    /// Takes all `charges` or none, at `now`. If there is no room for the counter of a charge that
    /// may be left out ([`WhenFull::Open`](tollgate_limit::WhenFull::Open)), it is not decided.
    ///
    /// # Errors
    /// If another charge needs a new counter and there is no room for one; nothing was taken then.
    pub fn charge(&self, charges: &[Charge<'_>], now: Timestamp) -> Result<Decision, NoRoom> {
        self.charge_admitted(charges, now, |shard, charge| Ok(shard.admits(charge, now)))
    }

    /// Takes all `charges` or none. `admit` says of each whether it fits.
    ///
    /// # Errors
    /// Those of `admit`, and [`NoRoom`]; nothing was taken then.
    fn charge_admitted<E: From<NoRoom>>(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        admit: impl Fn(&mut Shard, &Charge<'_>) -> Result<Admission, E>,
    ) -> Result<Decision, E> {
        let mut shards = self.lock(charges);
        let mut verdict = Verdict::Allow;
        let mut admissions: SmallVec<[Admission; 4]> = SmallVec::new();
        for charge in charges {
            let admission = admit(shards.of(charge)?, charge)?;
            if !admission.fits && charge.stance == Stance::Enforce {
                verdict = Verdict::Deny;
            }
            admissions.push(admission);
        }
        let left_out = match verdict {
            Verdict::Allow => self.find_room(charges, &mut shards, now)?,
            Verdict::Deny => Omissions::new(),
        };

        let mut outcomes = Outcomes::new();
        for (position, (charge, admission)) in charges.iter().zip(admissions).enumerate() {
            let shard = shards.of(charge)?;
            let is_left_out = left_out.contains(&position);
            let Admission { fits, at, is_known: _ } = admission;
            outcomes.push(match (fits, verdict) {
                (false, _) => shard.deny(charge, at),
                (true, Verdict::Allow) if is_left_out && charge.stance == Stance::Enforce => {
                    undecided(charge, at)
                }
                (true, Verdict::Allow) if charge.takes() && !is_left_out => {
                    self.take(shard, charge, at)
                }
                (true, _) => untaken(shard.standing(charge, at)),
            });
        }
        Ok(Decision { verdict, outcomes, now })
    }

    /// Corrects an earlier `charge`. Returns how its limit stands then; none if the counter is
    /// gone, or if there is no room for it.
    pub fn settle(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        let mut shards = self.lock(std::slice::from_ref(charge));
        self.settle_locked(&mut shards, charge, adjustment, now)
    }

    /// The same in shards that are locked.
    fn settle_locked(
        &self,
        shards: &mut LockedShards<'_>,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        if let Adjustment::Take = adjustment {
            self.make_room(std::iter::once(charge), shards, now).ok()?;
        }
        self.correct(shards.of(charge).ok()?, charge, adjustment, now)
    }

    fn correct(
        &self,
        shard: &mut Shard,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        at: Timestamp,
    ) -> Option<Standing> {
        match adjustment {
            Adjustment::Take => Some(self.take(shard, charge, at).standing),
            Adjustment::GiveBack(receipt) => shard.give_back(charge, receipt, at),
            Adjustment::Renew(receipt) => shard.renew(charge, receipt, at),
        }
    }

    /// How the limits of `charges` stand, with nothing taken.
    pub fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        peek_locked(&mut self.lock(charges), charges, now)
    }

    /// Drops the counters that are over in a few shards, and in the next ones with the next call.
    /// The other shards are not locked.
    pub fn sweep(&self, now: Timestamp) {
        let over_by = self.over_by(now);
        let first = self.sweep_at.fetch_add(SHARDS_A_SWEEP, Ordering::Relaxed);
        for index in first..first + SHARDS_A_SWEEP {
            if let Some(shard) = self.shards.get(index % SHARDS) {
                shard.lock().sweep(&self.room, now, over_by);
            }
        }
    }

    /// Drops the counters that are over in all shards, one lock after the other.
    pub fn sweep_all(&self, now: Timestamp) {
        (0..SHARDS / SHARDS_A_SWEEP).for_each(|_| self.sweep(now));
    }

    /// The secret that its keys are hashed with.
    pub fn key_secret(&self) -> [u8; 16] {
        *self.key_secret.lock()
    }

    /// Keys are hashed with another secret from now on. Earlier counters are not found any more,
    /// and are swept when they are over.
    pub fn rekey(&self, key_secret: [u8; 16]) {
        *self.key_secret.lock() = key_secret;
    }

    /// Counters in use, here and in the stores that share its bounds.
    pub fn len(&self) -> usize {
        self.room.len()
    }

    /// Counters of [`Origin::Chosen`](tollgate_limit::Origin::Chosen) among them.
    pub fn unverified(&self) -> usize {
        self.room.chosen()
    }

    /// Whether no counter is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters in use here, and not in the stores that share its bounds.
    pub(super) fn own(&self) -> usize {
        self.room.own()
    }

    /// Whether it has counters of its own.
    pub(super) fn is_in_use(&self) -> bool {
        self.own() > 0
    }

    /// Takes a charge, whether or not it fits.
    fn take(&self, shard: &mut Shard, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let Some((outcome, is_new)) = shard.take(charge, now) else {
            return untaken(shard.standing(charge, now));
        };
        if is_new {
            shard.count_new(tag(charge.origin), &self.room);
        }
        outcome
    }

    /// Locks the shards of all owners, each once and in ascending order: two requests never wait
    /// for each other. If there are several counters, it reads the memory of all of them before one
    /// is needed.
    fn lock(&self, charges: &[Charge<'_>]) -> LockedShards<'_> {
        let mut wanted: SmallVec<[usize; 4]> =
            charges.iter().map(|charge| shard_of(charge.key.owner)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let locked = wanted
            .into_iter()
            .filter_map(|index| Some((index, self.shards.get(index)?.lock())))
            .collect();
        let mut locked = LockedShards(locked);
        if charges.len() > 1 {
            locked.touch(charges);
        }
        locked
    }

    /// Makes room for the counters that `charges` need, by sweeping if there is none.
    ///
    /// Concurrent requests may each take the last free entry: the bound may be exceeded by one
    /// request for each thread.
    fn make_room<'c>(
        &self,
        charges: impl Iterator<Item = &'c Charge<'c>> + Clone,
        shards: &mut LockedShards<'_>,
        now: Timestamp,
    ) -> Result<(), NoRoom> {
        let is_crowded = shards.0.iter().any(|(_, shard)| shard.len() >= self.max_keys_a_shard);
        let all: Needs = charges.clone().map(|charge| tag(charge.origin)).collect();
        if !is_crowded && self.room.admit(&all).is_ok() {
            return Ok(());
        }
        let is_new =
            |charge: &&Charge<'_>| shards.of(charge).is_ok_and(|shard| !shard.knows(charge));
        let new: SmallVec<[&Charge<'_>; 4]> = charges.filter(is_new).collect();
        let needs: Needs = new.iter().map(|charge| tag(charge.origin)).collect();
        if self.admit(&new, &needs, shards).is_ok() {
            return Ok(());
        }
        shards.sweep(&self.room, now, self.over_by(now));
        if self.room.admit(&needs).is_err() {
            self.sweep_some_others(now);
        }
        self.admit(&new, &needs, shards)
    }

    /// Whether new counters fit into the store, and into the shards of their owners.
    fn admit(
        &self,
        new: &[&Charge<'_>],
        needs: &[Tag],
        shards: &mut LockedShards<'_>,
    ) -> Result<(), NoRoom> {
        for charge in new {
            let shard = shards.of(charge)?;
            if shard.len_beside(tag(charge.origin)) >= self.max_keys_a_shard {
                return Err(NoRoom::Part);
            }
        }
        self.room.admit(needs)
    }

    /// Sweeps as many other shards as one request may, except those that are locked or were swept
    /// recently. If none is due, no request tries again for a while.
    fn sweep_some_others(&self, now: Timestamp) {
        let idle_until = Timestamp::from_micros(self.idle_until.load(Ordering::Relaxed));
        // A clock that went back must not make that a long while.
        if now < idle_until && idle_until.saturating_since(now) <= SWEEP_PAUSE {
            return;
        }
        let over_by = self.over_by(now);
        let mut seen = 0;
        for _ in 0..SHARDS {
            let index = self.sweep_at.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if let Some(Some(mut shard)) = self.shards.get(index).map(Mutex::try_lock)
                && shard.is_due(now)
            {
                seen += shard.len();
                shard.sweep(&self.room, now, over_by);
            }
            if seen >= COUNTERS_A_REQUEST {
                return;
            }
        }
        self.idle_until.store((now + SWEEP_PAUSE).as_micros(), Ordering::Relaxed);
    }
}

fn peek_locked(shards: &mut LockedShards<'_>, charges: &[Charge<'_>], now: Timestamp) -> Decision {
    let standing = |charge: &Charge<'_>| Some(shards.of(charge).ok()?.standing(charge, now));
    let outcomes = charges.iter().flat_map(standing).map(untaken).collect();
    Decision { verdict: Verdict::Allow, outcomes, now }
}

/// How far a shard is in its first step of growth, so that shards do not all grow at once.
fn stagger(index: usize) -> f64 {
    index as f64 / SHARDS as f64
}

/// The shard of an owner. The owner is the output of a pseudo-random function: any of its
/// bits are a good hash.
fn shard_of(owner: u128) -> usize {
    (owner >> (u128::BITS - SHARDS.trailing_zeros())) as usize
}

/// The shards that a request holds, by index.
struct LockedShards<'s>(SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>);

impl LockedShards<'_> {
    /// The shard of a charge, which is one of those for which they were locked.
    fn of(&mut self, charge: &Charge<'_>) -> Result<&mut Shard, NoRoom> {
        let index = shard_of(charge.key.owner);
        let shard = self.0.iter_mut().find(|(locked, _)| *locked == index);
        shard.map(|(_, shard)| &mut **shard).ok_or(NoRoom::Full)
    }

    /// Reads the memory of the charges' counters. With millions of counters each is a miss of the
    /// processor's cache, and all are waited for at once.
    fn touch(&mut self, charges: &[Charge<'_>]) {
        let read = |charge| self.of(charge).map_or(0, |shard| shard.touch(charge));
        black_box(charges.iter().map(read).fold(0, u64::wrapping_add));
    }

    /// Sweeps those that were not swept recently.
    fn sweep(&mut self, room: &Room, now: Timestamp, over_by: Timestamp) {
        let due = self.0.iter_mut().filter(|(_, shard)| shard.is_due(now));
        due.for_each(|(_, shard)| shard.sweep(room, now, over_by));
    }
}

#[cfg(test)]
mod tests;
