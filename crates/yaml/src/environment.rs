//! Environment variables in values: `${NAME}`, `${NAME:-default}`, and `$${` for a literal `${`.
//!
//! They are filled into the tree, scalar by scalar, when the text has been read: so no value of the
//! environment can add a key, an item or a comment. A plain scalar gets the kind that its text has
//! then (`${N}` may be a number); one in quotes stays text, unless a number or true/false is
//! wanted.

use std::collections::HashSet;

use super::load;
use super::mask::Origins;
use super::node::{Node, Span, Value};
use super::problem::{Problem, Source};
use crate::Sources;

const START: &str = "${";
const ESCAPED: &str = "$${";
/// What stands for a value that names a variable which is not set: something that is no name, list
/// or section.
const UNSET: Value = Value::Bool(false);
/// All text that is filled in, together: aliases repeat it.
const MOST_TEXT: usize = 4 << 20;
const FORMS: &str = "write `${NAME}` or `${NAME:-default}`; for the text `${` itself, `$${`";

/// A text in double quotes, as policies and settings have it: nothing in it names a variable. YAML
/// reads the escapes of JSON.
pub fn literal(text: &str) -> String {
    serde_json::Value::from(text.replace(START, ESCAPED)).to_string()
}

/// What could not be filled in.
#[derive(Clone, Default)]
pub(super) struct Unfilled {
    pub(super) problems: Vec<Problem>,
    /// Where the scalars are that have no value for it.
    pub(super) places: HashSet<Span>,
}

impl Unfilled {
    /// The start of what is in doubt because of a problem at `start`: of the whole scalar, if that
    /// cannot be filled.
    pub(super) fn start_around(&self, start: usize) -> usize {
        let mut scalars = self.places.iter();
        let around = scalars.find(|scalar| (scalar.start..scalar.end).contains(&start));
        around.map_or(start, |scalar| scalar.start)
    }
}

/// Fills the environment's values into those below `root`. From here on `source` shows what came
/// from there as it is written.
pub(super) fn fill(root: &mut Node, source: &mut Source, sources: &Sources) -> Unfilled {
    let mut filler =
        Filler { sources, origins: Origins::default(), errors: Vec::new(), room: MOST_TEXT };
    filler.node(root, source);
    let Filler { origins, errors, .. } = filler;
    source.hide(origins);
    let places = errors.iter().map(|fault| fault.scalar).collect();
    let problem =
        |fault: FillError| source.problem(fault.place, fault.message, fault.help.to_owned());
    let mut problems: Vec<Problem> = errors.into_iter().map(problem).collect();
    problems.sort();
    problems.dedup();
    Unfilled { problems, places }
}

struct Filler<'f> {
    sources: &'f Sources,
    origins: Origins,
    errors: Vec<FillError>,
    room: usize,
}

/// Why a scalar cannot be filled.
struct FillError {
    scalar: Span,
    /// The variable in it.
    place: Span,
    message: String,
    help: &'static str,
}

/// A part of a text.
#[derive(Debug, PartialEq)]
enum TextPart<'t> {
    /// What stays as it is.
    Text(&'t str),
    /// `$${`, which stands for `${`.
    Escaped,
    /// `${name}` or `${name:-default}`, as `written`.
    Variable { written: &'t str, name: &'t str, default: Option<&'t str> },
    /// What starts like a variable and is not one.
    Malformed(&'t str),
}

impl Filler<'_> {
    fn node(&mut self, node: &mut Node, source: &Source) {
        match &mut node.value {
            Value::Sequence(items) => items.iter_mut().for_each(|item| self.node(item, source)),
            Value::Mapping(entries) => {
                entries.iter_mut().for_each(|(_, value)| self.node(value, source));
            }
            Value::String(text) if text.contains(START) => {
                let filled = self.scalar(text, node.span, source);
                node.value = filled.unwrap_or(UNSET);
            }
            _ => {}
        }
    }

    /// What is filled into `raw`, which is written at `scalar`; none, if something is wrong.
    fn scalar(&mut self, raw: &str, scalar: Span, source: &Source) -> Option<Value> {
        let written = source.at(scalar);
        let faults_before = self.errors.len();
        let mut filled = String::new();
        let mut is_of_environment = false;
        let mut at = 0;
        for part in parts(raw) {
            let length = match part {
                TextPart::Escaped => ESCAPED.len(),
                TextPart::Text(text) => text.len(),
                TextPart::Variable { written, .. } | TextPart::Malformed(written) => written.len(),
            };
            let place = place_in(scalar, written, raw, at..at + length);
            at += length;
            match self.part(part, &mut filled) {
                Ok(is_variable) => is_of_environment |= is_variable,
                Err((message, help)) => {
                    self.errors.push(FillError { scalar, place, message, help });
                }
            }
        }
        self.room = self.room.saturating_sub(filled.len());
        if self.room == 0 {
            let message = "too much in one file".to_owned();
            let help = "set shorter values";
            self.errors.push(FillError { scalar, place: scalar, message, help });
        }
        if self.errors.len() > faults_before {
            return None;
        }
        let value = match written == raw {
            true => load::plain_scalar(&filled),
            false => Value::String(filled.clone()),
        };
        if is_of_environment {
            // A number may be shown in another way than it was set.
            match &value {
                Value::Integer(number) => self.origins.add(number.to_string(), raw),
                Value::Float(number) => self.origins.add(number.to_string(), raw),
                _ => {}
            }
            self.origins.add(filled, raw);
        }
        Some(value)
    }

    /// Fills in one part. Whether it came from the environment; or what is wrong, and what to do.
    fn part(
        &mut self,
        part: TextPart<'_>,
        filled: &mut String,
    ) -> Result<bool, (String, &'static str)> {
        let text = match part {
            TextPart::Text(text) => text,
            TextPart::Escaped => START,
            TextPart::Variable { written, name, default } => {
                if let Some(value) = self.sources.variable(name) {
                    filled.push_str(&value);
                    self.origins.add(value, written);
                    return Ok(true);
                }
                match default {
                    Some(default) => default,
                    None if self.sources.are_by_name() => name,
                    None => {
                        let message = format!("environment variable `{name}` is not set");
                        return Err((message, "set it, or write a default: `${NAME:-default}`"));
                    }
                }
            }
            TextPart::Malformed(text) => {
                return Err((format!("`{text}` does not name an environment variable"), FORMS));
            }
        };
        filled.push_str(text);
        Ok(false)
    }
}

/// Where a part of the text `raw` is written: the scalar as a whole, where escapes or folded lines
/// make the two differ.
fn place_in(scalar: Span, written: &str, raw: &str, part: std::ops::Range<usize>) -> Span {
    match written.find(raw) {
        Some(skipped) => {
            let start = scalar.start + skipped;
            Span { start: start + part.start, end: start + part.end }
        }
        None => scalar,
    }
}

/// The parts of a text, in order.
fn parts(mut text: &str) -> Vec<TextPart<'_>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (part, rest) = if let Some(rest) = text.strip_prefix(ESCAPED) {
            (TextPart::Escaped, rest)
        } else if text.starts_with(START) {
            variable(text)
        } else {
            let ends = [text.find(ESCAPED), text.find(START)].into_iter().flatten();
            let (before, rest) = text.split_at(ends.min().unwrap_or(text.len()));
            (TextPart::Text(before), rest)
        };
        parts.push(part);
        text = rest;
    }
    parts
}

/// The variable at the start of `text`, and what follows it. A default is plain text, as it stands:
/// a variable in it is as malformed as one without an end.
fn variable(text: &str) -> (TextPart<'_>, &str) {
    let end = text.find('}').map_or(text.len(), |at| at + 1);
    let (written, rest) = text.split_at(end);
    let inside = written.strip_prefix(START).and_then(|inside| inside.strip_suffix('}'));
    let variable = inside.and_then(|inside| {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let is_plain = default.is_none_or(|default| !default.contains(START));
        (is_name(name) && is_plain).then_some(TextPart::Variable { written, name, default })
    });
    (variable.unwrap_or(TextPart::Malformed(written)), rest)
}

fn is_name(name: &str) -> bool {
    let is_fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty() && name.bytes().all(is_fine) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests;
