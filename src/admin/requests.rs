//! Requests in metrics: by policy, route, limit and credential.

use std::time::Duration;

use tollgate_gate::{PolicyTotal, Shared};
use tollgate_identity::AuthResult;
use tollgate_observe::metrics::LimitDecision;
use tollgate_policy::{Limit, Period, Policy};

use super::exposition::{Exposition, MetricKind};

/// A label for what there was no room for.
const OTHER: &str = "_OTHER";

/// The window of what counts requests in flight.
const NO_WINDOW: &str = "_none";

/// Their metrics.
pub(super) fn write_metrics(text: &mut Exposition, shared: &Shared) {
    let totals = shared.series.totals();
    write_requests(text, &totals);
    write_limits(text, &totals);
    write_configured(text, shared);
    let help = "Requests by the kind of their credential, or by what is wrong with it.";
    text.family("tollgate_auth_total", MetricKind::Counter, help);
    for total in &totals {
        for (result, number) in AuthResult::words().zip(&total.auth) {
            text.sample(&[("policy", &total.policy), ("result", result)], *number);
        }
    }
    let help = "Requests whose token names a tier that there is not, and have the default one.";
    text.family("tollgate_unknown_tier_total", MetricKind::Counter, help);
    for total in &totals {
        text.sample(&[("policy", &total.policy)], total.unknown_tiers);
    }
}

fn write_requests(text: &mut Exposition, totals: &[PolicyTotal]) {
    let help = "Requests whose responses have ended.";
    text.family("tollgate_http_requests_total", MetricKind::Counter, help);
    for total in totals {
        for route in &total.routes {
            for (pair, number) in &route.requests {
                let code = pair.map_or(OTHER.to_owned(), |(_, status)| status.to_string());
                let method = pair.map_or(OTHER, |(method, _)| method.name());
                let labels = [
                    ("policy", &*total.policy),
                    ("route", &*route.route),
                    ("method", method),
                    ("code", &code),
                ];
                text.sample(&labels, *number);
            }
        }
    }
    let help = "From a request's head to the end of its response.";
    text.family("tollgate_http_request_duration_seconds", MetricKind::Histogram, help);
    for total in totals {
        for route in &total.routes {
            let labels = [("policy", &*total.policy), ("route", &*route.route)];
            text.histogram(&labels, &route.duration);
        }
    }
    let help = "What the proxy itself took for a request: until it had the response's head, without the upstream's part.";
    text.family("tollgate_added_duration_seconds", MetricKind::Histogram, help);
    for total in totals {
        text.histogram(&[("policy", &total.policy)], &total.added);
    }
    let help = "Requests that have begun and not ended.";
    text.family("tollgate_http_requests_in_flight", MetricKind::Gauge, help);
    each(text, totals, |total| total.in_flight);
    let help = "Bytes of requests' bodies.";
    text.family("tollgate_http_request_body_bytes_total", MetricKind::Counter, help);
    each(text, totals, |total| total.received);
    let help = "Bytes of responses' bodies.";
    text.family("tollgate_http_response_body_bytes_total", MetricKind::Counter, help);
    each(text, totals, |total| total.sent);
}

fn write_limits(text: &mut Exposition, totals: &[PolicyTotal]) {
    let help = "What limits decided about requests: `near` is an `allow` with more than 80 % used.";
    text.family("tollgate_limit_decisions_total", MetricKind::Counter, help);
    for total in totals {
        for limit in &total.limits {
            for (decision, number) in LimitDecision::ALL.into_iter().zip(limit.decisions) {
                let labels = [
                    ("policy", &*total.policy),
                    ("limit", &*limit.limit),
                    ("tier", &*limit.tier),
                    ("decision", decision.name()),
                ];
                text.sample(&labels, number);
            }
        }
    }
    let help = "Units that requests have taken of limits, and those of them that were given back; \
                of costs that responses tell, what was reserved, what they came to, and what of \
                that was not reserved.";
    text.family("tollgate_limit_units_total", MetricKind::Counter, help);
    for total in totals {
        for limit in &total.limits {
            let kinds = [
                ("charged", limit.charged),
                ("refunded", limit.refunded),
                ("reserved", limit.reserved),
                ("settled", limit.settled),
                ("debt", limit.debt),
            ];
            for (kind, number) in kinds {
                let labels = [
                    ("policy", &*total.policy),
                    ("limit", &*limit.limit),
                    ("tier", &*limit.tier),
                    ("kind", kind),
                ];
                text.sample(&labels, number);
            }
        }
    }
}

/// A window of a rate in force.
struct ConfiguredWindow<'p> {
    policy: &'p str,
    limit: &'p str,
    tier: &'p str,
    window: String,
    units: u32,
    /// None: of what counts requests in flight.
    seconds: Option<u64>,
}

impl ConfiguredWindow<'_> {
    fn labels(&self) -> [(&str, &str); 4] {
        let ConfiguredWindow { policy, limit, tier, window, .. } = self;
        [("policy", policy), ("limit", limit), ("tier", tier), ("window", window)]
    }
}

/// What the limits of the policies in force are.
fn write_configured(text: &mut Exposition, shared: &Shared) {
    let snapshot = shared.snapshot();
    let windows: Vec<_> = snapshot.policies.iter().flat_map(windows_of).collect();
    let help = "Units that a caller of the tier may use in the window.";
    text.family("tollgate_limit_units", MetricKind::Gauge, help);
    for window in &windows {
        text.sample(&window.labels(), window.units.into());
    }
    let help = "Seconds that the window lasts.";
    text.family("tollgate_limit_window_seconds", MetricKind::Gauge, help);
    for window in &windows {
        if let Some(seconds) = window.seconds {
            text.sample(&window.labels(), seconds);
        }
    }
}

fn windows_of(policy: &Policy) -> Vec<ConfiguredWindow<'_>> {
    let mut windows = Vec::new();
    for Limit { name, rates, .. } in &policy.limits {
        for (tier, allowances) in policy.identity.tiers.names().zip(rates) {
            windows.extend(allowances.iter().map(|allowance| {
                let seconds = allowance.window_secs;
                let length = seconds.map(|seconds| Period::Length(Duration::from_secs(seconds)));
                ConfiguredWindow {
                    policy: &policy.name,
                    limit: name,
                    tier,
                    window: length.map_or(NO_WINDOW.into(), |length| length.to_string()),
                    units: allowance.quota.capacity(),
                    seconds,
                }
            }));
        }
    }
    windows
}

fn each(text: &mut Exposition, totals: &[PolicyTotal], number: impl Fn(&PolicyTotal) -> u64) {
    for total in totals {
        text.sample(&[("policy", &total.policy)], number(total));
    }
}
