//! The cached keys of an issuer, and when they are fetched. Time is an argument.
//!
//! A fetch starts for two reasons. It is *due* when the keys have reached four fifths of their
//! lifetime, or, after a failure, when a backoff has passed that doubles with each failure. And a
//! token whose key is unknown *requests* one, which is allowed once in a cooldown, counted from the
//! start of the latest fetch of either kind: so clients can cause no more fetches than that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jsonwebtoken::DecodingKeyKind;
use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;

use super::{FetchedKeys, RemoteError, RemoteSpec};
use crate::keys::{Key, KeySet, SkippedKey};

/// The backoff after a first failure, and the longest.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The shortest time between two fetches, however short the lifetime of the keys.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// How long keys are cached, and how often they may be fetched.
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

    /// How long keys are used after they were fetched.
    fn usable_for(self) -> Duration {
        self.cache.saturating_add(self.max_stale)
    }
}

/// Keys that were fetched and are in use.
#[derive(Debug)]
pub(super) struct CachedKeys {
    pub(super) keys: Arc<KeySet>,
    pub(super) generation: u64,
    pub(super) fetched: Timestamp,
    usable_for: Duration,
}

impl CachedKeys {
    /// Whether they are young enough to verify with. A clock that went back makes nothing older.
    pub(super) fn is_usable(&self, now: Timestamp) -> bool {
        now.saturating_since(self.fetched) <= self.usable_for
    }
}

/// The cached keys of an issuer, and the state of their fetches.
#[derive(Clone, Debug)]
pub(super) struct State {
    timing: Timing,
    pub(super) cached: Option<Arc<CachedKeys>>,
    /// Keys that the latest successful fetch could not use.
    skipped: Vec<SkippedKey>,
    /// How many fetches were started, which is also the number of the latest.
    pub(super) started: u64,
    is_under_way: bool,
    /// When the latest fetch was started.
    last_started: Option<Timestamp>,
    /// When the next fetch is due.
    next_due: Timestamp,
    /// When it would be due without failures.
    next_refresh: Timestamp,
    /// Failures in a row.
    failures: u32,
    pub(super) last_error: Option<RemoteError>,
}

/// Whether a token with an unknown key may start a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refresh {
    /// Yes: the caller runs the fetch of this number.
    Start(u64),
    /// The fetch of this number is under way.
    Join(u64),
    /// No: the cooldown has not passed.
    Refuse,
}

/// What is logged about a fetch.
#[derive(Debug)]
pub(super) enum FetchReport {
    Failed(RemoteError),
    Fetched {
        has_changed: bool,
        keys: usize,
        /// Keys that cannot be used; empty if they were the same at the fetch before.
        skipped: Vec<SkippedKey>,
    },
}

impl State {
    /// Without keys; a fetch is due.
    pub(super) fn new(timing: Timing) -> State {
        State {
            timing,
            cached: None,
            skipped: Vec::new(),
            started: 0,
            is_under_way: false,
            last_started: None,
            next_due: Timestamp::default(),
            next_refresh: Timestamp::default(),
            failures: 0,
            last_error: None,
        }
    }

    /// The same keys, as old as they are, with another timing; a fetch is due.
    pub(super) fn with_timing(&self, timing: Timing) -> State {
        let cached = self.cached.as_ref().map(|cached| {
            let CachedKeys { generation, fetched, .. } = **cached;
            let keys = Arc::clone(&cached.keys);
            let usable_for = timing.usable_for();
            Arc::new(CachedKeys { keys, generation, fetched, usable_for })
        });
        State { cached, skipped: self.skipped.clone(), ..State::new(timing) }
    }

    /// Moves instants that lie in the future, after the clock went back, to now. Otherwise no fetch
    /// would be due and no key grow old until the clock has caught up.
    pub(super) fn clamp_to(&mut self, now: Timestamp) {
        self.last_started = self.last_started.map(|started| started.min(now));
        let longest = self.timing.cache.max(MAX_BACKOFF);
        self.next_due = self.next_due.min(now + longest);
        self.next_refresh = self.next_refresh.min(now + longest);
        if let Some(cached) = self.cached.as_ref().filter(|cached| cached.fetched > now) {
            let CachedKeys { generation, usable_for, .. } = **cached;
            let keys = Arc::clone(&cached.keys);
            self.cached = Some(Arc::new(CachedKeys { keys, generation, usable_for, fetched: now }));
        }
    }

    /// Starts a fetch if one is due; whether it did.
    pub(super) fn start_if_due(&mut self, now: Timestamp) -> bool {
        let is_due = !self.is_under_way && now >= self.next_due;
        if is_due {
            self.start(now);
        }
        is_due
    }

    /// Requests a fetch for a token whose key is not cached.
    pub(super) fn request_refresh(&mut self, now: Timestamp) -> Refresh {
        self.clamp_to(now);
        if self.is_under_way {
            return Refresh::Join(self.started);
        }
        let is_cooling = self
            .last_started
            .is_some_and(|started| now.saturating_since(started) < self.timing.cooldown);
        if is_cooling {
            return Refresh::Refuse;
        }
        self.start(now);
        Refresh::Start(self.started)
    }

    fn start(&mut self, now: Timestamp) {
        self.is_under_way = true;
        self.started += 1;
        self.last_started = Some(now);
    }

    /// Ends the fetch that was under way. `random` spreads the time of the next one.
    ///
    /// A failure, and a set without a usable key is one, leaves the cached keys as they are.
    pub(super) fn finish(
        &mut self,
        now: Timestamp,
        result: Result<FetchedKeys, RemoteError>,
        random: u8,
    ) -> FetchReport {
        self.is_under_way = false;
        match result {
            Ok(fetched) => {
                self.failures = 0;
                self.last_error = None;
                self.next_refresh = now + time_until_refresh(self.timing.cache, random);
                self.next_due = self.next_refresh;
                self.store(now, fetched)
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.last_error = Some(error.clone());
                self.next_due = self.next_refresh.max(now + backoff_after(self.failures));
                FetchReport::Failed(error)
            }
        }
    }

    fn store(&mut self, now: Timestamp, fetched: FetchedKeys) -> FetchReport {
        let FetchedKeys { keys, skipped } = fetched;
        let same = self.cached.as_ref().filter(|cached| are_same(&cached.keys, &keys));
        let report = FetchReport::Fetched {
            has_changed: same.is_none(),
            keys: keys.len(),
            skipped: if self.skipped == skipped { Vec::new() } else { skipped.clone() },
        };
        // An unchanged set keeps its generation, so that tokens verified with it stay cached.
        let (keys, generation) = match same {
            Some(cached) => (Arc::clone(&cached.keys), cached.generation),
            None => (keys, unique_generation()),
        };
        let usable_for = self.timing.usable_for();
        self.cached = Some(Arc::new(CachedKeys { keys, generation, fetched: now, usable_for }));
        self.skipped = skipped;
        report
    }
}

/// Four fifths of the keys' lifetime, give or take a twentieth, so that proxies do not all fetch at
/// once.
fn time_until_refresh(cache: Duration, random: u8) -> Duration {
    let earliest = cache / 4 * 3;
    let spread = cache / 10;
    (earliest + spread / 255 * u32::from(random)).max(MIN_PAUSE)
}

fn backoff_after(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_BACKOFF)
}

/// A generation that no other set of keys has.
fn unique_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether two sets have the same keys, in whatever order.
fn are_same(one: &KeySet, other: &KeySet) -> bool {
    fn sorted(set: &KeySet) -> Vec<KeyParts<'_>> {
        let mut keys: Vec<_> = set.keys.iter().map(key_parts).collect();
        keys.sort();
        keys
    }
    sorted(one) == sorted(other)
}

/// What distinguishes keys: name, algorithm, bytes; for RSA, modulus and exponent.
type KeyParts<'k> = (Option<&'k str>, &'static str, &'k [u8], &'k [u8]);

fn key_parts(key: &Key) -> KeyParts<'_> {
    let (bytes, exponent): (&[u8], &[u8]) = match key.decoding.kind() {
        DecodingKeyKind::SecretOrDer(bytes) => (bytes, &[]),
        DecodingKeyKind::RsaModulusExponent { n, e } => (n, e),
    };
    (key.kid.as_deref(), key.algorithm.keyword(), bytes, exponent)
}

#[cfg(test)]
mod tests;
