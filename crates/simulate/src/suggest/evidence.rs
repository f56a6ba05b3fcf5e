//! A suggested number, and the evidence for it.

use super::words::one_line;
use crate::{Curve, run::Names};

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

/// Who is not in the number of a curve, because they used far more than all others.
pub(super) fn outliers(curve: &Curve, names: &Names) -> Option<String> {
    let window = in_words(curve.window_seconds);
    let named: Vec<String> = curve
        .outliers
        .iter()
        .filter_map(|(key, peak)| {
            let name = one_line(names.get(key)?.as_deref()?);
            Some(format!("{name} ({peak} in {window})"))
        })
        .collect();
    let others = match curve.outlier_callers.saturating_sub(named.len() as u64) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let with = match curve.suggested_with_outliers {
        with if with == curve.suggested => String::new(),
        with => format!(" With them it would be {with}/{}.", unit(curve.window_seconds)),
    };
    let named = named.join(", ");
    (curve.outlier_callers > 0).then(|| {
        format!("OUTLIERS, not in this number: {named}{others}, far more than all others.{with}")
    })
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
