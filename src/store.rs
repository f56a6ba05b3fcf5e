//! Where counters live: in the process, or in Redis.
//!
//! A store takes all charges of a request or none, and answers with the standing of each limit from
//! that one read. Where one call cannot decide about all of them, they are asked for at once and given
//! back when one is denied (`groups`); where the store does not answer in time, each limit does
//! what it says (`local`).

mod alone;
mod counts;
mod full;
mod groups;
mod headroom;
mod keeper;
mod known;
mod leases;
mod local;
mod lost;
mod memo;
mod memory;
mod moving;
mod newcomers;
mod no_room;
mod others;
mod owed;
mod recent;
mod redis;
mod rivals;
mod secret;
mod snapshot;
mod told;
mod unanswered;
mod unsettled;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use self::{
    headroom::Headrooms,
    lost::Lost,
    memo::Memo,
    moving::Moved,
    newcomers::Newcomers,
    others::Others,
    owed::Owed,
    redis::{Clocks, RedisStore, SharedByWorkers},
};
use crate::{
    clock::{Clock, Timestamp},
    limit::{
        Charge, DecidedBy, Decision, Hashing, KeptSecret, KeyHasher, Outcome, Receipt,
        SecretStanding, Standing, Verdict,
    },
    settings::{StoreKind, StoreSettings},
};

pub use self::{
    alone::Hindrance,
    counts::Counts,
    keeper::{Keeper, Saver, restore},
    leases::{GrantedLease, HeldLeases, LeaseBook},
    memory::{Bounds, MemoryStore},
    moving::{Move, Obstacle},
    no_room::NoRoom,
    redis::{ReplicaLink, ServerHealth, ServerReport, ServerRole, Servers, Skew},
    rivals::{Rival, Rivals},
    unanswered::Unanswered,
    unsettled::{Unsettled, UnsettledUnits},
};

/// Why a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A limit needs one more counter than there may be.
    #[error("no room for another counter: {0}")]
    NoRoom(#[from] NoRoom),
    /// Redis did not decide, and a limit is closed then.
    #[error("the store did not decide: {0}")]
    Unanswered(#[from] Unanswered),
}

/// What is put right about a charge after its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Adjustment {
    /// Its cost is taken, whether or not it fits.
    Take,
    /// Its cost is given back, to the window that was charged and no other. Not to be done twice.
    GiveBack(Receipt),
    /// The lease that was granted is made good for its full time.
    Renew(Receipt),
}

/// What all workers share of the stores.
pub struct Stores {
    /// Counters in the process, as a store of their own.
    pub memory: Arc<MemoryStore>,
    /// Counters in Redis, as they are known here.
    known: MemoryStore,
    /// Counters in Redis that were decided about without it: this proxy's parts of them.
    alone: MemoryStore,
    settings: StoreSettings,
    /// What keys are hashed under, where Redis keeps that.
    secret: Option<Arc<KeptSecret>>,
    /// Who is moved to the next store, if there is one.
    pub moving: Move,
    /// What happened.
    pub counts: Arc<Counts>,
    /// Units that responses may still give back, of limits that count only some.
    unsettled: Arc<Unsettled>,
    /// Counters in Redis that clients have asked for lately.
    newcomers: Newcomers,
    /// What was admitted here while Redis was away, and Redis does not have.
    owed: Owed,
    /// How the servers are of the store that decides, if it is in Redis.
    pub current_servers: Arc<Servers>,
    /// How the servers are of the next store, if that is in Redis.
    pub next_servers: Arc<Servers>,
    /// Which counters may deny a request, of requests that no one call decides about.
    headrooms: Headrooms,
    /// This process' clock beside those of Redis' servers.
    clocks: Arc<Clocks>,
    /// Other proxies.
    others: Others,
    /// What servers may have lost.
    lost: Lost,
}

/// The stores, as one worker reaches them.
pub struct Store {
    stores: Arc<Stores>,
    current: Backend,
    next: Option<Backend>,
    memo: RefCell<Memo>,
    moved: RefCell<Moved>,
    /// By how many microseconds Redis' clock was last ahead of this process'.
    ahead: Cell<i64>,
    /// Whether Redis was asked for the secret, or need not be.
    has_looked: Cell<bool>,
    /// How often another server was primary when Redis was last asked for the secret.
    elections: Cell<u64>,
}

/// Where counters are kept.
#[derive(Clone)]
enum Backend {
    Memory(Arc<MemoryStore>),
    Redis(Rc<RedisStore>),
}

/// How long a worker that begins waits for its first connections to Redis.
const FIRST_CONNECTIONS: Duration = Duration::from_millis(500);

/// How long a worker that ends waits until Redis has what is still to be put right.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Stores {
    /// What `settings` describe; `memory` has the counters that are kept in the process. The instants
    /// that stores are told are by `clock`.
    pub fn new(settings: StoreSettings, memory: MemoryStore, clock: Clock) -> Self {
        let moving = Move::new(settings.next.as_ref());
        let newcomers = Newcomers::new(settings.new_per_minute);
        let headrooms = Headrooms::new(settings.instances);
        let is_kept = settings.is_shared() && settings.key_secret.is_none();
        let secret = is_kept.then(|| Arc::new(KeptSecret::new(memory.key_secret())));
        let lost = Lost::new(memory.beside(), &settings);
        Stores {
            lost,
            known: memory.beside(),
            alone: memory.beside(),
            memory: Arc::new(memory),
            settings,
            secret,
            moving,
            counts: Arc::default(),
            unsettled: Arc::default(),
            newcomers,
            owed: Owed::default(),
            current_servers: Arc::default(),
            next_servers: Arc::default(),
            headrooms,
            clocks: Arc::new(Clocks::new(clock)),
            others: Others::default(),
        }
    }

    /// Where counters are, as it was configured at the start.
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// What keys are hashed under.
    pub fn hashing(&self) -> Hashing {
        match &self.secret {
            Some(secret) => Hashing::Kept(Arc::clone(secret)),
            None => Hashing::Fixed(KeyHasher::new(self.memory.key_secret())),
        }
    }

    /// The secret that Redis keeps, if it is not known yet.
    fn awaited_secret(&self) -> Option<&Arc<KeptSecret>> {
        self.secret.as_ref().filter(|secret| secret.standing() == SecretStanding::Awaited)
    }

    /// Counters that have something which Redis does not: it was admitted while Redis was away.
    pub fn owed(&self) -> usize {
        self.owed.len()
    }

    /// How far this process' clock and those of Redis' servers are apart, as far as that is known.
    pub fn skews(&self) -> Vec<Skew> {
        self.clocks.all()
    }

    /// Counters that a server may have lost, and that were not brought to it yet.
    pub fn lost(&self) -> usize {
        self.lost.counters().own()
    }

    /// Whether responses say so when Redis did not decide about them.
    pub fn tells_fallback(&self) -> bool {
        self.settings.tells_fallback
    }
}

impl Store {
    /// A worker's own connections. They are made by tasks of this thread, which must run local
    /// tasks unless all counters are in the process.
    pub fn start(stores: Arc<Stores>) -> Rc<Store> {
        let backend = |kind: &StoreKind, servers: &Arc<Servers>| match kind {
            StoreKind::Memory => Backend::Memory(Arc::clone(&stores.memory)),
            StoreKind::Redis(settings) => {
                let (secret, counts) = (stores.secret.clone(), Arc::clone(&stores.counts));
                let (servers, clocks) = (Arc::clone(servers), Arc::clone(&stores.clocks));
                let shared = SharedByWorkers { secret, counts, servers, clocks };
                Backend::Redis(RedisStore::start(settings, stores.settings.deadline, shared))
            }
        };
        let current = backend(&stores.settings.current, &stores.current_servers);
        let next = stores.settings.next.as_ref();
        let next = next.map(|moving| backend(&moving.to, &stores.next_servers));
        let (memo, moved) = (RefCell::default(), RefCell::default());
        let (ahead, has_looked, elections) = (Cell::new(0), Cell::new(false), Cell::new(0));
        let store =
            Rc::new(Store { stores, current, next, memo, moved, ahead, has_looked, elections });
        store.learn_secret();
        store
    }

    /// Takes all `charges` or none, at `now`.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] if a charge needs a new counter in the process and there is no room for
    /// one, unless its limit is open then ([`WhenFull`](crate::limit::WhenFull)): a client that can
    /// bring it about must not get past a limit by it. [`StoreError::Unanswered`] if Redis does not
    /// answer and a limit is closed then. What was taken until then is given back.
    pub async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = match (&self.current, &self.next) {
            (Backend::Memory(memory), None) => self.charge_here(memory, charges, now),
            _ => self.charge_elsewhere(charges, now).await,
        };
        if let Err(StoreError::NoRoom(reason)) = &decision {
            self.stores.counts.count_no_room(*reason);
        }
        decision
    }

    /// The same where counters are not in the process alone.
    async fn charge_elsewhere(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        if let Some(decision) = self.memo.borrow_mut().recall(charges, now) {
            return Ok(decision);
        }
        // On the heap: whoever waits for this future moves it about with its own, several times.
        let decision = Box::pin(self.charge_admitted(charges, now)).await?;
        let mut memo = self.memo.borrow_mut();
        match decision.verdict {
            Verdict::Deny => memo.remember(charges, &decision, now),
            // What it remembers of these counters is no longer so.
            Verdict::Allow => charges.iter().for_each(|charge| memo.forget(charge.key)),
        }
        drop(memo);
        Ok(decision)
    }

    /// How the limits of `charges` stand, with nothing taken; perhaps not by the latest count. What
    /// is not known is [`DecidedBy::Nobody`]'s.
    pub async fn peek(self: &Rc<Self>, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        if let (Backend::Memory(memory), None) = (&self.current, &self.next) {
            return memory.peek(charges, now);
        }
        Box::pin(self.peek_groups(charges, now)).await
    }

    /// Makes good what was decided about `charge`, now that more is known. Tells how its limit stands
    /// then; none if nobody knows, or there is nothing to be made good.
    pub fn settle(
        self: &Rc<Self>,
        (charge, outcome): (&Charge<'_>, &Outcome),
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        self.settle_mirrored((charge, outcome.decided_by), adjustment, now);
        self.settle_unmirrored((charge, outcome), adjustment, now)
    }

    /// The same for what is not mirrored, or not yet.
    fn settle_unmirrored(
        self: &Rc<Self>,
        (charge, outcome): (&Charge<'_>, &Outcome),
        adjustment: Adjustment,
        now: Timestamp,
    ) -> Option<Standing> {
        if let Adjustment::GiveBack(_) = adjustment {
            self.memo.borrow_mut().forget(charge.key);
        }
        let backend = match outcome.decided_by {
            DecidedBy::Current => &self.current,
            DecidedBy::Next => self.next.as_ref()?,
            DecidedBy::Local => return self.settle_locally(charge, adjustment, now),
            DecidedBy::Nobody => return None,
        };
        match backend {
            Backend::Memory(memory) => memory.settle(charge, adjustment, now),
            Backend::Redis(redis) => {
                redis.settle(charge, adjustment, now);
                self.settle_known(charge, adjustment, now);
                Some(adjusted(outcome.standing, charge.cost, adjustment))
            }
        }
    }

    /// Units that responses may still give back, of limits that count only some.
    pub fn unsettled(&self) -> &Arc<Unsettled> {
        &self.stores.unsettled
    }

    /// What is due from time to time: drop counters in the process that are over, see to the secret
    /// that Redis keeps, tell other proxies about this one, and let Redis have what was admitted
    /// without it.
    pub fn tick(self: &Rc<Self>, now: Timestamp) {
        self.look_after_secret(now);
        self.look_at_others(now);
        self.stores.memory.sweep(now);
        let Stores { known, alone, lost, .. } = &*self.stores;
        for of_redis in [known, alone, lost.counters()] {
            of_redis.sweep(self.local_time(now));
        }
        self.bring_some(now);
        self.pay_some(now);
    }

    /// Waits until it is known whether Redis is there, and what it keeps, and until other proxies
    /// know of this one, before the worker begins: what comes first need not be decided without
    /// that.
    pub async fn ready(self: &Rc<Self>, now: Timestamp) {
        let begun = Instant::now();
        self.look_at_others(now);
        for redis in self.redis() {
            redis.ready(begun + FIRST_CONNECTIONS).await;
        }
        let deadline = begun + self.look_timeout();
        while !(self.has_looked.get() && self.has_looked_at_others()) && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Sends what is still to be put right, before the worker ends.
    pub async fn finish(self: &Rc<Self>, now: Timestamp) {
        let deadline = Instant::now() + LAST_WORDS;
        self.leave_others(deadline).await;
        self.pay_all(now, deadline).await;
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
            DecidedBy::Local | DecidedBy::Nobody => None,
        }
    }
}

impl Backend {
    fn redis(&self) -> Option<&Rc<RedisStore>> {
        match self {
            Backend::Redis(redis) => Some(redis),
            Backend::Memory(_) => None,
        }
    }
}

/// How a limit will stand once an adjustment has reached Redis. The window stays, and so does its
/// reset.
fn adjusted(standing: Standing, cost: u32, adjustment: Adjustment) -> Standing {
    let used = match adjustment {
        Adjustment::Take => standing.used.saturating_add(cost),
        Adjustment::GiveBack(_) => standing.used.saturating_sub(cost),
        Adjustment::Renew(_) => standing.used,
    };
    let remaining = standing.limit.saturating_sub(used);
    // What was just used up comes back with the window, at the latest.
    let next = if remaining == 0 { standing.next.max(standing.reset) } else { standing.next };
    Standing { used, remaining, next, ..standing }
}
