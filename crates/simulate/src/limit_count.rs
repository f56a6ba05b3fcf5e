//! What was counted of one limit, for a tier, in one window.

use std::time::Duration;

use rustc_hash::FxHashMap;
use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_limit::{Align, Quota, Retry};
use tollgate_policy::{Allowance, Limit, Policy};
use tollgate_preview::{ChargeMode, JudgedCharge};

use super::{
    LimitAnswer,
    curve::{Usage, share},
};

/// What stands in place of a tier's name for an override.
const OVERRIDE: &str = "override";

/// What was counted of a limit, for a tier, in one window.
pub(super) struct LimitCount<'p> {
    pub(super) limit: &'p Limit,
    pub(super) allowance: &'p Allowance,
    pub(super) mode: ChargeMode,
    pub(super) tier: usize,
    pub(super) policy: &'p Policy,
    pub(super) requests: u64,
    pub(super) denied: u64,
    pub(super) keys: FxHashMap<u128, KeyCount>,
    keys_denied: u64,
    longest_lockout: u64,
    pub(super) usage: Usage,
    /// Whether all requests cost one unit in the end: what is counted does not depend on the limit.
    pub(super) is_plain: bool,
    /// Whether some of its counters also count requests of other tiers.
    pub(super) is_shared: bool,
}

/// What was counted of a caller, or whatever else the limit counts by.
#[derive(Default)]
pub(super) struct KeyCount {
    /// The first caller who used it, as the log names it; 0: it does not.
    pub(super) caller: u64,
    /// The end of the present window, in microseconds since the epoch.
    window_end: u64,
    /// Since when it is denied, in microseconds since the epoch; 0: it is not.
    locked_since: u64,
    used: u32,
    pub(super) peak: u32,
    /// How often it was asked.
    pub(super) requests: u32,
    is_denied: bool,
}

impl<'p> LimitCount<'p> {
    pub(super) fn new(
        policy: &'p Policy,
        limit: &'p Limit,
        allowance: &'p Allowance,
        mode: ChargeMode,
        tier: usize,
    ) -> LimitCount<'p> {
        LimitCount {
            limit,
            allowance,
            mode,
            tier,
            policy,
            requests: 0,
            denied: 0,
            keys: FxHashMap::default(),
            keys_denied: 0,
            longest_lockout: 0,
            usage: Usage::default(),
            is_plain: true,
            is_shared: false,
        }
    }

    pub(super) fn add(&mut self, charge: &JudgedCharge<'_>, now: Timestamp, caller: u64) {
        let micros = now.as_micros();
        self.requests += 1;
        self.is_plain &= charge.asked == 1 && charge.cost == 1;
        let new = || KeyCount { caller, ..KeyCount::default() };
        let key = self.keys.entry(charge.key).or_insert_with(new);
        key.requests = key.requests.saturating_add(1);
        if micros >= key.window_end {
            end_window(&mut self.usage, key);
            key.window_end = window_end(charge.allowance, now).as_micros();
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
    pub(super) fn end_windows(&mut self) {
        for key in self.keys.values_mut() {
            end_window(&mut self.usage, key);
            *self.usage.peaks.entry(key.peak).or_default() += 1;
        }
    }

    pub(super) fn answer(&self, name: &str, not_judged: u64) -> LimitAnswer {
        LimitAnswer {
            limit: name.to_owned(),
            tier: self.tier_name().to_owned(),
            mode: self.mode.keyword().to_owned(),
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

    pub(super) fn is_override(&self) -> bool {
        let is_own = |own: &Allowance| std::ptr::eq(own, self.allowance);
        self.limit.overrides.0.iter().any(|own| own.allowances.iter().any(is_own))
    }

    /// The name of the tier, or that it is an override, whose callers may be of several tiers.
    pub(super) fn tier_name(&self) -> &'p str {
        if self.is_override() {
            return OVERRIDE;
        }
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
/// have no such windows: for them, they begin with the caller's first request, and are as long as
/// the time in which all that is allowed comes back.
fn window_end(allowance: &Allowance, now: Timestamp) -> Timestamp {
    match (&allowance.quota, allowance.window_secs) {
        (Quota::FixedWindow(window), _) => window.align.end(now),
        (_, Some(seconds)) => Align::FirstRequest(Duration::from_secs(seconds)).end(now),
        (quota, None) => Align::FirstRequest(quota.longest()).end(now),
    }
}

/// Marks those that share counters with another tier: where callers of several tiers come from one
/// address, a limit by address counts them together.
pub(super) fn mark_shared(all: &mut [LimitCount<'_>]) {
    let is_same_limit = |one: &LimitCount<'_>, other: &LimitCount<'_>| {
        std::ptr::eq(one.limit, other.limit)
            && (one.allowance.id, one.mode) == (other.allowance.id, other.mode)
    };
    for at in 1..all.len() {
        let (before, rest) = all.split_at_mut(at);
        let Some(own) = rest.first_mut() else { continue };
        for other in before {
            if !is_same_limit(own, other) {
                continue;
            }
            let (few, many) = match own.keys.len() < other.keys.len() {
                true => (&own.keys, &other.keys),
                false => (&other.keys, &own.keys),
            };
            if few.keys().any(|key| many.contains_key(key)) {
                own.is_shared = true;
                other.is_shared = true;
            }
        }
    }
}
