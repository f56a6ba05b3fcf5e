//! Requests that limits could not be judged for, because the log does not say what they count by.

use std::collections::{BTreeMap, HashMap};

use tollgate_policy::{Limit, Policy, Route};

/// How many requests each limit could not be judged for.
#[derive(Default)]
pub(super) struct NotJudged<'p> {
    /// By the limit's address in memory: limits of several policies may have the same name.
    by_limit: HashMap<usize, OfLimit<'p>>,
}

/// How many requests a limit could not be judged for.
pub(super) struct OfLimit<'p> {
    pub(super) policy: &'p Policy,
    pub(super) limit: &'p Limit,
    /// By the position of the caller's tier; none: it is not known who the caller was.
    by_tier: BTreeMap<Option<usize>, u64>,
}

impl<'p> NotJudged<'p> {
    /// Counts a request that lacks what this limit counts by.
    pub(super) fn add(&mut self, policy: &'p Policy, limit: &'p Limit, tier: Option<usize>) {
        let of_limit = self.by_limit.entry(std::ptr::from_ref(limit).addr());
        let of_limit =
            of_limit.or_insert_with(|| OfLimit { policy, limit, by_tier: BTreeMap::new() });
        *of_limit.by_tier.entry(tier).or_default() += 1;
    }

    /// Counts a request whose caller is not known: none of the limits of its route could be judged,
    /// but for those by address, which were charged.
    pub(super) fn add_route(&mut self, policy: &'p Policy, route: &'p Route) {
        let limits = route.limits.iter().filter_map(|at| policy.limits.get(*at));
        for limit in limits.filter(|limit| !limit.is_by_address()) {
            self.add(policy, limit, None);
        }
    }

    /// Requests that a limit could not be judged for: of callers of this tier, and of those who are
    /// not known.
    pub(super) fn of(&self, limit: &Limit, tier: usize) -> u64 {
        let of_limit = self.by_limit.get(&std::ptr::from_ref(limit).addr());
        let of_tier =
            |tier| of_limit.and_then(|of| of.by_tier.get(&tier)).copied().unwrap_or_default();
        of_tier(Some(tier)) + of_tier(None)
    }

    /// The limits and tiers that have no other row: of these, `shown` has those of each limit.
    pub(super) fn rest(&self, shown: impl Fn(&Limit) -> Vec<usize>) -> Vec<(&OfLimit<'p>, usize)> {
        let mut rows: Vec<(&OfLimit<'p>, usize)> = Vec::new();
        for of_limit in self.by_limit.values() {
            let shown = shown(of_limit.limit);
            let known: Vec<usize> = of_limit.by_tier.keys().copied().flatten().collect();
            if known.is_empty() && shown.is_empty() {
                rows.push((of_limit, of_limit.policy.identity.tiers.default));
            }
            let others = known.into_iter().filter(|tier| !shown.contains(tier));
            rows.extend(others.map(|tier| (of_limit, tier)));
        }
        rows.sort_by_key(|(of_limit, tier)| {
            (of_limit.policy.name.clone(), of_limit.limit.name.clone(), *tier)
        });
        rows
    }
}
