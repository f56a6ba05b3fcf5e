//! What is known of an issuer's keys, and when they are fetched. Time is an argument.
//!
//! Two things begin a fetch. It is *due* when the keys have reached four fifths of their time, or,
//! after a failure, when a pause has passed that doubles with each. And a client that shows an
//! unknown key *requests* one, which is granted once in a cooldown, counted from the beginning of
//! the latest fetch of either kind: what clients send costs the issuer no more than that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jsonwebtoken::DecodingKeyKind;

use super::{Fetched, RemoteError, RemoteSpec};
use crate::{
    clock::Timestamp,
    identity::keys::{Key, KeySet, SkippedKey},
};

/// The pause after a first failure, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// No fetch is due sooner than this after another, however short the keys' time.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// How keys are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    cache: Duration,
    cooldown: Duration,
    max_stale: Duration,
}

impl Timing {
    pub(super) fn of(spec: &RemoteSpec) -> Timing {
        Timing { cache: spec.cache, cooldown: spec.cooldown, max_stale: spec.max_stale }
    }

    /// How long keys are good after they were fetched.
    fn usable_for(self) -> Duration {
        self.cache.saturating_add(self.max_stale)
    }
}

/// Keys that were fetched.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) keys: Arc<KeySet>,
    pub(super) generation: u64,
    pub(super) fetched: Timestamp,
    usable_for: Duration,
}

impl Held {
    /// Whether they are not too old. A clock that went back makes nothing older.
    pub(super) fn is_usable(&self, now: Timestamp) -> bool {
        now.saturating_since(self.fetched) <= self.usable_for
    }
}

/// What is known of an issuer's keys.
#[derive(Clone, Debug)]
pub(super) struct State {
    timing: Timing,
    held: Option<Arc<Held>>,
    /// Keys that the latest good fetch could not use.
    skipped: Vec<SkippedKey>,
    /// How many fetches were begun, which is also the number of the latest.
    begun: u64,
    is_under_way: bool,
    /// When the latest fetch began.
    began: Option<Timestamp>,
    /// When the next is due.
    next: Timestamp,
    /// When the next would be due if none had failed.
    refresh: Timestamp,
    /// Failures in a row.
    failures: u32,
    last_error: Option<RemoteError>,
}

/// What becomes of a client's request for a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The fetch of this number has begun: the asker sets it on its way.
    Begin(u64),
    /// That of this number is under way.
    Join(u64),
    /// There was one lately.
    Refuse,
}

/// What is worth telling of a fetch.
#[derive(Debug)]
pub(super) enum News {
    Failed(RemoteError),
    Fetched {
        has_changed: bool,
        keys: usize,
        /// Keys that cannot be used, unless the same were told of before.
        skipped: Vec<SkippedKey>,
    },
}

impl State {
    /// Nothing is known, and a fetch is due.
    pub(super) fn new(timing: Timing) -> State {
        State {
            timing,
            held: None,
            skipped: Vec::new(),
            begun: 0,
            is_under_way: false,
            began: None,
            next: Timestamp::default(),
            refresh: Timestamp::default(),
            failures: 0,
            last_error: None,
        }
    }

    /// What is held here, kept otherwise from now on: no younger for it, and a fetch is due.
    pub(super) fn under(&self, timing: Timing) -> State {
        let held = self.held.as_ref().map(|held| {
            let Held { generation, fetched, .. } = **held;
            let (keys, usable_for) = (Arc::clone(&held.keys), timing.usable_for());
            Arc::new(Held { keys, generation, fetched, usable_for })
        });
        State { held, skipped: self.skipped.clone(), ..State::new(timing) }
    }

    pub(super) fn held(&self) -> Option<&Arc<Held>> {
        self.held.as_ref()
    }

    pub(super) fn last_error(&self) -> Option<&RemoteError> {
        self.last_error.as_ref()
    }

    /// How many fetches were begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Takes what lies in the future, after the clock went back, for what has just happened: else
    /// nothing would be fetched, and nothing grow old, until it has caught up.
    pub(super) fn observe(&mut self, now: Timestamp) {
        self.began = self.began.map(|began| began.min(now));
        let longest = self.timing.cache.max(LAST_PAUSE);
        self.next = self.next.min(now + longest);
        self.refresh = self.refresh.min(now + longest);
        if let Some(held) = self.held.as_ref().filter(|held| held.fetched > now) {
            let Held { generation, usable_for, .. } = **held;
            let keys = Arc::clone(&held.keys);
            self.held = Some(Arc::new(Held { keys, generation, usable_for, fetched: now }));
        }
    }

    /// Begins a fetch if one is due.
    pub(super) fn begin_if_due(&mut self, now: Timestamp) -> bool {
        let is_due = !self.is_under_way && now >= self.next;
        if is_due {
            self.begin(now);
        }
        is_due
    }

    /// A client has shown a key that is not among those held, or none are.
    pub(super) fn request(&mut self, now: Timestamp) -> Request {
        self.observe(now);
        if self.is_under_way {
            return Request::Join(self.begun);
        }
        let is_cooling =
            self.began.is_some_and(|began| now.saturating_since(began) < self.timing.cooldown);
        if is_cooling {
            return Request::Refuse;
        }
        self.begin(now);
        Request::Begin(self.begun)
    }

    fn begin(&mut self, now: Timestamp) {
        self.is_under_way = true;
        self.begun += 1;
        self.began = Some(now);
    }

    /// The fetch that was under way has ended. `random` spreads the next one.
    ///
    /// A failure, which is also a set without a usable key, leaves what is held as it is.
    pub(super) fn end(
        &mut self,
        now: Timestamp,
        result: Result<Fetched, RemoteError>,
        random: u8,
    ) -> News {
        self.is_under_way = false;
        match result {
            Ok(fetched) => {
                self.failures = 0;
                self.last_error = None;
                self.refresh = now + time_until_refresh(self.timing.cache, random);
                self.next = self.refresh;
                self.hold(now, fetched)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.last_error = Some(error.clone());
                self.next = self.refresh.max(now + pause_after(self.failures));
                News::Failed(error)
            }
        }
    }

    fn hold(&mut self, now: Timestamp, fetched: Fetched) -> News {
        let Fetched { keys, skipped } = fetched;
        let same = self.held.as_ref().filter(|held| are_same(&held.keys, &keys));
        let news = News::Fetched {
            has_changed: same.is_none(),
            keys: keys.len(),
            skipped: if self.skipped == skipped { Vec::new() } else { skipped.clone() },
        };
        // The same set is held on to: what was found out with it stays known.
        let (keys, generation) = match same {
            Some(held) => (Arc::clone(&held.keys), held.generation),
            None => (keys, unique_generation()),
        };
        let usable_for = self.timing.usable_for();
        self.held = Some(Arc::new(Held { keys, generation, fetched: now, usable_for }));
        self.skipped = skipped;
        news
    }
}

/// Four fifths of the keys' time, give or take a twentieth: proxies do not come all at once.
fn time_until_refresh(cache: Duration, random: u8) -> Duration {
    let (earliest, spread) = (cache / 4 * 3, cache / 10);
    (earliest + spread / 255 * u32::from(random)).max(LEAST_PAUSE)
}

fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LAST_PAUSE)
}

/// A generation that no other set of keys has.
fn unique_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether two sets verify alike, in whichever order the keys stand.
fn are_same(one: &KeySet, other: &KeySet) -> bool {
    fn sorted(set: &KeySet) -> Vec<Identity<'_>> {
        let mut keys: Vec<_> = set.keys.iter().map(identity).collect();
        keys.sort();
        keys
    }
    sorted(one) == sorted(other)
}

/// All that makes a key what it is: name, algorithm, bytes; of RSA, modulus and exponent.
type Identity<'k> = (Option<&'k str>, &'static str, &'k [u8], &'k [u8]);

fn identity(key: &Key) -> Identity<'_> {
    let (bytes, exponent): (&[u8], &[u8]) = match key.decoding.kind() {
        DecodingKeyKind::SecretOrDer(bytes) => (bytes, &[]),
        DecodingKeyKind::RsaModulusExponent { n, e } => (n, e),
    };
    (key.kid.as_deref(), key.algorithm.name(), bytes, exponent)
}

#[cfg(test)]
mod tests;
