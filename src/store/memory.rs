//! Counters in the process: sharded by owner, bounded, exact.
//!
//! All limits of one caller are under one lock. A request with several owners (a user and an
//! address) locks their shards in ascending order, so that every request is decided as if it were
//! alone.
//!
//! A live counter is never evicted. When `max_keys` are in use, a request that needs one more is
//! refused ([`StoreError::Full`]) and callers who have one go on: a bound that a flood of fresh
//! identities could lift, or that threw out the busiest counters, would not be a limit.

mod persist;
mod table;

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

use self::table::Table;
use super::{Adjustment, StoreError};
use crate::{
    clock::Timestamp,
    limit::{
        Algorithm, Bucket, Charge, DecidedBy, Decision, Leases, Level, Log, Outcome, Outcomes,
        Quota, Receipt, Stance, Standing, Verdict, Window, Windows,
    },
};

const SHARDS: usize = 1024;

/// By how much a shard may exceed its even share of all counters, and what each may have anyway.
const UNEVENNESS: usize = 4;
const MIN_KEYS_A_SHARD: usize = 10_000;

/// Shards that one [`MemoryStore::sweep`] looks at, one lock after the other.
const SHARDS_A_SWEEP: usize = 8;

/// Counters that one request looks at for want of room, besides those of its own shards: a part of a
/// millisecond.
const COUNTERS_A_REQUEST: usize = 10_000;

/// Time between two sweeps of a shard that lack of room may cause, at least and for each counter in
/// it: a flood of requests that find no room takes a hundredth of a core.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);
const SWEEP_PAUSE_A_COUNTER: Duration = Duration::from_micros(500);

/// The in-process store.
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    /// Counters in all shards, those included that are over and not yet swept.
    entries: AtomicUsize,
    max_keys: usize,
    /// Counters that one shard may have: one owner with counters without number fills a shard, not
    /// the store, and no shard takes long to be swept or to grow.
    max_keys_a_shard: usize,
    /// The secret that its keys were hashed with: without it, they name nobody.
    key_secret: [u8; 16],
    refused: AtomicU64,
    /// The shard that the next [`MemoryStore::sweep`] begins with.
    sweep_at: AtomicUsize,
    /// Until when, in microseconds since the epoch, no request looks for room in others' shards.
    idle_until: AtomicU64,
}

/// Counters of some owners. Each algorithm has a table of its own: an entry is as large as its state
/// and no larger, and a state can only ever meet the algorithm that made it.
struct Shard {
    fixed_window: Table<Window>,
    sliding_window: Table<Windows>,
    sliding_log: Table<Log>,
    token_bucket: Table<Bucket>,
    gcra: Table<Level>,
    concurrency: Table<Leases>,
    swept: Timestamp,
}

/// Evaluates an expression with the algorithm of a quota and the shard's table of its states.
macro_rules! with_table {
    ($shard:expr, $quota:expr, ($algorithm:ident, $table:ident) => $body:expr) => {
        match $quota {
            Quota::FixedWindow($algorithm) => {
                let $table = &mut $shard.fixed_window;
                $body
            }
            Quota::SlidingWindow($algorithm) => {
                let $table = &mut $shard.sliding_window;
                $body
            }
            Quota::SlidingLog($algorithm) => {
                let $table = &mut $shard.sliding_log;
                $body
            }
            Quota::TokenBucket($algorithm) => {
                let $table = &mut $shard.token_bucket;
                $body
            }
            Quota::Gcra($algorithm) => {
                let $table = &mut $shard.gcra;
                $body
            }
            Quota::Concurrency($algorithm) => {
                let $table = &mut $shard.concurrency;
                $body
            }
        }
    };
}

// After the macro, which it uses.
mod carry;

impl MemoryStore {
    /// An empty store for at most `max_keys` counters, whose keys are hashed with `key_secret`.
    pub fn new(max_keys: usize, key_secret: [u8; 16]) -> Self {
        MemoryStore {
            shards: (0..SHARDS).map(|index| Mutex::new(Shard::new(index))).collect(),
            entries: AtomicUsize::new(0),
            max_keys,
            max_keys_a_shard: (max_keys / SHARDS * UNEVENNESS).max(MIN_KEYS_A_SHARD),
            key_secret,
            refused: AtomicU64::new(0),
            sweep_at: AtomicUsize::new(0),
            idle_until: AtomicU64::new(0),
        }
    }

    /// Takes all `charges` or none, at `now`.
    ///
    /// # Errors
    /// [`StoreError::Full`] if a charge needs a new counter and there is no room for one; nothing
    /// was taken then.
    pub fn charge(&self, charges: &[Charge<'_>], now: Timestamp) -> Result<Decision, StoreError> {
        let mut shards = self.lock(charges);
        let mut verdict = Verdict::Allow;
        let mut fits: SmallVec<[bool; 4]> = SmallVec::new();
        for charge in charges {
            let fits_in = shards.of(charge)?.admits(charge, now);
            if !fits_in && charge.stance == Stance::Enforce {
                verdict = Verdict::Deny;
            }
            fits.push(fits_in);
        }
        let has_room = verdict == Verdict::Deny
            || self.make_room(charges.iter().filter(|charge| charge.takes()), &mut shards, now);
        let is_enforced = |charge: &&Charge<'_>| charge.stance == Stance::Enforce;
        if !has_room {
            // What only counts is left out rather than keep a request from its way.
            let enforced = charges.iter().filter(|charge| charge.takes()).filter(is_enforced);
            if !self.make_room(enforced, &mut shards, now) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(StoreError::Full);
            }
        }

        let mut outcomes = Outcomes::new();
        for (charge, fits) in charges.iter().zip(fits) {
            let shard = shards.of(charge)?;
            let is_taken =
                charge.takes() && (has_room || is_enforced(&charge) || shard.knows(charge));
            outcomes.push(match (fits, verdict) {
                (false, _) => shard.deny(charge, now),
                (true, Verdict::Allow) if is_taken => self.take(shard, charge, now),
                (true, _) => untaken(shard.standing(charge, now)),
            });
        }
        Ok(Decision { verdict, outcomes, now })
    }

    /// Makes good what was decided about `charge`, now that more is known. Tells how its limit stands
    /// then; none if the counter is gone, or there is no room for it.
    pub fn settle(
        &self,
        charge: &Charge<'_>,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        let charges = std::slice::from_ref(charge);
        let mut shards = self.lock(charges);
        if let Adjustment::Take = adjustment {
            let has_room = self.make_room(charges.iter(), &mut shards, now);
            has_room.then_some(())?;
        }
        let shard = shards.of(charge).ok()?;
        match adjustment {
            Adjustment::Take => Some(self.take(shard, charge, now).standing),
            Adjustment::GiveBack(receipt) => shard.give_back(charge, receipt, now),
            Adjustment::Renew(receipt) => {
                let Quota::Concurrency(algorithm) = charge.quota else { return None };
                let leases = shard.concurrency.find_mut(charge.key.entry)?;
                algorithm.renew(leases, receipt, now);
                Some(algorithm.standing(leases, now))
            }
        }
    }

    /// How the limits of `charges` stand, with nothing taken.
    pub fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let mut shards = self.lock(charges);
        let standing = |charge: &Charge<'_>| Some(shards.of(charge).ok()?.standing(charge, now));
        let outcomes = charges.iter().flat_map(standing).map(untaken).collect();
        Decision { verdict: Verdict::Allow, outcomes, now }
    }

    /// Drops the counters that are over in a few shards, others each time: called often, it keeps
    /// the store tidy while every other shard goes on.
    pub fn sweep(&self, now: Timestamp) {
        let first = self.sweep_at.fetch_add(SHARDS_A_SWEEP, Ordering::Relaxed);
        for index in first..first + SHARDS_A_SWEEP {
            if let Some(shard) = self.shards.get(index % SHARDS) {
                let dropped = lock(shard).sweep(now);
                self.entries.fetch_sub(dropped, Ordering::Relaxed);
            }
        }
    }

    /// The secret that its keys are hashed with.
    pub fn key_secret(&self) -> [u8; 16] {
        self.key_secret
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

    /// Takes a charge, whether or not it fits.
    fn take(&self, shard: &mut Shard, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let Some((outcome, is_new)) = shard.take(charge, now) else {
            return untaken(shard.standing(charge, now));
        };
        if is_new {
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Locks the shards of all owners, each once and in ascending order: two requests never wait
    /// for each other.
    fn lock(&self, charges: &[Charge<'_>]) -> LockedShards<'_> {
        let mut wanted: SmallVec<[usize; 4]> = charges.iter().map(shard_of).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let locked = wanted
            .into_iter()
            .filter_map(|index| Some((index, lock(self.shards.get(index)?))))
            .collect();
        LockedShards(locked)
    }

    /// Makes sure of room for the counters that `charges` need, sweeping if there is none.
    ///
    /// Requests that ask at the same instant may each take the last place: the bound holds but for
    /// one request a thread.
    fn make_room<'c>(
        &self,
        charges: impl Iterator<Item = &'c Charge<'c>> + Clone,
        shards: &mut LockedShards<'_>,
        now: Timestamp,
    ) -> bool {
        let is_crowded = shards.0.iter().any(|(_, shard)| shard.len() >= self.max_keys_a_shard);
        let has_room = |new: usize| self.len() + new <= self.max_keys;
        if !is_crowded && has_room(charges.clone().count()) {
            return true;
        }
        let is_new =
            |charge: &&Charge<'_>| shards.of(charge).is_ok_and(|shard| !shard.knows(charge));
        let new = charges.filter(is_new).count();
        if new == 0 || (!is_crowded && has_room(new)) {
            return true;
        }
        self.entries.fetch_sub(shards.sweep(now), Ordering::Relaxed);
        if !has_room(new) {
            self.sweep_some_others(now);
        }
        let is_crowded = shards.0.iter().any(|(_, shard)| shard.len() >= self.max_keys_a_shard);
        !is_crowded && has_room(new)
    }

    /// Sweeps as many others as one request may, but for those that are in use or were swept lately.
    /// When none is due, no request looks again for a while.
    fn sweep_some_others(&self, now: Timestamp) {
        let idle_until = Timestamp::from_micros(self.idle_until.load(Ordering::Relaxed));
        // A clock that went back must not make it a long while.
        if now < idle_until && idle_until.saturating_since(now) <= SWEEP_PAUSE {
            return;
        }
        let mut seen = 0;
        for _ in 0..SHARDS {
            let index = self.sweep_at.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if let Some(Ok(mut shard)) = self.shards.get(index).map(Mutex::try_lock)
                && shard.is_due(now)
            {
                seen += shard.len();
                self.entries.fetch_sub(shard.sweep(now), Ordering::Relaxed);
            }
            if seen >= COUNTERS_A_REQUEST {
                return;
            }
        }
        self.idle_until.store((now + SWEEP_PAUSE).as_micros(), Ordering::Relaxed);
    }
}

/// The shard of a charge's owner. The owner is the output of a pseudo-random function: any of its
/// bits are a good hash.
fn shard_of(charge: &Charge<'_>) -> usize {
    (charge.key.owner >> (u128::BITS - SHARDS.trailing_zeros())) as usize
}

/// The shards that a request holds, by index.
struct LockedShards<'s>(SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>);

impl LockedShards<'_> {
    /// The shard of a charge, which is one of those for which they were locked.
    fn of(&mut self, charge: &Charge<'_>) -> Result<&mut Shard, StoreError> {
        let index = shard_of(charge);
        let shard = self.0.iter_mut().find(|(locked, _)| *locked == index);
        shard.map(|(_, shard)| &mut **shard).ok_or(StoreError::Full)
    }

    /// Sweeps those that were not swept lately.
    fn sweep(&mut self, now: Timestamp) -> usize {
        let due = self.0.iter_mut().filter(|(_, shard)| shard.is_due(now));
        due.map(|(_, shard)| shard.sweep(now)).sum()
    }
}

impl Shard {
    fn new(index: usize) -> Shard {
        let stagger = index as f64 / SHARDS as f64;
        Shard {
            fixed_window: Table::new(stagger),
            sliding_window: Table::new(stagger),
            sliding_log: Table::new(stagger),
            token_bucket: Table::new(stagger),
            gcra: Table::new(stagger),
            concurrency: Table::new(stagger),
            swept: Timestamp::default(),
        }
    }

    fn admits(&mut self, charge: &Charge<'_>, now: Timestamp) -> bool {
        with_table!(self, charge.quota, (algorithm, table) => {
            match table.find(charge.key.entry) {
                Some(state) => algorithm.admits(state, charge.cost, now),
                None => algorithm.admits(&Default::default(), charge.cost, now),
            }
        })
    }

    fn len(&self) -> usize {
        self.fixed_window.len()
            + self.sliding_window.len()
            + self.sliding_log.len()
            + self.token_bucket.len()
            + self.gcra.len()
            + self.concurrency.len()
    }

    fn knows(&mut self, charge: &Charge<'_>) -> bool {
        with_table!(self, charge.quota, (_algorithm, table) => {
            table.find(charge.key.entry).is_some()
        })
    }

    fn standing(&mut self, charge: &Charge<'_>, now: Timestamp) -> Standing {
        with_table!(self, charge.quota, (algorithm, table) => {
            match table.find(charge.key.entry) {
                Some(state) => algorithm.standing(state, now),
                None => algorithm.standing(&Default::default(), now),
            }
        })
    }

    /// Takes a charge; true if its key is new.
    fn take(&mut self, charge: &Charge<'_>, now: Timestamp) -> Option<(Outcome, bool)> {
        with_table!(self, charge.quota, (algorithm, table) => {
            let (state, is_new) = table.entry(charge.key.entry)?;
            let receipt = Some(algorithm.take(state, charge.cost, now));
            let standing = algorithm.standing(state, now);
            Some((Outcome { receipt, ..untaken(standing) }, is_new))
        })
    }

    /// What is told of a charge that does not fit.
    fn deny(&mut self, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let standing = with_table!(self, charge.quota, (algorithm, table) => {
            let fresh = &mut Default::default();
            let state = table.find_mut(charge.key.entry).unwrap_or(fresh);
            algorithm.penalize(state, charge.cost, now);
            let retry = algorithm.retry(state, charge.cost, now);
            Standing { retry, ..algorithm.standing(state, now) }
        });
        untaken(standing)
    }

    fn give_back(
        &mut self,
        charge: &Charge<'_>,
        receipt: Receipt,
        now: Timestamp,
    ) -> Option<Standing> {
        with_table!(self, charge.quota, (algorithm, table) => {
            let state = table.find_mut(charge.key.entry)?;
            algorithm.give_back(state, receipt, charge.cost, now);
            Some(algorithm.standing(state, now))
        })
    }

    /// Whether it was not swept lately.
    fn is_due(&self, now: Timestamp) -> bool {
        let pause = SWEEP_PAUSE_A_COUNTER * self.len() as u32;
        now.saturating_since(self.swept) >= pause.max(SWEEP_PAUSE) || now < self.swept
    }

    /// Drops what is over, and tells how many counters went.
    fn sweep(&mut self, now: Timestamp) -> usize {
        self.swept = now;
        self.fixed_window.sweep(now)
            + self.sliding_window.sweep(now)
            + self.sliding_log.sweep(now)
            + self.token_bucket.sweep(now)
            + self.gcra.sweep(now)
            + self.concurrency.sweep(now)
    }
}

/// What is told of a limit of which nothing was taken.
fn untaken(standing: Standing) -> Outcome {
    Outcome { standing, receipt: None, decided_by: DecidedBy::Current }
}

/// A panic cannot leave a shard half-written, so a poisoned lock is as good as any.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
