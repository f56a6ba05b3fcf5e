//! The latest requests that were denied, or would have been, for people who look at them live.
//!
//! Repeated ones are one entry with a count: of the same caller, limit, reason, method and path
//! within a minute. A caller has at most [`KEPT_OF_A_CALLER`] entries, so that one who is denied
//! all the time does not push the others out.
//!
//! Each worker has a queue of its own, which it hands over to one ring: when a second has passed
//! and nobody reads the ring, or else whoever reads does. A queue has two halves, as
//! [`tollgate_observe::sketch`] has: a reader holds one half at a time, so the worker never waits.
//! What a queue has no room for is left out, and counted.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, request::Parts};
use parking_lot::{Mutex, MutexGuard};
use tollgate_clock::Timestamp;
use tollgate_identity::ResolvedCaller;
use tollgate_observe::{
    metrics::{Count, Shards},
    sketch::MAX_NAME_BYTES,
};
use tollgate_response::DenialReason;

use super::{
    kept_names::NameCounter,
    request_state::{Action, RequestState},
    tally::{DecidedCharge, Tally},
};

/// Denials that are kept.
pub const KEPT_DENIALS: usize = 1024;

/// Entries of one caller, or of one address without a caller, that are kept.
pub const KEPT_OF_A_CALLER: usize = 32;

/// How long an entry is counted up.
const GROUP_TIME: Duration = Duration::from_secs(60);

/// How long a worker keeps entries before it hands them over.
const QUEUE_TIME: Duration = Duration::from_secs(1);

/// Requests that a half of a worker's queue counts before it is handed over.
const MAX_COUNTED: u64 = 1_000;

/// Entries in a half of a worker's queue, and how many of one caller.
const MAX_QUEUED: usize = 200;
const MAX_QUEUED_OF_A_CALLER: usize = 16;

/// Bytes of a path that are kept.
const MAX_PATH_BYTES: usize = 256;

/// Bytes of a request's id that are kept.
const MAX_ID_BYTES: usize = 128;

/// Bytes of a method that are kept.
const MAX_METHOD_BYTES: usize = 32;

/// Requests that were denied, or would have been: one, or several that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialEntry {
    /// Its number, a higher one than those of all entries before. It has another one whenever it is
    /// counted up.
    pub seq: u64,
    /// The number that it had first.
    pub group: u64,
    /// When the first of the requests came.
    pub time: Timestamp,
    /// When the latest of them came.
    pub last: Timestamp,
    /// How many they are.
    pub count: u64,
    /// Its caller, as `tollgate look` takes it. None: it could not be identified.
    pub caller: Option<String>,
    /// The client's address.
    pub address: IpAddr,
    /// The policy.
    pub policy: Option<Box<str>>,
    /// The limits, if it was for limits; a comma between them.
    pub limit: Option<String>,
    /// Whose counters had no room, as `tollgate look` takes them: `jwt.org:acme`. What may be a
    /// secret is a hash.
    pub counters: Vec<String>,
    /// Why, as the access log says it: `limit`, `deny`, `auth`, `scope`, `missing_key`, `store`.
    pub reason: &'static str,
    /// The caller's tier.
    pub tier: Option<Box<str>>,
    /// The request's method.
    pub method: String,
    /// Its path, without the query, cut if it is long.
    pub path: String,
    /// The id of the latest.
    pub request_id: String,
    /// The status of the response. None: the limits only count, and the request went on.
    pub status: Option<u16>,
}

/// The latest denials.
#[derive(Debug, Default)]
pub struct Denials {
    ring: Mutex<Ring>,
    workers: Shards<WorkerDenials>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Ring {
    /// By their numbers.
    entries: VecDeque<Noted>,
    /// The number of the latest one.
    latest: u64,
}

/// An entry, with what it is found by.
#[derive(Clone, Debug)]
struct Noted {
    /// A hash of its caller, or of its address.
    who: u64,
    /// A hash of all that entries have in common that are counted together.
    alike: u64,
    entry: Arc<DenialEntry>,
}

/// What a worker notes of denials. Nothing of it is in a cache line of another one.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WorkerDenials {
    denied: Count,
    would_be_denied: Count,
    left_out: Count,
    /// The two halves of its queue.
    queue: [Mutex<Queue>; 2],
}

/// A half of a worker's queue.
#[derive(Debug, Default)]
struct Queue {
    entries: Vec<Noted>,
    /// The requests that its entries are of. A storm would add them up for each denial.
    requests: u64,
}

/// Which denials are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenialFilter {
    /// Of this caller, of this address, `client.ip:192.0.2.1`, or of this counter, `jwt.org:acme`.
    pub caller: Option<String>,
    /// Of this policy.
    pub policy: Option<String>,
    /// Of this limit.
    pub limit: Option<String>,
}

/// Denials that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDenials {
    /// The latest of them, the oldest first.
    pub entries: Vec<Arc<DenialEntry>>,
    /// The number of the latest denial of all: ask for what comes after it next time.
    pub latest: u64,
    /// Denials so far that were left out, since there were too many at once.
    pub left_out: u64,
}

/// What is noted of a request.
pub(super) struct DeniedRequest<'r, 'p> {
    pub(super) parts: &'r Parts,
    pub(super) state: &'r RequestState<'p>,
    pub(super) action: &'r Action<'p>,
    pub(super) address: IpAddr,
    pub(super) request_id: &'r HeaderValue,
    pub(super) name: &'r NameCounter<'r>,
}

impl Denials {
    /// What one worker notes them with.
    pub(super) fn notes(&self) -> Arc<WorkerDenials> {
        self.workers.take()
    }

    /// The latest `most` denials that fit, of those that came after the one with this number.
    pub fn after(&self, seq: u64, filter: &DenialFilter, most: usize) -> FoundDenials {
        let left_out = self.workers.read(|all| all.iter().map(|own| own.left_out.get()).sum());
        // Only a moment, for workers keep what comes meanwhile.
        let (newer, latest) = {
            let ring = self.whole();
            let newer = ring.entries.iter().rev().map(|noted| &noted.entry);
            let newer = newer.take_while(|entry| entry.seq > seq);
            (newer.cloned().collect::<Vec<_>>(), ring.latest)
        };
        let fitting = newer.into_iter().filter(|entry| filter.fits(entry));
        let mut entries: Vec<_> = fitting.take(most).collect();
        entries.reverse();
        FoundDenials { entries, latest, left_out }
    }

    /// The number of the latest one; 0: there was none.
    pub fn latest(&self) -> u64 {
        self.whole().latest
    }

    /// The ring, with what all workers have in their queues.
    fn whole(&self) -> MutexGuard<'_, Ring> {
        let mut ring = self.ring.lock();
        let mut queued = Vec::new();
        self.workers.read(|all| {
            let halves = all.iter().flat_map(|own| &own.queue);
            halves.for_each(|half| queued.extend(half.lock().drain()));
        });
        queued.sort_by_key(|noted| noted.entry.last);
        queued.into_iter().for_each(|noted| ring.add(noted));
        ring
    }

    /// How many requests were denied so far, and how many limits would have denied if they were
    /// enforced.
    pub fn totals(&self) -> (u64, u64) {
        let sum = |count: fn(&WorkerDenials) -> &Count| {
            self.workers.read(|all| all.iter().map(|own| count(own).get()).sum())
        };
        (sum(|own| &own.denied), sum(|own| &own.would_be_denied))
    }

    /// Notes a request if it was denied, or would have been.
    pub(super) fn note(
        &self,
        worker: &WorkerDenials,
        request: &DeniedRequest<'_, '_>,
        now: Timestamp,
    ) {
        if !request.is_denied() {
            return;
        }
        match request.action {
            Action::Refuse(_) => worker.denied.increment(),
            _ => worker.would_be_denied.increment(),
        }
        // With one reader at a time, there always is a half.
        let half = worker.queue.iter().find_map(Mutex::try_lock);
        let Some(mut queue) = half else { return worker.left_out.increment() };
        let oldest = queue.entries.first().map(|noted| noted.entry.time);
        let is_due = oldest.is_some_and(|oldest| now.saturating_since(oldest) >= QUEUE_TIME);
        // A storm is to cost little.
        if queue.requests >= MAX_COUNTED && !is_due {
            return worker.left_out.increment();
        }
        let who = request.who(&self.hasher);
        let alike = request.alike(&self.hasher, who);
        if let Some(own) = queue.entries.iter_mut().find(|own| own.takes(alike, now)) {
            own.count_up(1, now, request.id(), request.tier());
            queue.requests += 1;
        } else if queue.has_room(who) {
            queue.entries.push(Noted { who, alike, entry: Arc::new(request.entry(now)) });
            queue.requests += 1;
        } else {
            worker.left_out.increment();
        }
        if is_due && let Some(mut ring) = self.ring.try_lock() {
            queue.drain().for_each(|noted| ring.add(noted));
        }
    }
}

impl Queue {
    /// Whether there is room for another entry of a caller.
    fn has_room(&self, who: u64) -> bool {
        let of_caller = || self.entries.iter().filter(|own| own.who == who).count();
        self.entries.len() < MAX_QUEUED && of_caller() < MAX_QUEUED_OF_A_CALLER
    }

    fn drain(&mut self) -> impl Iterator<Item = Noted> {
        self.requests = 0;
        self.entries.drain(..)
    }
}

impl Ring {
    /// Adds an entry, or counts up the one that it is alike.
    fn add(&mut self, mut noted: Noted) {
        self.latest += 1;
        let later = &noted.entry;
        let place = self.entries.iter().rposition(|own| own.takes(noted.alike, later.last));
        if let Some(mut own) = place.and_then(|place| self.entries.remove(place)) {
            own.count_up(later.count, later.last, &later.request_id, later.tier.as_deref());
            noted = own;
        } else {
            Arc::make_mut(&mut noted.entry).group = self.latest;
            self.make_room(noted.who);
        }
        Arc::make_mut(&mut noted.entry).seq = self.latest;
        self.entries.push_back(noted);
    }

    /// Drops the oldest entry of a caller that has enough of them, or else of all.
    fn make_room(&mut self, who: u64) {
        let own = || self.entries.iter().enumerate().filter(|(_, noted)| noted.who == who);
        let oldest = if own().count() >= KEPT_OF_A_CALLER {
            own().next().map(|(place, _)| place)
        } else {
            (self.entries.len() >= KEPT_DENIALS).then_some(0)
        };
        oldest.and_then(|place| self.entries.remove(place));
    }
}

impl Noted {
    /// Whether later requests are counted in this one.
    fn takes(&self, alike: u64, last: Timestamp) -> bool {
        self.alike == alike && last.saturating_since(self.entry.time) < GROUP_TIME
    }

    fn count_up(&mut self, count: u64, last: Timestamp, request_id: &str, tier: Option<&str>) {
        let own = Arc::make_mut(&mut self.entry);
        own.count += count;
        own.last = own.last.max(last);
        request_id.clone_into(&mut own.request_id);
        if own.tier.as_deref() != tier {
            own.tier = tier.map(Into::into);
        }
    }
}

impl DenialFilter {
    fn fits(&self, entry: &DenialEntry) -> bool {
        let DenialFilter { caller, policy, limit } = self;
        let is_of = |caller: &str| {
            let address = caller.strip_prefix("client.ip:");
            entry.caller.as_deref() == Some(caller)
                || entry.counters.iter().any(|own| own == caller)
                || address.is_some_and(|address| address.parse() == Ok(entry.address))
        };
        let has_limit = |limit: &str| {
            entry.limit.as_ref().is_some_and(|own| own.split(", ").any(|own| own == limit))
        };
        caller.as_deref().is_none_or(is_of)
            && policy.as_deref().is_none_or(|policy| entry.policy.as_deref() == Some(policy))
            && limit.as_deref().is_none_or(has_limit)
    }
}

impl<'p> DeniedRequest<'_, 'p> {
    fn is_denied(&self) -> bool {
        match self.action {
            Action::Refuse(rejection) => rejection.denied_for().is_some(),
            _ => self.charged().is_some_and(|tally| tally.would_deny().next().is_some()),
        }
    }

    /// The charges, of a request that has not only asked how it stands.
    fn charged(&self) -> Option<&Tally<'p>> {
        self.state.tally.as_ref().filter(|tally| tally.is_charge())
    }

    /// What had no room.
    fn without_room(&self) -> impl Iterator<Item = DecidedCharge<'_, 'p>> {
        let (denied_by, counted) = match self.action {
            Action::Refuse(rejection) => {
                let tally = self.state.tally.as_ref().filter(|_| rejection.limit().is_some());
                (tally.and_then(Tally::denied_by), None)
            }
            _ => (None, self.charged()),
        };
        denied_by.into_iter().chain(counted.into_iter().flat_map(Tally::would_deny))
    }

    /// The names of the counters that had no room, each once.
    fn counters(&self) -> Vec<String> {
        let mut names = Vec::new();
        for own in self.without_room() {
            let mut name = String::new();
            (self.name)(&own, &mut name);
            name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn caller(&self) -> Option<&ResolvedCaller<'p>> {
        self.state.identity.as_ref()?.caller.as_ref()
    }

    /// The caller's tier.
    fn tier(&self) -> Option<&'p str> {
        let (policy, identity) = self.state.policy.zip(self.state.identity.as_ref())?;
        policy.identity.tiers.get(identity.tier).map(|tier| &*tier.name)
    }

    /// What is kept of the request's id.
    fn id(&self) -> &str {
        cut(self.request_id.to_str().unwrap_or_default(), MAX_ID_BYTES)
    }

    fn method(&self) -> &str {
        cut(self.parts.method.as_str(), MAX_METHOD_BYTES)
    }

    fn path(&self) -> &str {
        cut(self.parts.uri.path(), MAX_PATH_BYTES)
    }

    /// A hash of its caller, or of its address.
    fn who(&self, hasher: &RandomState) -> u64 {
        match self.caller() {
            Some(caller) => hasher.hash_one(caller.hash),
            None => hasher.hash_one(self.address.to_canonical()),
        }
    }

    /// A hash of all that requests have in common that are counted together. Nothing is allocated
    /// for it: most requests of a storm are only counted.
    fn alike(&self, hasher: &RandomState, who: u64) -> u64 {
        let mut alike = hasher.build_hasher();
        let policy = self.state.policy.map(|policy| &policy.name);
        (who, policy, self.method(), self.path()).hash(&mut alike);
        if let Action::Refuse(rejection) = self.action {
            let status = rejection.status(self.state.responses()).as_u16();
            let reason = rejection.denied_for().map(DenialReason::name);
            (status, reason, rejection.limit()).hash(&mut alike);
        }
        for DecidedCharge { planned, charge, .. } in self.without_room() {
            (&planned.limit.name, charge.key.tuple(planned.allowance.id)).hash(&mut alike);
        }
        alike.finish()
    }

    /// What is kept of it. Its number comes later.
    fn entry(&self, time: Timestamp) -> DenialEntry {
        let DeniedRequest { state, action, address, .. } = self;
        let (reason, limit, status) = match action {
            Action::Refuse(rejection) => (
                rejection.denied_for(),
                rejection.limit().map(str::to_owned),
                Some(rejection.status(state.responses()).as_u16()),
            ),
            _ => (None, self.charged().and_then(Tally::would_deny_names), None),
        };
        let named = state.policy.zip(self.caller());
        DenialEntry {
            seq: 0,
            group: 0,
            time,
            last: time,
            count: 1,
            caller: named.map(|(policy, caller)| caller.name(&policy.identity).to_string()),
            address: address.to_canonical(),
            policy: state.policy.map(|policy| policy.name.clone()),
            limit,
            counters: self.counters(),
            reason: reason.map_or("limit", |reason| reason.name()),
            tier: self.tier().map(Into::into),
            method: self.method().to_owned(),
            path: self.path().to_owned(),
            request_id: self.id().to_owned(),
            status,
        }
    }
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
