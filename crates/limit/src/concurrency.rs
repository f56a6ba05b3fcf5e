//! How many requests a key has in flight, as leases that expire.
//!
//! An admitted request holds a lease until its response has ended, and then gives it back. If the
//! process that holds a lease dies, the lease expires. A process that holds a lease for longer
//! renews it (Stripe's form of a concurrent requests limiter).

use std::{num::NonZeroU32, time::Duration};

use tollgate_clock::Timestamp;

use super::{
    algorithm::{Algorithm, Bytes, Receipt, State},
    skew::MAX_SKEW,
    standing::{Retry, Standing},
    terms::{Detail, Terms},
};

/// `limit` leases at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Leases, at most [`Concurrency::MAX_LIMIT`].
    pub limit: u32,
    /// How long a lease is valid unless it is renewed.
    pub lease: Duration,
    /// How long a denied client should wait: when a request will end cannot be known.
    pub retry_after: Duration,
}

/// The leases of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// In the order in which they were granted.
    leases: Vec<Lease>,
    /// The number of the next lease: it makes receipts of one microsecond distinct.
    granted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    receipt: Receipt,
    expires: Timestamp,
}

impl State for Leases {
    /// How many there are.
    type Count = u32;

    fn is_over(&self, now: Timestamp) -> bool {
        self.leases.iter().all(|lease| lease.is_over(now))
    }

    fn count(&self) -> u32 {
        self.held()
    }

    fn of_count(_count: &u32) -> Option<Leases> {
        None
    }

    fn share_of(count: &u32, instances: NonZeroU32) -> u32 {
        count.div_ceil(instances.get())
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
        let granted = bytes.u64()?;
        let count = bytes.u32()?;
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
    /// Leases that were granted and not yet given back. Some may be over.
    pub(super) fn held(&self) -> u32 {
        self.leases.len() as u32
    }

    fn live(&self, now: Timestamp) -> u32 {
        self.leases.iter().filter(|lease| !lease.is_over(now)).count() as u32
    }
}

impl Concurrency {
    /// The most leases that a key can have: they are searched one by one.
    pub const MAX_LIMIT: u32 = 10_000;

    /// How a key with `used` leases stands.
    pub fn standing_of(&self, used: u32, now: Timestamp) -> Standing {
        Standing {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            used,
            reset: if used == 0 { now } else { now + self.retry_after },
            next: if used < self.limit { now } else { now + self.retry_after },
            retry: Retry::Now,
        }
    }

    /// When to retry `cost`, which does not fit. It does not depend on the leases.
    pub fn retry_of(&self, cost: u32, now: Timestamp) -> Retry {
        if cost > self.limit { Retry::Never } else { Retry::At(now + self.retry_after) }
    }
}

impl Algorithm for Concurrency {
    type State = Leases;

    const HOLDS_LEASES: bool = true;

    fn capacity(&self) -> u32 {
        self.limit
    }

    fn longest(&self) -> Duration {
        self.lease
    }

    fn share(&self, instances: NonZeroU32) -> Concurrency {
        Concurrency { limit: self.limit.div_ceil(instances.get()), ..*self }
    }

    fn admits(&self, leases: &Leases, cost: u32, now: Timestamp) -> bool {
        // Leases that are over matter only if the others fit without them.
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

    /// A clock that went back makes leases last longer by as much: those that would last longer
    /// than a new one are cut to its length.
    fn on_denied(&self, leases: &mut Leases, _cost: u32, now: Timestamp) {
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

    /// When the newest lease was granted.
    fn mark(&self, leases: &Leases) -> Timestamp {
        leases.leases.last().map_or(Timestamp::default(), |newest| newest.receipt.at)
    }

    /// A lease that is over is not extended.
    fn renew(&self, leases: &mut Leases, receipt: Receipt, now: Timestamp) {
        let lease = leases.leases.iter_mut().find(|lease| lease.receipt == receipt);
        if let Some(lease) = lease.filter(|lease| !lease.is_over(now)) {
            lease.expires = lease.expires.max(now + self.lease);
        }
    }

    /// Nothing: only the holder of a lease's receipt can end it, so leases are never copied.
    fn beyond(&self, _leases: &Leases, _base: &Leases, _now: Timestamp) -> Option<Leases> {
        None
    }

    /// Nothing, for the same reason.
    fn add(&self, _leases: &mut Leases, _other: &Leases, _now: Timestamp) {}

    /// Nothing, for the same reason.
    fn join(&self, _leases: &mut Leases, _other: &Leases, _now: Timestamp) -> bool {
        false
    }

    fn plain(units: u32, window: Duration) -> Option<Concurrency> {
        Some(Concurrency { limit: units, lease: window, retry_after: window })
    }

    fn terms(&self) -> Terms {
        let [lease, retry_after] = [self.lease, self.retry_after].map(Detail::Time);
        let details = vec![("lease", lease), ("retry after", retry_after)];
        Terms { units: self.limit, window: None, is_refilled: false, details }
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease)
    }

    fn foresee(&self, _standing: &Standing, cost: u32, now: Timestamp) -> Retry {
        self.retry_of(cost, now)
    }
}

#[cfg(test)]
mod tests;
