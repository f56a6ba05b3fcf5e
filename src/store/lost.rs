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
    limit::{Charge, Count, DecidedBy, OwnedCharge},
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
    /// The server of each place, in the present store and in the next one.
    servers: [Box<[Server]>; 2],
    charges: Mutex<Charges>,
    /// The place that is looked at next.
    looked: AtomicUsize,
    /// Whether a place has another server since that was last looked at.
    has_changed: AtomicBool,
}

/// The server of a place.
#[derive(Default)]
struct Server {
    /// Zero: there was none yet.
    name: AtomicU64,
    /// Whether it took another's place, and what that had is not all brought yet.
    is_new: AtomicBool,
}

struct Charges {
    /// Of what is known, in the order in which it came.
    known: Recent<u128, OwnedCharge>,
    /// Of what is to be brought.
    waiting: VecDeque<OwnedCharge>,
    /// When one server took another's place.
    pairs: Recent<(u64, u64), Instant>,
    /// Whether a server may be new.
    is_unsettled: bool,
}

impl Lost {
    pub(super) fn new(counters: MemoryStore, settings: &StoreSettings) -> Self {
        let servers = |kind: Option<&StoreKind>| {
            let places = match kind {
                Some(StoreKind::Redis(redis)) => redis.topology.places(),
                Some(StoreKind::Memory) | None => 0,
            };
            (0..places).map(|_| Server::default()).collect()
        };
        let next = settings.next.as_ref().map(|moving| &moving.to);
        Lost {
            counters,
            servers: [servers(Some(&settings.current)), servers(next)],
            charges: Mutex::new(Charges {
                known: Recent::new(MAX_CHARGES),
                waiting: VecDeque::new(),
                pairs: Recent::new(MAX_PAIRS),
                is_unsettled: false,
            }),
            looked: AtomicUsize::new(0),
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

    fn server(&self, decided_by: DecidedBy, place: Place) -> Option<&Server> {
        let [current, next] = &self.servers;
        let servers = if decided_by == DecidedBy::Next { next } else { current };
        servers.get(place.index())
    }

    /// A place has the server of this name now. If it had another one, all that is known may be lost:
    /// of which places it is turns out when it is brought.
    fn meet(&self, (at, name): (&Server, u64), known: &MemoryStore, now: Timestamp) {
        let mut charges = self.lock();
        let before = at.name.load(Ordering::Relaxed);
        if before != 0 && before != name {
            at.is_new.store(true, Ordering::Relaxed);
            if charges.is_change((before, name)) {
                tracing::info!(
                    counters = known.own(),
                    "redis may have lost counters: a server is another one, or was restarted; it is \
                     brought what is known here"
                );
                known.empty_into(&self.counters, now);
                let Charges { known, waiting, .. } = &mut *charges;
                let room = MAX_CHARGES.saturating_sub(waiting.len());
                waiting.extend(known.drain().take(room));
                self.has_changed.store(true, Ordering::Relaxed);
            }
        }
        // Only now, lest another worker take the place for settled.
        at.name.store(name, Ordering::Release);
    }

    /// Once everything is brought, no server is new any more.
    fn settle(&self) {
        let mut charges = self.lock();
        if charges.is_unsettled && !self.counters.is_in_use() {
            charges.is_unsettled = false;
            charges.waiting.clear();
            let servers = self.servers.iter().flatten();
            servers.for_each(|server| server.is_new.store(false, Ordering::Relaxed));
        }
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
        self.is_unsettled = true;
        let is_change = !self.pairs.get(&pair).is_some_and(is_known);
        if is_change {
            self.pairs.insert(pair, Instant::now());
        }
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
        now: Timestamp,
    ) -> u64 {
        let server = redis.server(place);
        let lost = &self.stores.lost;
        if let Some(at) = lost.server(decided_by, place)
            && server != 0
            && at.name.load(Ordering::Acquire) != server
        {
            lost.meet((at, server), &self.stores.known, self.local_time(now));
        }
        server
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
        let lost = self.stores.lost.counters();
        if !lost.is_in_use() {
            return Ok(());
        }
        let Some(Backend::Redis(redis)) = self.backend(to) else { return Ok(()) };
        for charge in charges {
            if let Some(count) = self.lost(charge, now) {
                let place = redis.place(charge.key.owner);
                self.meet_server((redis, to), place, now);
                let server = self.stores.lost.server(to, place);
                if server.is_some_and(|server| server.is_new.load(Ordering::Relaxed)) {
                    redis.seed(charge, &count, (now, deadline)).await?;
                }
                // Known it is all the same, until the next reply.
                self.stores.known.seed(charge, &count, self.local_time(now));
                self.stores.lost.remember(charge);
                lost.remove(charge);
            }
        }
        Ok(())
    }

    /// What a server may have lost of a counter.
    fn lost(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Count> {
        let lost = self.stores.lost.counters().count(charge).filter(|_| !is_leased(charge))?;
        // A reply of the server from before may have come since.
        let known = self.stores.known.count(charge);
        let now = self.local_time(now);
        Some(known.filter(|known| known.exceeds(&lost, now)).unwrap_or(lost))
    }

    /// Looks whether places have other servers by now, and brings some of what nobody asks for.
    pub(super) fn bring_some(self: &Rc<Self>, now: Timestamp) {
        self.meet_some(now);
        let lost = &self.stores.lost;
        // The secret that counters' names are hashed under may be lost with them.
        if lost.has_changed.load(Ordering::Relaxed)
            && lost.has_changed.swap(false, Ordering::Relaxed)
        {
            self.look_again_for_secret();
        }
        if !lost.counters().is_in_use() {
            return lost.settle();
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
    fn meet_some(&self, now: Timestamp) {
        let lost = &self.stores.lost;
        for (decided_by, places) in [DecidedBy::Current, DecidedBy::Next].iter().zip(&lost.servers)
        {
            let Some(Backend::Redis(redis)) = self.backend(*decided_by) else { continue };
            let count = places.len().min(PLACES_A_LOOK);
            let first = lost.looked.fetch_add(count, Ordering::Relaxed);
            for place in first..first + count {
                let place = Place::at(place.checked_rem(places.len()).unwrap_or_default());
                self.meet_server((redis, *decided_by), place, now);
            }
        }
    }
}
