//! A suggested number, and the evidence for it.

use super::words::one_line;
use crate::{Curve, Report, run::Names};

/// A log of so many seconds says something about hours.
const HOURS: f64 = 7200.0;

/// Whether a log is long enough for the number of a curve.
pub(super) fn is_said(curve: &Curve, report: &Report) -> bool {
    curve.window_seconds < 3600 || report.read.seconds >= HOURS
}

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
    let why = match curve.refused_callers {
        0 => "far more than all others",
        refused if refused == curve.outlier_callers => "whose credentials did not pass",
        _ => "far more than all others, or with credentials that did not pass",
    };
    (curve.outlier_callers > 0)
        .then(|| format!("OUTLIERS, not in this number: {named}{others}, {why}.{with}"))
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

pub(super) fn unit(seconds: u64) -> &'static str {
    if seconds == 3600 { "hour" } else { "minute" }
}

fn in_words(seconds: u64) -> &'static str {
    if seconds == 3600 { "an hour" } else { "a minute" }
}
