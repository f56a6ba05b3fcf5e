//! What all workers share.

use std::{io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::{
    UnreadSchemes, dearest::Dearest, distrust::Distrust, lookups::Lookups, refunds::Refunds,
};
use crate::{
    clock::{Clock, Throttle, Timestamp},
    downstream::Admission,
    identity::{Identifier, KeyRing, TrustedProxies},
    limit::{Hashing, KeyHasher},
    policy::Policies,
    settings::{Configuration, Limits, Settings, StoreSettings, Timeouts},
    store::{MemoryStore, Stores, restore},
    upstream::Keeper,
};

/// What all workers share.
pub struct Shared {
    /// The policies in force.
    pub policies: ArcSwap<Policies>,
    /// The counters.
    pub stores: Arc<Stores>,
    /// Finds out who is calling.
    pub identifier: Identifier,
    /// Looks after the servers of upstreams. None: nothing is forwarded.
    pub keeper: Option<Keeper>,
    /// What time it is.
    pub clock: Clock,
    /// Whose word about a client's address is taken.
    pub trusted_proxies: TrustedProxies,
    /// How often it is logged that a peer's word is not taken.
    pub ignored_chains: Throttle,
    /// How often it is logged that a scheme of `Authorization` is not read.
    pub unread_schemes: UnreadSchemes,
    /// Whether upstreams get a `Forwarded` field.
    pub write_forwarded: bool,
    /// How long clients may take.
    pub timeouts: Timeouts,
    /// How much they may send and hold.
    pub limits: Limits,
    /// How many connections there are, and what goes wrong with them.
    pub admission: Arc<Admission>,
    /// What responses have lately cost at most.
    pub dearest: Dearest,
    /// What was given back.
    pub refunds: Refunds,
    /// Addresses that pay before their tokens are looked at.
    pub(super) distrust: Distrust,
    /// How callers stood that have just asked.
    pub(super) lookups: Lookups,
}

impl Shared {
    /// What `configuration` describes, at the time that `clock` tells, with the counters that were
    /// saved, if any were.
    ///
    /// # Errors
    /// The system has no random numbers to key the counters with, or no thread to fetch keys from.
    pub fn new(configuration: Configuration, clock: Clock) -> io::Result<Shared> {
        let Configuration { settings, policies } = configuration;
        let memory = counters(&settings.store, clock.now()).map_err(io::Error::other)?;
        let lookups = Lookups::new(settings.store.deadline);
        let stores = Arc::new(Stores::new(settings.store, memory, clock.clone()));
        let shared = Shared {
            policies: ArcSwap::default(),
            identifier: Identifier::new(
                settings.token_cache_bytes,
                stores.hashing(),
                KeyRing::start(clock.clone())?,
            ),
            stores,
            keeper: Some(Keeper::default()),
            clock,
            trusted_proxies: settings.trusted_proxies,
            ignored_chains: Throttle::new(IGNORED_CHAIN_PAUSE),
            unread_schemes: UnreadSchemes::default(),
            write_forwarded: settings.write_forwarded,
            timeouts: settings.timeouts,
            limits: settings.limits,
            admission: Admission::new(&settings.limits),
            dearest: Dearest::default(),
            refunds: Refunds::default(),
            distrust: Distrust::new(),
            lookups,
        };
        shared.install(policies);
        Ok(shared)
    }

    /// For requests that nobody sends: no policy is in force yet, and nobody else has its counters.
    ///
    /// # Errors
    /// The system has no thread to fetch keys from.
    pub fn rehearsing(settings: Option<&Settings>, clock: Clock) -> io::Result<Shared> {
        let ring = KeyRing::start(clock.clone())?;
        Ok(Shared::with_ring(settings, clock, ring))
    }

    /// For requests that nobody sends, and that must ask no other server: their issuers are away.
    pub fn offline(settings: Option<&Settings>, clock: Clock) -> Shared {
        let ring = KeyRing::offline(clock.clone());
        Shared::with_ring(settings, clock, ring)
    }

    fn with_ring(settings: Option<&Settings>, clock: Clock, ring: KeyRing) -> Shared {
        let hasher = Hashing::Fixed(KeyHasher::new(NO_SECRET));
        Shared {
            policies: ArcSwap::default(),
            identifier: Identifier::new(REHEARSED_TOKENS_BYTES, hasher, ring),
            stores: fresh_stores(),
            keeper: None,
            clock,
            trusted_proxies: settings
                .map_or_else(Default::default, |own| own.trusted_proxies.clone()),
            ignored_chains: Throttle::new(IGNORED_CHAIN_PAUSE),
            unread_schemes: UnreadSchemes::default(),
            write_forwarded: settings.is_some_and(|own| own.write_forwarded),
            timeouts: settings.map_or_else(Timeouts::default, |own| own.timeouts),
            limits: settings.map_or_else(Limits::default, |own| own.limits),
            admission: Admission::new(&Limits::default()),
            dearest: Dearest::default(),
            refunds: Refunds::default(),
            distrust: Distrust::new(),
            lookups: Lookups::new(Duration::ZERO),
        }
    }

    /// Puts policies in force, and returns those that were. Requests in flight keep those that they
    /// began with.
    pub fn install(&self, mut policies: Policies) -> Arc<Policies> {
        policies.adopt_keys(&self.identifier.ring);
        if let Some(keeper) = &self.keeper {
            keeper.adopt(&mut policies);
        }
        self.stores.moving.set_longest(policies.longest());
        self.policies.swap(Arc::new(policies))
    }
}

/// Counters in the process to which nothing was charged.
pub(super) fn fresh_stores() -> Arc<Stores> {
    let settings = StoreSettings::in_process();
    let memory = MemoryStore::new(settings.bounds, NO_SECRET);
    Arc::new(Stores::new(settings, memory, Clock::System))
}

/// Whoever has put a proxy in front reads the log within the hour; whoever fakes a chain fills none.
const IGNORED_CHAIN_PAUSE: Duration = Duration::from_secs(3600);

/// Room for the few tokens of a rehearsal.
const REHEARSED_TOKENS_BYTES: u64 = 1 << 20;

/// The counters in the process: those that were saved, if any were.
fn counters(settings: &StoreSettings, now: Timestamp) -> Result<MemoryStore, NoRandomness> {
    let secret = settings.key_secret;
    let saved = settings.snapshot.as_ref();
    let restored = saved.and_then(|saved| restore(&saved.file, settings.bounds, now));
    match restored {
        Some(store) if secret.is_none_or(|secret| secret == store.key_secret()) => Ok(store),
        restored => {
            if restored.is_some() {
                tracing::warn!("starting without the saved counters: they have another key secret");
            }
            let mut random = [0; 16];
            aws_lc_rs::rand::fill(&mut random).map_err(|_| NoRandomness)?;
            Ok(MemoryStore::new(settings.bounds, secret.unwrap_or(random)))
        }
    }
}

/// What keys are hashed with in rehearsals, whose counters nobody else has.
const NO_SECRET: [u8; 16] = *b"tollgate/counter";

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomness;
