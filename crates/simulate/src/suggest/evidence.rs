//! A suggested number, and the evidence for it.

use crate::Curve;

/// The evidence for a number.
pub(super) fn evidence(curve: &Curve, of_tier: &str) -> String {
    let at = curve.points.iter().find(|point| point.allows == curve.suggested);
    let busiest = curve.points.iter().find(|point| point.requests_denied == 0);
    let busiest = busiest.map_or(0, |point| point.allows);
    let (callers_denied, part) =
        at.map_or((0, 0.0), |point| (point.callers_denied, point.requests_share * 100.0));
    let requests = if curve.requests == 1 { "request" } else { "requests" };
    let callers = if curve.callers == 1 { "caller" } else { "callers" };
    // What they use with the other tier is not in the number.
    let tiers = match curve.shares_counters {
        true => " Some of them also have another tier, and use more.",
        false => "",
    };
    format!(
        "{} {requests}, {} {callers}{of_tier}; the busiest used {busiest} in {}. {}/{} denies {} of \
         them, {part:.2} % of the requests.{tiers}",
        curve.requests,
        curve.callers,
        in_words(curve.window_seconds),
        curve.suggested,
        unit(curve.window_seconds),
        callers_denied,
    )
}

/// What `rate` is for these windows.
pub(super) fn rates(curves: &[&Curve]) -> String {
    let rates: Vec<String> = curves
        .iter()
        .map(|curve| format!("{}/{}", curve.suggested, unit(curve.window_seconds)))
        .collect();
    match rates.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn unit(seconds: u64) -> &'static str {
    if seconds == 3600 { "hour" } else { "minute" }
}

fn in_words(seconds: u64) -> &'static str {
    if seconds == 3600 { "an hour" } else { "a minute" }
}
