//! What each limit would have done, for each tier and window.

use std::time::Duration;

use rustc_hash::FxHashMap;
use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_limit::{Align, Quota, Retry};
use tollgate_policy::{Allowance, Enforcement, Limit, Policies, Policy};
use tollgate_preview::{ChargeMode, JudgedCharge};

use super::{
    Curve, LimitAnswer,
    curve::{Usage, share},
    left_out::{LeftOut, Tries},
    not_judged::NotJudged,
};

/// What stands in place of a tier's name for an override.
const OVERRIDE: &str = "override";

/// Charges that are counted together.
const WAITING: usize = 64;

/// What was counted of all limits.
#[derive(Default)]
pub(super) struct LimitCounts<'p> {
    positions: FxHashMap<(usize, u8), usize>,
    all: Vec<LimitCount<'p>>,
    /// Charges that are not counted yet, each with the position of its limit, its time and caller.
    /// The memory that several of them need is waited for together, where it is not in a cache of
    /// the processor.
    waiting: Vec<(usize, JudgedCharge<'p>, Timestamp, u64)>,
    /// What callers tried where failures count.
    pub(super) tries: Tries,
    /// Requests that limits could not be judged for.
    pub(super) not_judged: NotJudged<'p>,
}

/// What was counted of a limit, for a tier, in one window.
pub(super) struct LimitCount<'p> {
    pub(super) limit: &'p Limit,
    pub(super) allowance: &'p Allowance,
    pub(super) mode: ChargeMode,
    pub(super) tier: usize,
    policy: &'p Policy,
    pub(super) requests: u64,
    denied: u64,
    pub(super) keys: FxHashMap<u128, KeyCount>,
    keys_denied: u64,
    longest_lockout: u64,
    pub(super) usage: Usage,
    /// Whether all requests cost one unit in the end: what is counted does not depend on the limit.
    is_plain: bool,
    /// Whether some of its counters also count requests of other tiers.
    is_shared: bool,
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

impl<'p> LimitCounts<'p> {
    /// Counts a charge of a caller at `now`.
    pub(super) fn add(
        &mut self,
        policy: &'p Policy,
        charge: &JudgedCharge<'p>,
        now: Timestamp,
        caller: u64,
    ) {
        let place = std::ptr::from_ref(charge.allowance).addr();
        let position = *self.positions.entry((place, charge.mode as u8)).or_insert_with(|| {
            let JudgedCharge { limit, allowance, mode, tier, .. } = *charge;
            self.all.push(LimitCount::new(policy, limit, allowance, mode, tier));
            self.all.len() - 1
        });
        self.waiting.push((position, *charge, now, caller));
        if self.waiting.len() >= WAITING {
            self.count_waiting();
        }
    }

    fn count_waiting(&mut self) {
        for (position, charge, now, caller) in self.waiting.drain(..) {
            if let Some(count) = self.all.get_mut(position) {
                count.add(&charge, now, caller);
            }
        }
    }

    /// The answers, and how many each limit would deny, were it another one: the limit that denies
    /// most first.
    pub(super) fn report(mut self, policies: &Policies) -> (Vec<LimitAnswer>, Vec<Curve>) {
        self.count_waiting();
        let has_several = policies.iter().nth(1).is_some();
        let full_name = |policy: &Policy, limit: &Limit| match has_several {
            true => format!("{}/{}", policy.name, limit.name),
            false => limit.name.to_string(),
        };
        let LimitCounts { not_judged, mut all, tries, .. } = self;
        mark_shared(&mut all);
        all.iter_mut().for_each(LimitCount::end_windows);
        all.sort_by(|one, other| {
            let rank = |count: &LimitCount<'_>| (count.denied, count.requests);
            rank(other).cmp(&rank(one)).then_with(|| one.limit.name.cmp(&other.limit.name))
        });
        let mut answers = Vec::new();
        let mut curves = Vec::new();
        let mut shown = Vec::new();
        let left_out = LeftOut::of(&all, &tries);
        for (count, left_out) in all.iter().zip(&left_out) {
            let name = full_name(count.policy, count.limit);
            // Those who have an override may be of any tier.
            let missed = match count.is_override() {
                true => 0,
                false => {
                    shown.push((count.limit, count.tier));
                    not_judged.of(count.limit, count.tier)
                }
            };
            answers.push(count.answer(&name, missed));
            curves.extend(count.curve(&name, left_out));
        }
        let shown = |limit: &Limit| {
            let own = shown.iter().filter(|(shown, _)| std::ptr::eq(*shown, limit));
            own.map(|(_, tier)| *tier).collect()
        };
        for (of_limit, tier) in not_judged.rest(shown) {
            let name = full_name(of_limit.policy, of_limit.limit);
            let requests = not_judged.of(of_limit.limit, tier);
            let Some(allowance) = of_limit.limit.rates.get(tier).and_then(|rates| rates.last())
            else {
                continue;
            };
            let mode = match of_limit.limit.enforcement {
                Enforcement::Shadow => ChargeMode::Shadow,
                Enforcement::AllCallers | Enforcement::Percent(_) => ChargeMode::Enforce,
            };
            let count = LimitCount::new(of_limit.policy, of_limit.limit, allowance, mode, tier);
            answers.push(count.answer(&name, requests));
        }
        (answers, curves)
    }
}

impl<'p> LimitCount<'p> {
    fn new(
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

    fn add(&mut self, charge: &JudgedCharge<'_>, now: Timestamp, caller: u64) {
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

    fn curve(&self, name: &str, left_out: &LeftOut) -> Option<Curve> {
        let window_seconds = self.allowance.window_secs?;
        let present = self.allowance.quota.capacity();
        let LeftOut { suggested, suggested_with, .. } = *left_out;
        let is_fixed = matches!(self.allowance.quota, Quota::FixedWindow(_));
        Some(Curve {
            limit: name.to_owned(),
            tier: self.tier_name().to_owned(),
            window_seconds,
            is_exact: is_fixed && self.is_plain && !self.is_shared,
            shares_counters: self.is_shared,
            present,
            suggested,
            suggested_with_outliers: suggested_with,
            outliers: left_out.highest.clone(),
            outlier_callers: left_out.callers,
            refused_callers: left_out.refused,
            doubt: left_out.doubt,
            callers: self.keys.len() as u64,
            requests: self.requests,
            points: self.usage.points(&[present, suggested]),
        })
    }

    pub(super) fn is_override(&self) -> bool {
        let is_own = |own: &Allowance| std::ptr::eq(own, self.allowance);
        self.limit.overrides.0.iter().any(|own| own.allowances.iter().any(is_own))
    }

    /// The name of the tier, or that it is an override, whose callers may be of several tiers.
    fn tier_name(&self) -> &'p str {
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
fn mark_shared(all: &mut [LimitCount<'_>]) {
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
