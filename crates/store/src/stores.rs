//! What all workers share of the stores.

use std::sync::{Arc, OnceLock};

use tollgate_clock::Clock;
use tollgate_keyword::Keyword;
use tollgate_limit::{DecidedBy, Hashing, KeptSecret, Key, KeyHasher, Outcome, SecretStatus};
use tollgate_observe::metrics::Shards;
use tollgate_settings::StoreKind;

use super::{
    Counts, Decider, Disk, DiskStore, MemoryStore, Move, SaveHandle, Servers, Skew, StoreSettings,
    Unsettled,
    decide::{
        client_time::ClientTimed, decisions::DecisionCounts, headroom::Headrooms,
        in_turn::WaitingLines, new_counters::NewCounters,
    },
    fallback::{pending::PendingCharges, reseeding::Reseeding},
    fleet::{heartbeat::Heartbeat, peers::Peers, resets::Resets, summaries::Fleet},
    redis::{Clocks, Transport},
};

/// What all workers share of the stores.
pub struct Stores {
    /// Counters in the process, when the process is the store.
    pub memory: Arc<MemoryStore>,
    /// Counters on disk and in memory, when the disk is a store.
    pub disk: Option<Arc<DiskStore>>,
    /// The last known state of counters in Redis.
    pub(super) cache: MemoryStore,
    /// This proxy's shares of counters in Redis, charged while Redis does not answer.
    pub(super) local: MemoryStore,
    /// Counters that are charged at instants which clients give.
    pub client_timed: ClientTimed,
    pub(super) settings: StoreSettings,
    /// The secret that keys are hashed with, if Redis keeps it.
    pub(super) secret: Option<Arc<KeptSecret>>,
    /// Which callers are moved to the next store, if there is one.
    pub moving: Move,
    /// Who decided about requests, by worker.
    pub(super) decisions: Shards<DecisionCounts>,
    /// Totals for metrics and for the status page.
    pub counts: Arc<Counts>,
    /// Programs that wait for room.
    pub waiting: WaitingLines,
    /// Units that responses may still give back, of limits that count only some responses.
    pub(super) unsettled: Arc<Unsettled>,
    /// Counters that clients have lately caused to be created in Redis.
    pub(super) new_counters: NewCounters,
    /// Charges that were admitted locally and are still to be written to Redis.
    pub(super) pending: PendingCharges,
    /// The servers of the current store, if it is in Redis.
    pub current_servers: Arc<Servers>,
    /// The servers of the next store, if it is in Redis.
    pub next_servers: Arc<Servers>,
    /// Which counters may deny a request, for requests that several calls decide.
    pub(super) headrooms: Headrooms,
    /// The skew between this process' clock and the clock of each Redis server.
    pub(super) clocks: Arc<Clocks>,
    /// How connections to Redis are opened.
    pub(super) transport: Transport,
    /// This process among the proxies that use the same Redis.
    pub(super) heartbeat: Heartbeat,
    /// What it announces to them of callers that are moved.
    pub(super) peers: Peers,
    /// What they say of themselves.
    pub fleet: Fleet,
    /// Counters that a restarted or replaced server may have lost.
    pub(super) reseeding: Reseeding,
    /// Saves the counters in the process.
    saver: OnceLock<SaveHandle>,
    /// Counters that were reset lately.
    pub(super) resets: Resets,
}

impl Stores {
    /// Logs what was counted and not logged yet.
    pub fn report_counts(&self) {
        self.counts.report(&self.settings.current);
    }

    /// The stores that `settings` describe; `memory` has the counters in the process. Stores read
    /// the time from `clock`.
    pub fn new(settings: StoreSettings, memory: MemoryStore, clock: Clock) -> Self {
        let moving = Move::new(settings.next.as_ref());
        let new_counters = NewCounters::new(settings.new_per_minute);
        let headrooms = Headrooms::new(settings.instances);
        let redis_keeps_secret = settings.is_shared() && settings.key_secret.is_none();
        let secret = redis_keeps_secret.then(|| Arc::new(KeptSecret::new(memory.key_secret())));
        let reseeding = Reseeding::new(memory.beside(), &settings);
        let heartbeat = Heartbeat::default();
        Stores {
            decisions: Shards::default(),
            reseeding,
            cache: memory.beside(),
            local: memory.beside(),
            memory: Arc::new(memory),
            disk: None,
            client_timed: ClientTimed::new(settings.bounds),
            settings,
            secret,
            moving,
            counts: Arc::default(),
            waiting: WaitingLines::default(),
            unsettled: Arc::default(),
            new_counters,
            pending: PendingCharges::default(),
            current_servers: Arc::default(),
            next_servers: Arc::default(),
            headrooms,
            clocks: Arc::new(Clocks::new(clock)),
            transport: Transport::Network,
            resets: Resets::new(heartbeat.number),
            heartbeat,
            peers: Peers::default(),
            fleet: Fleet::default(),
            saver: OnceLock::new(),
        }
    }

    /// The same stores, with counters on disk.
    #[must_use]
    pub fn with_disk(self, disk: Option<Arc<DiskStore>>) -> Self {
        Stores { disk, ..self }
    }

    /// The same stores, whose connections to Redis are opened by `transport`.
    #[must_use]
    pub fn connecting_by(self, transport: Transport) -> Self {
        Stores { transport, ..self }
    }

    /// Writes all counters that are kept on disk, and evicts them from memory: they are read from
    /// disk when they are needed again.
    pub fn cool_down(&self) {
        if let Some(disk) = self.disk() {
            disk.cool_down();
        }
    }

    /// The disk of the store that has one.
    pub fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref().map(|disk| disk.disk())
    }

    /// Sets the saver that saves counters in the process where they must outlive a crash.
    pub fn save_by(&self, saver: SaveHandle) {
        // There is one saver in a process.
        let _ = self.saver.set(saver);
    }

    /// Saves the counters in the process, if they are saved at all, and returns when that is done.
    pub fn save(&self) {
        if let Some(saver) = self.saver.get() {
            saver.save();
        }
        if let Some(disk) = self.disk() {
            disk.save();
        }
    }

    /// The settings at the start.
    pub fn settings(&self) -> &StoreSettings {
        &self.settings
    }

    /// The random name of this process.
    pub fn process_name(&self) -> &str {
        &self.heartbeat.name
    }

    /// Who has decided about a charge.
    pub fn decider(&self, decided_by: DecidedBy) -> Decider {
        let of_kind = |kind: &StoreKind| match kind {
            StoreKind::Memory => Decider::Memory,
            StoreKind::Disk(_) => Decider::Disk,
            StoreKind::Redis(_) => Decider::Redis,
        };
        let next = self.settings.next.as_ref().map(|moving| &moving.to);
        match decided_by {
            DecidedBy::Next => of_kind(next.unwrap_or(&self.settings.current)),
            DecidedBy::Current => of_kind(&self.settings.current),
            DecidedBy::ClientTime => Decider::Memory,
            DecidedBy::Memo => Decider::Memo,
            DecidedBy::Local => Decider::Local,
            DecidedBy::NoStore => Decider::Open,
        }
    }

    /// Who has decided about a request whose charges had these outcomes: where several have, the
    /// one that an operator has to know of.
    pub fn decider_of(&self, outcomes: &[Outcome]) -> Decider {
        let has = |decider| outcomes.iter().any(|outcome| outcome.decided_by == decider);
        let by_weight = [DecidedBy::Memo, DecidedBy::Local, DecidedBy::NoStore, DecidedBy::Next];
        let decided_by = by_weight.into_iter().find(|decider| has(*decider));
        self.decider(decided_by.unwrap_or_default())
    }

    /// How keys are hashed.
    pub fn hashing(&self) -> Hashing {
        match &self.secret {
            Some(secret) => Hashing::Kept(Arc::clone(secret)),
            None => Hashing::Fixed(KeyHasher::new(self.memory.key_secret())),
        }
    }

    /// The secret that Redis keeps, if it is not known yet.
    pub(super) fn awaited_secret(&self) -> Option<&Arc<KeptSecret>> {
        self.secret.as_ref().filter(|secret| secret.status() == SecretStatus::Awaited)
    }

    /// How many counters have charges that are still to be written to Redis.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The measured skew between this process' clock and the clock of each Redis server.
    pub fn skews(&self) -> Vec<Skew> {
        self.clocks.all()
    }

    /// How many counters a server may have lost and does not have back yet.
    pub fn to_reseed(&self) -> usize {
        self.reseeding.counters.own()
    }

    /// Whether a response has a header that says that it was decided in fallback mode.
    pub fn reports_fallback(&self) -> bool {
        self.settings.reports_fallback
    }

    /// How many requests were decided by each [`Decider`], in the order of their keywords.
    pub fn decisions(&self) -> [u64; Decider::KEYWORDS.len()] {
        self.decisions.read(|workers| {
            let mut sums = [0; Decider::KEYWORDS.len()];
            for counts in workers {
                sums.iter_mut().zip(counts.all()).for_each(|(sum, count)| *sum += count.get());
            }
            sums
        })
    }

    /// Drops all that this process remembers of these counters, and those that it keeps itself.
    pub(super) fn forget(&self, keys: &[Key]) {
        // The lock makes other workers wait that decide locally or copy a counter.
        let mut pending = self.pending.lock();
        for key in keys {
            for store in [&self.cache, &self.local, &self.reseeding.counters, &*self.memory] {
                if store.is_in_use() {
                    store.remove_key(*key);
                }
            }
            if let Some(disk) = &self.disk {
                disk.memory().remove_key(*key);
            }
            self.client_timed.forget(*key);
            self.pending.discard(&mut pending, key.entry);
            self.reseeding.forget(*key);
        }
        self.headrooms.forget(keys);
        self.resets.begin_generation();
    }
}
