//! The extended log format of the W3C, as IIS and CloudFront write it: a line `#Fields:` names the
//! columns of those that follow, and may come again.
//!
//! All times are in UTC, and of the end. IIS writes whole milliseconds, and its words have pluses
//! for blanks; CloudFront writes seconds with a fraction, and its words have escapes as in URLs.

use super::{
    Format,
    draft::{Fault, Line},
    fields::Fields,
    named,
    options::Asked,
    prefix,
    value_cache::ValueCache,
    words::words,
};

/// The columns of the lines that follow.
#[derive(Default)]
pub(super) struct W3c {
    names: Vec<String>,
}

const NO_FIELDS: &str = "no line `#Fields:` is before it, so that its columns are not known: put \
                         that line in front of the file";

impl W3c {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(
        &mut self,
        format: Format,
        line: &str,
        asked: &Asked,
        repeated: &mut ValueCache,
    ) -> Result<Line, Fault> {
        if let Some(names) = line.strip_prefix("#Fields:") {
            self.names = names.split_ascii_whitespace().map(str::to_owned).collect();
        }
        let is_of_edge = self.names.iter().any(|name| name.starts_with("x-edge-"));
        if format == Format::Cloudfront && !self.names.is_empty() && !is_of_edge {
            return Err("its columns are not those of CloudFront: pass --format w3c".into());
        }
        if line.starts_with('#') {
            return Ok(Line::Skipped("a line that begins with `#` is about the log"));
        }
        if let Some(json) = prefix::json(line).filter(|_| format == Format::Cloudfront) {
            return named::read(format, json, asked, repeated);
        }
        if self.names.is_empty() {
            return Err(NO_FIELDS.into());
        }
        let words = words(line);
        if words.len() != self.names.len() {
            return Err(format!(
                "it has {} columns, and the line `#Fields:` names {}: the line was cut off",
                words.len(),
                self.names.len()
            )
            .into());
        }
        let fields = Fields::of(self.names.iter().map(String::as_str).zip(words));
        // What has a fraction is in seconds, as the W3C says; only whole numbers are of IIS.
        let has_fraction = || fields.value("time-taken").is_some_and(|took| took.contains('.'));
        let names = if is_of_edge || has_fraction() { Format::Cloudfront } else { format };
        named::of_fields(names, &fields, asked, repeated)
    }
}
