//! The limits that callers are counted by, and what a caller charges.

use std::{num::NonZeroU32, time::Duration};

use tollgate_limit::{
    Align, Charge, Concurrency, FixedWindow, Gcra, Key, KeyHasher, LimitId, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
};

use crate::chance::Chance;

/// The secret that all proxies hash keys with.
pub(crate) const KEY_SECRET: [u8; 16] = *b"of a simulation.";

/// The window that outlasts each simulation, so that its counter is the sum of all that happened.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A window that ends several times in a simulation.
pub(crate) const SHORT: Duration = Duration::from_secs(8);

/// How long a lease is valid. Requests end before.
const LEASE: Duration = Duration::from_secs(30);

/// A limit of one caller.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// For the story: `caller 2 hourly`.
    pub(crate) name: String,
    pub(crate) quota: Quota,
    pub(crate) key: Key,
}

impl Limit {
    pub(crate) fn charge(&self, cost: u32) -> Charge<'_> {
        Charge::new(self.key, &self.quota, cost)
    }

    /// Whether what was charged may be given back. What has come back by itself already may be given
    /// back once more in others (docs/budgets.md).
    pub(crate) fn can_be_refunded(&self) -> bool {
        !matches!(self.quota, Quota::Gcra(_) | Quota::TokenBucket(_))
    }

    /// What one of `instances` admits by itself.
    pub(crate) fn share(&self, instances: u32) -> u32 {
        let instances = NonZeroU32::new(instances).unwrap_or(NonZeroU32::MIN);
        self.quota.share(instances).capacity()
    }
}

/// Two limits for each caller: one that is hourly, and one of the algorithm that the seed chooses.
/// `hourly` says how often it is admitted in the hour.
pub(crate) fn limits(callers: usize, short: &Quota, hourly: u32) -> Vec<[Limit; 2]> {
    let hourly = Quota::from(FixedWindow { limit: hourly, align: Align::Epoch(HOUR) });
    let hasher = KeyHasher::new(KEY_SECRET);
    let of_caller = |caller: usize| {
        let owner = hasher.hash([(b'c', caller.to_string().as_bytes())]);
        let limit = |name: &str, quota: &Quota| {
            let id = LimitId::new("simulated", name, "any", quota.longest().as_micros() as u64);
            let key = Key::new(owner, owner, id);
            Limit { name: format!("caller {caller} {name}"), quota: quota.clone(), key }
        };
        [limit("hourly", &hourly), limit("short", short)]
    };
    (0..callers).map(of_caller).collect()
}

/// A limit that is used up and has units again several times.
pub(crate) fn short_quota(chance: &mut Chance) -> Quota {
    let limit = chance.within(8..24) as u32;
    match chance.below(6) {
        0 => FixedWindow { limit, align: Align::Epoch(SHORT) }.into(),
        1 => SlidingLog { limit, window: SHORT }.into(),
        2 => SlidingWindow::new(limit, SHORT).expect("a window of seconds is valid").into(),
        3 => Concurrency { limit, lease: LEASE, retry_after: SHORT }.into(),
        4 => Gcra::new(limit, SHORT, limit, 3).expect("a rate of units in seconds is valid").into(),
        _ => {
            let (refill, interval) = (limit / 2, SHORT / 2);
            TokenBucket { capacity: limit, refill, interval, even: false, strict: false }.into()
        }
    }
}
