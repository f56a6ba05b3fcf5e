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

/// A table: columns, and rows with a cell for each.
pub(super) struct Table {
    /// What it shows.
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
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

/// The head of a column, its kind, and its cell of an item.
type ColumnOf<T> = (&'static str, Kind, fn(&T) -> String);

impl Table {
    /// A row for each item.
    fn new<T, const N: usize>(
        caption: &str,
        items: impl IntoIterator<Item = T>,
        columns: [ColumnOf<T>; N],
    ) -> Table {
        let row =
            |item: T| columns.iter().map(|(_, kind, cell)| kind.bounded(cell(&item))).collect();
        Table {
            caption: caption.to_owned(),
            rows: items.into_iter().map(row).collect(),
            columns: columns.map(|(head, kind, _)| Column { head, kind }).into(),
            left_out: 0,
        }
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

impl Kind {
    /// A cell of such a column: printable, and not without end.
    fn bounded(self, cell: String) -> String {
        match self {
            Kind::Name => safe::name(&cell),
            Kind::Time => safe::at_most(&cell, INSTANT),
            Kind::Word | Kind::Number | Kind::Strong => safe::printable(&cell).into_owned(),
        }
    }
}

/// What to choose: the table that a report is for.
pub(super) fn choices(choices: &[Choice<'_>]) -> Table {
    let columns: [ColumnOf<&Choice<'_>>; 8] = [
        ("limit", Kind::Name, |own| own.curve.limit.clone()),
        ("tier", Kind::Name, |own| own.curve.tier.clone()),
        ("window", Kind::Word, |own| words::window(own.curve.window_seconds)),
        ("mode", Kind::Word, |own| own.mode.unwrap_or_default().to_owned()),
        ("now", Kind::Number, |own| number(own.curve.present.into())),
        ("denies now", Kind::Number, |own| denies(&own.present)),
        ("suggested", Kind::Strong, |own| number(own.curve.suggested.into())),
        ("would deny then", Kind::Number, |own| denies(&own.suggested)),
    ];
    Table::new("Which limit to choose", choices, columns)
}

/// `nobody`, or `13 callers (1.3 %)`.
fn denies(point: &CurvePoint) -> String {
    match point.callers_denied {
        0 => "nobody".to_owned(),
        callers => part(&count(callers, "caller", "callers"), point.callers_share),
    }
}

/// What another limit would deny.
pub(super) fn curve(choice: &Choice<'_>, shares: &[f64]) -> Table {
    let columns: [ColumnOf<choice::Row>; 4] = [
        ("limit", Kind::Number, |row| number(row.point.allows.into())),
        ("callers denied", Kind::Number, |row| {
            part(&number(row.point.callers_denied), row.point.callers_share)
        }),
        ("requests denied", Kind::Number, |row| {
            part(&number(row.point.requests_denied), row.point.requests_share)
        }),
        ("note", Kind::Strong, |row| row.mark().to_owned()),
    ];
    let caption = format!("{}: denied by another limit", safe::name(&choice.title()));
    Table::new(&caption, choice.rows(shares), columns)
}

/// `13 callers (1.3 %)`.
fn part(amount: &str, of: f64) -> String {
    format!("{amount} ({})", share(of))
}

/// What each limit did as it is.
pub(super) fn limits(limits: &[LimitAnswer]) -> Table {
    let columns: [ColumnOf<&LimitAnswer>; 10] = [
        ("limit", Kind::Name, |own| own.limit.clone()),
        ("tier", Kind::Name, |own| own.tier.clone()),
        ("mode", Kind::Word, |own| own.mode.clone()),
        ("window", Kind::Word, |own| own.window_seconds.map_or("at once".into(), words::window)),
        ("allows", Kind::Number, |own| number(own.allows.into())),
        ("requests", Kind::Number, |own| number(own.requests)),
        ("denied", Kind::Number, |own| number(own.denied)),
        ("share", Kind::Number, |own| share(own.denied_share)),
        ("callers hit", Kind::Number, |own| {
            format!("{} of {}", number(own.callers_denied), number(own.callers))
        }),
        ("lock-out", Kind::Number, |own| duration(own.longest_lockout_seconds)),
    ];
    Table::new("The limits as they are", limits, columns)
}

/// Those who would notice first.
pub(super) fn worst(worst: &[WorstCaller]) -> Table {
    let columns: [ColumnOf<&WorstCaller>; 7] = [
        ("caller", Kind::Name, |own| own.caller.clone()),
        ("tier", Kind::Name, |own| own.tier.clone()),
        ("limit", Kind::Name, |own| own.limit.clone()),
        ("requests", Kind::Number, |own| number(own.requests)),
        ("denied", Kind::Number, |own| number(own.denied)),
        ("share", Kind::Number, |own| share(own.denied_share)),
        ("first denied", Kind::Time, |own| times::instant(&own.first_denied)),
    ];
    Table::new("Callers denied most", worst, columns)
}

/// Requests and denials over time, in at most so many rows.
pub(super) fn timeline(timeline: &Timeline, rows: usize) -> Table {
    let columns: [ColumnOf<(String, &Moment)>; 5] = [
        ("from (UTC)", Kind::Time, |(from, _)| from.clone()),
        ("requests", Kind::Number, |(_, own)| number(own.requests)),
        ("denied", Kind::Number, |(_, own)| number(own.denied)),
        // Of no requests there is no share.
        ("share", Kind::Number, |(_, own)| share(own.denied as f64 / own.requests as f64)),
        ("would be denied", Kind::Number, |(_, own)| number(own.would_deny)),
    ];
    let merged = times::merged(timeline, rows);
    let moments = merged.buckets.iter().enumerate();
    let moments = moments.map(|(at, moment)| (times::bucket(&merged, at), moment));
    Table::new("Requests and denials over time", moments, columns)
}

/// Callers for whom something changes: those who are better off, and those who are worse off, if
/// there are any.
pub(super) fn changes(against: &Against) -> Vec<Table> {
    let columns: [ColumnOf<&CallerChange>; 4] = [
        ("caller", Kind::Name, |own| own.caller.clone()),
        ("requests", Kind::Number, |own| number(own.requests)),
        ("denied by the others", Kind::Number, |own| number(own.denied_against)),
        ("denied by these", Kind::Number, |own| number(own.denied)),
    ];
    let better = ("Callers that are better off", &against.better);
    let worse = ("Callers that are worse off", &against.worse);
    let tables = [better, worse].into_iter().filter(|(_, callers)| !callers.is_empty());
    tables.map(|(caption, callers)| Table::new(caption, callers, columns)).collect()
}

/// Files that were read: of a thousand, the sum is what matters.
pub(super) fn files(files: &[FileRead]) -> Table {
    const FILES: usize = 20;
    let columns: [ColumnOf<&FileRead>; 5] = [
        ("file", Kind::Name, |own| own.file.clone()),
        ("format", Kind::Word, |own| own.format.clone()),
        ("lines", Kind::Number, |own| number(own.lines)),
        ("not read", Kind::Number, |own| number(own.bad)),
        ("grain of time", Kind::Number, |own| duration(own.grain_seconds)),
    ];
    Table::new("Files", files, columns).at_most(FILES)
}
