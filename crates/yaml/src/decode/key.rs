//! serde's view of a key. Keys are text in the tree; a map may still want numbers or variants.

use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::Session;
use super::failure::{Failure, whole_number};
use super::spanned::SpannedParts;
use crate::node::{SPANNED, Spanned};

/// Decodes one key.
#[derive(Clone, Copy)]
pub(super) struct KeyDecoder<'a, 'de> {
    session: &'a Session<'a>,
    key: &'de Spanned<String>,
}

impl<'a, 'de> KeyDecoder<'a, 'de> {
    pub(super) fn new(session: &'a Session<'a>, key: &'de Spanned<String>) -> Self {
        Self { session, key }
    }
}

macro_rules! integers {
    ($($method:ident $integer:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            let range = i128::from($integer::MIN)..=i128::from($integer::MAX);
            match self.key.parse::<i64>() {
                Ok(number) if range.contains(&i128::from(number)) => visitor.visit_i64(number),
                _ => {
                    let expected = whole_number(&range);
                    let found = self.key.as_str();
                    let message = format!("expected {expected}, found `{found}`");
                    Err(Failure::invalid(message, ""))
                }
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for KeyDecoder<'_, 'de> {
    type Error = Failure;

    integers! {
        deserialize_i8 i8 deserialize_i16 i16 deserialize_i32 i32 deserialize_i64 i64
        deserialize_u8 u8 deserialize_u16 u16 deserialize_u32 u32 deserialize_u64 u64
    }

    forward_to_deserialize_any! {
        i128 u128 bool f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_borrowed_str(&self.key.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if name == SPANNED {
            return visitor.visit_seq(SpannedParts::new(self.key.span, self));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let variant = self.session.variant(name, variants, &self.key.value)?;
        let variant: StrDeserializer<'_, Failure> = variant.into_deserializer();
        visitor.visit_enum(variant)
    }
}
