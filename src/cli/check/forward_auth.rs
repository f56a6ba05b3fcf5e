//! What other proxies that ask about requests (forward-auth) do not get of a policy.

use http::StatusCode;
use tollgate_policy::{Limit, Policy, Route};

/// A line for each route of which a proxy that asks gets only a part: that proxy forwards the
/// request itself, so its response is never seen here.
pub(super) fn partly_served(policy: &Policy) -> Vec<String> {
    policy.routes.iter().filter_map(|route| of_route(policy, route)).collect()
}

fn of_route(policy: &Policy, route: &Route) -> Option<String> {
    let limits = route.limits.iter().filter_map(|position| policy.limits.get(*position));
    let parts: Vec<String> = limits.flat_map(|limit| unserved(limit, route)).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "a proxy that asks about {} does not get all of it, as responses are not seen: {}",
            route.name,
            parts.join("; ")
        )
    })
}

/// What needs the response, of one limit.
fn unserved(limit: &Limit, route: &Route) -> Vec<String> {
    let refunds = limit.refund.everybody.and(limit.refund.authenticated);
    let cost = route.cost.as_ref().unwrap_or(&limit.cost);
    let holds_leases = limit.rates.iter().flatten().any(|allowance| allowance.quota.holds_leases());
    let parts = [
        (limit.count_when.is_some(), "counts nothing (`count_when`)"),
        (refunds.names_others(StatusCode::NOT_MODIFIED), "gives nothing back (`refund`)"),
        (cost.from_response_header.is_some(), "keeps the cost that it reserves (`cost`)"),
        (holds_leases, "does not hold requests in flight (`concurrent`)"),
    ];
    let needed = parts.into_iter().filter(|(is_needed, _)| *is_needed);
    needed.map(|(_, what)| format!("limit {} {what}", limit.name)).collect()
}
