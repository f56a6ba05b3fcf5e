//! The tables of the page.

use std::fmt::Write as _;

use super::{
    element::{Head, Row, Table, hint, name, sentence},
    tag,
};
use crate::{
    Against, CallerChange, CurvePoint, FileRead, LimitAnswer, Outcome, Read, WorstCaller,
    report::{
        choice::{self, Choice},
        safe, sentences, times,
        words::{self, duration, number, share},
    },
};

/// Limits that are listed: with more, the page would not stay below 300 KB.
const LIMITS: usize = 140;

/// Files that are listed.
const FILES: usize = 20;

/// The most characters of a command: a longer one is not pasted.
const MAX_COMMAND: usize = 2_000;

/// What to choose: the table that the page is for.
pub(super) fn write_choices(page: &mut String, choices: &[Choice<'_>]) {
    let head = [
        Head::Text("Limit"),
        Head::Number("Now"),
        Head::Number("Denies now"),
        Head::Number("Suggested"),
        Head::Number("Would deny then"),
    ];
    let row = |choice: &Choice<'_>| {
        let curve = choice.curve;
        let mode = choice.mode.map(|mode| format!(", {}", name(mode))).unwrap_or_default();
        let window = words::window(curve.window_seconds);
        Row::from(vec![
            format!(
                "{} <small>tier {}, per {window}{mode}</small>",
                name(&curve.limit),
                name(&curve.tier)
            ),
            number(curve.present.into()),
            callers(&choice.present),
            format!("<span class=\"pick\">{}</span>", number(curve.suggested.into())),
            callers(&choice.suggested),
        ])
    };
    let table = Table { caption: "Which limit to choose", class: "choice", head: &head };
    table.write_scrolling(page, choices.iter().take(LIMITS).map(row));
    more_limits(page, choices.len());
}

/// Says how many limits are not listed.
fn more_limits(page: &mut String, all: usize) {
    if all > LIMITS {
        let more = number((all - LIMITS) as u64);
        hint(page, &format!("And {more} more, in the answers as JSON."));
    }
}

fn callers(point: &CurvePoint) -> String {
    match point.callers_denied {
        0 => "nobody".into(),
        denied => format!(
            "{} <small>{} of requests</small>",
            part(denied, point.callers_share, "caller", "callers"),
            cell(&share(point.requests_share))
        ),
    }
}

/// `13 callers (1.3 %)`.
fn part(value: u64, of: f64, one: &str, many: &str) -> String {
    format!("{} ({})", words::count(value, one, many), cell(&share(of)))
}

/// Words of ours as a cell: `<` is in some.
fn cell(text: &str) -> String {
    sentence(text)
}

/// The table under a chart.
pub(super) fn write_curve(page: &mut String, choice: &Choice<'_>, rows: Vec<choice::Row>) {
    let head =
        [Head::Number("Limit"), Head::Number("Callers denied"), Head::Number("Requests denied")];
    let caption = format!("{}: denied by another limit", safe::name(&choice.title()));
    let table = Table { caption: &caption, class: "", head: &head };
    let row = |row: choice::Row| {
        let point = row.point;
        let (class, mark) = match (row.is_present, row.is_suggested) {
            (_, true) => ("pick-row", tag(row.mark(), " ok")),
            (true, false) => ("now", tag(row.mark(), "")),
            (false, false) => ("", String::new()),
        };
        let count = |value, of: f64| format!("{} ({})", number(value), cell(&share(of)));
        let cells = vec![
            format!("{mark} {}", number(point.allows.into())).trim_start().to_owned(),
            count(point.callers_denied, point.callers_share),
            count(point.requests_denied, point.requests_share),
        ];
        Row { class, cells }
    };
    *page += "<details><summary>The chart as a table</summary>\n";
    table.write(page, rows.into_iter().map(row));
    *page += "</details>\n";
}

/// What each limit did as it is.
pub(super) fn write_limits(page: &mut String, limits: &[LimitAnswer]) {
    if limits.is_empty() {
        return hint(page, "No limit was asked about a request.");
    }
    hint(
        page,
        &format!(
            "{} Limits in shadow mode and candidates deny nobody: they count what they would deny.",
            sentences::LOCKOUT
        ),
    );
    let head = [
        Head::Text("Limit"),
        Head::Text("Tier"),
        Head::Text("Mode"),
        Head::Text("Window"),
        Head::Number("Allows"),
        Head::Number("Requests"),
        Head::Number("Denied"),
        Head::Number("Share"),
        Head::Number("Callers hit"),
        Head::Number("Lock-out"),
    ];
    let row = |limit: &LimitAnswer| {
        Row::from(vec![
            name(&limit.limit),
            name(&limit.tier),
            name(&limit.mode),
            limit.window_seconds.map_or("at once".into(), words::window),
            number(limit.allows.into()),
            number(limit.requests),
            number(limit.denied),
            cell(&share(limit.denied_share)),
            format!("{} of {}", number(limit.callers_denied), number(limit.callers)),
            cell(&duration(limit.longest_lockout_seconds)),
        ])
    };
    let table = Table { caption: "The limits as they are", class: "", head: &head };
    table.write_scrolling(page, limits.iter().take(LIMITS).map(row));
    more_limits(page, limits.len());
}

/// Those who would notice first.
pub(super) fn write_worst(page: &mut String, worst: &[WorstCaller]) {
    if worst.is_empty() {
        return hint(page, "No caller would be denied.");
    }
    let head = [
        Head::Text("Caller"),
        Head::Text("Tier"),
        Head::Text("Limit"),
        Head::Number("Requests"),
        Head::Number("Denied"),
        Head::Number("Share"),
        Head::Time("First denied"),
        Head::Text("What explains it"),
    ];
    let row = |own: &WorstCaller| {
        Row::from(vec![
            name(&own.caller),
            name(&own.tier),
            name(&own.limit),
            number(own.requests),
            number(own.denied),
            cell(&share(own.denied_share)),
            safe::html(&safe::at_most(&times::instant(&own.first_denied), 40)),
            format!("<code>{}</code>", safe::html(&safe::at_most(&own.explain, MAX_COMMAND))),
        ])
    };
    let table = Table { caption: "Callers denied most", class: "worst", head: &head };
    table.write_scrolling(page, worst.iter().map(row));
}

/// Who is better and who is worse off.
pub(super) fn write_against(page: &mut String, against: &Against, outcome: &Outcome) {
    let _ = writeln!(page, "<h2>Against {}</h2>", name(&against.policies));
    let _ = writeln!(page, "<p>{}</p>", sentence(&sentences::against(against, outcome)));
    let head = [
        Head::Text("Caller"),
        Head::Number("Requests"),
        Head::Number("Denied by the others"),
        Head::Number("Denied by these"),
    ];
    let row = |own: &CallerChange| {
        Row::from(vec![
            name(&own.caller),
            number(own.requests),
            number(own.denied_against),
            number(own.denied),
        ])
    };
    for (caption, callers) in [
        ("Callers that are better off", &against.better),
        ("Callers that are worse off", &against.worse),
    ] {
        if !callers.is_empty() {
            let _ = writeln!(page, "<h3>{caption}</h3>");
            let table = Table { caption, class: "", head: &head };
            table.write_scrolling(page, callers.iter().map(row));
        }
    }
}

/// The files, and what of them could not be read.
pub(super) fn write_read(page: &mut String, read: &Read) {
    let _ = writeln!(page, "<p>{}</p>", sentence(&sentences::read(read)));
    if let Some(took) = sentences::took(read) {
        let _ = writeln!(page, "<p>{}</p>", sentence(&took));
    }
    let head = [
        Head::Text("File"),
        Head::Text("Format"),
        Head::Number("Lines"),
        Head::Number("Not read"),
        Head::Number("Grain of time"),
    ];
    let row = |file: &FileRead| {
        Row::from(vec![
            name(&file.file),
            name(&file.format),
            number(file.lines),
            number(file.bad),
            cell(&duration(file.grain_seconds)),
        ])
    };
    if !read.files.is_empty() {
        let table = Table { caption: "Files", class: "", head: &head };
        table.write_scrolling(page, read.files.iter().take(FILES).map(row));
    }
    if read.files.len() > FILES {
        hint(page, &format!("And {} more files.", number((read.files.len() - FILES) as u64)));
    }
    if !read.bad_lines.is_empty() {
        *page += "<h3>Lines that could not be read</h3>\n<ul class=\"files\">\n";
        for bad in &read.bad_lines {
            let _ = writeln!(
                page,
                "<li>{}:{}: {}<br><code>{}</code></li>",
                name(&bad.file),
                bad.line,
                sentence(&safe::at_most(&bad.reason, 300)),
                safe::html(&safe::at_most(&bad.text, 200)),
            );
        }
        *page += "</ul>\n";
    }
}
