//! One node to decode, its typed value, and the problems that are reported about it.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde::de::DeserializeSeed;

use super::Session;
use super::failure::{Failure, whole_number};
use crate::load;
use crate::node::{Node, Span, Spanned, Value};
use crate::suggest::suggest;

/// Decodes one node.
#[derive(Clone, Copy)]
pub(super) struct Decoder<'a, 'de> {
    pub(super) session: &'a Session<'a>,
    pub(super) node: &'de Node,
    /// The key that the node is the value of.
    key: Option<Span>,
}

impl<'a, 'de> Decoder<'a, 'de> {
    pub(super) fn new(session: &'a Session<'a>, node: &'de Node, key: Option<Span>) -> Self {
        Self { session, node, key }
    }

    /// Decodes the node; if that fails, records why and leaves the node out from now on.
    pub(super) fn attempt<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        let failure = match seed.deserialize(self) {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        match failure {
            Failure::Again => return Err(Failure::Again),
            Failure::Hollow => {}
            Failure::Invalid { message, help, at } => {
                self.session.report(at.unwrap_or(self.place()), message, help);
            }
            // Structs have seen to it already, so this comes from a visitor of its own kind.
            Failure::Missing(field) => {
                self.session.report(
                    self.place(),
                    format!("missing field `{field}`"),
                    String::new(),
                );
            }
        }
        self.session.leave_out(self.node);
        Err(Failure::Again)
    }

    /// Where to point: at the key, if no value is written.
    pub(super) fn place(self) -> Span {
        match self.key {
            Some(key) if self.node.span.is_empty() => key,
            _ => self.node.span,
        }
    }

    /// Where to point when something is missing in the node: at the key that names the mapping,
    /// and at the mapping as well if it starts on the same line.
    fn named_place(self) -> Span {
        let Some(key) = self.key else { return self.node.span };
        let between =
            self.session.document.source(Span { start: key.end, end: self.node.span.start });
        let is_beside = key.end <= self.node.span.start && !between.contains('\n');
        if is_beside { Span { start: key.start, end: self.node.span.end } } else { key }
    }

    /// The node and the key that names it.
    pub(super) fn around(self) -> Vec<Span> {
        self.key.into_iter().chain([self.node.span]).collect()
    }

    pub(super) fn expected(self, expected: &str, help: impl Into<String>) -> Failure {
        Failure::invalid(format!("expected {expected}, found {}", self.node.value.kind()), help)
    }

    pub(super) fn text(self) -> Result<&'de str, Failure> {
        match &self.node.value {
            Value::String(text) => Ok(text),
            _ => Err(self.expected("text", self.session.document.help_for_text(self.node))),
        }
    }

    /// The node's value. What comes from the environment is of the kind that is wanted, although
    /// brackets ask for quotes around it.
    pub(super) fn value_as(self, is_wanted: impl Fn(&Value) -> bool) -> Cow<'de, Value> {
        let value = &self.node.value;
        if let Value::String(text) = value
            && self.session.document.source(self.node.span).contains("${")
        {
            let typed = load::plain_scalar(text);
            if is_wanted(&typed) {
                return Cow::Owned(typed);
            }
        }
        Cow::Borrowed(value)
    }

    /// The whole number, if it is within `range`.
    pub(super) fn integer(self, range: RangeInclusive<i128>) -> Result<i64, Failure> {
        let expected = whole_number(&range);
        let document = self.session.document;
        match &*self.value_as(|value| matches!(value, Value::Integer(_))) {
            Value::Integer(value) if range.contains(&i128::from(*value)) => Ok(*value),
            Value::Integer(_) | Value::Float(_) => {
                let found = document.quote(self.node);
                let found = found.map_or("another".to_owned(), |text| format!("`{text}`"));
                let message = format!("expected {expected}, found {found}");
                Err(Failure::invalid(message, document.help_for_number(self.node)))
            }
            Value::String(text) if text.parse::<i64>().is_ok() => {
                Err(self.expected(&expected, format!("write {text} without quotes")))
            }
            _ => Err(self.expected(&expected, document.help_for_number(self.node))),
        }
    }

    /// The items of the list; a single value stands for a list of one.
    pub(super) fn items(self) -> Result<&'de [Node], Failure> {
        let Self { session, node, .. } = self;
        match &node.value {
            Value::Sequence(items) => Ok(items),
            Value::Null => Err(self.expected("a list", "write [] for an empty list")),
            Value::Mapping(_) => Err(self.expected("a list", "start each item with `- `")),
            value if is_single(value) && !session.document.is_list_of_sections(node) => {
                Ok(std::slice::from_ref(node))
            }
            _ => Err(self.expected("a list", session.document.help_for_list(node))),
        }
    }

    pub(super) fn entries(self) -> Result<&'de [(Spanned<String>, Node)], Failure> {
        match &self.node.value {
            Value::Mapping(entries) => Ok(entries),
            _ => Err(self.expected("a mapping", self.session.document.help_for_section(self.node))),
        }
    }

    /// A required field that serde did not get. That is a problem of its own unless the field is
    /// written, but left out for what it holds, or unknown for a typing mistake in its name.
    pub(super) fn missing(self, section: &str, fields: &[&str], field: &'static str) -> Failure {
        let is_meant = |(key, _): &(Spanned<String>, Node)| {
            key.value == field
                || !fields.contains(&key.as_str())
                    && suggest(key, fields.iter().copied()) == Some(field)
        };
        if !self.entries().is_ok_and(|entries| entries.iter().any(is_meant)) {
            let message = format!("missing field `{field}` in {}", super::with_article(section));
            let help = format!("add `{field}`");
            match self.session.document.keeps_stand_ins {
                true => {
                    let document = self.session.document;
                    let problem = document.problem(self.named_place(), message, help);
                    self.session.report_alone(problem, &self.around());
                }
                false => self.session.report(self.named_place(), message, help),
            }
        }
        if self.session.note_missing(self.node, field) { Failure::Again } else { Failure::Hollow }
    }
}

/// Whether it is surely one value, and no list that lacks its brackets (`GET, POST`).
fn is_single(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && !text.contains([',', ' ', '\t', '\n']),
        _ => true,
    }
}
