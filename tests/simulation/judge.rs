//! Judges what has happened by what docs/outages.md promises.
//!
//! What Redis has admitted of a window fits into the limit, and all that was admitted fits into the
//! limit and all shares. Counters have the sum of what callers were admitted, unless something was
//! lost that nobody can know of.

mod memory;
mod sequential;
mod slack;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tollgate_clock::Timestamp;
use tollgate_limit::{DecidedBy, Quota};

use self::slack::Slack;
pub(crate) use self::{
    memory::Room,
    sequential::{Review, review},
};
use crate::{
    ledger::{Admission, Ledger},
    limits::{Limit, SHORT},
    memory::Held,
    network::Doubt,
};

/// What the judge has to know besides the ledger.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Whether nothing at all went wrong.
    pub(crate) is_calm: bool,
    /// Whether some clock was not right.
    pub(crate) has_odd_clocks: bool,
    /// Proxies that share the limits.
    pub(crate) instances: u32,
    /// Proxies that were started, again or for the first time.
    pub(crate) lives: u32,
    /// Whether a server has lost what was written to it.
    pub(crate) has_lost_data: bool,
    /// Whether a server was started again or replaced: proxies then write back what they last
    /// knew, which may be from before another one has given something back.
    pub(crate) was_replaced: bool,
    /// Whether callers were moved to another store: a request that comes in the moment in which a
    /// counter is copied may count twice (docs/stores.md).
    pub(crate) were_moved: bool,
    /// Whether a proxy may have reached only one of the two stores meanwhile: each may then admit
    /// the limit.
    pub(crate) may_decide_twice: bool,
    /// Whether the clock of a server was set.
    pub(crate) has_set_clock: bool,
    /// Whether a proxy was ended with charges that were not written yet.
    pub(crate) has_lost_pending: bool,
    /// All that proxies cannot know.
    pub(crate) doubts: Vec<Doubt>,
    /// Charges of which proxies do not know whether a server has them.
    pub(crate) unknown_charges: u32,
    /// What is used of each hourly limit at the end, by the server that has it.
    pub(crate) used: BTreeMap<usize, u32>,
    /// The servers that take charges in the end.
    pub(crate) primaries: BTreeSet<String>,
    /// Those that each proxy takes for them.
    pub(crate) in_use: Vec<BTreeSet<String>>,
    /// What each proxy holds, and how much it may.
    pub(crate) held: Vec<Held>,
    pub(crate) room: Room,
    /// Tasks that belong to no proxy and no server: each carries a connection.
    pub(crate) carriers: usize,
    /// Connections that are open.
    pub(crate) connections: usize,
}

/// All that is not as promised.
pub(crate) fn judge(limits: &[[Limit; 2]], ledger: &Ledger, facts: &Facts) -> Vec<String> {
    let mut broken = ledger.faulty.clone();
    broken.extend(judge_agreement(facts));
    broken.extend(memory::judge(&facts.held, &facts.room));
    if facts.carriers != facts.connections {
        let (carriers, connections) = (facts.carriers, facts.connections);
        broken.push(format!("{carriers} tasks carry {connections} connections"));
    }
    for (caller, both) in limits.iter().enumerate() {
        for (at, limit) in both.iter().enumerate() {
            broken.extend(judge_bound(limit, (caller, at), ledger, facts));
        }
        broken.extend(judge_sum(&both[0], caller, ledger, facts));
    }
    broken
}

/// All proxies use the same servers, which are primaries.
fn judge_agreement(facts: &Facts) -> Option<String> {
    let Facts { primaries, in_use, .. } = facts;
    let first = in_use.first()?;
    let is_right = !first.is_empty() && first.is_subset(primaries);
    let agree = is_right && in_use.iter().all(|servers| servers == first);
    (!agree).then(|| format!("proxies use {in_use:?} of the primaries {primaries:?}"))
}

/// What may pass of a limit.
struct Bound {
    /// What Redis admits.
    whole: u64,
    /// What proxies admit alone.
    shares: u64,
}

impl Bound {
    fn of(limit: &Limit, facts: &Facts) -> Bound {
        let share = u64::from(limit.share(facts.instances));
        let shares = share * u64::from(facts.lives);
        let stores = if facts.may_decide_twice { 2 } else { 1 };
        Bound { whole: stores * u64::from(limit.quota.capacity()), shares }
    }
}

fn judge_bound(
    limit: &Limit,
    place: (usize, usize),
    ledger: &Ledger,
    facts: &Facts,
) -> Vec<String> {
    if ledger.doubted.contains(&place.0) {
        return Vec::new();
    }
    let kept: Vec<&Admission> = ledger.kept(place).collect();
    let mut bound = Bound::of(limit, facts);
    bound.whole += u64::from(Slack::of(place, ledger, facts).less + ledger.taken_late(place));
    match &limit.quota {
        Quota::FixedWindow(_) => judge_windows(limit, &kept, &bound, facts),
        // What is decided after a clock was set back counts in the window that had begun before.
        Quota::SlidingWindow(_) if facts.has_set_clock => Vec::new(),
        Quota::SlidingWindow(_) => judge_windows(limit, &kept, &bound, facts),
        Quota::SlidingLog(_) => judge_spans(limit, &kept, |span| match span < SHORT {
            true => bound.whole + bound.shares,
            false => u64::MAX,
        }),
        Quota::TokenBucket(bucket) => {
            let (interval, capacity) = (bucket.interval, u64::from(bucket.capacity));
            let all = bound.whole + bound.shares;
            judge_spans(limit, &kept, |span| {
                let refills = span.as_micros().div_ceil(interval.as_micros()) as u64 + 1;
                let refill = (u64::from(bucket.refill) * all).div_ceil(capacity);
                all + refills * refill
            })
        }
        Quota::Gcra(_) => {
            let all = bound.whole + bound.shares;
            judge_spans(limit, &kept, |span| {
                all + (u128::from(all) * span.as_micros() / SHORT.as_micros()) as u64 + 1
            })
        }
        // Leases cannot be restored.
        Quota::Concurrency(_) if facts.has_lost_data || !ledger.resets.is_empty() => Vec::new(),
        Quota::Concurrency(_) => judge_leases(limit, ledger.admitted(place), &bound),
    }
}

/// Holds each window to its bound.
fn judge_windows(limit: &Limit, kept: &[&Admission], bound: &Bound, facts: &Facts) -> Vec<String> {
    let length = limit.quota.longest().as_micros() as u64;
    let length = match limit.quota {
        // It weighs two windows.
        Quota::SlidingWindow(_) => length / 2,
        _ => length,
    };
    let mut windows: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for admission in kept {
        let window = match limit.quota {
            Quota::FixedWindow(_) => admission.reset.as_micros() / length - 1,
            _ => admission.at.as_micros() / length,
        };
        let units = windows.entry(window).or_default();
        let is_alone = admission.decided_by == DecidedBy::Local;
        units[usize::from(is_alone)] += u64::from(admission.units);
    }
    let too_many = |window: u64, units: u64, who: &str, most: u64| {
        let begun = Timestamp::from_micros(window * length);
        let name = &limit.name;
        (units > most).then(|| format!("{name}: {who} admitted {units} of {most} from {begun} on"))
    };
    let judge_window = |(window, [by_redis, alone]): (u64, [u64; 2])| {
        let by_all = too_many(window, by_redis + alone, "all", bound.whole + bound.shares);
        let by_redis = match facts.has_lost_data {
            true => None,
            false => too_many(window, by_redis, "redis", bound.whole),
        };
        [by_all, by_redis].into_iter().flatten()
    };
    windows.into_iter().flat_map(judge_window).collect()
}

/// Holds the time between any two admissions to a bound that depends on its length.
fn judge_spans(limit: &Limit, kept: &[&Admission], most: impl Fn(Duration) -> u64) -> Vec<String> {
    let mut in_order: Vec<(Timestamp, u64)> =
        kept.iter().map(|it| (it.at, u64::from(it.units))).collect();
    in_order.sort_unstable();
    for (first, (from, _)) in in_order.iter().enumerate() {
        let mut units = 0;
        for (until, more) in &in_order[first..] {
            units += more;
            let span = until.saturating_since(*from);
            let most = most(span);
            if units > most {
                let name = &limit.name;
                return vec![format!("{name}: {units} of {most} in {span:?} from {from} on")];
            }
        }
    }
    Vec::new()
}

/// Holds the requests that are in flight at once to a bound.
fn judge_leases<'l>(
    limit: &Limit,
    admitted: impl Iterator<Item = &'l Admission>,
    bound: &Bound,
) -> Vec<String> {
    let ends_and_begins = |it: &Admission| {
        // A request has one lease, whatever it costs.
        [(it.refunded.unwrap_or(Duration::MAX), -1), (it.answered, 1)]
    };
    let mut changes: Vec<(Duration, i64)> = admitted.flat_map(ends_and_begins).collect();
    changes.sort_unstable();
    let most = (bound.whole + bound.shares) as i64;
    let mut held = 0;
    for (at, change) in changes {
        held += change;
        if held > most {
            return vec![format!("{}: {held} of {most} at once at {at:?}", limit.name)];
        }
    }
    Vec::new()
}

/// Holds a counter to the sum of what its caller was admitted.
fn judge_sum(limit: &Limit, caller: usize, ledger: &Ledger, facts: &Facts) -> Vec<String> {
    let Some(used) = facts.used.get(&caller).copied() else { return Vec::new() };
    if ledger.doubted.contains(&caller) {
        return Vec::new();
    }
    let place = (caller, 0);
    let admitted: u32 = ledger.kept(place).map(|admission| admission.units).sum();
    let slack = Slack::of(place, ledger, facts);
    let name = &limit.name;
    let mut broken = Vec::new();
    let may_lack = facts.has_lost_data || facts.has_lost_pending || facts.may_decide_twice;
    if used + slack.less < admitted && !may_lack {
        broken.push(format!("{name}: {admitted} were admitted, and only {used} are counted"));
    }
    // A server that has lost a reset, before other proxies have heard of it, has the old count.
    let is_reset_lost = facts.has_lost_data && ledger.last_reset(caller).is_some();
    if used > admitted + slack.more && !is_reset_lost && !facts.were_moved {
        broken.push(format!("{name}: {admitted} were admitted, and {used} are counted"));
    }
    broken
}
