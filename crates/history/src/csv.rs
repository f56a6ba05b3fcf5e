//! Logs of columns: a header line names them, and a mapping says which has what.

use std::borrow::Cow;

use csv_core::ReadRecordResult;

use super::{
    columns::{Columns, KNOWN},
    draft::{Draft, Fault, Line, dated_time, known, own_fields, status, used, with_query},
    duration::{millis, seconds},
    value_cache::ValueCache,
};

/// The columns of a file, and the buffers that its lines are split in.
pub(super) struct Csv {
    reader: csv_core::Reader,
    /// Which column has what: a position for each of [`KNOWN`].
    columns: [Option<usize>; KNOWN.len()],
    /// Which column has what callers are named by.
    wanted: Vec<Option<usize>>,
    width: usize,
    text: Vec<u8>,
    ends: Vec<usize>,
}

/// A field that has no column, and the columns that there are.
#[derive(Debug)]
pub(super) struct NoColumn {
    pub(super) what: String,
    pub(super) found: String,
}

impl Csv {
    /// Reads the header line.
    ///
    /// # Errors
    /// If a column is missing that is named, or that must be there.
    pub(super) fn open(header: &str, named: &Columns, wanted: &[String]) -> Result<Csv, NoColumn> {
        let delimiter = [b',', b';', b'\t']
            .into_iter()
            .max_by_key(|delimiter| header.bytes().filter(|byte| byte == delimiter).count())
            .unwrap_or(b',');
        let reader = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
        let mut csv = Csv {
            reader,
            columns: [None; KNOWN.len()],
            wanted: Vec::new(),
            width: 0,
            text: vec![0; 4096],
            ends: vec![0; 64],
        };
        csv.width = csv.split(header).unwrap_or_default();
        let names: Vec<String> =
            (0..csv.width).map(|at| csv.value(at).unwrap_or_default().trim().to_owned()).collect();
        // Some mark the header as a comment.
        let is_it = |found: &str, name: &str| {
            found.eq_ignore_ascii_case(name)
                || found.trim_start_matches(['#', ' ']).eq_ignore_ascii_case(name)
        };
        let position = |name: &str| names.iter().position(|found| is_it(found, name));
        let missing = |what: &str| {
            let what = if what == "target" { "path" } else { what };
            NoColumn { what: what.to_owned(), found: names.join(", ") }
        };
        for (names, column) in KNOWN.iter().zip(&mut csv.columns) {
            *column = names.iter().find_map(|name| position(name));
        }
        // Who names only the end does not mean a start of a usual name.
        let has_start = named.get("time").is_some() || named.get("end").is_none();
        for (names, column) in KNOWN.iter().zip(&mut csv.columns) {
            let Some(field) = names.first() else { continue };
            if let Some(name) = named.get(field) {
                *column = Some(position(name).ok_or_else(|| missing(field))?);
            } else if *field == "time" && !has_start {
                *column = None;
            }
        }
        if csv.column("time").or(csv.column("end")).or(csv.column("date")).is_none() {
            return Err(missing("time"));
        }
        if csv.column("target").or(csv.column("request")).is_none() {
            return Err(missing("target"));
        }
        csv.wanted = wanted.iter().map(|name| position(name)).collect();
        Ok(csv)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&mut self, line: &str, repeated: &mut ValueCache) -> Result<Line, Fault> {
        if line.starts_with('#') {
            return Ok(Line::Skipped("a line that begins with `#` is a comment"));
        }
        let width = self.split(line).ok_or(
            "a quote is not closed: fields with line ends in them are not read; write them without",
        )?;
        if width != self.width {
            return Err(format!(
                "it has {width} fields, and the header line has {}: the line was cut off, or a field \
                 with a delimiter has no quotes",
                self.width
            )
            .into());
        }
        let field = |name: &str| known(self.value(self.column(name)?)?.trim());
        let (time, date) = (field("time"), field("date"));
        let text = time.or(field("end")).or(date).ok_or("it has no time")?;
        let took = field("duration").map(seconds).or_else(|| field("duration_ms").map(millis));
        let mut draft = Draft {
            written: Some(dated_time(date, text)?),
            is_end: time.is_none() && field("end").is_some(),
            client: field("client"),
            // Without a column, nothing else is likelier.
            method: field("method").unwrap_or("GET").into(),
            host: field("host").map(Cow::Borrowed),
            target: with_query(field("target").unwrap_or_default(), field("query")),
            status: field("status").and_then(status),
            user_agent: field("user_agent").map(Cow::Borrowed),
            referer: field("referer").map(Cow::Borrowed),
            used: used(field),
            ..Draft::default()
        };
        if let Some(took) = took {
            draft.set_took(took);
        }
        if draft.target.is_empty() {
            draft.read_request_line(field("request").unwrap_or("-"))?;
        }
        draft.own = own_fields(field, repeated);
        draft.fields =
            self.wanted.iter().map(|at| known(self.value((*at)?)?).map(Box::from)).collect();
        draft.finish(repeated)
    }

    /// The column of one of [`KNOWN`].
    fn column(&self, name: &str) -> Option<usize> {
        let at = KNOWN.iter().position(|names| names.first() == Some(&name))?;
        *self.columns.get(at)?
    }

    /// Splits a line, and returns the number of its fields; none: a quote is not closed.
    fn split(&mut self, line: &str) -> Option<usize> {
        self.reader.reset();
        let (mut text, mut ends) = (0, 0);
        let mut input = line.as_bytes();
        let mut is_ended = false;
        loop {
            let (result, read, written, fields) = self.reader.read_record(
                input,
                self.text.get_mut(text..)?,
                self.ends.get_mut(ends..)?,
            );
            input = input.get(read..)?;
            text += written;
            ends += fields;
            match result {
                // The end of the line, once; that it asks for more means that a quote is open.
                ReadRecordResult::InputEmpty if is_ended => return None,
                ReadRecordResult::InputEmpty => {
                    input = b"\n";
                    is_ended = true;
                }
                ReadRecordResult::OutputFull => self.text.resize(self.text.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => return Some(ends),
            }
        }
    }

    /// A field of the line that was split last.
    fn value(&self, at: usize) -> Option<&str> {
        let start = if at == 0 { 0 } else { *self.ends.get(at - 1)? };
        // The line was UTF-8, and was split at characters of ASCII.
        std::str::from_utf8(self.text.get(start..*self.ends.get(at)?)?).ok()
    }
}
