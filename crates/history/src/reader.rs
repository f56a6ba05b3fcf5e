//! The reader of a file: its format, and what it has to remember.

use std::borrow::Cow;

use super::{
    Format, alb, clf,
    csv::{Csv, NoColumn},
    draft::{Fault, Line},
    envoy, haproxy, named,
    options::Asked,
    own_json, own_text, prefix,
    value_cache::ValueCache,
    w3c::W3c,
};

/// The reader of a file.
pub(super) struct Reader {
    pub(super) format: Format,
    asked: Asked,
    csv: Option<Csv>,
    w3c: W3c,
}

impl Reader {
    /// A reader of a format that has no header line.
    pub(super) fn new(format: Format, asked: Asked) -> Reader {
        Reader { format, asked, csv: None, w3c: W3c::default() }
    }

    /// A reader of a CSV with this header line.
    ///
    /// # Errors
    /// If it lacks a column.
    pub(super) fn csv(header: &str, asked: Asked) -> Result<Reader, NoColumn> {
        let csv = Some(Csv::open(header, &asked.columns, &asked.wanted)?);
        Ok(Reader { csv, ..Reader::new(Format::Csv, asked) })
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&mut self, line: &str, repeated: &mut ValueCache) -> Result<Line, Fault> {
        let Reader { asked, .. } = self;
        let wanted = &asked.wanted;
        match self.format {
            Format::TollgateJson => {
                own_json::read(prefix::json(line).unwrap_or(line), wanted, repeated)
            }
            Format::TollgateText => own_text::read(line, wanted, repeated),
            Format::Common | Format::Combined => clf::read(line, wanted, repeated),
            Format::NginxJson
            | Format::Caddy
            | Format::Traefik
            | Format::Cloudflare
            | Format::Gcp
            | Format::Json => {
                let json = prefix::json(line).unwrap_or(line);
                named::read(self.format, json, asked, repeated)
            }
            Format::Envoy => match prefix::json(line) {
                Some(json) => named::read(self.format, json, asked, repeated),
                None => envoy::read(line, wanted, repeated),
            },
            Format::Haproxy => haproxy::read(line, asked, repeated),
            Format::Alb => alb::read(line, asked, repeated),
            Format::Cloudfront | Format::W3c => self.w3c.read(self.format, line, asked, repeated),
            Format::Csv => match &mut self.csv {
                Some(csv) => csv.read(line, repeated),
                None => Err("the file has no header line".into()),
            },
        }
    }
}

/// The text of a line: without its end, and without the NULs in front of it that a file has which
/// was cut while its writer had it open (`copytruncate`). None: it is empty.
pub(super) fn text(line: &[u8]) -> Option<Cow<'_, str>> {
    let start = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
    let line = line.get(start..).unwrap_or_default().trim_ascii_end();
    if line.trim_ascii_start().is_empty() {
        return None;
    }
    // Not lossy at once: that looks at each byte apart.
    Some(match std::str::from_utf8(line) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(line),
    })
}
