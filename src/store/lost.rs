//! What a server may have lost: one that came back, or took another's place, may have nothing of what
//! the process knows.
//!
//! Servers are told apart by what they say of themselves at each new connection. As soon as one place
//! has another server, all that is known counts as lost until it was brought: each counter before its
//! next charge, and the rest, as far as its charges are remembered, in the background. What a server
//! has already is left alone where it is more. A charge is sent to the server that it was looked after
//! for, and to no other.
//!
//! A server that stays and was told to forget, by `FLUSHALL` or `DEL`, has lost nothing.

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Backend, MemoryStore, Store, StoreSettings, Unanswered,
    known::is_leased,
    recent::Recent,
    redis::{Place, RedisStore, is_unnamed},
};
use crate::{
    clock::Timestamp,
    limit::{AnyState, Charge, DecidedBy, OwnedCharge},
    settings::StoreKind,
};

/// Known counters whose charges are remembered, at most: what is brought though nobody asks.
const MAX_CHARGES: usize = 65_536;

/// Counters that a worker brings each time that it looks.
const A_LOOK: usize = 256;

/// Places that a worker looks at each time, for a server that is another one by now.
const PLACES_A_LOOK: usize = 1024;

/// Pairs of servers of which one took the other's place lately, and for how long all places where it
/// did count as one.
const MAX_PAIRS: usize = 4096;
const ONE_CHANGE: Duration = Duration::from_secs(60);

/// What servers may have lost, of all workers.
pub(super) struct Lost {
    /// Counters that are still to be brought.
    counters: MemoryStore,
    /// By what name each place of the present store and of the next one has its server; zero: it has
    /// none yet.
    servers: [Box<[AtomicU64]>; 2],
    charges: Mutex<Charges>,
    /// The place of each store that is looked at next.
    looked: [AtomicUsize; 2],
    /// Whether a place has another server since that was last looked at.
    has_changed: AtomicBool,
}

struct Charges {
    /// Of what is known, in the order in which it came.
    known: Recent<u128, OwnedCharge>,
    /// Of what is to be brought.
    waiting: VecDeque<OwnedCharge>,
    /// When one server took another's place.
    pairs: Recent<(u64, u64), Instant>,
}

impl Lost {
    pub(super) fn new(counters: MemoryStore, settings: &StoreSettings) -> Self {
        let servers = |kind: Option<&StoreKind>| {
            let places = match kind {
                Some(StoreKind::Redis(redis)) => redis.topology.places(),
                Some(StoreKind::Memory) | None => 0,
            };
            (0..places).map(|_| AtomicU64::new(0)).collect()
        };
        let next = settings.next.as_ref().map(|moving| &moving.to);
        Lost {
            counters,
            servers: [servers(Some(&settings.current)), servers(next)],
            charges: Mutex::new(Charges {
                known: Recent::new(MAX_CHARGES),
                waiting: VecDeque::new(),
                pairs: Recent::new(MAX_PAIRS),
            }),
            looked: Default::default(),
            has_changed: AtomicBool::new(false),
        }
    }

    /// Counters that are still to be brought.
    pub(super) fn counters(&self) -> &MemoryStore {
        &self.counters
    }

    /// Remembers the charge of a counter that has become known.
    pub(super) fn remember(&self, charge: &Charge<'_>) {
        self.lock().known.insert(charge.key.entry, charge.into());
    }

    fn servers(&self, decided_by: DecidedBy) -> &[AtomicU64] {
        let [current, next] = &self.servers;
        if decided_by == DecidedBy::Next { next } else { current }
    }

    /// A place has the server of this name now. If that took another's place, all that is known may be
    /// lost: what is known tells nothing of where it was.
    fn meet(&self, (decided_by, place): (DecidedBy, Place), name: u64, known: &MemoryStore) {
        let mut charges = self.lock();
        let servers = self.servers(decided_by);
        let Some(at) = servers.get(place.index()) else { return };
        let before = at.load(Ordering::Relaxed);
        // A server that has other places already was given this one with all that is in it.
        let is_moved = || servers.iter().any(|server| server.load(Ordering::Relaxed) == name);
        if before != 0 && before != name && !is_moved() && charges.is_change((before, name)) {
            tracing::info!(
                counters = known.own(),
                "redis may have lost counters: a server is another one, or was restarted; it is \
                 brought what is known here"
            );
            known.empty_into(&self.counters);
            let Charges { known, waiting, .. } = &mut *charges;
            let room = MAX_CHARGES.saturating_sub(waiting.len());
            waiting.extend(known.drain().take(room));
            self.has_changed.store(true, Ordering::Relaxed);
        }
        // Only now, lest another worker take the place for settled.
        at.store(name, Ordering::Release);
    }

    /// Charges of counters whose turn it is.
    fn due(&self) -> Vec<OwnedCharge> {
        let waiting = &mut self.lock().waiting;
        let count = waiting.len().min(A_LOOK);
        waiting.drain(..count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Charges> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charges {
    /// Whether it was not known that one of these servers has the other's place. Of servers without a
    /// name there is one to a connection, and none comes twice.
    fn is_change(&mut self, pair: (u64, u64)) -> bool {
        let is_unnamed = is_unnamed(pair.0) || is_unnamed(pair.1);
        let is_known = |at: &Instant| is_unnamed || at.elapsed() < ONE_CHANGE;
        let is_change = !self.pairs.get(&pair).is_some_and(is_known);
        // Connections of several workers may go on to know one server by two names.
        self.pairs.insert(pair, Instant::now());
        is_change
    }
}

impl Store {
    /// The server that decides about a place, none known being zero; what it may have lost counts as
    /// such from now on.
    pub(super) fn meet_server(
        &self,
        (redis, decided_by): (&RedisStore, DecidedBy),
        place: Place,
    ) -> u64 {
        let (name, lost) = (redis.server(place), &self.stores.lost);
        let known = lost.servers(decided_by).get(place.index());
        if name != 0 && known.is_some_and(|known| known.load(Ordering::Acquire) != name) {
            lost.meet((decided_by, place), name, &self.stores.known);
        }
        name
    }

    /// Brings what the servers of these counters may have lost of them.
    ///
    /// # Errors
    /// It is not known to be there.
    pub(super) async fn bring(
        &self,
        charges: &[Charge<'_>],
        to: DecidedBy,
        (now, deadline): (Timestamp, Instant),
    ) -> Result<(), Unanswered> {
        let lost = &self.stores.lost;
        if !lost.counters().is_in_use() {
            return Ok(());
        }
        let Some(Backend::Redis(redis)) = self.backend(to) else { return Ok(()) };
        for charge in charges.iter().filter(|charge| !is_leased(charge)) {
            let Some(state) = lost.counters().state(charge) else { continue };
            // A reply of the server from before may have come since.
            let later = self.stores.known.state(charge);
            for state in later.iter().chain([&state]) {
                self.bring_state(redis, charge, (state, now, deadline)).await?;
            }
            // Known it is all the same, until the next reply.
            self.stores.known.seed(charge, &state, self.local_time(now));
            lost.remember(charge);
            lost.counters().remove(charge);
        }
        Ok(())
    }

    /// Has a server count what is known of a counter.
    async fn bring_state(
        &self,
        redis: &RedisStore,
        charge: &Charge<'_>,
        (state, now, deadline): (&AnyState, Timestamp, Instant),
    ) -> Result<(), Unanswered> {
        // Of a log all units are known as if they were as new as the newest. A server that has as many
        // knows better.
        if charge.quota.kind().is_summarized() {
            let local = self.local_time(now);
            let used = |state| Some(charge.quota.standing_of(state, local)?.used);
            let there = redis.state(charge, now, deadline).await?;
            if there.as_ref().and_then(used) >= used(state) {
                return Ok(());
            }
        }
        redis.seed(charge, state, (now, deadline)).await.map(drop)
    }

    /// Looks whether places have other servers by now, and brings some of what nobody asks for.
    pub(super) fn bring_some(self: &Rc<Self>, now: Timestamp) {
        self.meet_some();
        let lost = &self.stores.lost;
        // The secret that counters' names are hashed under may be lost with them.
        if lost.has_changed.load(Ordering::Relaxed)
            && lost.has_changed.swap(false, Ordering::Relaxed)
        {
            self.look_again_for_secret();
        }
        if !lost.counters().is_in_use() {
            return;
        }
        for charge in lost.due() {
            let store = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let deadline = Instant::now() + store.stores.settings.deadline;
                let asked = charge.charge();
                let to = store.decider(asked.key.owner);
                if store.bring(&[asked], to, (now, deadline)).await.is_err() {
                    store.stores.lost.lock().waiting.push_back(charge);
                }
            });
        }
    }

    /// Looks at some places, others each time: a server may be another one though nobody asks it.
    fn meet_some(&self) {
        let lost = &self.stores.lost;
        let stores = [DecidedBy::Current, DecidedBy::Next].iter().zip(&lost.servers);
        for ((decided_by, places), looked) in stores.zip(&lost.looked) {
            let Some(Backend::Redis(redis)) = self.backend(*decided_by) else { continue };
            let count = places.len().min(PLACES_A_LOOK);
            let first = looked.fetch_add(count, Ordering::Relaxed);
            for place in first..first + count {
                let place = Place::at(place.checked_rem(places.len()).unwrap_or_default());
                self.meet_server((redis, *decided_by), place);
            }
        }
    }
}
