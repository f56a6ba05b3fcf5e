//! Costs of requests of the past: a log tells them, in place of their responses.

use std::{num::NonZeroU64, rc::Rc, sync::Arc};

use http::HeaderMap;
use smallvec::SmallVec;
use tollgate_policy::{CostSource, Reserve, units_of};
use tollgate_usage::logged::LoggedUse;

use super::{
    awaited_cost::AwaitedCost,
    cost_tap::units_of_time,
    judge::Judge,
    late_charges::LateCharges,
    request_state::RequestState,
    tally::{DecidedCharge, cost_in},
};

/// Charges of a request that are settled when its response has ended, each with what it has cost.
#[derive(Default)]
pub struct PastCosts(SmallVec<[(AwaitedCost, u32); 1]>);

impl PastCosts {
    /// Whether nothing is to be settled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Judge {
    /// What the log says that an admitted request has cost, of what only its response told. What
    /// the log does not say stays as it was reserved.
    pub fn past_costs(&self, state: &RequestState<'_>, used: &LoggedUse) -> PastCosts {
        let (Some(tally), Some(route)) = (&state.tally, state.route) else {
            return PastCosts::default();
        };
        let costs = tally.body_costs(&route.name, &self.shared, None);
        let priced = costs.into_iter().filter_map(|cost| {
            let limit = tally.charges().nth(cost.position)?.planned.limit;
            let units = units_in_log(&limit.name, &cost.source, used)?;
            Some((cost, units))
        });
        PastCosts(priced.collect())
    }

    /// Settles them, by the present time of the clock.
    pub fn settle_past_costs(&self, costs: PastCosts) {
        let charges = LateCharges::new(Arc::clone(&self.shared), Rc::clone(&self.store));
        for (cost, units) in costs.0 {
            charges.charge(&cost, units);
        }
    }
}

/// What is known of the cost of a request of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostInLog {
    /// It was known when the request came.
    Fixed,
    /// Its response told this.
    Reported(u32),
    /// Its response told it, and the log does not say what.
    Lacking,
}

impl DecidedCharge<'_, '_> {
    /// What is known of the cost, whether there was room for it or not. `headers` are those of the
    /// response that the log has.
    pub fn cost_in_log(&self, used: &LoggedUse, headers: &HeaderMap) -> CostInLog {
        let DecidedCharge { planned, charge, .. } = self;
        let source = planned.cost.source.as_deref().filter(|_| !charge.quota.holds_leases());
        let units = match source {
            None => {
                // What only the body of the request told.
                let is_by_query =
                    matches!(planned.cost.reserve.as_deref(), Some(Reserve::Query(_)));
                return match is_by_query && used.reserved(&planned.limit.name).is_none() {
                    true => CostInLog::Lacking,
                    false => CostInLog::Fixed,
                };
            }
            Some(CostSource::Header(name)) => cost_in(headers, name),
            Some(source) => units_in_log(&planned.limit.name, source, used),
        };
        units.map_or(CostInLog::Lacking, CostInLog::Reported)
    }
}

/// Units that a request has cost a limit of this name, of what its response told after its head.
fn units_in_log(limit: &str, source: &CostSource, used: &LoggedUse) -> Option<u32> {
    match source {
        CostSource::Header(_) => None,
        CostSource::Body(_) => {
            used.reported_cost(limit).map(|units| units_of(units, NonZeroU64::MIN))
        }
        CostSource::RequestBytes(unit) => used.request_bytes.map(|bytes| units_of(bytes, *unit)),
        CostSource::ResponseBytes(unit) => used.response_bytes.map(|bytes| units_of(bytes, *unit)),
        CostSource::UpstreamTime(unit) => used.took.map(|took| units_of_time(took, *unit)),
    }
}
