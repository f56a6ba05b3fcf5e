//! Logs of columns: a header line names them, and a mapping says which has what.

use std::borrow::Cow;

use csv_core::ReadRecordResult;

use super::{
    OwnFields,
    draft::{Draft, Fault, Line, any_time, known, status},
    duration::{millis, seconds},
    value_cache::ValueCache,
};

/// The fields that a column can have, and the names by which they are found without a mapping. The
/// first name is the one that a mapping uses.
const FIELDS: [&[&str]; 15] = [
    &["time", "timestamp", "start", "start_time", "datetime", "date"],
    &["end", "end_time"],
    &["duration", "request_time", "seconds"],
    &["duration_ms", "total_ms", "milliseconds"],
    &["client", "ip", "client_ip", "remote_addr", "remote_ip", "address"],
    &["method", "request_method", "verb"],
    &["host", "authority", "domain"],
    &["target", "path", "url", "uri", "request_uri"],
    &["request", "request_line"],
    &["status", "status_code", "code"],
    &["user_agent", "agent"],
    &["referer", "referrer"],
    &["caller"],
    &["tier", "plan"],
    &["denied"],
];

/// The columns of a file, and the buffers that its lines are split in.
pub(super) struct Csv {
    reader: csv_core::Reader,
    /// Which column has what: a position for each of [`FIELDS`].
    columns: [Option<usize>; FIELDS.len()],
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
    pub(super) fn open(
        header: &str,
        named: &[(String, String)],
        wanted: &[String],
    ) -> Result<Csv, NoColumn> {
        let delimiter = [b',', b';', b'\t']
            .into_iter()
            .max_by_key(|delimiter| header.bytes().filter(|byte| byte == delimiter).count())
            .unwrap_or(b',');
        let reader = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
        let mut csv = Csv {
            reader,
            columns: [None; FIELDS.len()],
            wanted: Vec::new(),
            width: 0,
            text: vec![0; 4096],
            ends: vec![0; 64],
        };
        csv.width = csv.split(header).unwrap_or_default();
        let names: Vec<String> =
            (0..csv.width).map(|at| csv.value(at).unwrap_or_default().trim().to_owned()).collect();
        let position = |name: &str| names.iter().position(|found| found.eq_ignore_ascii_case(name));
        let missing = |what: &str| NoColumn { what: what.to_owned(), found: names.join(", ") };
        for (names, column) in FIELDS.iter().zip(&mut csv.columns) {
            *column = names.iter().find_map(|name| position(name));
        }
        for (field, name) in named {
            let (_, column) = FIELDS
                .iter()
                .zip(&mut csv.columns)
                .find(|(names, _)| names.contains(&field.as_str()))
                .ok_or_else(|| missing(field))?;
            *column = Some(position(name).ok_or_else(|| missing(field))?);
        }
        if csv.column("time").or(csv.column("end")).is_none() {
            return Err(missing("time"));
        }
        if csv.column("target").or(csv.column("request")).is_none() {
            return Err(missing("path"));
        }
        csv.wanted = wanted.iter().map(|name| position(name)).collect();
        Ok(csv)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&mut self, line: &str, repeated: &mut ValueCache) -> Result<Line, Fault> {
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
        let (time, is_end) = match (field("time"), field("end")) {
            (Some(time), _) => (time, false),
            (None, Some(time)) => (time, true),
            (None, None) => return Err("it has no time".into()),
        };
        let took = field("duration").map(seconds).or_else(|| field("duration_ms").map(millis));
        let mut draft = Draft {
            written: Some(any_time(time)?),
            is_end,
            client: field("client"),
            // Without a column, nothing else is likelier.
            method: field("method").unwrap_or("GET").into(),
            host: field("host").map(Cow::Borrowed),
            target: field("target").unwrap_or_default().into(),
            status: field("status").and_then(status),
            user_agent: field("user_agent").map(Cow::Borrowed),
            referer: field("referer").map(Cow::Borrowed),
            ..Draft::default()
        };
        if let Some(took) = took {
            draft.set_took(took);
        }
        if draft.target.is_empty() {
            draft.read_request_line(field("request").unwrap_or("-"))?;
        }
        let caller = field("caller");
        if caller.or(field("tier")).or(field("denied")).is_some() {
            draft.own = Some(OwnFields {
                caller: caller.map(|caller| repeated.text(caller)),
                tier: field("tier").map(|tier| repeated.text(tier)),
                denied: field("denied").map(Box::from),
                stands_for: 1,
                ..OwnFields::default()
            });
        }
        draft.fields =
            self.wanted.iter().map(|at| known(self.value((*at)?)?).map(Box::from)).collect();
        draft.finish(repeated)
    }

    /// The column of one of [`FIELDS`].
    fn column(&self, name: &str) -> Option<usize> {
        let at = FIELDS.iter().position(|names| names.first() == Some(&name))?;
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
