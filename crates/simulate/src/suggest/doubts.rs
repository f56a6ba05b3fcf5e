//! What is said on top of a suggested policy where a few callers may have made its numbers.

use super::{
    evidence::{is_said, unit},
    words::{CORE, one_line},
};
use crate::{Curve, Doubt, Report, run::Names};

/// The warnings: of the limit of all requests, if the log has few callers; and of each limit whose
/// outliers are too many to be left out.
pub(super) fn warnings(report: &Report, names: &Names) -> Vec<String> {
    let mut curves: Vec<(&Curve, Doubt)> =
        report.curves.iter().filter_map(|curve| Some((curve, curve.doubt?))).collect();
    curves.retain(|(curve, doubt)| {
        is_said(curve, report) && (doubt.apart > 0 || curve.limit == CORE)
    });
    curves.sort_by_key(|(curve, _)| (&curve.limit, &curve.tier, curve.window_seconds));
    let is_same = |one: &(&Curve, Doubt), other: &(&Curve, Doubt)| {
        (&one.0.limit, &one.0.tier) == (&other.0.limit, &other.0.tier)
    };
    curves.chunk_by(is_same).filter_map(|windows| warning(windows, names)).collect()
}

/// The warning of one limit, for one tier.
fn warning(windows: &[(&Curve, Doubt)], names: &Names) -> Option<String> {
    let (curve, doubt) = windows.first()?;
    let Curve { limit, tier, callers, .. } = curve;
    let name = names.get(&doubt.busiest).and_then(|name| name.as_deref());
    let name = one_line(name.unwrap_or("one of them"));
    let percent = doubt.share * 100.0;
    let number = |allows: Option<u32>, curve: &Curve| {
        Some(format!("{}/{}", allows?, unit(curve.window_seconds)))
    };
    let all = |of: fn(&Doubt) -> Option<u32>| {
        let numbers = windows.iter().filter_map(|(curve, doubt)| number(of(doubt), curve));
        numbers.collect::<Vec<String>>().join(" and ")
    };
    let with = all(|doubt| Some(doubt.with));
    let without = match all(|doubt| doubt.without) {
        none if none.is_empty() => "there is no number".to_owned(),
        numbers => numbers,
    };
    let one = if *callers == 1 { "caller" } else { "callers" };
    Some(match doubt.apart {
        0 => format!(
            "WARNING: only {callers} {one} of tier {tier}, too few to tell an attack. The busiest, \
             {name}, made {percent:.0} % of their requests. With it, {limit} is {with}; without \
             it, {without}."
        ),
        apart => format!(
            "WARNING: {apart} of {callers} {one} of {limit}, tier {tier}, used far more than all \
             others: too many to be left out. The busiest of them, {name}, made {percent:.0} % of \
             the requests. With them it is {with}; without them, {without}."
        ),
    })
}
