//! serde's view of one node. It looks at the kind of value before it calls a visitor, so that the
//! message can say what was expected in the user's words.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde::de::{DeserializeSeed, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::Session;
use super::access::{Fields, Items, SpannedParts, Variant};
use super::failure::{Failure, whole_number};
use crate::yaml::load;
use crate::yaml::node::{Node, SPANNED, Span, Spanned, Value};
use crate::yaml::suggest::{one_of, suggest};

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
    fn place(self) -> Span {
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

    fn expected(self, expected: &str, help: impl Into<String>) -> Failure {
        Failure::invalid(format!("expected {expected}, found {}", self.node.value.kind()), help)
    }

    fn text(self) -> Result<&'de str, Failure> {
        match &self.node.value {
            Value::String(text) => Ok(text),
            _ => Err(self.expected("text", self.session.document.help_for_text(self.node))),
        }
    }

    /// The node's value. What comes from the environment is of the kind that is wanted, although
    /// brackets ask for quotes around it.
    fn value_as(self, is_wanted: impl Fn(&Value) -> bool) -> Cow<'de, Value> {
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
    fn integer(self, range: RangeInclusive<i128>) -> Result<i64, Failure> {
        let (expected, document) = (whole_number(&range), self.session.document);
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

    fn items(self) -> Result<&'de [Node], Failure> {
        match &self.node.value {
            Value::Sequence(items) => Ok(items),
            Value::Null => Err(self.expected("a list", "write [] for an empty list")),
            Value::Mapping(_) => Err(self.expected("a list", "start each item with `- `")),
            _ => Err(self.expected("a list", self.session.document.help_for_list(self.node))),
        }
    }

    fn entries(self) -> Result<&'de [(Spanned<String>, Node)], Failure> {
        match &self.node.value {
            Value::Mapping(entries) => Ok(entries),
            _ => Err(self.expected("a mapping", self.session.document.help_for_section(self.node))),
        }
    }

    /// A required field that serde did not get. That is a problem of its own unless the field is
    /// written, but left out for what it holds, or unknown for a typing mistake in its name.
    fn missing(self, section: &str, fields: &[&str], field: &'static str) -> Failure {
        let is_meant = |(key, _): &(Spanned<String>, Node)| {
            key.value == field
                || !fields.contains(&key.as_str())
                    && suggest(key, fields.iter().copied()) == Some(field)
        };
        if !self.entries().is_ok_and(|entries| entries.iter().any(is_meant)) {
            let message = format!("missing field `{field}` in {}", super::with_article(section));
            self.session.report(self.named_place(), message, format!("add `{field}`"));
        }
        if self.session.note_missing(self.node, field) { Failure::Again } else { Failure::Hollow }
    }
}

/// Each integer is checked here, where the bounds can be named.
macro_rules! integers {
    ($($method:ident $integer:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            let range = i128::from($integer::MIN)..=i128::from($integer::MAX);
            visitor.visit_i64(self.integer(range)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Decoder<'_, 'de> {
    type Error = Failure;

    integers! {
        deserialize_i8 i8 deserialize_i16 i16 deserialize_i32 i32 deserialize_i64 i64
        deserialize_u8 u8 deserialize_u16 u16 deserialize_u32 u32 deserialize_u64 u64
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::Sequence(_) => self.deserialize_seq(visitor),
            Value::Mapping(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &*self.value_as(|value| matches!(value, Value::Bool(_))) {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::String(text) => {
                let help = match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "true" => "write true",
                    "no" | "off" | "false" => "write false",
                    _ => "",
                };
                Err(self.expected("true or false", help))
            }
            _ => Err(self.expected("true or false", "")),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            _ => Err(self.expected("a number", "")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_borrowed_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            _ => Err(self.expected("nothing", "")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if name == SPANNED {
            return visitor.visit_seq(SpannedParts::new(self.place(), self));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(Items::new(self.session, self.items()?))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let items = self.items()?;
        if items.len() != length {
            let message = format!("expected a list of {length} items, found {}", items.len());
            return Err(Failure::invalid(message, ""));
        }
        if items.iter().any(|item| self.session.is_left_out(item)) {
            return Err(Failure::Hollow);
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_map(Fields::new(self.session, self.entries()?))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Self { session, node, .. } = self;
        let entries = self.entries()?;
        for (key, _) in entries.iter().filter(|(key, _)| !fields.contains(&key.as_str())) {
            session.report_unknown_field(name, fields, key);
        }
        let missing = session.missing_fields(node);
        let has_stand_ins = !missing.is_empty();
        match visitor.visit_map(Fields::new(session, entries).of_struct(fields, missing)) {
            Err(Failure::Missing(field)) => Err(self.missing(name, fields, field)),
            Ok(_) if has_stand_ins => Err(Failure::Hollow),
            result => result,
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let (word, content) = match &self.node.value {
            Value::String(word) => (self.session.variant(name, variants, word)?, None),
            Value::Mapping(entries) => {
                let [(key, value)] = entries.as_slice() else {
                    let found = entries.len();
                    let message = format!("expected a single entry, found {found}");
                    return Err(Failure::invalid(message, one_of(variants)));
                };
                let word = self.session.variant(name, variants, key);
                let decoder = Decoder::new(self.session, value, Some(key.span));
                (word.map_err(|failure| failure.at(key.span))?, Some(decoder))
            }
            _ => return Err(self.expected("text", one_of(variants))),
        };
        visitor.visit_enum(Variant::new(word, content))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }
}
