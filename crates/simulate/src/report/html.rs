//! The answers as a page of HTML in one file: it opens without a network, needs no script, and can
//! be printed. What to choose comes first, then the charts that show why, then the rest.

mod bars;
mod curve;
mod element;

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use self::element::{hint, paragraph, scrolling, sentence, table};
use super::{
    choice::{self, Choice, FEW, MANY},
    safe, sentences, tables, words,
};
use crate::{Read, Report, WorstCaller};

const STYLE: &str = include_str!("html/report.css");

/// Points of a line in each chart, if there are few charts: about one for each pixel that can be
/// told apart.
const MAX_POINTS: usize = 240;

/// Points of all lines together, so that a page of a hundred limits stays below 300 KB.
const ALL_POINTS: usize = 2_000;

/// Limits that are listed: with more, the page would not stay below 300 KB.
const LIMITS: usize = 140;

/// The most characters of a command: a longer one is not pasted.
const MAX_COMMAND: usize = 2_000;

/// With more limits than this, tables under charts are short.
const FEW_CHARTS: usize = 20;

/// Charts on a page. Further limits are in the tables only.
const CHARTS: usize = 100;

/// The sections, by their anchor.
const SECTIONS: [(&str, &str); 6] = [
    ("choose", "Choose"),
    ("time", "Over time"),
    ("limits", "Limits"),
    ("callers", "Callers"),
    ("store", "Store"),
    ("read", "Read"),
];

/// Writes the page.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(report: &Report, output: &mut dyn Write) -> io::Result<()> {
    let mut page = String::new();
    write_head(&mut page);
    write_summary(&mut page, report);
    let choices = choice::choices(report);
    write_choice(&mut page, &choices);
    write_charts(&mut page, &choices);
    title(&mut page, "time", "Denials over time");
    bars::write(&mut page, &report.timeline, if choices.len() > FEW_CHARTS { 80 } else { 240 });
    title(&mut page, "limits", "The limits as they are");
    if report.limits.is_empty() {
        hint(&mut page, sentences::NO_LIMITS);
    } else {
        let shadow =
            "Limits in shadow mode and candidates deny nobody: they count what they would deny.";
        hint(&mut page, &format!("{} {shadow}", sentences::LOCKOUT));
        scrolling(&mut page, &tables::limits(&report.limits).at_most(LIMITS));
    }
    title(&mut page, "callers", "Callers denied most");
    write_worst(&mut page, &report.worst);
    if let Some(against) = &report.against {
        let policies = safe::html(&safe::name(&against.policies));
        let _ = writeln!(page, "<h2>Against {policies}</h2>");
        paragraph(&mut page, &sentences::against(against, &report.outcome));
        for changes in tables::changes(against) {
            let _ = writeln!(page, "<h3>{}</h3>", changes.caption);
            scrolling(&mut page, &changes);
        }
    }
    title(&mut page, "store", "What the store needs");
    paragraph(&mut page, &sentences::need(&report.store));
    title(&mut page, "read", "What was read");
    write_read(&mut page, &report.read);
    page += "</main>\n</body>\n</html>\n";
    output.write_all(page.as_bytes())
}

fn write_head(page: &mut String) {
    let icon = tollgate_observe::ICON.trim().replacen("<svg", "<svg aria-hidden=\"true\"", 1);
    let _ = writeln!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>What these limits would have done – Tollgate</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header class=\"bar\"><span class=\"brand\">{icon}Tollgate simulate</span>\n\
         <nav aria-label=\"Sections\">"
    );
    for (anchor, name) in SECTIONS {
        let _ = write!(page, "<a href=\"#{anchor}\">{name}</a>");
    }
    *page += "</nav></header>\n<main>\n";
}

fn title(page: &mut String, anchor: &str, text: &str) {
    let _ = writeln!(page, "<h2 id=\"{anchor}\">{text}</h2>");
}

/// What a person reads first: the outcome, and what it is worth.
fn write_summary(page: &mut String, report: &Report) {
    *page += "<h1>What these limits would have done</h1>\n";
    let _ = writeln!(
        page,
        "<p class=\"verdict\">{}</p>",
        sentence(&sentences::verdict(&report.outcome))
    );
    for text in sentences::besides(&report.outcome) {
        paragraph(page, &text);
    }
    hint(page, &sentences::read(&report.read));
    let notes = sentences::notes(report);
    if !notes.is_empty() {
        *page += "<div class=\"alert\"><ul>\n";
        for note in notes {
            let _ = writeln!(page, "<li>{}</li>", sentence(&note));
        }
        *page += "</ul></div>\n";
    }
}

fn write_choice(page: &mut String, choices: &[Choice<'_>]) {
    title(page, "choose", "Which limit to choose");
    if choices.is_empty() {
        return hint(page, sentences::NO_CURVES);
    }
    hint(page, sentences::SUGGESTION);
    *page += "<div class=\"choice\">\n";
    scrolling(page, &tables::choices(choices).at_most(LIMITS));
    *page += "</div>\n";
}

fn write_charts(page: &mut String, choices: &[Choice<'_>]) {
    if choices.is_empty() {
        return;
    }
    *page += "<h2>If a limit were another</h2>\n";
    hint(
        page,
        "How many a limit would deny, from a low one on the left to a high one on the right. A \
         caller counts as denied if one of its requests is. The scale is stretched near 0 %, where \
         limits are chosen.",
    );
    curve::write_grid(page);
    *page += "<div class=\"charts\">\n";
    let shown = choices.len().min(CHARTS);
    let most = (ALL_POINTS / shown.max(1)).min(MAX_POINTS);
    for (at, choice) in choices.iter().take(CHARTS).enumerate() {
        let title = safe::html(&safe::name(&choice.title()));
        let mode = choice.mode.map(tag).unwrap_or_default();
        let _ = writeln!(page, "<figure><figcaption><h3 id=\"h{at}\">{title} {mode}</h3>");
        if let Some(text) = sentences::inexact(choice) {
            let _ = write!(page, "<small>{text}</small>");
        }
        *page += "</figcaption>\n";
        curve::write(page, choice, at, most);
        *page += "<details><summary>The chart as a table</summary>\n";
        table(page, &tables::curve(choice, if shown > FEW_CHARTS { &FEW } else { &MANY }));
        *page += "</details>\n";
        *page += "</figure>\n";
    }
    *page += "</div>\n";
    if choices.len() > shown {
        let more = words::number((choices.len() - shown) as u64);
        hint(page, &format!("{more} more limits have no chart here: see the answers as JSON."));
    }
}

/// A word with a ground of its own.
fn tag(text: &str) -> String {
    format!("<span class=\"tag\">{}</span>", safe::html(&safe::name(text)))
}

/// Those who would notice first.
fn write_worst(page: &mut String, worst: &[WorstCaller]) {
    if worst.is_empty() {
        return hint(page, "No caller would be denied.");
    }
    scrolling(page, &tables::worst(worst));
    hint(page, sentences::EXPLAINED);
    *page += "<ul class=\"plain\">\n";
    for own in worst {
        let command = safe::html(&safe::at_most(&own.explain, MAX_COMMAND));
        let _ = writeln!(page, "<li><code>{command}</code></li>");
    }
    *page += "</ul>\n";
}

/// The files, and what of them could not be read.
fn write_read(page: &mut String, read: &Read) {
    paragraph(page, &sentences::read(read));
    if let Some(took) = sentences::took(read) {
        paragraph(page, &took);
    }
    if !read.files.is_empty() {
        scrolling(page, &tables::files(&read.files));
    }
    if read.bad_lines.is_empty() {
        return;
    }
    *page += "<h3>Lines that could not be read</h3>\n<ul class=\"plain\">\n";
    for bad in &read.bad_lines {
        let _ = writeln!(
            page,
            "<li>{}:{}: {}<br><code>{}</code></li>",
            safe::html(&safe::name(&bad.file)),
            bad.line,
            sentence(&safe::at_most(&bad.reason, 300)),
            safe::html(&safe::at_most(&bad.text, 200)),
        );
    }
    *page += "</ul>\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    fn written(report: &Report) -> String {
        let mut output = Vec::new();
        write(report, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn every_answer_is_there() {
        let page = written(&example::report());
        for expected in [
            "These limits would deny 12,345 of 1,234,567 requests (1\u{a0}%)",
            "The log does not name users",
            "suggested 5,000: ",
            "now 1,000: ",
            "<caption>Which limit to choose</caption>",
            "<caption>The limits as they are</caption>",
            "<caption>Callers denied most</caption>",
            "<caption>Requests and denials over time</caption>",
            "<caption>Callers that are better off</caption>",
            "<caption>Callers that are worse off</caption>",
            "<caption>Files</caption>",
            "<td>12 of 10,234<td>2 h 5 min\n",
            "tollgate explain --address 192.0.2.1 GET &#39;https://a.test/v1/1&#39;",
            "4,321 counters in use at once: 1.5 MiB of memory",
            "access.log.gz:77123",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
        assert_eq!(page.matches(": denied by another limit</caption>").count(), 3);
    }

    #[test]
    fn names_are_text_everywhere() {
        let page = written(&example::hostile());
        assert!(
            !page.contains("<script") && !page.contains("\u{1b}") && !page.contains('\u{202e}')
        );
        assert!(!page.contains("<!--"));
        // As many elements as with harmless names: the names have added a note, an entry.
        for tag in ["<table", "<tr", "<td", "<svg", "<text", "<path"] {
            let counts = [&page, &written(&example::report())].map(|own| own.matches(tag).count());
            assert_eq!(counts[0], counts[1], "{tag}");
        }
    }

    #[test]
    fn a_hundred_limits_are_below_300_kilobytes() {
        let report = example::large();
        let page = written(&report);
        assert!(page.len() < 300_000, "{}", page.len());
        for limit in &report.limits {
            // In both tables, over the chart and in its table.
            assert!(page.matches(limit.limit.as_str()).count() >= 4, "{}", limit.limit);
        }
        assert_eq!(page.matches("role=\"img\"").count(), 102);
    }

    #[test]
    fn a_thousand_limits_are_below_300_kilobytes() {
        let mut report = example::large();
        for limit in &mut report.limits {
            limit.not_judged = 1;
        }
        report.limits = report.limits.iter().cycle().take(1000).cloned().collect();
        report.curves = report.curves.iter().cycle().take(1000).cloned().collect();
        let page = written(&report);
        assert!(page.len() < 300_000, "{}", page.len());
        assert!(page.contains("And 860 more, in the answers as JSON."));
    }

    #[test]
    fn nothing_is_said_plainly() {
        let page = written(&example::nothing());
        for expected in
            ["No request was judged", "there is nothing to suggest", "No limit was asked"]
        {
            assert!(page.contains(expected), "{expected}");
        }
        for report in [example::nothing(), example::broken()] {
            let page = written(&report);
            assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("inf%"));
        }
    }

    #[test]
    fn nothing_is_fetched() {
        let page = written(&example::report());
        for word in ["src=", "url(", "@import", "<script", "<link rel=\"style"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    /// For people who look at the pages in a browser: set TOLLGATE_REPORT_EXAMPLES to a folder.
    #[test]
    #[ignore = "writes files for people to look at"]
    #[expect(clippy::disallowed_methods, reason = "a person names the folder, not a policy")]
    fn examples_are_written() {
        let folder = std::env::var("TOLLGATE_REPORT_EXAMPLES").unwrap();
        for (name, report) in [
            ("report", example::report()),
            ("large", example::large()),
            ("hostile", example::hostile()),
            ("nothing", example::nothing()),
            ("broken", example::broken()),
        ] {
            let folder = std::path::Path::new(&folder);
            let mut text = Vec::new();
            crate::report::text::write(&report, &mut text).unwrap();
            std::fs::write(folder.join(format!("{name}.txt")), text).unwrap();
            let mut markdown = Vec::new();
            crate::report::markdown::write(&report, &mut markdown).unwrap();
            std::fs::write(folder.join(format!("{name}.md")), markdown).unwrap();
            std::fs::write(folder.join(format!("{name}.html")), written(&report)).unwrap();
        }
    }
}
