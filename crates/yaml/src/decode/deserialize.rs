//! serde's view of one node. It looks at the kind of value before it calls a visitor, so that the
//! message can describe what was expected in the user's words.

use serde::de::{Deserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::Unset;
use super::access::{Fields, Items, Variant};
use super::decoder::Decoder;
use super::failure::Failure;
use super::spanned::SpannedParts;
use crate::node::{SPANNED, Span, Value};
use crate::suggest::one_of;

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
            // What takes any value takes what is written, and is decoded again.
            Value::Sequence(items) => {
                visitor.visit_seq(Items::new(self.session, items, Unset::Show))
            }
            Value::Mapping(entries) => {
                visitor.visit_map(Fields::new(self.session, entries, Unset::Show))
            }
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
        visitor.visit_seq(Items::new(self.session, self.items()?, self.session.unset))
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
        visitor.visit_map(Fields::new(self.session, self.entries()?, self.session.unset))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Self { session, node, .. } = self;
        let entries = self.entries()?;
        let mut meant: Vec<(Span, &'static str)> = Vec::new();
        for (key, _) in entries.iter().filter(|(key, _)| !fields.contains(&key.as_str())) {
            let field = session.report_unknown_field(name, fields, key, &self.around());
            let is_free = |field: &&'static str| {
                meant.iter().all(|(_, taken)| taken != field)
                    && entries.iter().all(|(key, _)| key.as_str() != *field)
            };
            let field = field.filter(is_free);
            meant.extend(field.map(|field| (key.span, field)));
        }
        let missing = session.missing_fields(node);
        let is_hollow = !missing.is_empty() && !session.document.keeps_stand_ins;
        let known = Fields::new(session, entries, session.unset);
        let known = known.of_struct(fields, meant, missing);
        match visitor.visit_map(known) {
            Err(Failure::Missing(field)) => Err(self.missing(name, fields, field)),
            Ok(_) if is_hollow => Err(Failure::Hollow),
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
