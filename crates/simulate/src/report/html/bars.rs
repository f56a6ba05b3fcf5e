//! Requests and denials over time, as bars: two charts under each other, since one denial in a
//! thousand requests would not be seen beside them.

use std::fmt::Write as _;

use super::element::{hint, scrolling, sentence};
use crate::{
    Moment, Timeline,
    report::{
        safe, tables, times,
        words::{self, number},
    },
};

/// Appends both charts, with a table of at most so many rows.
pub(super) fn write(page: &mut String, timeline: &Timeline, rows: usize) {
    let buckets = &timeline.buckets;
    if buckets.is_empty() {
        return hint(page, "No request was judged.");
    }
    let each = words::window(timeline.bucket_seconds);
    hint(page, &format!("Each bar is {each}. Times are in UTC."));
    *page += "<figure>\n<figcaption class=\"keys\"><span class=\"key block allow\"><i></i>requests\
              </span><span class=\"key block deny\"><i></i>denied</span>\
              <span class=\"key block would\"><i></i>would be denied by limits in shadow mode and \
              candidates</span></figcaption>\n";
    let none = |_: &Moment| 0;
    let requests = |moment: &Moment| moment.requests;
    write_chart(page, timeline, "low", "Requests", &[("allow", &none, &requests)]);
    let denied = |moment: &Moment| moment.denied;
    let both = |moment: &Moment| moment.denied + moment.would_deny;
    let layers: [Layer<'_>; 2] = [("deny", &none, &denied), ("would", &denied, &both)];
    write_chart(page, timeline, "bars", "Denied requests", &layers);
    *page += "<details><summary>The bars as a table</summary>\n";
    scrolling(page, &tables::timeline(timeline, rows));
    *page += "</details>\n</figure>\n";
}

/// A class, and from where to where its bars reach.
type Layer<'l> = (&'static str, &'l dyn Fn(&Moment) -> u64, &'l dyn Fn(&Moment) -> u64);

fn write_chart(
    page: &mut String,
    timeline: &Timeline,
    class: &str,
    title: &str,
    layers: &[Layer<'_>],
) {
    let buckets = &timeline.buckets;
    let top = |moment: &Moment| layers.last().map_or(0, |layer| layer.2(moment));
    let highest = buckets.iter().enumerate().max_by_key(|(_, moment)| top(moment));
    let (at, most) = highest.map_or((0, 0), |(at, moment)| (at, top(moment)));
    let place = |value: u64| (1000.0 - value as f64 / most.max(1) as f64 * 1000.0).round();
    let when = times::bucket(timeline, at);
    let says = match most {
        0 => "None.".to_owned(),
        _ => format!("At most {}, in the bar that begins at {when}.", number(most)),
    };
    let _ = writeln!(
        page,
        "<svg class=\"chart {class}\" role=\"img\" aria-labelledby=\"t-{class} d-{class}\">\
         <title id=\"t-{class}\">{title} over time</title><desc id=\"d-{class}\">{}</desc>\
         <g class=\"grid\"><line x1=\"0\" x2=\"100%\" y1=\"0\" y2=\"0\"/>\
         <line x1=\"0\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/></g>\
         <text class=\"e\" x=\"-8\" y=\"0\" dy=\"4\">{}</text>\
         <text class=\"e\" x=\"-8\" y=\"100%\" dy=\"4\">0</text>",
        sentence(&says),
        if most > 0 { number(most) } else { String::new() },
    );
    let width = buckets.len();
    let _ = write!(page, "<svg viewBox=\"0 0 {width} 1000\" preserveAspectRatio=\"none\">");
    for (class, from, to) in layers {
        let mut path = String::new();
        for (x, moment) in buckets.iter().enumerate() {
            let (from, to) = (place(from(moment)), place(to(moment)));
            if from > to {
                let _ = write!(path, "M{x}.1 {from}V{to}h.8V{from}");
            }
        }
        let _ = write!(page, "<path class=\"f {class}\" d=\"{path}\"/>");
    }
    *page += "</svg>";
    if class == "bars" {
        let first = safe::html(&times::bucket(timeline, 0));
        let last = safe::html(&times::bucket(timeline, width - 1));
        let _ = write!(page, "<text x=\"0\" y=\"100%\" dy=\"17\">{first}</text>");
        if width > 1 {
            let _ = write!(page, "<text class=\"e\" x=\"100%\" y=\"100%\" dy=\"17\">{last}</text>");
        }
    }
    *page += "</svg>\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_denied_stands_on_what_is() {
        let moments = [(100, 5, 5), (0, 0, 0), (100, 4, 0)];
        let buckets =
            moments.map(|(requests, denied, would_deny)| Moment { requests, denied, would_deny });
        let begins = "2026-03-01T00:00:00Z".into();
        let timeline = Timeline { begins, bucket_seconds: 60, buckets: buckets.into() };
        let mut page = String::new();
        write(&mut page, &timeline, 240);
        for expected in [
            "<path class=\"f allow\" d=\"M0.1 1000V0h.8V1000M2.1 1000V0h.8V1000\"/>",
            "<path class=\"f deny\" d=\"M0.1 1000V500h.8V1000M2.1 1000V600h.8V1000\"/>",
            "<path class=\"f would\" d=\"M0.1 500V0h.8V500\"/>",
            "At most 10, in the bar that begins at 2026-03-01 00:00.",
            "<th scope=\"row\">2026-03-01 00:01<td>0<td>0<td>–<td>0\n",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }
}
