//! The secret that keys are hashed under, as all workers have it.
//!
//! A secret that was configured, or that no other process shares, stays. Where proxies share Redis
//! and none was configured, Redis keeps one: it is learnt after the start, and another one may take
//! its place.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering},
};

use arc_swap::ArcSwap;

use super::KeyHasher;
use crate::clock::Timestamp;

/// What keys are hashed under.
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

    /// How often the secret was replaced: hashes from before are those of nobody.
    pub fn version(&self) -> u32 {
        match self {
            Hashing::Fixed(_) => 0,
            Hashing::Kept(kept) => kept.current.load().version,
        }
    }
}

/// A secret that Redis keeps, so that all proxies have the same; the process' own until it is known.
pub struct KeptSecret {
    current: ArcSwap<Current>,
    standing: AtomicU8,
    /// When Redis is asked again, in microseconds since the epoch. Zero: nobody has asked for the
    /// time yet.
    next_look: AtomicU64,
}

struct Current {
    secret: [u8; 16],
    hasher: KeyHasher,
    version: u32,
}

/// What is known about the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// Redis has not told it yet: counters in Redis cannot be named.
    Awaited,
    /// It is the one that Redis keeps.
    Known,
    /// Redis keeps none for this process, which goes on with its own.
    Refused,
}

impl Standing {
    fn of(number: u8) -> Standing {
        let all = [Standing::Awaited, Standing::Known, Standing::Refused];
        all.into_iter().find(|one| *one as u8 == number).unwrap_or(Standing::Awaited)
    }
}

impl KeptSecret {
    /// None is known yet; `own` is used until it is.
    pub fn new(own: [u8; 16]) -> Self {
        KeptSecret {
            current: ArcSwap::from_pointee(Current {
                secret: own,
                hasher: KeyHasher::new(own),
                version: 0,
            }),
            standing: AtomicU8::new(Standing::Awaited as u8),
            next_look: AtomicU64::new(0),
        }
    }

    /// The secret in use.
    pub fn secret(&self) -> [u8; 16] {
        self.current.load().secret
    }

    /// What is known about it.
    pub fn standing(&self) -> Standing {
        Standing::of(self.standing.load(Ordering::Acquire))
    }

    /// Hashes keys under the secret that Redis keeps from now on. Tells what was known before, and
    /// whether the secret in use was another.
    pub fn adopt(&self, secret: [u8; 16]) -> (Standing, bool) {
        let last = self.current.rcu(|current| {
            if current.secret == secret {
                return Arc::clone(current);
            }
            let (hasher, version) = (KeyHasher::new(secret), current.version.wrapping_add(1));
            Arc::new(Current { secret, hasher, version })
        });
        (self.stand(Standing::Known), last.secret != secret)
    }

    /// Goes on with the process' own secret. Tells what was known before.
    pub fn refuse(&self) -> Standing {
        self.stand(Standing::Refused)
    }

    fn stand(&self, standing: Standing) -> Standing {
        Standing::of(self.standing.swap(standing as u8, Ordering::AcqRel))
    }

    /// Whether somebody should look at `now` what Redis keeps; only one of those who ask at the same
    /// time is told so. The first time that is one `period_micros` after somebody first asks.
    pub fn is_due(&self, now: Timestamp, period_micros: u64) -> bool {
        let (next, now) = (self.next_look.load(Ordering::Relaxed), now.as_micros());
        // A clock that was turned back must not put it off for as long.
        if now < next && next - now <= period_micros {
            return false;
        }
        let later = now.saturating_add(period_micros);
        let claimed =
            self.next_look.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed);
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

        assert_eq!(kept.adopt([1; 16]), (Standing::Awaited, false));
        assert_eq!((hash(), hashing.version()), (of([1; 16]), 0));

        assert_eq!(kept.adopt([2; 16]), (Standing::Known, true));
        assert_eq!((hash(), hashing.version()), (of([2; 16]), 1));

        assert_eq!(kept.refuse(), Standing::Known);
        assert_eq!((hash(), kept.standing()), (of([2; 16]), Standing::Refused));
    }

    #[test]
    fn one_of_those_who_ask_looks_once_in_a_period() {
        let kept = KeptSecret::new([1; 16]);
        assert!(!kept.is_due(at(100), MINUTE), "it has just been looked at, at the start");
        assert!(!kept.is_due(at(100), MINUTE));
        assert!(kept.is_due(at(101), MINUTE));
        assert!(!kept.is_due(at(101), MINUTE));
        assert!(kept.is_due(at(7), MINUTE), "the clock was turned back");
        assert!(!kept.is_due(at(7), MINUTE));
        assert!(kept.is_due(at(8), MINUTE));
    }
}
