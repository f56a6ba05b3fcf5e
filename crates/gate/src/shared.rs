//! What all workers share.

use std::{io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tollgate_clock::{Clock, Throttle, Timestamp};
use tollgate_identity::{Identifier, KeyRing, TrustedProxies};
use tollgate_limit::{Hashing, KeyHasher};
use tollgate_observe::{metrics::CommandCounts, trace::Tracer};
use tollgate_policy::Policies;
use tollgate_settings::{Configuration, Limits, MemoryBounds, Settings, StoreSettings, Timeouts};
use tollgate_store::{DiskStore, MemoryStore, OpenError, Stores, open_disk, restore};
use tollgate_upstream::{Keeper, downstream::Admission};
use tollgate_wire::via::Via;

use super::{
    Snapshot, UnreadSchemes, denials::Denials, distrust::Distrust, recent_costs::RecentCosts,
    refunds::Refunds, series::SeriesBook, standing_cache::StandingCache,
    unknown_costs::UnknownCosts,
};

/// What all workers share.
pub struct Shared {
    /// The policies in force, and what is kept for them.
    snapshot: ArcSwap<Snapshot>,
    /// The counters.
    pub stores: Arc<Stores>,
    /// Identifies callers.
    pub identifier: Identifier,
    /// Resolves and checks the servers of upstreams. None: nothing is forwarded.
    pub keeper: Option<Keeper>,
    /// What time it is.
    pub clock: Clock,
    /// The proxies that may name a client's address.
    pub trusted_proxies: TrustedProxies,
    /// How often it is logged that an untrusted peer names other clients.
    pub ignored_chains: Throttle,
    /// How often it is logged that a scheme of `Authorization` is ignored.
    pub unread_schemes: UnreadSchemes,
    /// Whether upstreams get a `Forwarded` field.
    pub write_forwarded: bool,
    /// What messages that are forwarded get in `Via`; none: nothing.
    pub via: Option<Via>,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// How much clients may send and hold.
    pub limits: Limits,
    /// How many connections there are, and what goes wrong with them.
    pub admission: Arc<Admission>,
    /// The highest costs that responses have named recently.
    pub recent_costs: RecentCosts,
    /// Costs that responses were to tell, and did not.
    pub unknown_costs: UnknownCosts,
    /// Counts of charges that were given back.
    pub refunds: Refunds,
    /// What workers count of requests.
    pub series: SeriesBook,
    /// The latest denials.
    pub denials: Denials,
    /// Exports spans of requests; none: there are no traces.
    pub tracer: Option<Tracer>,
    /// What listeners of the Redis protocol have counted.
    pub commands: CommandCounts,
    /// Addresses that are charged before their tokens are verified.
    pub(super) distrust: Distrust,
    /// Standings of callers that have just queried them.
    pub(super) standing_cache: StandingCache,
}

impl Shared {
    /// What `configuration` describes, at the time of `clock`, with the counters that were saved,
    /// if any were.
    ///
    /// # Errors
    /// The system has no random numbers to key the counters with, or no thread to fetch keys from
    /// or to export spans; or the counters on disk cannot be opened.
    pub fn new(configuration: Configuration, clock: Clock) -> io::Result<Shared> {
        let Configuration { settings, policies } = configuration;
        let (memory, disk) = counters(&settings.store, &clock).map_err(io::Error::other)?;
        let standing_cache = StandingCache::new(settings.store.deadline);
        let stores = Stores::new(settings.store, memory, clock.clone()).with_disk(disk);
        let stores = Arc::new(stores);
        let ring = KeyRing::start(clock.clone())?;
        let identifier = Identifier::new(settings.token_cache_bytes, stores.hashing(), ring);
        let shared = Shared {
            keeper: Some(Keeper::default()),
            trusted_proxies: settings.trusted_proxies,
            write_forwarded: settings.write_forwarded,
            via: settings.via,
            timeouts: settings.timeouts,
            limits: settings.limits,
            admission: Admission::new(&settings.limits),
            tracer: settings.tracing.map(Tracer::start).transpose()?,
            standing_cache,
            ..Shared::of(stores, identifier, clock)
        };
        shared.install(policies);
        Ok(shared)
    }

    /// For dry runs: no policy is in force yet, and the counters are its own.
    ///
    /// # Errors
    /// The system has no thread to fetch keys from.
    pub fn rehearsing(settings: Option<&Settings>, clock: Clock) -> io::Result<Shared> {
        let ring = KeyRing::start(clock.clone())?;
        Ok(Shared::with_ring(settings, clock, ring))
    }

    /// For dry runs that must contact no other server: keys of issuers are not fetched.
    pub fn offline(settings: Option<&Settings>, clock: Clock) -> Shared {
        let ring = KeyRing::offline(clock.clone());
        Shared::with_ring(settings, clock, ring)
    }

    fn with_ring(settings: Option<&Settings>, clock: Clock, ring: KeyRing) -> Shared {
        let hasher = Hashing::Fixed(KeyHasher::new(NO_SECRET));
        let identifier = Identifier::new(REHEARSED_TOKENS_BYTES, hasher, ring);
        let shared = Shared::of(fresh_stores(MemoryBounds::DEFAULT), identifier, clock);
        let Some(settings) = settings else { return shared };
        Shared {
            trusted_proxies: settings.trusted_proxies.clone(),
            write_forwarded: settings.write_forwarded,
            via: settings.via.clone(),
            timeouts: settings.timeouts,
            limits: settings.limits,
            ..shared
        }
    }

    /// With the settings' defaults, no policies and no servers.
    fn of(stores: Arc<Stores>, identifier: Identifier, clock: Clock) -> Shared {
        Shared {
            snapshot: ArcSwap::default(),
            stores,
            identifier,
            keeper: None,
            clock,
            trusted_proxies: TrustedProxies::default(),
            ignored_chains: Throttle::new(IGNORED_CHAIN_PAUSE),
            unread_schemes: UnreadSchemes::default(),
            write_forwarded: false,
            via: None,
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            admission: Admission::new(&Limits::default()),
            recent_costs: RecentCosts::default(),
            unknown_costs: UnknownCosts::default(),
            refunds: Refunds::default(),
            series: SeriesBook::default(),
            denials: Denials::default(),
            tracer: None,
            commands: CommandCounts::default(),
            distrust: Distrust::new(),
            standing_cache: StandingCache::new(Duration::ZERO),
        }
    }

    /// What is in force. A request takes it once, and keeps it to its end.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Drops standings that callers have just queried: counters were reset.
    pub fn forget_standings(&self) {
        self.standing_cache.forget_all();
    }

    /// Puts policies in force, and returns what was in force before. Requests in flight keep what
    /// they began with.
    pub fn install(&self, policies: Policies) -> Arc<Snapshot> {
        let generation = self.series.enter(&policies);
        let snapshot =
            Snapshot::new(generation, policies, &self.identifier.ring, self.keeper.as_ref());
        self.stores.moving.set_longest(snapshot.policies.longest());
        self.snapshot.swap(Arc::new(snapshot))
    }
}

/// Empty counters in the process.
pub fn fresh_stores(bounds: MemoryBounds) -> Arc<Stores> {
    let settings = StoreSettings { bounds, ..StoreSettings::in_process() };
    let memory = MemoryStore::new(settings.bounds, NO_SECRET);
    Arc::new(Stores::new(settings, memory, Clock::System))
}

/// An operator who has put a proxy in front sees the warning within the hour; a client that fakes a
/// chain does not fill the log.
const IGNORED_CHAIN_PAUSE: Duration = Duration::from_secs(3600);

/// Room for the few tokens of a dry run.
const REHEARSED_TOKENS_BYTES: u64 = 1 << 20;

/// The counters in the process, and those on disk, if the settings say so: all under one secret, so
/// that callers can be moved from one to the other.
fn counters(
    settings: &StoreSettings,
    clock: &Clock,
) -> Result<(MemoryStore, Option<Arc<DiskStore>>), OpenError> {
    let Some((disk, bounds)) = settings.disk().zip(settings.disk_bounds()) else {
        let memory = in_memory(settings, clock.now()).map_err(|_| OpenError::NoRandomness)?;
        return Ok((memory, None));
    };
    let saves_memory = settings.snapshot.is_some();
    let memory = saves_memory.then(|| in_memory(settings, clock.now())).transpose();
    let memory = memory.map_err(|_| OpenError::NoRandomness)?;
    let secret = settings.key_secret.or(memory.as_ref().map(MemoryStore::key_secret));
    let disk = open_disk(disk, bounds, secret, clock.clone())?;
    let memory =
        memory.unwrap_or_else(|| MemoryStore::new(settings.bounds, disk.memory().key_secret()));
    Ok((memory, Some(disk)))
}

/// The counters in memory: those that were saved, if any were.
fn in_memory(settings: &StoreSettings, now: Timestamp) -> Result<MemoryStore, NoRandomness> {
    let secret = settings.key_secret;
    let saved = settings.snapshot.as_ref();
    let restored = saved.and_then(|saved| restore(&saved.file, settings.bounds, now));
    match restored {
        Some(store) if secret.is_none_or(|secret| secret == store.key_secret()) => Ok(store),
        restored => {
            if restored.is_some() {
                tracing::warn!(
                    "starting without the saved counters: they were saved under another key secret"
                );
            }
            let mut random = [0; 16];
            aws_lc_rs::rand::fill(&mut random).map_err(|_| NoRandomness)?;
            Ok(MemoryStore::new(settings.bounds, secret.unwrap_or(random)))
        }
    }
}

/// What keys are hashed with in dry runs, which share their counters with no other process.
const NO_SECRET: [u8; 16] = *b"tollgate/counter";

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomness;
