//! The secret that keys are hashed with, shared by all workers.
//!
//! A configured secret, or one that no other process shares, never changes. If proxies share Redis
//! and no secret is configured, Redis keeps one: it is read after the start, and may be replaced.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;
use tollgate_clock::Timestamp;

use super::key::KeyHasher;

/// How keys are hashed.
#[derive(Clone)]
pub enum Hashing {
    /// The same secret for as long as the process runs.
    Fixed(KeyHasher),
    /// The secret that Redis keeps.
    Kept(Arc<KeptSecret>),
}

impl Hashing {
    /// Hash of a tuple of parts, each a kind and its bytes.
    pub fn hash<'a>(&self, parts: impl IntoIterator<Item = (u8, &'a [u8])>) -> u128 {
        match self {
            Hashing::Fixed(hasher) => hasher.hash(parts),
            Hashing::Kept(kept) => kept.current.load().hasher.hash(parts),
        }
    }

    /// How often the secret was replaced. Hashes of an earlier version belong to no key any more.
    pub fn version(&self) -> u32 {
        match self {
            Hashing::Fixed(_) => 0,
            Hashing::Kept(kept) => kept.current.load().version,
        }
    }
}

/// A secret that Redis keeps, so that all proxies have the same; the process' own until it is
/// known.
pub struct KeptSecret {
    current: ArcSwap<Current>,
    status: AtomicU8,
    /// When Redis is next queried, in microseconds since the epoch. Zero: `is_due` was not called
    /// yet.
    next_query: AtomicU64,
}

struct Current {
    secret: [u8; 16],
    hasher: KeyHasher,
    version: u32,
}

/// What the process knows about the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SecretStatus {
    /// Redis has not returned it yet: counters in Redis cannot be named.
    Awaited,
    /// It is the one that Redis keeps.
    Known,
    /// Redis keeps none for this process, which continues with its own.
    Refused,
}

impl SecretStatus {
    fn from_number(number: u8) -> SecretStatus {
        let all = [SecretStatus::Awaited, SecretStatus::Known, SecretStatus::Refused];
        all.into_iter().find(|one| *one as u8 == number).unwrap_or(SecretStatus::Awaited)
    }
}

impl KeptSecret {
    /// The secret is not known yet; `own` is used until it is.
    pub fn new(own: [u8; 16]) -> Self {
        KeptSecret {
            current: ArcSwap::from_pointee(Current {
                secret: own,
                hasher: KeyHasher::new(own),
                version: 0,
            }),
            status: AtomicU8::new(SecretStatus::Awaited as u8),
            next_query: AtomicU64::new(0),
        }
    }

    /// The secret in use.
    pub fn secret(&self) -> [u8; 16] {
        self.current.load().secret
    }

    /// What is known about it.
    pub fn status(&self) -> SecretStatus {
        SecretStatus::from_number(self.status.load(Ordering::Acquire))
    }

    /// Hashes keys with the secret that Redis keeps from now on. Returns the status before, and
    /// whether the secret in use has changed.
    pub fn adopt(&self, secret: [u8; 16]) -> (SecretStatus, bool) {
        let last = self.current.rcu(|current| {
            if current.secret == secret {
                return Arc::clone(current);
            }
            let hasher = KeyHasher::new(secret);
            let version = current.version.wrapping_add(1);
            Arc::new(Current { secret, hasher, version })
        });
        (self.replace_status(SecretStatus::Known), last.secret != secret)
    }

    /// Continues with the process' own secret. Returns the status before.
    pub fn refuse(&self) -> SecretStatus {
        self.replace_status(SecretStatus::Refused)
    }

    fn replace_status(&self, status: SecretStatus) -> SecretStatus {
        SecretStatus::from_number(self.status.swap(status as u8, Ordering::AcqRel))
    }

    /// Whether Redis should be queried at `now`. Of concurrent callers, only one gets true. The
    /// first query is due one `period_micros` after the first call.
    pub fn is_due(&self, now: Timestamp, period_micros: u64) -> bool {
        let next = self.next_query.load(Ordering::Relaxed);
        let now = now.as_micros();
        // A clock that was turned back must not delay the query by as much.
        if now < next && next - now <= period_micros {
            return false;
        }
        let later = now.saturating_add(period_micros);
        let claimed =
            self.next_query.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed);
        next != 0 && claimed.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_micros(minutes * MINUTE)
    }

    #[test]
    fn hashes_are_those_of_the_secret_that_was_last_adopted() {
        let kept = Arc::new(KeptSecret::new([1; 16]));
        let hashing = Hashing::Kept(Arc::clone(&kept));
        let of = |secret| KeyHasher::new(secret).hash([(b'u', &b"alice"[..])]);
        let hash = || hashing.hash([(b'u', &b"alice"[..])]);
        assert_eq!((hash(), hashing.version()), (of([1; 16]), 0));

        assert_eq!(kept.adopt([1; 16]), (SecretStatus::Awaited, false));
        assert_eq!((hash(), hashing.version()), (of([1; 16]), 0));

        assert_eq!(kept.adopt([2; 16]), (SecretStatus::Known, true));
        assert_eq!((hash(), hashing.version()), (of([2; 16]), 1));

        assert_eq!(kept.refuse(), SecretStatus::Known);
        assert_eq!((hash(), kept.status()), (of([2; 16]), SecretStatus::Refused));
    }

    #[test]
    fn one_caller_queries_once_in_a_period() {
        let kept = KeptSecret::new([1; 16]);
        assert!(!kept.is_due(at(100), MINUTE), "it was read at the start");
        assert!(!kept.is_due(at(100), MINUTE));
        assert!(kept.is_due(at(101), MINUTE));
        assert!(!kept.is_due(at(101), MINUTE));
        assert!(kept.is_due(at(7), MINUTE), "the clock was turned back");
        assert!(!kept.is_due(at(7), MINUTE));
        assert!(kept.is_due(at(8), MINUTE));
    }
}
