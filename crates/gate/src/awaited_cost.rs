//! A charge whose final cost the response is to tell.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_limit::{Charge, Outcome, OwnedCharge};
use tollgate_observe::metrics::LimitCounters;
use tollgate_policy::{Cost, CostSource};

use super::{counting::LateUnits, recent_costs::RouteLimit};

/// A charge whose final cost the response is to tell.
pub(super) struct AwaitedCost {
    /// Its position among the charges of the request.
    pub(super) position: usize,
    pub(super) charge: OwnedCharge,
    pub(super) outcome: Outcome,
    /// What tells it.
    pub(super) source: Arc<CostSource>,
    /// By what its final cost is remembered.
    pub(super) place: RouteLimit,
    /// Units of what it was charged that are for what the request sends.
    pub(super) input_units: u32,
    /// Units to charge if no head comes.
    pub(super) units_without_head: u32,
    /// Where the units of its limit are counted; none: with another window of the limit.
    pub(super) counters: Option<Arc<LimitCounters>>,
    /// Where the caller is noted that has used them; none: with another window, or nowhere.
    pub(super) late: Option<LateUnits>,
}

/// All such charges of a request.
pub(super) type AwaitedCosts = SmallVec<[AwaitedCost; 1]>;

/// Units that a request costs if its response's head never comes: what the policy says, else the
/// `highest` recent cost up to the limit's capacity; never fewer than `charge` has reserved.
pub(super) fn units_without_head(
    cost: &Cost,
    charge: &Charge<'_>,
    highest: impl FnOnce() -> Option<u32>,
) -> u32 {
    let reserved = charge.cost;
    let learned = || highest().map(|highest| highest.min(charge.quota.capacity()));
    cost.abandoned.or_else(learned).unwrap_or(reserved).max(reserved)
}
