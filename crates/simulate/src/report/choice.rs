//! What a curve says to someone who chooses a limit: at the present one, at the suggestion, and at
//! the few values between which the answer changes.

use std::collections::BTreeSet;

use super::words;
use crate::{Curve, CurvePoint, LimitAnswer, Report};

/// The fewest rows of a curve's table, if the curve has so many points.
const LEAST: usize = 5;

/// Shares of callers at which people draw a line, and so the rows of a short table: five to seven.
pub(super) const FEW: [f64; 4] = [0.5, 0.1, 0.01, 0.001];

/// The same for a longer table.
pub(super) const MANY: [f64; 11] =
    [0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001, 0.000_1];

/// A curve, with the points that the choice is about.
pub(super) struct Choice<'r> {
    pub(super) curve: &'r Curve,
    /// `enforce`, `shadow` or `candidate`; none, if the report has no such limit.
    pub(super) mode: Option<&'r str>,
    /// With the limit as it is.
    pub(super) present: CurvePoint,
    /// With the suggestion.
    pub(super) suggested: CurvePoint,
}

/// Those of a report, in its order. A curve without a point says nothing, and is left out.
pub(super) fn choices(report: &Report) -> Vec<Choice<'_>> {
    let choice = |curve| {
        let present = at(curve, curve.present)?;
        let suggested = at(curve, curve.suggested)?;
        Some(Choice { curve, mode: mode(report, curve), present, suggested })
    };
    report.curves.iter().filter_map(choice).collect()
}

fn mode<'r>(report: &'r Report, curve: &Curve) -> Option<&'r str> {
    let is_same = |limit: &&LimitAnswer| {
        limit.limit == curve.limit
            && limit.tier == curve.tier
            && limit.window_seconds == Some(curve.window_seconds)
            && limit.allows == curve.present
    };
    report.limits.iter().find(is_same).map(|limit| limit.mode.as_str())
}

/// What a curve says of a limit: its point there, else that of the next lower limit, which denies
/// at least as much. Below the first point, that one: the nearest that there is.
fn at(curve: &Curve, allows: u32) -> Option<CurvePoint> {
    let after = curve.points.partition_point(|point| point.allows <= allows);
    let point = curve.points.get(after.saturating_sub(1))?;
    Some(CurvePoint { allows, ..*point })
}

/// A row of a curve's table.
pub(super) struct Row {
    pub(super) point: CurvePoint,
    pub(super) is_present: bool,
    pub(super) is_suggested: bool,
}

impl Row {
    /// What is said beside it.
    pub(super) fn mark(&self) -> &'static str {
        match (self.is_present, self.is_suggested) {
            (true, true) => "now, suggested",
            (true, false) => "now",
            (false, true) => "suggested",
            (false, false) => "",
        }
    }
}

impl Choice<'_> {
    /// The limit with its tier and window, in words: `core, tier free, a 1 h window`.
    pub(super) fn title(&self) -> String {
        let Curve { limit, tier, window_seconds, .. } = self.curve;
        format!("{limit}, tier {tier}, per {}", words::window(*window_seconds))
    }

    /// The first limit at which no more than each of `shares` of callers is denied, the present
    /// limit, the suggestion, and the first limit that denies nobody. If these are fewer than
    /// five, some in even distances.
    pub(super) fn rows(&self, shares: &[f64]) -> Vec<Row> {
        let points = &self.curve.points;
        let mut chosen = BTreeSet::from([self.curve.present, self.curve.suggested]);
        for share in shares {
            let first = points.partition_point(|point| point.callers_share > *share);
            chosen.extend(points.get(first).map(|point| point.allows));
        }
        let nobody = points.partition_point(|point| point.requests_denied > 0);
        chosen.extend(points.get(nobody).map(|point| point.allows));
        let step = points.len().div_ceil(LEAST).max(1);
        for point in points.iter().step_by(step) {
            if chosen.len() < LEAST {
                chosen.insert(point.allows);
            }
        }
        let row = |allows| {
            let is_present = allows == self.curve.present;
            let is_suggested = allows == self.curve.suggested;
            at(self.curve, allows).map(|point| Row { point, is_present, is_suggested })
        };
        chosen.into_iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn a_curve_is_read_at_the_next_lower_point() {
        let curve = example::curve("core", 60, [(10, 50), (20, 5), (30, 0)]);
        for (allows, denied) in [(5, 50), (10, 50), (19, 50), (20, 5), (29, 5), (30, 0), (99, 0)] {
            let point = at(&curve, allows).unwrap();
            assert_eq!((point.allows, point.callers_denied), (allows, denied), "{allows}");
        }
    }

    #[test]
    fn few_rows_have_the_present_limit_the_suggestion_and_the_end() {
        let report = example::report();
        for choice in choices(&report) {
            let rows = choice.rows(&FEW);
            assert!((4..=7).contains(&rows.len()), "{}: {}", choice.title(), rows.len());
            assert!(rows.iter().any(|row| row.is_present));
            assert!(rows.iter().any(|row| row.is_suggested));
            assert!(rows.iter().any(|row| row.point.requests_denied == 0));
            assert!(rows.is_sorted_by_key(|row| row.point.allows));
        }
    }

    #[test]
    fn a_curve_without_points_is_left_out() {
        let mut report = example::report();
        report.curves[0].points.clear();
        assert_eq!(choices(&report).len(), report.curves.len() - 1);
    }

    #[test]
    fn the_mode_is_that_of_the_limit() {
        let report = example::report();
        let modes: Vec<_> = choices(&report).iter().map(|choice| choice.mode).collect();
        assert_eq!(modes, [Some("enforce"), Some("enforce"), Some("candidate")]);
    }
}
