//! Where counters live: in the process, or in Redis.
//!
//! A store takes all charges of a request or none, and answers with the standing of each limit from
//! that one read. Where one call cannot decide about all of them, they are asked for at once and given
//! back when one is denied (`groups`); where the store does not answer in time, each limit does
//! what it says (`local`).

mod counts;
mod groups;
mod keeper;
mod local;
mod memo;
mod memory;
mod moving;
mod newcomers;
mod no_room;
mod owed;
mod recent;
mod redis;
mod rooms;
mod secret;
mod snapshot;
mod unsettled;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use self::{
    memo::Memo, moving::Moved, newcomers::Newcomers, owed::Owed, redis::RedisStore, rooms::Rooms,
};
use crate::{
    clock::Timestamp,
    limit::{
        Charge, DecidedBy, Decision, Hashing, KeptSecret, KeyHasher, Outcome, Receipt,
        SecretStanding, Standing, Verdict,
    },
    settings::{StoreKind, StoreSettings},
};

pub use self::{
    counts::Counts,
    keeper::{Keeper, Saver, restore},
    memory::{Bounds, MemoryStore},
    moving::Move,
    no_room::NoRoom,
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

/// Why Redis did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It is known to be away, and nobody waited for it.
    #[error("it is away")]
    Away,
    /// Too many requests wait for it.
    #[error("too many requests wait for it")]
    Busy,
    /// It did not answer in time.
    #[error("it did not answer in time")]
    Timeout,
    /// The connection broke before it answered.
    #[error("the connection to it broke")]
    Lost,
    /// It answered that it cannot.
    #[error("it refused")]
    Refused,
    /// Its answer makes no sense.
    #[error("its answer cannot be read")]
    BadReply,
}

impl Unanswered {
    /// Every reason.
    pub const ALL: [Unanswered; 6] = [
        Unanswered::Away,
        Unanswered::Busy,
        Unanswered::Timeout,
        Unanswered::Lost,
        Unanswered::Refused,
        Unanswered::BadReply,
    ];

    /// The reason in a word, for machines.
    pub fn name(self) -> &'static str {
        match self {
            Unanswered::Away => "away",
            Unanswered::Busy => "busy",
            Unanswered::Timeout => "timeout",
            Unanswered::Lost => "lost",
            Unanswered::Refused => "refused",
            Unanswered::BadReply => "bad_reply",
        }
    }
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
    /// Counters in the process: all of them, or those that Redis is not there for.
    pub memory: Arc<MemoryStore>,
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
    /// Which counters may deny a request, of requests that no one call decides about.
    rooms: Rooms,
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
    /// What `settings` describe; `memory` has the counters that are kept in the process.
    pub fn new(settings: StoreSettings, memory: MemoryStore) -> Self {
        let moving = Move::new(settings.next.as_ref());
        let newcomers = Newcomers::new(settings.new_per_minute);
        let rooms = Rooms::new(settings.instances);
        let is_kept = settings.is_shared() && settings.key_secret.is_none();
        let secret = is_kept.then(|| Arc::new(KeptSecret::new(memory.key_secret())));
        Stores {
            memory: Arc::new(memory),
            settings,
            secret,
            moving,
            counts: Arc::default(),
            unsettled: Arc::default(),
            newcomers,
            owed: Owed::default(),
            rooms,
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

    /// Whether responses say so when Redis did not decide about them.
    pub fn tells_fallback(&self) -> bool {
        self.settings.tells_fallback
    }
}

impl Store {
    /// A worker's own connections. They are made by tasks of this thread, which must run local
    /// tasks unless all counters are in the process.
    pub fn start(stores: Arc<Stores>) -> Rc<Store> {
        let backend = |kind: &StoreKind| match kind {
            StoreKind::Memory => Backend::Memory(Arc::clone(&stores.memory)),
            StoreKind::Redis(settings) => {
                let (secret, counts) = (stores.secret.clone(), Arc::clone(&stores.counts));
                let patience = stores.settings.deadline;
                Backend::Redis(RedisStore::start(settings, patience, (secret, counts)))
            }
        };
        let current = backend(&stores.settings.current);
        let next = stores.settings.next.as_ref().map(|moving| backend(&moving.to));
        let (memo, moved) = (RefCell::default(), RefCell::default());
        let (ahead, has_looked) = (Cell::new(0), Cell::new(false));
        let store = Rc::new(Store { stores, current, next, memo, moved, ahead, has_looked });
        store.learn_secret();
        store
    }

    /// Takes all `charges` or none, at `now`.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] if a charge needs a new counter and there is no room for one, whatever
    /// its limit says about outages: that is none, and a client that can bring it about must not get
    /// past a limit by it. [`StoreError::Unanswered`] if Redis does not answer and a limit is closed
    /// then. What was taken until then is given back.
    pub async fn charge(
        self: &Rc<Self>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let decision = match (&self.current, &self.next) {
            (Backend::Memory(memory), None) => memory.charge(charges, now),
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
    pub async fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
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
        if let Adjustment::GiveBack(_) = adjustment {
            self.memo.borrow_mut().forget(charge.key);
        }
        let backend = match outcome.decided_by {
            DecidedBy::Current => &self.current,
            DecidedBy::Next => self.next.as_ref()?,
            DecidedBy::Local => {
                if let Adjustment::Take = adjustment {
                    self.owe(std::slice::from_ref(charge), self.decider(charge.key.owner));
                }
                return self.settle_locally(charge, adjustment, now);
            }
            DecidedBy::Nobody => return None,
        };
        if outcome.decided_by == DecidedBy::Current {
            self.settle_mirrored(charge, adjustment, now);
        }
        match backend {
            Backend::Memory(memory) => memory.settle(charge, adjustment, now),
            Backend::Redis(redis) => {
                redis.settle(charge, adjustment, now);
                self.settle_share(charge, adjustment, now);
                Some(adjusted(outcome.standing, charge.cost, adjustment))
            }
        }
    }

    /// Units that responses may still give back, of limits that count only some.
    pub fn unsettled(&self) -> &Arc<Unsettled> {
        &self.stores.unsettled
    }

    /// What is due from time to time: drop counters in the process that are over, see to the secret
    /// that Redis keeps, and let Redis have what was admitted without it.
    pub fn tick(self: &Rc<Self>, now: Timestamp) {
        self.look_after_secret(now);
        self.stores.memory.sweep(self.local_time(now));
        self.pay_some(now);
    }

    /// Waits until it is known whether Redis is there, and what it keeps, before the worker begins:
    /// what comes first need not be decided without it.
    pub async fn ready(&self) {
        let begun = Instant::now();
        for redis in self.redis() {
            redis.ready(begun + FIRST_CONNECTIONS).await;
        }
        let deadline = begun + self.look_timeout();
        while !self.has_looked.get() && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Sends what is still to be put right, before the worker ends.
    pub async fn finish(self: &Rc<Self>, now: Timestamp) {
        let deadline = Instant::now() + LAST_WORDS;
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
