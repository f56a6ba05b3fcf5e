//! The tables of a report. Each form shows them in its own way: how a cell is escaped, and on which
//! side it stands, follows from its column.

use super::{
    choice::{self, Choice},
    safe, times,
    words::{self, count, duration, number, share},
};
use crate::{
    Against, CallerChange, CurvePoint, FileRead, LimitAnswer, Moment, Timeline, WorstCaller,
};

/// Characters of an instant: `2026-03-01 14:05:09 UTC`.
const INSTANT: usize = 23;

/// A table: heads, and rows with a cell for each.
pub(super) struct Table {
    /// What it shows.
    pub(super) caption: String,
    pub(super) columns: &'static [Column],
    /// Printable, and not without end.
    pub(super) rows: Vec<Vec<String>>,
    /// Rows that are not shown.
    pub(super) left_out: usize,
}

/// A column of a table.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) kind: Kind,
}

/// What the cells of a column are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Names, which a client or an operator chose: their beginning tells enough.
    Name,
    /// Words of ours.
    Word,
    /// Instants, each in one line.
    Time,
    Number,
    /// What the eye should find first.
    Strong,
}

const fn name(head: &'static str) -> Column {
    Column { head, kind: Kind::Name }
}

const fn word(head: &'static str) -> Column {
    Column { head, kind: Kind::Word }
}

const fn time(head: &'static str) -> Column {
    Column { head, kind: Kind::Time }
}

const fn figure(head: &'static str) -> Column {
    Column { head, kind: Kind::Number }
}

const fn strong(head: &'static str) -> Column {
    Column { head, kind: Kind::Strong }
}

impl Table {
    fn new(
        caption: &str,
        columns: &'static [Column],
        rows: impl Iterator<Item = Vec<String>>,
    ) -> Table {
        let cell = |(column, cell): (&Column, String)| match column.kind {
            Kind::Name => safe::name(&cell),
            Kind::Time => safe::at_most(&cell, INSTANT),
            Kind::Word | Kind::Number | Kind::Strong => safe::printable(&cell).into_owned(),
        };
        let rows = rows.map(|row| columns.iter().zip(row).map(cell).collect()).collect();
        Table { caption: caption.to_owned(), columns, rows, left_out: 0 }
    }

    /// With so many rows at most.
    pub(super) fn at_most(mut self, rows: usize) -> Table {
        self.left_out = self.rows.len().saturating_sub(rows);
        self.rows.truncate(rows);
        self
    }

    /// What is said of rows that are not shown.
    pub(super) fn more(&self) -> Option<String> {
        let more = || format!("And {} more, in the answers as JSON.", number(self.left_out as u64));
        (self.left_out > 0).then(more)
    }
}

/// What to choose: the table that a report is for.
pub(super) fn choices(choices: &[Choice<'_>]) -> Table {
    const COLUMNS: &[Column] = &[
        name("limit"),
        name("tier"),
        word("window"),
        word("mode"),
        figure("now"),
        figure("denies now"),
        strong("suggested"),
        figure("would deny then"),
    ];
    let denies = |point: &CurvePoint| match point.callers_denied {
        0 => "nobody".to_owned(),
        callers => part(&count(callers, "caller", "callers"), point.callers_share),
    };
    let row = |choice: &Choice<'_>| {
        let curve = choice.curve;
        vec![
            curve.limit.clone(),
            curve.tier.clone(),
            words::window(curve.window_seconds),
            choice.mode.unwrap_or_default().to_owned(),
            number(curve.present.into()),
            denies(&choice.present),
            number(curve.suggested.into()),
            denies(&choice.suggested),
        ]
    };
    Table::new("Which limit to choose", COLUMNS, choices.iter().map(row))
}

/// What another limit would deny.
pub(super) fn curve(choice: &Choice<'_>, shares: &[f64]) -> Table {
    const COLUMNS: &[Column] =
        &[figure("limit"), figure("callers denied"), figure("requests denied"), strong("note")];
    let row = |row: choice::Row| {
        let point = row.point;
        vec![
            number(point.allows.into()),
            part(&number(point.callers_denied), point.callers_share),
            part(&number(point.requests_denied), point.requests_share),
            row.mark().to_owned(),
        ]
    };
    let caption = format!("{}: denied by another limit", safe::name(&choice.title()));
    Table::new(&caption, COLUMNS, choice.rows(shares).into_iter().map(row))
}

/// `13 callers (1.3 %)`.
fn part(amount: &str, of: f64) -> String {
    format!("{amount} ({})", share(of))
}

/// What each limit did as it is.
pub(super) fn limits(limits: &[LimitAnswer]) -> Table {
    const COLUMNS: &[Column] = &[
        name("limit"),
        name("tier"),
        word("mode"),
        word("window"),
        figure("allows"),
        figure("requests"),
        figure("denied"),
        figure("share"),
        figure("callers hit"),
        figure("lock-out"),
    ];
    let row = |limit: &LimitAnswer| {
        vec![
            limit.limit.clone(),
            limit.tier.clone(),
            limit.mode.clone(),
            limit.window_seconds.map_or("at once".into(), words::window),
            number(limit.allows.into()),
            number(limit.requests),
            number(limit.denied),
            share(limit.denied_share),
            format!("{} of {}", number(limit.callers_denied), number(limit.callers)),
            duration(limit.longest_lockout_seconds),
        ]
    };
    Table::new("The limits as they are", COLUMNS, limits.iter().map(row))
}

/// Those who would notice first.
pub(super) fn worst(worst: &[WorstCaller]) -> Table {
    const COLUMNS: &[Column] = &[
        name("caller"),
        name("tier"),
        name("limit"),
        figure("requests"),
        figure("denied"),
        figure("share"),
        time("first denied"),
    ];
    let row = |own: &WorstCaller| {
        vec![
            own.caller.clone(),
            own.tier.clone(),
            own.limit.clone(),
            number(own.requests),
            number(own.denied),
            share(own.denied_share),
            times::instant(&own.first_denied),
        ]
    };
    Table::new("Callers denied most", COLUMNS, worst.iter().map(row))
}

/// Requests and denials over time, in at most so many rows.
pub(super) fn timeline(timeline: &Timeline, rows: usize) -> Table {
    const COLUMNS: &[Column] = &[
        time("from (UTC)"),
        figure("requests"),
        figure("denied"),
        figure("share"),
        figure("would be denied"),
    ];
    let merged = times::merged(timeline, rows);
    let row = |(at, moment): (usize, &Moment)| {
        vec![
            times::bucket(&merged, at),
            number(moment.requests),
            number(moment.denied),
            // Of no requests there is no share.
            share(moment.denied as f64 / moment.requests as f64),
            number(moment.would_deny),
        ]
    };
    let rows = merged.buckets.iter().enumerate().map(row);
    Table::new("Requests and denials over time", COLUMNS, rows)
}

/// Callers for whom something changes: those who are better off, and those who are worse off, if
/// there are any.
pub(super) fn changes(against: &Against) -> Vec<Table> {
    const COLUMNS: &[Column] = &[
        name("caller"),
        figure("requests"),
        figure("denied by the others"),
        figure("denied by these"),
    ];
    let row = |own: &CallerChange| {
        vec![
            own.caller.clone(),
            number(own.requests),
            number(own.denied_against),
            number(own.denied),
        ]
    };
    let better = ("Callers that are better off", &against.better);
    let worse = ("Callers that are worse off", &against.worse);
    let tables = [better, worse].into_iter().filter(|(_, callers)| !callers.is_empty());
    tables.map(|(caption, callers)| Table::new(caption, COLUMNS, callers.iter().map(row))).collect()
}

/// Files that were read: of a thousand, the sum is what matters.
pub(super) fn files(files: &[FileRead]) -> Table {
    const COLUMNS: &[Column] = &[
        name("file"),
        word("format"),
        figure("lines"),
        figure("not read"),
        figure("grain of time"),
    ];
    const FILES: usize = 20;
    let row = |file: &FileRead| {
        vec![
            file.file.clone(),
            file.format.clone(),
            number(file.lines),
            number(file.bad),
            duration(file.grain_seconds),
        ]
    };
    Table::new("Files", COLUMNS, files.iter().map(row)).at_most(FILES)
}
