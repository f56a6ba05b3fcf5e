//! Which format a file has: the one that reads most of its first lines.

use super::{
    Format, alb, clf,
    columns::Columns,
    csv::Csv,
    draft::Line,
    envoy, haproxy, named,
    options::Asked,
    prefix,
    reader::{Reader, text},
    sorting::Trend,
    value_cache::ValueCache,
};

/// So many lines are tried at once. More are only if none of them was a request: a program may have
/// written its events for long before the first one came, or scanners may have been the first.
const TRIED_LINES: usize = 50;

/// What a line counts for, by what the reader of a format says of it. The numbers make one request
/// count more than all other lines of a batch.
const REQUEST: u32 = 1000;
/// A line of the format whose request was malformed.
const MALFORMED: u32 = 2;
/// An event of the program: those of one look more like those of another than requests do.
const EVENT: u32 = 1;

/// Of formats that read the same number of lines, the first is taken: the ones before are the
/// narrower.
const CANDIDATES: [Format; 14] = [
    Format::TollgateJson,
    Format::TollgateText,
    Format::Traefik,
    Format::Caddy,
    Format::Envoy,
    Format::Cloudflare,
    Format::Gcp,
    Format::NginxJson,
    Format::Haproxy,
    Format::Alb,
    Format::Cloudfront,
    Format::W3c,
    Format::Combined,
    Format::Common,
];

/// What the first lines say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Detection {
    Format(Format),
    /// There is no line.
    Empty,
    /// No format reads any; the first one begins so.
    Unknown(String),
}

/// Finds the format of a file that begins so.
pub(super) fn detect(start: &[u8], columns: &Columns) -> Detection {
    // What is behind the last line end may be a part of a line; of a short file it is all there is.
    let whole = memchr::memrchr(b'\n', start).and_then(|at| start.get(..at)).unwrap_or(start);
    let lines: Vec<_> = whole.split(|byte| *byte == b'\n').filter_map(text).collect();
    let Some(first) = lines.first() else { return Detection::Empty };
    if lines
        .iter()
        .take(TRIED_LINES)
        .find(|line| is_header(line, columns))
        .is_some_and(|line| Csv::open(line, columns, &[]).is_ok())
    {
        return Detection::Format(Format::Csv);
    }
    let mut best = (0, None);
    let mut repeated = ValueCache::default();
    for lines in lines.chunks(TRIED_LINES) {
        for format in CANDIDATES {
            let mut reader = Reader::new(format, Asked::default());
            let points: u32 =
                lines.iter().map(|line| points(&mut reader, line, &mut repeated)).sum();
            if points > best.0 {
                best = (points, Some(format));
            }
        }
        if best.0 >= REQUEST {
            break;
        }
    }
    match best.1 {
        Some(Format::Combined) if !lines.iter().any(|line| clf::is_combined(line)) => {
            Detection::Format(Format::Common)
        }
        // One event is no reason to doubt the names that were given.
        _ if best.0 < REQUEST && !columns.is_empty() && prefix::json(first).is_some() => {
            Detection::Format(Format::Json)
        }
        Some(format) => Detection::Format(format),
        // So that it is said which of the named columns is missing.
        None if !columns.is_empty() => Detection::Format(Format::Csv),
        None => Detection::Unknown(first.chars().take(120).collect()),
    }
}

/// Whether a line is the header of columns: comments may be before it.
pub(super) fn is_header(line: &str, columns: &Columns) -> bool {
    !line.starts_with('#') || Csv::open(line, columns, &[]).is_ok()
}

/// Whether the times of a file that begins so fall from line to line.
pub(super) fn is_newest_first(start: &[u8], format: Format, asked: &Asked) -> bool {
    let whole = memchr::memrchr(b'\n', start).and_then(|at| start.get(..at)).unwrap_or(start);
    let mut lines = whole.split(|byte| *byte == b'\n').filter_map(text);
    let reader = match format {
        Format::Csv => lines
            .find(|line| is_header(line, &asked.columns))
            .and_then(|header| Reader::csv(&header, asked.clone()).ok()),
        _ => Some(Reader::new(format, asked.clone())),
    };
    let Some(mut reader) = reader else { return false };
    let mut trend = Trend::default();
    let mut repeated = ValueCache::default();
    for line in lines {
        if let Ok(Line::Request { record, .. }) = reader.read(&line, &mut repeated) {
            trend.see(record.time);
        }
    }
    trend.is_newest_first()
}

/// What a line counts for.
fn points(reader: &mut Reader, line: &str, repeated: &mut ValueCache) -> u32 {
    let format = reader.format;
    match reader.read(line, repeated) {
        Ok(Line::Request { .. }) => REQUEST,
        // All lines of our own formats have the same fields, by which other formats may read them.
        Ok(Line::Skipped(_)) if is_own(format) => REQUEST,
        Ok(Line::Skipped(_)) => EVENT,
        Err(_) if has_shape(format, line) => MALFORMED,
        Err(_) => 0,
    }
}

/// Whether a line that tells of no request that can be read is one of the format all the same.
fn has_shape(format: Format, line: &str) -> bool {
    match format {
        Format::Combined | Format::Common => clf::has_shape(line),
        Format::Haproxy => haproxy::has_shape(line),
        Format::Alb => alb::has_shape(line),
        Format::Envoy => envoy::has_shape(line),
        Format::NginxJson | Format::Cloudflare | Format::Gcp => {
            prefix::json(line).is_some_and(|json| named::has_shape(format, json))
        }
        // Their programs log no request whose head could not be read, or log it as one.
        Format::TollgateJson | Format::TollgateText | Format::Traefik | Format::Caddy => false,
        Format::Cloudfront | Format::W3c | Format::Csv | Format::Json => false,
    }
}

const fn is_own(format: Format) -> bool {
    matches!(format, Format::TollgateJson | Format::TollgateText)
}
