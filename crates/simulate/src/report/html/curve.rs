//! The chart of a curve: the limit on the x axis, shares of callers and of requests on the y axis,
//! the present limit and the suggestion as vertical lines.
//!
//! Places are in percent of the chart, so that it is as wide as the screen while its text keeps its
//! size. Only the lines are stretched.

use std::fmt::Write as _;

use super::element::sentence;
use crate::{
    CurvePoint,
    report::{
        choice::Choice,
        safe,
        words::{count, number, share},
    },
};

/// Marks on the y axis.
const SHARES: [f64; 6] = [0.0, 0.001, 0.01, 0.1, 0.5, 1.0];

/// Limits that are further apart than this are drawn on a logarithmic scale.
const WIDE: f64 = 20.0;

/// The most marks on the x axis: so many numbers fit on a phone.
const MAX_TICKS: usize = 5;

/// Appends what all charts share: the lines of the y axis with their numbers, and what each line
/// is.
pub(super) fn write_grid(page: &mut String) {
    *page += "<svg class=\"defs\" aria-hidden=\"true\"><defs><g id=\"grid\" class=\"grid\">\
              <svg y=\"100%\"><path class=\"s deny\" d=\"M0 31h16\"/>\
              <text x=\"21\" y=\"35\">callers denied</text>\
              <path class=\"s allow dash\" d=\"M118 31h16\"/>\
              <text x=\"139\" y=\"35\">requests denied</text>\
              <text class=\"e\" x=\"100%\" y=\"35\">limit</text></svg>\n";
    for part in SHARES {
        let y = 100.0 - height(part) * 100.0;
        let _ = write!(
            page,
            "<line x1=\"0\" x2=\"100%\" y1=\"{y:.1}%\" y2=\"{y:.1}%\"/>\
             <text class=\"e\" x=\"-8\" y=\"{y:.1}%\" dy=\"4\">{}</text>",
            share(part)
        );
    }
    *page += "</g></defs></svg>\n";
}

/// The height of a share, from 0 to 1: its cube root. So 0.1 % is seen beside 100 %, and, unlike on
/// a logarithmic scale, nothing is at 0.
fn height(part: f64) -> f64 {
    if part.is_finite() { part.clamp(0.0, 1.0).cbrt() } else { 0.0 }
}

/// Appends the chart, drawn with about `most` points a line. Its name is the heading `h{at}`.
pub(super) fn write(page: &mut String, choice: &Choice<'_>, at: usize, most: usize) {
    let scale = Scale::of(choice);
    let points = thinned(choice, &scale, most);
    let _ = writeln!(
        page,
        "<svg class=\"chart\" role=\"img\" aria-labelledby=\"h{at}\" aria-describedby=\"d{at}\">\
         <desc id=\"d{at}\">{}</desc>\
         <use href=\"#grid\"/>",
        sentence(&description(choice))
    );
    *page += "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">";
    for (class, part) in [
        ("s allow dash", (|point| point.requests_share) as fn(&CurvePoint) -> f64),
        ("s deny", |point| point.callers_share),
    ] {
        *page += &format!("<path class=\"{class}\" d=\"{}\"/>", path(&points, &scale, part));
    }
    *page += "</svg>\n";
    *page += "<g class=\"m\">";
    for tick in scale.ticks() {
        let x = scale.place(tick) * 100.0;
        let text = number(tick.into());
        let _ = write!(page, "<text x=\"{x:.1}%\" y=\"100%\" dy=\"17\">{text}</text>");
    }
    *page += "</g>\n";
    let (up, higher) = (14, 30);
    if choice.present.allows == choice.suggested.allows {
        let name = format!("now and suggested {}", number(choice.present.allows.into()));
        write_mark(page, &scale, "g", &name, (&choice.suggested, up));
        return *page += "</svg>\n";
    }
    let present = format!("now {}", number(choice.present.allows.into()));
    let suggested = format!("suggested {}", number(choice.suggested.allows.into()));
    for (class, name, point, up) in
        [("v", present, &choice.present, up), ("g", suggested, &choice.suggested, higher)]
    {
        write_mark(page, &scale, class, &name, (point, up));
    }
    *page += "</svg>\n";
}

/// A vertical line with its label above the chart, the two in lines of their own.
fn write_mark(
    page: &mut String,
    scale: &Scale,
    class: &str,
    name: &str,
    (point, up): (&CurvePoint, u32),
) {
    let place = scale.place(point.allows);
    let x = place * 100.0;
    let anchor = match place {
        place if place < 0.33 => "",
        place if place > 0.67 => " class=\"e\"",
        _ => " class=\"m\"",
    };
    let label = match point.callers_denied {
        0 => format!("{name}: denies nobody"),
        _ => format!("{name}: {} of callers", safe::html(&share(point.callers_share))),
    };
    let _ = writeln!(
        page,
        "<g class=\"{class}\"><line x1=\"{x:.1}%\" x2=\"{x:.1}%\" y1=\"-{}\" y2=\"100%\"/>\
         <text{anchor} x=\"{x:.1}%\" y=\"-{up}\">{label}</text></g>",
        up - 4
    );
}

/// What the chart says, in words.
fn description(choice: &Choice<'_>) -> String {
    let says = |point: &CurvePoint| {
        format!(
            "{}: {} ({}), {} ({})",
            number(point.allows.into()),
            count(point.callers_denied, "caller", "callers"),
            share(point.callers_share),
            count(point.requests_denied, "request", "requests"),
            share(point.requests_share),
        )
    };
    format!("Now {}. Suggested {}.", says(&choice.present), says(&choice.suggested))
}

/// Where limits are on the x axis.
struct Scale {
    least: f64,
    most: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// Wide enough for all points, the present limit and the suggestion.
    fn of(choice: &Choice<'_>) -> Self {
        let points = &choice.curve.points;
        let marks = [choice.present.allows, choice.suggested.allows];
        let all = || points.iter().map(|point| point.allows).chain(marks);
        let least = f64::from(all().min().unwrap_or_default().max(1));
        let most = f64::from(all().max().unwrap_or_default()).max(least + 1.0);
        Self { least, most, is_logarithmic: most / least > WIDE }
    }

    /// From 0 to 1.
    fn place(&self, allows: u32) -> f64 {
        let allows = f64::from(allows).clamp(self.least, self.most);
        match self.is_logarithmic {
            true => (allows / self.least).ln() / (self.most / self.least).ln(),
            false => (allows - self.least) / (self.most - self.least),
        }
    }

    /// Round numbers with room between them.
    fn ticks(&self) -> Vec<u32> {
        let steps: &[&[u32]] =
            if self.is_logarithmic { &[&[1, 2, 5], &[1, 3], &[1]] } else { &[&[1]] };
        let all = steps.iter().map(|factors| match self.is_logarithmic {
            true => self.powers(factors, 1),
            false => self.even(),
        });
        let coarser = (2..=10).map(|every| self.powers(&[1], every));
        let fits = |ticks: &Vec<u32>| ticks.len() <= MAX_TICKS;
        all.chain(coarser).find(fits).unwrap_or_default()
    }

    /// Powers of ten times each of `factors`, each `every`th of them.
    fn powers(&self, factors: &[u32], every: usize) -> Vec<u32> {
        let powers = (0..10).step_by(every).filter_map(|power| 10_u32.checked_pow(power));
        let ticks = powers
            .flat_map(|power| factors.iter().filter_map(move |factor| power.checked_mul(*factor)));
        ticks.filter(|tick| self.has(*tick)).collect()
    }

    fn even(&self) -> Vec<u32> {
        let rough = (self.most - self.least) / 4.0;
        let power = 10_f64.powf(rough.log10().floor()).max(1.0);
        let steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(rough).max(1.0) as u32;
        let first = (self.least as u32).div_ceil(step) * step;
        (0..=4).filter_map(|at| first.checked_add(at * step)).filter(|own| self.has(*own)).collect()
    }

    fn has(&self, allows: u32) -> bool {
        (self.least..=self.most).contains(&f64::from(allows))
    }
}

/// The points of a curve that can be told apart when about `most` of them are drawn, with those of
/// the present limit and the suggestion.
fn thinned(choice: &Choice<'_>, scale: &Scale, most: usize) -> Vec<CurvePoint> {
    let mut kept: Vec<CurvePoint> = Vec::new();
    let mut last = None;
    for point in &choice.curve.points {
        let column = (scale.place(point.allows) * most as f64) as usize;
        if last.replace(column) != Some(column) || point.requests_denied == 0 {
            kept.push(*point);
        }
        if point.requests_denied == 0 {
            break;
        }
    }
    kept.extend([choice.present, choice.suggested]);
    kept.sort_by_key(|point| point.allows);
    kept.dedup_by_key(|point| point.allows);
    kept
}

/// Steps: between two points nothing changes. Relative, since small numbers are short.
fn path(points: &[CurvePoint], scale: &Scale, part: fn(&CurvePoint) -> f64) -> String {
    let mut path = String::new();
    let mut last: Option<(f64, f64)> = None;
    for point in points {
        let x = (scale.place(point.allows) * 1000.0).round();
        let y = ((1.0 - height(part(point))) * 1000.0).round();
        let _ = match last {
            None => write!(path, "M{x} {y}"),
            Some(last) if last.1 == y => continue,
            Some(last) => write!(path, "h{}v{}", x - last.0, y - last.1),
        };
        last = Some((x, y));
    }
    path + "H1000"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{choice::choices, tests::example};

    #[test]
    fn marks_of_the_axis_are_round_and_few() {
        for (least, most, expected) in [
            (1.0, 9_000.0, &[1, 10, 100, 1_000][..]),
            (1.0, 30.0, &[1, 2, 5, 10, 20]),
            (10.0, 100.0, &[30, 60, 90]),
            (1.0, 2.0, &[1, 2]),
            (1.0, 4_000_000_000.0, &[1, 100, 10_000, 1_000_000, 100_000_000]),
        ] {
            let scale = Scale { least, most, is_logarithmic: most / least > WIDE };
            let ticks = scale.ticks();
            assert!(ticks.len() <= MAX_TICKS && ticks.len() >= 2, "{ticks:?}");
            if expected != [30, 60, 90] {
                assert_eq!(ticks, expected, "{least} to {most}");
            }
        }
    }

    #[test]
    fn a_line_falls_in_steps() {
        let mut report = example::report();
        report.curves = vec![example::curve("core", 60, [(50, 1_000), (60, 125), (100, 0)])];
        let choices = choices(&report);
        let scale = Scale::of(&choices[0]);
        let points = thinned(&choices[0], &scale, 100);
        assert_eq!(path(&points, &scale, |point| point.callers_share), "M0 0h200v500h800v500H1000");
    }

    #[test]
    fn the_present_limit_may_be_far_outside() {
        let mut report = example::report();
        report.curves[0].present = 4_000_000_000;
        let choices = choices(&report);
        let mut page = String::new();
        write(&mut page, &choices[0], 0, 100);
        assert!(page.contains("now 4,000,000,000: denies nobody"), "{page}");
        assert!(page.contains("x1=\"100.0%\""), "{page}");
    }
}
