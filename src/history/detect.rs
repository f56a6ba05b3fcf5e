//! Which format a file has: the one that reads most of its first lines.

use super::{
    Format, ReadOptions, clf,
    csv::Csv,
    draft::Line,
    reader::{Reader, text},
    repeated::Repeated,
};

/// So many lines are tried.
const TRIED_LINES: usize = 50;

/// Of formats that read the same number of lines, the first is taken: the ones before are the
/// narrower.
const CANDIDATES: [Format; 9] = [
    Format::TollgateJson,
    Format::TollgateText,
    Format::Traefik,
    Format::Caddy,
    Format::Envoy,
    Format::NginxJson,
    Format::Haproxy,
    Format::Combined,
    Format::Common,
];

/// What the first lines say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Format(Format),
    /// There is no line.
    Empty,
    /// No format reads any; the first one begins so.
    Unknown(String),
}

/// Finds the format of a file that begins so.
pub(super) fn detect(start: &[u8], options: &ReadOptions) -> Found {
    // What is behind the last line end may be a part of a line; of a short file it is all there is.
    let whole = memchr::memrchr(b'\n', start).and_then(|at| start.get(..at)).unwrap_or(start);
    let lines: Vec<_> =
        whole.split(|byte| *byte == b'\n').filter_map(text).take(TRIED_LINES).collect();
    let Some(first) = lines.first() else { return Found::Empty };
    if Csv::open(first, &options.columns, &[]).is_ok() {
        return Found::Format(Format::Csv);
    }
    // Requests count more than what is skipped: events of one program look like those of another.
    // Not so in our own formats, whose lines all have the same fields, by which others may read them.
    let mut best = (0, None);
    let mut repeated = Repeated::default();
    for format in CANDIDATES {
        let mut reader = Reader::new(format, &[]);
        let points = lines.iter().map(|line| match reader.read(line, &mut repeated) {
            Ok(Line::Request { .. }) => 100,
            Ok(Line::Skipped(_)) if is_own(format) => 100,
            Ok(Line::Skipped(_)) => 1,
            Err(_) => 0,
        });
        let points: u32 = points.sum();
        if points > best.0 {
            best = (points, Some(format));
        }
    }
    match best.1 {
        Some(Format::Combined) if !lines.iter().any(|line| clf::is_combined(line)) => {
            Found::Format(Format::Common)
        }
        Some(format) => Found::Format(format),
        // So that it is said which of the named columns is missing.
        None if !options.columns.is_empty() => Found::Format(Format::Csv),
        None => Found::Unknown(first.chars().take(120).collect()),
    }
}

const fn is_own(format: Format) -> bool {
    matches!(format, Format::TollgateJson | Format::TollgateText)
}
