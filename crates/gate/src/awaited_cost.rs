//! A charge whose cost the head of the response is to name.

use std::sync::Arc;

use http::HeaderName;
use smallvec::SmallVec;
use tollgate_limit::{Charge, Outcome, OwnedCharge};
use tollgate_observe::metrics::LimitCounters;
use tollgate_policy::Cost;

use super::{counting::LateUnits, recent_costs::CostSource};

/// A charge whose cost the response's head is to name.
pub(super) struct AwaitedCost {
    pub(super) charge: OwnedCharge,
    pub(super) outcome: Outcome,
    /// The field that names it.
    pub(super) header: HeaderName,
    pub(super) source: CostSource,
    /// Units to charge if no head comes.
    pub(super) units_without_head: u32,
    /// Where the units of its limit are counted; none: with another window of the limit.
    pub(super) counters: Option<Arc<LimitCounters>>,
    /// Where the caller is noted that has used them; none: with another window, or nowhere.
    pub(super) late: Option<LateUnits>,
}

/// All such charges of a request.
pub(super) type AwaitedCosts = SmallVec<[AwaitedCost; 2]>;

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
