//! What was counted until an instant, and how much of it a second.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tollgate_gate::{LimitTotal, PolicyTotal, Shared, candidate_name};
use tollgate_observe::metrics::{ADDED_SECONDS, HistogramTotal};

/// Figures of a second are those of so many seconds before it: of one second alone they jump.
const RECENT: Duration = Duration::from_secs(5);

/// All requests since the start of the process.
#[derive(Clone, Debug, Default)]
pub(super) struct CountTotals {
    pub(super) requests: RequestCounts,
    /// Requests that have begun and not ended.
    pub(super) in_flight: u64,
    /// What the proxy itself took for them.
    pub(super) added: AddedTimes,
    /// By limit and tier.
    pub(super) limits: BTreeMap<TierName, TierCounts>,
}

/// Requests by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct RequestCounts {
    /// Those whose responses have ended.
    pub(super) ended: u64,
    /// Those that were denied: for a limit, a list, a credential or a scope.
    pub(super) denied: u64,
    /// Those that limits would have denied if they were enforced.
    pub(super) would_be_denied: u64,
    /// Those whose response had a status of 500 or above.
    pub(super) errors: u64,
}

/// A limit with a tier. A limit's candidate rates have a name of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TierName {
    pub(super) policy: Box<str>,
    pub(super) limit: Box<str>,
    pub(super) tier: Box<str>,
}

/// What a limit decided about requests of a tier since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct TierCounts {
    /// Those that fitted, `near` included.
    pub(super) allowed: u64,
    /// Those of them after which more than 80 % was used.
    pub(super) near: u64,
    /// Those that were denied.
    pub(super) denied: u64,
    /// Those that would have been, if the limit were enforced for the caller.
    pub(super) would_be_denied: u64,
    /// Those that the limit was not for.
    pub(super) skipped: u64,
    /// Units that requests have taken.
    pub(super) charged: u64,
    /// Units that were given back.
    pub(super) refunded: u64,
}

/// How long the proxy itself took: each bound in seconds, how many were not above it, and how many
/// there were.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AddedTimes {
    cumulative: Vec<(f64, u64)>,
    count: u64,
}

/// What was counted at the instants of the last few seconds, and of the last minute.
pub(super) struct Recent {
    /// The oldest first; never empty.
    all: VecDeque<(Instant, CountTotals)>,
}

/// Requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct RequestRates {
    /// All that ended.
    pub(super) ended: f64,
    /// Those that were denied.
    pub(super) denied: f64,
    /// Those that limits would have denied.
    pub(super) would_be_denied: f64,
    /// Those with a status of 500 or above.
    pub(super) errors: f64,
}

/// What the proxy itself took for most requests, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(in crate::admin) struct AddedQuantiles {
    /// Half of them took no longer. None: there were no requests.
    pub(super) p50: Option<f64>,
    /// All but one of a hundred took no longer.
    pub(super) p99: Option<f64>,
}

impl CountTotals {
    /// So far.
    pub(super) fn of(shared: &Shared) -> CountTotals {
        let mut counted = CountTotals::default();
        (counted.requests.denied, counted.requests.would_be_denied) = shared.denials.totals();
        for PolicyTotal { policy, in_flight, added, routes, limits, .. } in shared.series.totals() {
            counted.in_flight += in_flight;
            counted.added.add(&added);
            for (pair, number) in routes.iter().flat_map(|route| &route.requests) {
                counted.requests.ended += number;
                let is_error = pair.is_some_and(|(_, status)| status >= 500);
                counted.requests.errors += if is_error { *number } else { 0 };
            }
            for total in limits {
                let counts = TierCounts::of(&total);
                let LimitTotal { limit, tier, .. } = total;
                let name = TierName { policy: policy.clone(), limit, tier };
                counted.limits.insert(name, counts);
            }
        }
        counted
    }

    /// What was counted of a limit and a tier.
    pub(super) fn of_tier(&self, name: &TierName) -> TierCounts {
        self.limits.get(name).copied().unwrap_or_default()
    }
}

impl TierName {
    /// Of the candidate rates.
    pub(super) fn candidate(&self) -> TierName {
        TierName { limit: candidate_name(&self.limit).into(), ..self.clone() }
    }
}

impl TierCounts {
    fn of(total: &LimitTotal) -> TierCounts {
        let [allow, near, denied, would_be_denied, skipped] = total.decisions;
        let LimitTotal { charged, refunded, .. } = *total;
        let allowed = allow + near;
        TierCounts { allowed, near, denied, would_be_denied, skipped, charged, refunded }
    }
}

impl RequestCounts {
    /// What came since.
    pub(super) fn since(self, before: RequestCounts) -> RequestCounts {
        RequestCounts {
            ended: self.ended.saturating_sub(before.ended),
            denied: self.denied.saturating_sub(before.denied),
            would_be_denied: self.would_be_denied.saturating_sub(before.would_be_denied),
            errors: self.errors.saturating_sub(before.errors),
        }
    }
}

impl AddedTimes {
    fn add(&mut self, other: &HistogramTotal) {
        if self.cumulative.is_empty() {
            self.cumulative = ADDED_SECONDS.iter().map(|bound| (*bound, 0)).collect();
        }
        for ((_, sum), (_, number)) in self.cumulative.iter_mut().zip(&other.cumulative) {
            *sum += number;
        }
        self.count += other.count;
    }

    /// Quantiles of what came since.
    pub(super) fn since(&self, before: &AddedTimes) -> AddedQuantiles {
        let of = |quantile| self.quantile_since(before, quantile);
        AddedQuantiles { p50: of(0.5), p99: of(0.99) }
    }

    /// As Prometheus' `histogram_quantile` finds it: in a bucket, times are taken to be spread
    /// evenly; what is above all bounds is taken to be the last one.
    fn quantile_since(&self, before: &AddedTimes, quantile: f64) -> Option<f64> {
        let count = self.count.saturating_sub(before.count);
        let rank = quantile * count as f64;
        let (mut low, mut under) = (0.0, 0);
        for (at, (bound, number)) in self.cumulative.iter().enumerate() {
            let earlier = before.cumulative.get(at).map_or(0, |(_, number)| *number);
            let number = number.saturating_sub(earlier);
            if number as f64 >= rank && number > under {
                let part = (rank - under as f64) / (number - under) as f64;
                return Some(low + (bound - low) * part.max(0.0));
            }
            (low, under) = (*bound, number);
        }
        (count > 0).then_some(low)
    }
}

impl Recent {
    pub(super) fn new(now: Instant, counted: CountTotals) -> Recent {
        Recent { all: VecDeque::from([(now, counted)]) }
    }

    /// Adds what was counted until now, and forgets what is too old.
    pub(super) fn take(&mut self, now: Instant, counted: CountTotals) {
        self.all.push_back((now, counted));
        while self.all.get(1).is_some_and(|(then, _)| now - *then >= RECENT) {
            self.all.pop_front();
        }
    }

    /// The latest.
    pub(super) fn latest(&self) -> CountTotals {
        self.all.back().map(|(_, counted)| counted.clone()).unwrap_or_default()
    }

    /// What was counted some seconds ago, and how many they are.
    pub(super) fn earlier(&self) -> (f64, CountTotals) {
        match (self.all.front(), self.all.back()) {
            (Some((then, earlier)), Some((now, _))) => {
                ((*now - *then).as_secs_f64(), earlier.clone())
            }
            _ => Default::default(),
        }
    }
}

impl RequestRates {
    /// Of requests of so many seconds.
    pub(super) fn of(requests: RequestCounts, seconds: f64) -> RequestRates {
        let rate = |number| rate(number, seconds);
        let RequestCounts { ended, denied, would_be_denied, errors } = requests;
        RequestRates {
            ended: rate(ended),
            denied: rate(denied),
            would_be_denied: rate(would_be_denied),
            errors: rate(errors),
        }
    }
}

/// So many in so many seconds, rounded to hundredths.
pub(super) fn rate(number: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => (number as f64 / seconds * 100.0).round() / 100.0,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(counts: [u64; 3], count: u64) -> AddedTimes {
        let bounds = [0.1, 0.2, 0.4];
        AddedTimes { cumulative: bounds.into_iter().zip(counts).collect(), count }
    }

    #[test]
    fn quantiles_are_of_what_came_since() {
        let before = times([100, 100, 100], 100);
        let now = times([100, 200, 200], 200);
        let AddedQuantiles { p50, p99 } = now.since(&before);
        assert!((p50.unwrap() - 0.15).abs() < 1e-9, "{p50:?}");
        assert!((p99.unwrap() - 0.199).abs() < 1e-9, "{p99:?}");
        assert_eq!(now.since(&now), AddedQuantiles::default());
        let longer = times([100, 200, 200], 400);
        assert_eq!(longer.since(&before).p99, Some(0.4));
        assert_eq!(AddedTimes::default().since(&AddedTimes::default()).p50, None);
    }

    #[test]
    fn rates_are_of_the_last_seconds_only() {
        let start = Instant::now();
        let counted = |ended| CountTotals {
            requests: RequestCounts { ended, ..RequestCounts::default() },
            ..CountTotals::default()
        };
        let mut recent = Recent::new(start, counted(0));
        for second in 1..=60 {
            recent.take(start + Duration::from_secs(second), counted(second * second));
        }
        let (seconds, earlier) = recent.earlier();
        assert_eq!((seconds, earlier.requests.ended), (5.0, 55 * 55));
        assert_eq!(recent.all.len(), 6);
        let since = recent.latest().requests.since(earlier.requests);
        assert_eq!(RequestRates::of(since, seconds).ended, 115.0);
        assert_eq!(rate(1, 0.0), 0.0);
    }
}
