//! Counters that a server may have lost: one that was restarted, or that replaced another one, may
//! have none of the counters that the process knows.
//!
//! Each new connection reads the server's identity. As soon as a partition has another server, all
//! cached counters are to be reseeded: each one before its next charge, and the others, as far as
//! their charges are remembered, in the background. A counter that is higher on the server stays as
//! it is. A charge is sent only to the server for which its counter was reseeded.
//!
//! A server that was cleared by `FLUSHALL` or `DEL` is the same server, and gets nothing back.

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Key, OwnedCharge};
use tollgate_settings::StoreKind;

use super::cache::is_lease;
use crate::{
    Backend, MemoryStore, Store, StoreSettings, Unanswered,
    call_time::CallTime,
    recent::Recent,
    redis::{CopiedState, Partition, RedisStore, is_made_up},
};

/// Most cached counters whose charges are remembered, so that they can be reseeded in the
/// background.
const MAX_CHARGES: usize = 65_536;

/// Counters that a worker reseeds in one tick.
const COUNTERS_PER_TICK: usize = 256;

/// Partitions that a worker checks for a new server in one tick.
const PARTITIONS_PER_TICK: usize = 1024;

/// Most pairs of servers that are remembered, and for how long all partitions where the second
/// server has replaced the first count as one change.
const MAX_PAIRS: usize = 4096;
const PAIR_LIFETIME: Duration = Duration::from_secs(60);

/// What all workers know of counters that servers may have lost.
pub(crate) struct Reseeding {
    /// Counters that are still to be reseeded.
    pub(crate) counters: MemoryStore,
    /// The identity of the server of each partition, of the current store and of the next one;
    /// zero: it is not known yet.
    servers: [Box<[AtomicU64]>; 2],
    charges: Mutex<RememberedCharges>,
    /// The partition of each store that is checked next.
    next_checked: [AtomicUsize; 2],
    /// Whether a partition has another server since the last tick.
    has_changed: AtomicBool,
}

#[derive(Default)]
struct RememberedCharges {
    /// Charges of cached counters, in the order in which they were cached.
    cached: Recent<u128, OwnedCharge, MAX_CHARGES>,
    /// Charges of counters that are to be reseeded.
    waiting: VecDeque<OwnedCharge>,
    /// When the second server of a pair has replaced the first.
    pairs: Recent<(u64, u64), Instant, MAX_PAIRS>,
}

impl Reseeding {
    pub(crate) fn new(counters: MemoryStore, settings: &StoreSettings) -> Self {
        let servers = |kind: Option<&StoreKind>| {
            let partitions = match kind {
                Some(StoreKind::Redis(redis)) => redis.topology.places(),
                Some(StoreKind::Memory | StoreKind::Disk(_)) | None => 0,
            };
            (0..partitions).map(|_| AtomicU64::new(0)).collect()
        };
        let next = settings.next.as_ref().map(|moving| &moving.to);
        Reseeding {
            counters,
            servers: [servers(Some(&settings.current)), servers(next)],
            charges: Mutex::default(),
            next_checked: Default::default(),
            has_changed: AtomicBool::new(false),
        }
    }

    /// Remembers the charge of a counter that was cached.
    pub(crate) fn remember(&self, charge: &Charge<'_>) {
        self.charges.lock().cached.insert(charge.key.entry, charge.into());
    }

    /// Forgets the charge of a counter that was reset.
    pub(crate) fn forget(&self, key: Key) {
        self.charges.lock().cached.remove(&key.entry);
    }

    fn servers(&self, decided_by: DecidedBy) -> &[AtomicU64] {
        let [current, next] = &self.servers;
        if decided_by == DecidedBy::Next { next } else { current }
    }

    /// Records the identity of a partition's server. If it has replaced another server, all cached
    /// counters are to be reseeded: the cache does not record which partition a counter is in.
    fn note_server(
        &self,
        decided_by: DecidedBy,
        partition: Partition,
        server: u64,
        cache: &MemoryStore,
    ) {
        let mut charges = self.charges.lock();
        let servers = self.servers(decided_by);
        let Some(slot) = servers.get(partition.index()) else { return };
        let before = slot.load(Ordering::Relaxed);
        // A server that already has other partitions was given this one with its counters.
        let has_others = || servers.iter().any(|other| other.load(Ordering::Relaxed) == server);
        let is_other = before != 0 && before != server;
        // The pair first: of a cluster's thousands of partitions only one looks at all others.
        if is_other && !charges.knows_pair(before, server) && !has_others() {
            charges.pairs.insert((before, server), Instant::now());
            tracing::info!(
                counters = cache.own(),
                "a redis server was restarted or replaced and may have lost counters; their last \
                 known state is written to it"
            );
            cache.empty_into(&self.counters);
            let RememberedCharges { cached, waiting, .. } = &mut *charges;
            let room = MAX_CHARGES.saturating_sub(waiting.len());
            waiting.extend(cached.drain().take(room));
            self.has_changed.store(true, Ordering::Relaxed);
        }
        // Stored last: another worker that reads the new identity must find the counters to reseed.
        slot.store(server, Ordering::Release);
    }

    /// Takes charges of counters to reseed from the queue.
    fn due(&self) -> Vec<OwnedCharge> {
        let waiting = &mut self.charges.lock().waiting;
        let count = waiting.len().min(COUNTERS_PER_TICK);
        waiting.drain(..count).collect()
    }
}

impl RememberedCharges {
    /// Whether it is known already that the server `after` has replaced `before`. An identity that
    /// was made up belongs to one connection and does not come back, so its pairs do not expire.
    fn knows_pair(&mut self, before: u64, after: u64) -> bool {
        let pair = (before, after);
        let never_expires = is_made_up(before) || is_made_up(after);
        let is_fresh = |at: &Instant| never_expires || at.elapsed() < PAIR_LIFETIME;
        let is_known = self.pairs.get(&pair).is_some_and(is_fresh);
        if is_known {
            // Connections of several workers may still know one server by two identities.
            self.pairs.insert(pair, Instant::now());
        }
        is_known
    }
}

impl Store {
    /// The identity of the server that decides a partition, zero if it is not known. If it has
    /// changed, cached counters are to be reseeded from now on.
    pub(crate) fn current_server(
        &self,
        redis: &RedisStore,
        decided_by: DecidedBy,
        partition: Partition,
    ) -> u64 {
        let server = redis.server(partition);
        let reseeding = &self.stores.reseeding;
        let known = reseeding.servers(decided_by).get(partition.index());
        if server != 0 && known.is_some_and(|known| known.load(Ordering::Acquire) != server) {
            reseeding.note_server(decided_by, partition, server, &self.stores.cache);
        }
        server
    }

    /// Writes back what the servers of these counters may have lost of them.
    ///
    /// # Errors
    /// The store is not known to have it.
    pub(crate) async fn reseed(
        &self,
        charges: &[Charge<'_>],
        to: DecidedBy,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        let reseeding = &self.stores.reseeding;
        if !reseeding.counters.is_in_use() {
            return Ok(());
        }
        let Some(Backend::Redis(redis)) = self.backend(to) else { return Ok(()) };
        self.learn_resets(time.deadline).await;
        for charge in charges.iter().filter(|charge| !is_lease(charge)) {
            let generation = self.stores.resets.generation();
            let reset = self.stores.resets.latest(charge.key.entry);
            let Some(state) = reseeding.counters.state(charge) else { continue };
            // A reply of the old server may have come since.
            let later = self.stores.cache.state(charge);
            for state in later.iter().chain([&state]) {
                let copied = CopiedState { state, reset };
                self.reseed_counter(redis, charge, copied, time).await?;
            }
            // It is cached as before, until the next reply, unless it was reset meanwhile.
            if generation == self.stores.resets.generation() {
                self.stores.cache.seed(charge, &state, self.local_time(time.now));
                reseeding.remember(charge);
            }
            reseeding.counters.remove(charge);
        }
        Ok(())
    }

    /// Makes a server count the last known state of a counter.
    async fn reseed_counter(
        &self,
        redis: &RedisStore,
        charge: &Charge<'_>,
        copied: CopiedState<'_>,
        time: CallTime,
    ) -> Result<(), Unanswered> {
        // The cached state of a log has all units at the instant of its newest one. A server that
        // has as many units has the better state.
        if charge.quota.kind().is_summarized() {
            let now = self.local_time(time.now);
            let used = |state| Some(charge.quota.standing_of(state, now)?.used);
            let on_server = redis.state(charge, time).await?;
            if on_server.as_ref().and_then(used) >= used(copied.state) {
                return Ok(());
            }
        }
        redis.seed(charge, copied, time).await.map(drop)
    }

    /// Checks whether partitions have other servers, and reseeds some counters that no request has
    /// reseeded.
    pub(crate) fn reseed_some(self: &Rc<Self>, now: Timestamp) {
        self.check_servers();
        let reseeding = &self.stores.reseeding;
        // The secret that keys are hashed with may be lost as well.
        if reseeding.has_changed.load(Ordering::Relaxed)
            && reseeding.has_changed.swap(false, Ordering::Relaxed)
        {
            self.recheck_secret();
        }
        if !reseeding.counters.is_in_use() {
            return;
        }
        for owned in reseeding.due() {
            let store = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let deadline = Instant::now() + store.stores.settings.deadline;
                let charge = owned.charge();
                let to = store.decider(charge.key.owner);
                if store.reseed(&[charge], to, CallTime { now, deadline }).await.is_err() {
                    store.stores.reseeding.charges.lock().waiting.push_back(owned);
                }
            });
        }
    }

    /// Checks some partitions, each time others: a server may have been replaced though no request
    /// has reached it.
    fn check_servers(&self) {
        let reseeding = &self.stores.reseeding;
        let stores = [DecidedBy::Current, DecidedBy::Next].iter().zip(&reseeding.servers);
        for ((decided_by, partitions), next_checked) in stores.zip(&reseeding.next_checked) {
            let Some(Backend::Redis(redis)) = self.backend(*decided_by) else { continue };
            let count = partitions.len().min(PARTITIONS_PER_TICK);
            let first = next_checked.fetch_add(count, Ordering::Relaxed);
            for number in first..first + count {
                let index = number.checked_rem(partitions.len()).unwrap_or_default();
                self.current_server(redis, *decided_by, Partition::at(index));
            }
        }
    }
}
