//! What a worker counts of a policy, and where it finds the counters of its routes and limits.

use std::sync::Arc;

use super::{Count, Histogram, LimitCounters, RouteCounters};
use crate::sketch::WorkerSketch;

/// Upper bounds of the time that the proxy itself takes for a request, in seconds.
pub static ADDED_SECONDS: [f64; 11] =
    [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

/// What a worker counts of a policy.
#[derive(Debug)]
#[repr(align(64))]
pub struct PolicyCounters {
    /// Requests that have begun.
    pub begun: Count,
    /// Requests that have ended.
    pub ended: Count,
    /// Bytes of requests' bodies.
    pub received: Count,
    /// Bytes of responses' bodies.
    pub sent: Count,
    /// Requests by what their credentials are, in an order that the caller decides on.
    pub auth: Box<[Count]>,
    /// Requests whose token names a tier that there is not.
    pub unknown_tiers: Count,
    /// How long the proxy itself took, until it had the head of the response.
    pub added: Histogram<11>,
}

impl PolicyCounters {
    /// Counters with this many kinds of credentials.
    pub fn new(auth_results: usize) -> PolicyCounters {
        PolicyCounters {
            begun: Count::default(),
            ended: Count::default(),
            received: Count::default(),
            sent: Count::default(),
            auth: (0..auth_results).map(|_| Count::default()).collect(),
            unknown_tiers: Count::default(),
            added: Histogram::new(&ADDED_SECONDS),
        }
    }
}

/// A worker's counters of one policy in force.
pub struct PolicySeries {
    /// Those of the policy as a whole.
    pub own: Arc<PolicyCounters>,
    /// Those of each route, by its position.
    pub routes: Vec<Arc<RouteCounters>>,
    /// Those of requests that take no route.
    pub no_route: Arc<RouteCounters>,
    /// Those of each limit, by its position.
    pub limits: Vec<LimitSeries>,
    /// The numbers that its tiers have in sketches of callers, by position.
    pub tier_numbers: Vec<u16>,
}

/// A worker's counters of one limit, by the position of a tier.
#[derive(Default)]
pub struct LimitSeries {
    /// Those of the rates in force.
    pub rates: Vec<Arc<LimitCounters>>,
    /// Those of the candidate rates; empty: there are none.
    pub candidate: Vec<Arc<LimitCounters>>,
    /// Who uses it; none: that is not noted.
    pub callers: Option<Arc<WorkerSketch>>,
}

impl PolicySeries {
    /// The counters of the route at this position; none: of requests that take no route.
    pub fn route(&self, position: Option<usize>) -> &RouteCounters {
        position.and_then(|position| self.routes.get(position)).unwrap_or(&self.no_route)
    }

    /// Where it is noted who uses the limit at this position, if it is.
    pub fn callers(&self, position: usize) -> Option<&WorkerSketch> {
        self.limits.get(position)?.callers.as_deref()
    }

    /// The number that the tier at this position has in sketches of callers.
    pub fn tier_number(&self, tier: usize) -> u16 {
        self.tier_numbers.get(tier).copied().unwrap_or_default()
    }

    /// The counters of the limit at this position for the tier at another.
    pub fn limit(
        &self,
        position: usize,
        tier: usize,
        is_candidate: bool,
    ) -> Option<&Arc<LimitCounters>> {
        let LimitSeries { rates, candidate, .. } = self.limits.get(position)?;
        if is_candidate { candidate } else { rates }.get(tier)
    }
}
