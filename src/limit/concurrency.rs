//! How many requests a key has in flight, as leases that heal.
//!
//! A request that is admitted holds a lease until its response has ended, and then gives it back.
//! A lease that nobody gives back, because whoever held it is gone, expires; who holds one longer
//! than that renews it (Stripe's form of a concurrent requests limiter).

use std::time::Duration;

use super::{Algorithm, Bytes, MAX_SKEW, Receipt, Retry, Standing, State};
use crate::clock::Timestamp;

/// `limit` leases at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Leases, at most [`Concurrency::MAX_LIMIT`].
    pub limit: u32,
    /// How long a lease is good unless it is renewed.
    pub lease: Duration,
    /// When a client that was denied should ask again: nobody knows when a request will end.
    pub retry_after: Duration,
}

/// The leases of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// In the order in which they were granted.
    leases: Vec<Lease>,
    /// Tells apart what is granted in the same microsecond.
    granted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    receipt: Receipt,
    expires: Timestamp,
}

impl State for Leases {
    fn is_over(&self, now: Timestamp) -> bool {
        self.leases.iter().all(|lease| lease.is_over(now))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.granted.to_le_bytes());
        bytes.extend((self.leases.len() as u32).to_le_bytes());
        for Lease { receipt, expires } in &self.leases {
            for number in [receipt.at.as_micros(), receipt.number, expires.as_micros()] {
                bytes.extend(number.to_le_bytes());
            }
        }
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Leases> {
        let (granted, count) = (bytes.u64()?, bytes.u32()?);
        let mut lease = || {
            let at = Timestamp::from_micros(bytes.u64()?);
            let receipt = Receipt { at, number: bytes.u64()? };
            Some(Lease { receipt, expires: Timestamp::from_micros(bytes.u64()?) })
        };
        let leases = (0..count).map(|_| lease()).collect::<Option<Vec<Lease>>>()?;
        Some(Leases { leases, granted })
    }
}

impl Lease {
    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires
    }
}

impl Leases {
    /// Those that were granted and not yet given back, some of which may be over.
    pub(super) fn held(&self) -> u32 {
        self.leases.len() as u32
    }

    fn live(&self, now: Timestamp) -> u32 {
        self.leases.iter().filter(|lease| !lease.is_over(now)).count() as u32
    }
}

impl Concurrency {
    /// Most leases that a key can have: they are looked through one by one.
    pub const MAX_LIMIT: u32 = 10_000;

    /// Makes the lease of `receipt` good from `now` for its full time, if it is not over.
    pub fn renew(&self, leases: &mut Leases, receipt: Receipt, now: Timestamp) {
        let lease = leases.leases.iter_mut().find(|lease| lease.receipt == receipt);
        if let Some(lease) = lease.filter(|lease| !lease.is_over(now)) {
            lease.expires = lease.expires.max(now + self.lease);
        }
    }

    /// How a key with `used` leases stands.
    pub(crate) fn standing_of(&self, used: u32, now: Timestamp) -> Standing {
        Standing {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            used,
            reset: if used == 0 { now } else { now + self.retry_after },
            next: if used < self.limit { now } else { now + self.retry_after },
            retry: Retry::Now,
        }
    }

    /// When to ask again for `cost`, which does not fit, whatever leases there are.
    pub(crate) fn retry_of(&self, cost: u32, now: Timestamp) -> Retry {
        if cost > self.limit { Retry::Never } else { Retry::At(now + self.retry_after) }
    }
}

impl Algorithm for Concurrency {
    type State = Leases;

    fn capacity(&self) -> u32 {
        self.limit
    }

    fn admits(&self, leases: &Leases, cost: u32, now: Timestamp) -> bool {
        // Counting is needed only when leases that are over could make the difference.
        let fits = |held: u64| held + u64::from(cost) <= u64::from(self.limit);
        fits(leases.leases.len() as u64) || fits(leases.live(now).into())
    }

    /// Grants one lease; the cost of a request in flight is always one.
    fn take(&self, leases: &mut Leases, _cost: u32, now: Timestamp) -> Receipt {
        leases.leases.retain(|lease| !lease.is_over(now));
        let receipt = Receipt { at: now, number: leases.granted };
        leases.granted = leases.granted.wrapping_add(1);
        leases.leases.push(Lease { receipt, expires: now + self.lease });
        receipt
    }

    fn standing(&self, leases: &Leases, now: Timestamp) -> Standing {
        self.standing_of(leases.live(now), now)
    }

    fn retry(&self, _leases: &Leases, cost: u32, now: Timestamp) -> Retry {
        self.retry_of(cost, now)
    }

    /// A clock that went back makes leases last longer by as much: those that would last longer than
    /// a fresh one are cut to that.
    fn penalize(&self, leases: &mut Leases, _cost: u32, now: Timestamp) {
        let latest = now + self.lease + MAX_SKEW;
        for lease in &mut leases.leases {
            if lease.expires > latest {
                lease.expires = now + self.lease;
            }
        }
    }

    /// Ends the lease.
    fn give_back(&self, leases: &mut Leases, receipt: Receipt, _cost: u32, _now: Timestamp) {
        leases.leases.retain(|lease| lease.receipt != receipt);
    }

    /// Nothing: a lease is where its receipt is, and ends there.
    fn beyond(&self, _leases: &Leases, _base: &Leases, _now: Timestamp) -> Option<Leases> {
        None
    }

    fn add(&self, _leases: &mut Leases, _other: &Leases, _now: Timestamp) {}

    /// Nothing, for the same reason.
    fn join(&self, _leases: &mut Leases, _other: &Leases, _now: Timestamp) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
