//! The latest requests that were denied, or would have been, for people who look at them live.
//!
//! It is one ring for all workers, and only denials write to it. In a storm a worker notes the
//! first [`MAX_A_SECOND`] of a second, and none for which it would have to wait: what is left out
//! is counted.

use std::{cell::Cell, collections::VecDeque, net::IpAddr, sync::Arc};

use http::{HeaderValue, request::Parts};
use parking_lot::Mutex;
use tollgate_clock::Timestamp;
use tollgate_observe::metrics::{Count, Shards};

use super::{
    request_state::{Action, RequestState},
    tally::Tally,
};

/// Denials that are kept.
pub const KEPT_DENIALS: usize = 1024;

/// Denials of one second that one worker notes.
const MAX_A_SECOND: u32 = 200;

/// Bytes of a path that are kept.
const MAX_PATH_BYTES: usize = 256;

/// Bytes of a request's id that are kept.
const MAX_ID_BYTES: usize = 128;

/// Bytes of a method that are kept.
const MAX_METHOD_BYTES: usize = 32;

/// A request that was denied, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialEntry {
    /// Its number: one more than that of the one before it.
    pub seq: u64,
    /// When the request came.
    pub time: Timestamp,
    /// Its caller, as `tollgate look` takes it. None: it could not be identified.
    pub caller: Option<String>,
    /// The client's address.
    pub address: IpAddr,
    /// The policy.
    pub policy: Option<Box<str>>,
    /// The limits, if it was for limits; a comma between them.
    pub limit: Option<String>,
    /// Why, as the access log says it: `limit`, `deny`, `auth`, `scope`, `missing_key`, `store`.
    pub reason: &'static str,
    /// The caller's tier.
    pub tier: Option<Box<str>>,
    /// The request's method.
    pub method: String,
    /// Its path, without the query, cut if it is long.
    pub path: String,
    /// Its id.
    pub request_id: String,
    /// The status of the response. None: the limits only count, and the request went on.
    pub status: Option<u16>,
}

/// The latest denials.
#[derive(Debug, Default)]
pub struct Denials {
    ring: Mutex<Ring>,
    counts: Shards<DenialCounts>,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Arc<DenialEntry>>,
    /// The number of the latest one.
    latest: u64,
}

/// What a worker counts of denials. It fills a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct DenialCounts {
    denied: Count,
    would_be_denied: Count,
    left_out: Count,
}

/// Which denials are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenialFilter {
    /// Of this caller, or of this address: `client.ip:192.0.2.1`.
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

/// What a worker notes of denials.
pub(super) struct DenialNotes {
    counts: Arc<DenialCounts>,
    /// The second, and how many denials were noted in it.
    pace: Cell<(u64, u32)>,
}

/// What is noted of a request.
pub(super) struct DeniedRequest<'r, 'p> {
    pub(super) parts: &'r Parts,
    pub(super) state: &'r RequestState<'p>,
    pub(super) action: &'r Action<'p>,
    pub(super) address: IpAddr,
    pub(super) request_id: &'r HeaderValue,
}

impl Denials {
    /// What one worker notes them with.
    pub(super) fn notes(&self) -> DenialNotes {
        DenialNotes { counts: self.counts.take(), pace: Cell::default() }
    }

    /// The latest `most` denials that fit, of those that came after the one with this number.
    pub fn after(&self, seq: u64, filter: &DenialFilter, most: usize) -> FoundDenials {
        let left_out = self.counts.read(|all| all.iter().map(|own| own.left_out.get()).sum());
        // Only a moment, for workers leave out what comes meanwhile.
        let (newer, latest) = {
            let ring = self.ring.lock();
            let newer = ring.entries.iter().rev().take_while(|entry| entry.seq > seq);
            (newer.cloned().collect::<Vec<_>>(), ring.latest)
        };
        let fitting = newer.into_iter().filter(|entry| filter.fits(entry));
        let mut entries: Vec<_> = fitting.take(most).collect();
        entries.reverse();
        FoundDenials { entries, latest, left_out }
    }

    /// The number of the latest one; 0: there was none.
    pub fn latest(&self) -> u64 {
        self.ring.lock().latest
    }

    /// How many requests were denied so far, and how many limits would have denied if they were
    /// enforced.
    pub fn totals(&self) -> (u64, u64) {
        let sum = |count: fn(&DenialCounts) -> &Count| {
            self.counts.read(|all| all.iter().map(|own| count(own).get()).sum())
        };
        (sum(|own| &own.denied), sum(|own| &own.would_be_denied))
    }

    /// Notes a request if it was denied, or would have been.
    pub(super) fn note(
        &self,
        notes: &DenialNotes,
        request: &DeniedRequest<'_, '_>,
        now: Timestamp,
    ) {
        if !request.is_denied() {
            return;
        }
        match request.action {
            Action::Refuse(_) => notes.counts.denied.increment(),
            _ => notes.counts.would_be_denied.increment(),
        }
        if !notes.has_room(now) {
            return notes.counts.left_out.increment();
        }
        let entry = request.entry(now);
        // Dropped after the lock.
        let _oldest = match self.ring.try_lock() {
            Some(mut ring) => ring.push(entry),
            None => {
                notes.counts.left_out.increment();
                None
            }
        };
    }
}

impl Ring {
    /// Adds an entry, and returns the one that there is no more room for.
    fn push(&mut self, mut entry: DenialEntry) -> Option<Arc<DenialEntry>> {
        self.latest += 1;
        entry.seq = self.latest;
        let is_full = self.entries.len() >= KEPT_DENIALS;
        let oldest = if is_full { self.entries.pop_front() } else { None };
        self.entries.push_back(Arc::new(entry));
        oldest
    }
}

impl DenialNotes {
    fn has_room(&self, now: Timestamp) -> bool {
        let second = now.as_micros() / 1_000_000;
        let noted = match self.pace.get() {
            (own, noted) if own == second => noted,
            _ => 0,
        };
        self.pace.set((second, noted.saturating_add(1)));
        noted < MAX_A_SECOND
    }
}

impl DenialFilter {
    fn fits(&self, entry: &DenialEntry) -> bool {
        let DenialFilter { caller, policy, limit } = self;
        let is_of = |caller: &str| {
            let address = caller.strip_prefix("client.ip:");
            entry.caller.as_deref() == Some(caller)
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

    /// What is kept of it. Its number comes later.
    fn entry(&self, time: Timestamp) -> DenialEntry {
        let DeniedRequest { parts, state, action, address, request_id } = self;
        let (reason, limit, status) = match action {
            Action::Refuse(rejection) => (
                rejection.denied_for(),
                rejection.limit().map(str::to_owned),
                Some(rejection.status(state.responses()).as_u16()),
            ),
            _ => (None, self.charged().and_then(Tally::would_deny_names), None),
        };
        let identity = state.identity.as_ref();
        let named = state.policy.zip(identity.and_then(|identity| identity.caller.as_ref()));
        let tier = state.policy.zip(identity).and_then(|(policy, identity)| {
            policy.identity.tiers.get(identity.tier).map(|tier| tier.name.clone())
        });
        DenialEntry {
            seq: 0,
            time,
            caller: named.map(|(policy, caller)| {
                let mut name = String::new();
                caller.write_name(&policy.identity, &mut name);
                name
            }),
            address: address.to_canonical(),
            policy: state.policy.map(|policy| policy.name.clone()),
            limit,
            reason: reason.map_or("limit", |reason| reason.name()),
            tier,
            method: cut(parts.method.as_str(), MAX_METHOD_BYTES),
            path: cut(parts.uri.path(), MAX_PATH_BYTES),
            request_id: cut(request_id.to_str().unwrap_or_default(), MAX_ID_BYTES),
            status,
        }
    }
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_response::Rejection;

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn entry(seq: u64) -> DenialEntry {
        DenialEntry {
            seq,
            time: START,
            caller: seq.is_multiple_of(2).then(|| format!("user:{}", seq % 10)),
            address: [192, 0, 2, 1].into(),
            policy: Some("api".into()),
            limit: Some("core, search".into()),
            reason: "limit",
            tier: None,
            method: "GET".into(),
            path: "/".into(),
            request_id: String::new(),
            status: None,
        }
    }

    #[test]
    fn newer_ones_that_fit_are_found_oldest_first() {
        let denials = Denials::default();
        {
            let mut ring = denials.ring.lock();
            ring.entries = (1..=20).map(|seq| Arc::new(entry(seq))).collect();
            ring.latest = 20;
        }
        let found = |seq, caller: Option<&str>, limit: Option<&str>, most| {
            let [caller, limit] = [caller, limit].map(|text| text.map(str::to_owned));
            let found = denials.after(seq, &DenialFilter { caller, limit, policy: None }, most);
            assert_eq!((found.latest, found.left_out), (20, 0));
            found.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>()
        };
        assert_eq!(found(17, None, None, 10), [18, 19, 20]);
        assert_eq!(found(0, None, None, 2), [19, 20]);
        assert_eq!(found(0, Some("user:4"), None, 10), [4, 14]);
        assert_eq!(found(18, Some("client.ip:192.0.2.1"), Some("search"), 10), [19, 20]);
        assert_eq!(found(0, None, Some("sear"), 10), [0; 0]);
        assert_eq!(found(20, None, None, 10), [0; 0]);
    }

    #[test]
    fn worker_notes_a_bounded_number_in_a_second() {
        let denials = Denials::default();
        let notes = denials.notes();
        let noted = (0..1_000).filter(|_| notes.has_room(START)).count();
        assert_eq!(noted, MAX_A_SECOND as usize);
        assert!(notes.has_room(START + Duration::from_secs(1)));
    }

    #[test]
    fn storm_is_cut_and_counted_and_the_ring_is_bounded() {
        let denials = Denials::default();
        let notes = denials.notes();
        let (parts, ()) = http::Request::get("/path?key=secret").body(()).unwrap().into_parts();
        let request_id = &HeaderValue::from_static("id");
        let state = RequestState::default();
        let action = Action::Refuse(Rejection::Denied);
        for second in 0..6 {
            for _ in 0..500 {
                let address = [192, 0, 2, 1].into();
                let request = DeniedRequest {
                    parts: &parts,
                    state: &state,
                    action: &action,
                    address,
                    request_id,
                };
                denials.note(&notes, &request, START + Duration::from_secs(second));
            }
        }
        let found = denials.after(0, &DenialFilter::default(), usize::MAX);
        assert_eq!((found.latest, found.left_out), (1_200, 1_800));
        assert_eq!(found.entries.len(), KEPT_DENIALS);
        assert_eq!(denials.totals(), (3_000, 0));
        let last = found.entries.last().unwrap();
        assert_eq!((last.seq, &*last.path, last.reason), (1_200, "/path", "deny"));
    }

    #[test]
    fn long_texts_are_cut_at_a_letter() {
        assert_eq!(cut("aéé", 4), "aé");
        assert_eq!(cut("abc", 4), "abc");
    }
}
