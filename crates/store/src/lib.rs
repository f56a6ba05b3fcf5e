//! Where counters live: in the memory of the process, on its disk, or in Redis.
//!
//! A store takes all charges of a request or none, and reports the standing of each limit from the
//! same read. Where one call cannot decide all charges, they are sent at once, and given back when
//! one of them is denied (`groups`). Where Redis does not answer in time, each limit follows its
//! `on_store_error` (`fallback`).
//!
//! Its parts, by step:
//! - `decide`: one decision about all charges of a request, and corrections of it;
//! - `fallback`: going on without Redis;
//! - `fleet`: what proxies share;
//! - `moving`: from one store to another;
//! - `memory`, `disk` and `redis`: where counters are.
//!
//! This crate knows charges, and no routes, callers or requests.
//!
//! The types to know first:
//!
//! - [`Stores`]: what all workers share of the stores.
//! - [`Store`]: the stores as one worker uses them.
//! - [`StoreError`]: why a store could not decide.
//! - [`LeaseBook`]: the leases that a worker holds.
//! - [`Disk`]: the disk of a store.
//! - [`Transport`]: how connections to Redis are opened.

mod call_time;
mod census;
mod counts;
mod decide;
mod degradation;
mod disk;
mod fallback;
mod fleet;
mod leases;
mod memory;
mod moving;
mod no_room;
mod recent;
mod redis;
mod stores;
mod unanswered;
mod undecided;
mod unsettled;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tollgate_clock::Timestamp;
use tollgate_limit::{Charge, DecidedBy, Decision, Outcome, Receipt, Standing, Verdict};
use tollgate_settings::{StoreKind, StoreSettings};

use self::{
    call_time::CallTime,
    decide::{decisions::DecisionCounts, memo::Memo},
    moving::MoveRecords,
    redis::{PeekSource, RedisStore, SharedByWorkers},
};

pub use self::{
    census::Census,
    counts::{Counts, Total},
    decide::{client_time::ClientTimed, decisions::Decider, in_turn::WaitingLines},
    degradation::Degradation,
    disk::{
        CheckResult, Damage, Disk, DiskReport, OfflineStore, OpenError, Survey, check,
        open as open_disk,
    },
    fallback::correction_room::CorrectionRoom,
    fleet::summaries::{Fleet, OtherProxies},
    leases::{GrantedLease, HeldLeases, LeaseBook},
    memory::{
        DiskStore, MemoryStore,
        saver::{SaveHandle, SnapshotSaver, restore},
    },
    moving::{Move, Obstacle},
    no_room::NoRoom,
    redis::{
        NotReset, OpeningStream, ReplicaLink, Rival, Rivals, ServerHealth, ServerReport,
        ServerRole, Servers, Skew, Stream, Transport,
    },
    stores::Stores,
    unanswered::Unanswered,
    unsettled::{Unsettled, UnsettledUnits},
};

/// Why a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A limit needs a new counter, and there is no room for one.
    #[error("no room for another counter: {0}")]
    NoRoom(#[from] NoRoom),
    /// Redis did not decide, and a limit fails closed.
    #[error("the store did not decide: {0}")]
    Unanswered(#[from] Unanswered),
}

/// A correction of a charge after its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Adjustment {
    /// Its cost is taken, even if the limit is exceeded by it.
    Take,
    /// Its cost is given back to the window that was charged. Must not be repeated.
    GiveBack(Receipt),
    /// Its lease is extended to its full length.
    Renew(Receipt),
}

/// The stores as one worker uses them.
pub struct Store {
    stores: Arc<Stores>,
    current: Backend,
    next: Option<Backend>,
    memo: RefCell<Memo>,
    /// Who decided about this worker's requests.
    decisions: Arc<DecisionCounts>,
    move_records: RefCell<MoveRecords>,
    /// By how many microseconds Redis' clock was last ahead of this process' clock.
    ahead: Cell<i64>,
    /// Whether Redis was queried for the secret, or no query is needed.
    has_queried_secret: Cell<bool>,
    /// Corrections that wait for their counters to come into memory.
    thawing: Cell<usize>,
    /// The number of elections when Redis was last queried for the secret.
    elections: Cell<u64>,
}

/// Where counters are kept.
#[derive(Clone)]
enum Backend {
    Memory(Arc<MemoryStore>),
    Disk(Arc<DiskStore>),
    Redis(Rc<RedisStore>),
}

/// How long a new worker waits for its first connections to Redis.
const FIRST_CONNECTIONS: Duration = Duration::from_millis(500);

/// How long an ending worker waits until its last adjustments have reached Redis.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

impl Store {
    /// Makes a worker's own connections. Tasks of this thread make them, so the thread must run
    /// local tasks unless all counters are in the process.
    pub fn start(stores: Arc<Stores>) -> Rc<Store> {
        let backend = |kind: &StoreKind, servers: &Arc<Servers>| match kind {
            StoreKind::Memory => Backend::Memory(Arc::clone(&stores.memory)),
            StoreKind::Disk(_) => match &stores.disk {
                Some(disk) => Backend::Disk(Arc::clone(disk)),
                None => Backend::Memory(Arc::clone(&stores.memory)),
            },
            StoreKind::Redis(settings) => {
                let shared = SharedByWorkers {
                    secret: stores.secret.clone(),
                    counts: Arc::clone(&stores.counts),
                    servers: Arc::clone(servers),
                    clocks: Arc::clone(&stores.clocks),
                    transport: stores.transport.clone(),
                };
                Backend::Redis(RedisStore::start(settings, stores.settings.deadline, shared))
            }
        };
        let current = backend(&stores.settings.current, &stores.current_servers);
        let next = stores.settings.next.as_ref();
        let next = next.map(|moving| backend(&moving.to, &stores.next_servers));
        let store = Rc::new(Store {
            decisions: stores.decisions.take(),
            stores,
            current,
            next,
            memo: RefCell::default(),
            move_records: RefCell::default(),
            ahead: Cell::new(0),
            has_queried_secret: Cell::new(false),
            elections: Cell::new(0),
            thawing: Cell::new(0),
        });
        store.learn_secret();
        store
    }

    /// Takes all `charges` or none, at `now`.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] if a charge needs a new counter in the process, there is no room for
    /// it, and its limit is not open then ([`WhenFull`](tollgate_limit::WhenFull)): a client that
    /// can fill the store must not get past a limit that way. [`StoreError::Unanswered`] if Redis
    /// does not answer and a limit fails closed. What was taken before the error is given back.
    pub async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = match (&self.current, &self.next) {
            (Backend::Memory(memory), None) => self.charge_in_process(memory, charges, now),
            (Backend::Disk(disk), None) => self.charge_on_disk(disk, charges, now).await,
            (Backend::Redis(_), None) | (_, Some(_)) => self.charge_shared(charges, now).await,
        };
        self.count_decision(&decision);
        decision
    }

    /// Takes all `charges` or none in the process.
    pub(crate) fn charge_in_process(
        &self,
        memory: &MemoryStore,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = memory.charge(charges, now)?;
        self.count_left_out(&decision);
        Ok(decision)
    }

    /// Charges where counters may be on disk. Mostly they are in memory, and nothing is awaited.
    async fn charge_on_disk(
        self: &Rc<Self>,
        store: &DiskStore,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let disk = store.disk();
        if !disk.is_failing()
            && !disk.writes_before_answers()
            && self.stores.pending.is_empty()
            && let Ok(decision) = store.charge(charges, now)
        {
            self.count_left_out(&decision);
            return Ok(decision);
        }
        Box::pin(self.charge_groups(charges, now)).await
    }

    /// Charges where some counters are in Redis, or callers are moved between stores.
    async fn charge_shared(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let generation = self.stores.resets.generation();
        if let Some(decision) = self.memo.borrow_mut().recall(charges, generation, now) {
            return Ok(decision);
        }
        // Boxed, because the callers' futures contain this one and are moved several times.
        let decision = Box::pin(self.charge_admitted(charges, now)).await?;
        let mut memo = self.memo.borrow_mut();
        match decision.verdict {
            // One of the counters may have been reset since it was denied.
            Verdict::Deny if generation != self.stores.resets.generation() => {}
            Verdict::Deny => memo.remember(charges, &decision, now),
            // A remembered denial of these counters is out of date now.
            Verdict::Allow => charges.iter().for_each(|charge| memo.forget(charge.key)),
        }
        drop(memo);
        Ok(decision)
    }

    /// The standing of the limits of `charges`, without a charge. It may be slightly out of date.
    /// An unknown standing is marked [`DecidedBy::NoStore`].
    pub async fn peek(self: &Rc<Self>, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        self.peek_from(PeekSource::Any, charges, now).await.0
    }

    /// The same by the latest count, if the server that decides answers.
    pub async fn peek_latest(self: &Rc<Self>, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        self.peek_from(PeekSource::Primary, charges, now).await.0
    }

    /// The same for who needs to know it.
    ///
    /// # Errors
    /// [`StoreError::Unanswered`]: the standing of one of the limits is not known.
    pub async fn peek_known(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let (decision, unanswered) = self.peek_from(PeekSource::Primary, charges, now).await;
        let is_unknown = |outcome: &Outcome| outcome.decided_by == DecidedBy::NoStore;
        match unanswered {
            Some(reason) if decision.outcomes.iter().any(is_unknown) => Err(reason.into()),
            _ => Ok(decision),
        }
    }

    /// The standing of limits, and why a store did not report that of some of them.
    async fn peek_from(
        self: &Rc<Self>,
        source: PeekSource,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> (Decision, Option<Unanswered>) {
        let known = match (&self.current, &self.next) {
            (Backend::Memory(memory), None) => Some(memory.peek(charges, now)),
            (Backend::Disk(disk), None) => disk.peek(charges, now).ok(),
            (Backend::Redis(_), None) | (_, Some(_)) => None,
        };
        match known {
            Some(decision) => (decision, None),
            None => Box::pin(self.peek_groups(source, charges, now)).await,
        }
    }

    /// Corrects a charge after its decision. Returns the new standing of its limit; none if it is
    /// not known, or there was nothing to correct.
    pub fn settle(
        self: &Rc<Self>,
        charge: &Charge<'_>,
        outcome: &Outcome,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        self.settle_mirrored(charge, outcome.decided_by, adjustment, now);
        self.settle_decided(charge, outcome, adjustment, now)
    }

    /// Corrects a charge in the store that decided it, and not in its mirror.
    fn settle_decided(
        self: &Rc<Self>,
        charge: &Charge<'_>,
        outcome: &Outcome,
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        if let Adjustment::GiveBack(_) = adjustment {
            self.memo.borrow_mut().forget(charge.key);
        }
        if self.is_moved(charge, outcome.decided_by) {
            return self.settle_moved(charge, outcome, adjustment, now);
        }
        let backend = match outcome.decided_by {
            DecidedBy::Current => &self.current,
            DecidedBy::Next => self.next.as_ref()?,
            DecidedBy::Local => return self.settle_locally(charge, outcome, adjustment, now),
            // The caller corrects these in `client_timed`: their time is the client's.
            DecidedBy::ClientTime => return None,
            DecidedBy::Memo | DecidedBy::NoStore => return None,
        };
        match backend {
            Backend::Memory(memory) => memory.settle(charge, adjustment, now),
            Backend::Disk(disk) => self.settle_on_disk(disk, charge, adjustment, now),
            Backend::Redis(redis) => {
                redis.settle(charge, adjustment, now);
                self.settle_cached(charge, adjustment, now);
                Some(adjusted(outcome.standing, charge.cost, adjustment))
            }
        }
    }

    /// Units that responses may still give back, of limits that count only some responses.
    pub fn unsettled(&self) -> &Arc<Unsettled> {
        &self.stores.unsettled
    }

    /// Does the periodic work: drops expired counters in the process, checks the secret that Redis
    /// keeps, does what is due for other proxies, restores counters that a server has lost, and
    /// writes pending charges.
    pub fn tick(self: &Rc<Self>, now: Timestamp) {
        self.check_secret(now);
        self.beat(now);
        self.stores.memory.sweep(now);
        if let Some(disk) = &self.stores.disk {
            disk.memory().sweep(now);
            disk.disk().check_lag();
        }
        self.stores.client_timed.sweep(now);
        let Stores { cache, local, reseeding, .. } = &*self.stores;
        for of_redis in [cache, local, &reseeding.counters] {
            of_redis.sweep(self.local_time(now));
        }
        self.reseed_some(now);
        self.write_back_some(now);
    }

    /// Drops the counters in the process that are over.
    pub fn sweep_all(&self, now: Timestamp) {
        self.stores.memory.sweep_all(now);
    }

    /// Counters in the process.
    pub fn counters(&self) -> usize {
        self.stores.memory.len()
    }

    /// Waits until Redis has answered and this proxy was announced to others, or it is known that
    /// Redis is away. Without this wait, a worker's first requests would be decided in fallback
    /// mode.
    pub async fn ready(self: &Rc<Self>, now: Timestamp) {
        let begun = Instant::now();
        if self.redis().next().is_some() {
            self.announce_if_due(now);
        }
        for redis in self.redis() {
            redis.ready(begun + FIRST_CONNECTIONS).await;
        }
        let deadline = begun + self.background_timeout();
        while !(self.has_queried_secret.get() && self.has_announced()) && Instant::now() < deadline
        {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until it is known which servers of Redis can be reached, or for this time. Nothing is
    /// written there.
    pub async fn reach(self: &Rc<Self>, time: Duration) {
        let deadline = Instant::now() + time;
        for redis in self.redis() {
            redis.ready(deadline).await;
        }
    }

    /// Sends the remaining adjustments and pending charges before the worker ends.
    pub async fn finish(self: &Rc<Self>, now: Timestamp) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        self.withdraw(deadline).await;
        self.write_back_all(CallTime { now, deadline }).await;
        while self.thawing.get() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
        for redis in self.redis() {
            redis.finish(deadline).await;
        }
    }

    fn redis(&self) -> impl Iterator<Item = &Rc<RedisStore>> {
        let backends = std::iter::once(&self.current).chain(&self.next);
        backends.filter_map(Backend::redis)
    }

    fn backend(&self, decided_by: DecidedBy) -> Option<&Backend> {
        match decided_by {
            DecidedBy::Current => Some(&self.current),
            DecidedBy::Next => self.next.as_ref(),
            DecidedBy::ClientTime | DecidedBy::Memo | DecidedBy::Local | DecidedBy::NoStore => None,
        }
    }
}

impl Backend {
    fn redis(&self) -> Option<&Rc<RedisStore>> {
        match self {
            Backend::Redis(redis) => Some(redis),
            Backend::Memory(_) | Backend::Disk(_) => None,
        }
    }

    /// The counters that are in memory, if the process has them.
    fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Backend::Memory(memory) => Some(memory),
            Backend::Disk(disk) => Some(disk.memory()),
            Backend::Redis(_) => None,
        }
    }
}

/// The standing of a limit once an adjustment has reached Redis. The window and its reset stay.
fn adjusted(standing: Standing, cost: u32, adjustment: Adjustment) -> Standing {
    let used = match adjustment {
        Adjustment::Take => standing.used.saturating_add(cost),
        Adjustment::GiveBack(_) => standing.used.saturating_sub(cost),
        Adjustment::Renew(_) => standing.used,
    };
    let remaining = standing.limit.saturating_sub(used);
    // A limit that was just used up has units again when its window resets, at the latest.
    let next = if remaining == 0 { standing.next.max(standing.reset) } else { standing.next };
    Standing { used, remaining, next, ..standing }
}
