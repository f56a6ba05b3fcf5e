//! The limits of callers whose counters are on disk: they count for a minute or longer.

use std::time::Duration;

use tollgate_limit::{
    Align, Charge, Fallback, FixedWindow, Gcra, Key, KeyHasher, LimitId, Quota, SlidingLog,
    SlidingWindow, TokenBucket,
};

use crate::{
    chance::Chance,
    limits::{HOUR, KEY_SECRET, Limit},
};

/// The shortest window that is kept on disk.
const MINUTE: Duration = Duration::from_secs(60);

/// Callers of a crowd.
const CROWD: usize = 300;

/// A limit, and what it does if its counter cannot be written.
#[derive(Clone, Debug)]
pub(super) struct DiskLimit {
    pub(super) limit: Limit,
    pub(super) fallback: Fallback,
}

impl DiskLimit {
    pub(super) fn charge(&self, cost: u32) -> Charge<'_> {
        Charge { fallback: self.fallback, ..self.limit.charge(cost) }
    }
}

/// Two limits for each caller: one that is hourly, and one of the algorithm that the seed chooses.
pub(super) fn limits(callers: usize, chance: &mut Chance) -> Vec<[DiskLimit; 2]> {
    let other = other_quota(chance);
    let hourly = chance.within(20..60) as u32;
    let hourly = Quota::from(FixedWindow { limit: hourly, align: Align::Epoch(HOUR) });
    let hasher = KeyHasher::new(KEY_SECRET);
    let mut of_caller = |caller: usize| {
        let owner = hasher.hash([(b'c', caller.to_string().as_bytes())]);
        let fallback = *chance.pick(&[Fallback::Local, Fallback::Open, Fallback::Closed]);
        let limit = |name: &str, quota: &Quota| {
            let id = LimitId::new("simulated", name, "any", quota.longest().as_micros() as u64);
            let (name, key) = (format!("caller {caller} {name}"), Key::new(owner, owner, id));
            DiskLimit { limit: Limit { name, quota: quota.clone(), key }, fallback }
        };
        [limit("hourly", &hourly), limit("other", &other)]
    };
    (0..callers).map(&mut of_caller).collect()
}

/// Limits of many callers whose counters are only written, so that a write has several pages.
pub(super) fn crowd() -> Vec<Limit> {
    let quota = Quota::from(FixedWindow { limit: u32::MAX, align: Align::Epoch(HOUR) });
    let hasher = KeyHasher::new(KEY_SECRET);
    let of_caller = |caller: usize| {
        let owner = hasher.hash([(b'x', caller.to_string().as_bytes())]);
        let id = LimitId::new("simulated", "crowd", "any", HOUR.as_micros() as u64);
        let key = Key::new(owner, owner, id);
        Limit { name: format!("one of a crowd, {caller}"), quota: quota.clone(), key }
    };
    (0..CROWD).map(of_caller).collect()
}

fn other_quota(chance: &mut Chance) -> Quota {
    let limit = chance.within(10..40) as u32;
    match chance.below(5) {
        0 => FixedWindow { limit, align: Align::Epoch(MINUTE) }.into(),
        1 => SlidingLog { limit, window: MINUTE }.into(),
        2 => SlidingWindow::new(limit, MINUTE).expect("a window of a minute is valid").into(),
        3 => Gcra::new(limit, MINUTE, limit, 3).expect("a rate of units a minute is valid").into(),
        _ => {
            let (refill, interval) = (limit / 2, MINUTE);
            TokenBucket { capacity: limit, refill, interval, even: false, strict: false }.into()
        }
    }
}
