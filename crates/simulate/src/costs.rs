//! How often a log says what a request has cost, where only its response told that.

use std::collections::BTreeMap;

use tollgate_gate::past_costs::CostInLog;
use tollgate_policy::{Policies, Policy};
use tollgate_preview::JudgedCharge;

use super::curve::share;

/// Requests of each limit whose cost only the response told.
#[derive(Default)]
pub(super) struct CostCounts<'p> {
    /// By the names of policy and limit.
    by_limit: BTreeMap<(&'p str, &'p str), CostCount>,
}

#[derive(Default)]
struct CostCount {
    requests: u64,
    /// Those whose cost the log has.
    told: u64,
}

impl<'p> CostCounts<'p> {
    /// Counts the charges of a request.
    pub(super) fn add(&mut self, policy: &'p Policy, charges: &[JudgedCharge<'p>]) {
        let mut latest = None;
        for charge in charges {
            // A limit has a charge for each of its windows.
            let is_first = latest.replace(charge.limit.position) != Some(charge.limit.position);
            if charge.cost_in_log == CostInLog::Fixed || !is_first {
                continue;
            }
            let count = self.by_limit.entry((&policy.name, &charge.limit.name)).or_default();
            count.requests += 1;
            count.told += u64::from(charge.cost_in_log != CostInLog::Lacking);
        }
    }

    /// For how much of its traffic each limit could be judged by what that has cost: a sentence
    /// each, but for those where it was all.
    pub(super) fn notes(&self, policies: &Policies) -> Vec<String> {
        let has_several = policies.iter().nth(1).is_some();
        let lacking = self.by_limit.iter().filter(|(_, count)| count.told < count.requests);
        let notes = lacking.map(|((policy, limit), CostCount { requests, told })| {
            let name = if has_several { format!("{policy}/{limit}") } else { (*limit).to_owned() };
            let percent = share(*told, *requests) * 100.0;
            format!(
                "The log says of {told} of {requests} requests ({percent:.1} %) what they have cost \
                 limit {name}: the others cost what is reserved for them. A log of Tollgate in JSON \
                 has costs, or --column names a field: cost, request_bytes, response_bytes or \
                 duration."
            )
        });
        notes.collect()
    }
}
