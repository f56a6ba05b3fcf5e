//! What each limit would have done, for each tier and window.

use std::collections::HashMap;

use super::{
    Curve, LimitAnswer,
    curve::{Usage, share},
    keyed::Keyed,
};
use crate::{
    clock::Timestamp,
    limit::{Align, Quota, Retry},
    policy::{Allowance, Limit, Policies, Policy, Route},
    preview::{ChargeMode, JudgedCharge},
};

/// Charges that are counted together.
const WAITING: usize = 64;

/// What was counted of all limits.
#[derive(Default)]
pub(super) struct LimitCounts<'p> {
    positions: Keyed<(usize, u8), usize>,
    all: Vec<LimitCount<'p>>,
    /// Charges that are not counted yet, each with the position of its limit and its time. The memory
    /// that several of them need is waited for together, where it is not in a cache of the processor.
    waiting: Vec<(usize, JudgedCharge<'p>, Timestamp)>,
    /// Requests that a limit could not be judged for.
    not_judged: HashMap<usize, u64>,
}

/// What was counted of a limit, for a tier, in one window.
struct LimitCount<'p> {
    limit: &'p Limit,
    allowance: &'p Allowance,
    mode: ChargeMode,
    tier: usize,
    policy: &'p Policy,
    requests: u64,
    denied: u64,
    keys: Keyed<u128, KeyCount>,
    keys_denied: u64,
    longest_lockout: u64,
    usage: Usage,
    /// Whether all requests cost one unit in the end: what is counted does not depend on the limit.
    is_plain: bool,
}

/// What was counted of a caller, or whatever else the limit counts by.
#[derive(Default)]
struct KeyCount {
    /// The end of the present window, in microseconds since the epoch.
    window_end: u64,
    /// Since when it is denied, in microseconds since the epoch; 0: it is not.
    locked_since: u64,
    used: u32,
    peak: u32,
    is_denied: bool,
}

impl<'p> LimitCounts<'p> {
    /// Counts a charge at `now`.
    pub(super) fn add(&mut self, policy: &'p Policy, charge: &JudgedCharge<'p>, now: Timestamp) {
        let place = std::ptr::from_ref(charge.allowance).addr();
        let position = *self.positions.entry((place, charge.mode as u8)).or_insert_with(|| {
            self.all.push(LimitCount::new(policy, charge));
            self.all.len() - 1
        });
        self.waiting.push((position, *charge, now));
        if self.waiting.len() >= WAITING {
            self.count_waiting();
        }
    }

    fn count_waiting(&mut self) {
        for (position, charge, now) in self.waiting.drain(..) {
            if let Some(count) = self.all.get_mut(position) {
                count.add(&charge, now);
            }
        }
    }

    /// Counts a request for which the limits of its route could not be judged, but for those that
    /// were charged.
    pub(super) fn add_not_judged(&mut self, policy: &Policy, route: &Route) {
        let limits = route.limits.iter().filter_map(|at| policy.limits.get(*at));
        for limit in limits.filter(|limit| !limit.is_by_address()) {
            *self.not_judged.entry(std::ptr::from_ref(limit).addr()).or_default() += 1;
        }
    }

    /// Counts a request that was refused because the log does not have what this limit counts by.
    pub(super) fn add_without_key(&mut self, policy: &Policy, limit: &str) {
        if let Some(limit) = policy.limits.iter().find(|own| *own.name == *limit) {
            *self.not_judged.entry(std::ptr::from_ref(limit).addr()).or_default() += 1;
        }
    }

    /// The answers, and how many each limit would deny, were it another one: the limit that denies
    /// most first.
    pub(super) fn report(mut self, policies: &Policies) -> (Vec<LimitAnswer>, Vec<Curve>) {
        self.count_waiting();
        let has_several = policies.iter().nth(1).is_some();
        let not_judged = self.not_judged;
        let mut all = self.all;
        all.sort_by(|one, other| {
            let rank = |count: &LimitCount<'_>| (count.denied, count.requests);
            rank(other).cmp(&rank(one)).then_with(|| one.limit.name.cmp(&other.limit.name))
        });
        let mut answers = Vec::new();
        let mut curves = Vec::new();
        for mut count in all {
            count.end_windows();
            let name = match has_several {
                true => format!("{}/{}", count.policy.name, count.limit.name),
                false => count.limit.name.to_string(),
            };
            let missed = not_judged.get(&std::ptr::from_ref(count.limit).addr());
            answers.push(count.answer(&name, missed.copied().unwrap_or_default()));
            curves.extend(count.curve(&name));
        }
        (answers, curves)
    }
}

impl<'p> LimitCount<'p> {
    fn new(policy: &'p Policy, charge: &JudgedCharge<'p>) -> LimitCount<'p> {
        LimitCount {
            limit: charge.limit,
            allowance: charge.allowance,
            mode: charge.mode,
            tier: charge.tier,
            policy,
            requests: 0,
            denied: 0,
            keys: Keyed::default(),
            keys_denied: 0,
            longest_lockout: 0,
            usage: Usage::default(),
            is_plain: true,
        }
    }

    fn add(&mut self, charge: &JudgedCharge<'_>, now: Timestamp) {
        let micros = now.as_micros();
        self.requests += 1;
        self.is_plain &= charge.asked == 1 && charge.cost == 1;
        let key = self.keys.entry(charge.key).or_default();
        if micros >= key.window_end {
            end_window(&mut self.usage, key);
            key.window_end = window_end(&charge.allowance.quota, now).as_micros();
        }
        key.used = key.used.saturating_add(charge.cost);
        if charge.fits {
            key.locked_since = 0;
            return;
        }
        self.denied += 1;
        if !key.is_denied {
            key.is_denied = true;
            self.keys_denied += 1;
        }
        if key.locked_since == 0 {
            key.locked_since = micros;
        }
        let until = match charge.retry {
            Retry::At(until) => until.as_micros(),
            Retry::Now | Retry::Never => micros,
        };
        let lockout = until.max(micros) - key.locked_since;
        self.longest_lockout = self.longest_lockout.max(lockout);
    }

    /// Ends the windows that are open still.
    fn end_windows(&mut self) {
        for key in self.keys.values_mut() {
            end_window(&mut self.usage, key);
            *self.usage.peaks.entry(key.peak).or_default() += 1;
        }
    }

    fn answer(&self, name: &str, not_judged: u64) -> LimitAnswer {
        LimitAnswer {
            limit: name.to_owned(),
            tier: self.tier_name().to_owned(),
            mode: self.mode.name().to_owned(),
            algorithm: self.allowance.quota.kind().name().to_owned(),
            window_seconds: self.allowance.window_secs,
            allows: self.allowance.quota.capacity(),
            requests: self.requests,
            denied: self.denied,
            denied_share: share(self.denied, self.requests),
            callers: self.keys.len() as u64,
            callers_denied: self.keys_denied,
            longest_lockout_seconds: self.longest_lockout as f64 / 1e6,
            not_judged,
        }
    }

    fn curve(&self, name: &str) -> Option<Curve> {
        let window_seconds = self.allowance.window_secs?;
        let present = self.allowance.quota.capacity();
        let suggested = self.usage.suggested();
        let is_fixed = matches!(self.allowance.quota, Quota::FixedWindow(_));
        Some(Curve {
            limit: name.to_owned(),
            tier: self.tier_name().to_owned(),
            window_seconds,
            is_exact: is_fixed && self.is_plain,
            present,
            suggested,
            callers: self.keys.len() as u64,
            requests: self.requests,
            points: self.usage.points(&[present, suggested]),
        })
    }

    fn tier_name(&self) -> &'p str {
        self.policy.identity.tiers.names().nth(self.tier).unwrap_or_default()
    }
}

fn end_window(usage: &mut Usage, key: &mut KeyCount) {
    if key.used > 0 {
        *usage.windows.entry(key.used).or_default() += 1;
        key.peak = key.peak.max(key.used);
        key.used = 0;
    }
}

/// The end of the window that a charge at `now` is in, if it is the first in it. Other algorithms
/// have no such windows: for them, they begin with the caller's first request.
fn window_end(quota: &Quota, now: Timestamp) -> Timestamp {
    match quota {
        Quota::FixedWindow(window) => window.align.end(now),
        quota => Align::FirstRequest(quota.longest()).end(now),
    }
}
