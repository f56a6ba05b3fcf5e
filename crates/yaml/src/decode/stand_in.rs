//! A value of any type, made from nothing, in place of a required field that is missing.
//!
//! It keeps serde going, and what stands beside it is checked. The value does not matter, as
//! nothing is said of its place; a type that takes none of these values only hides a second
//! problem.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::failure::Failure;
use crate::node::SPANNED;

/// Deep enough for any settings; an enum whose first variant holds itself would never end.
const MOST_DEPTH: u8 = 16;

/// Deserializes as whatever is asked for.
#[derive(Clone, Copy, Default)]
pub(super) struct StandIn {
    depth: u8,
}

impl StandIn {
    fn inner(self) -> Result<Self, Failure> {
        if self.depth < MOST_DEPTH {
            Ok(Self { depth: self.depth + 1 })
        } else {
            Err(Failure::Hollow)
        }
    }
}

macro_rules! values {
    ($($method:ident => $visit:ident($($value:expr)?))*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            visitor.$visit($($value)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for StandIn {
    type Error = Failure;

    // Numbers are 1, because some types exclude 0.
    values! {
        deserialize_i8 => visit_i8(1)
        deserialize_i16 => visit_i16(1)
        deserialize_i32 => visit_i32(1)
        deserialize_i64 => visit_i64(1)
        deserialize_u8 => visit_u8(1)
        deserialize_u16 => visit_u16(1)
        deserialize_u32 => visit_u32(1)
        deserialize_u64 => visit_u64(1)
        deserialize_f32 => visit_f32(1.0)
        deserialize_f64 => visit_f64(1.0)
        deserialize_bool => visit_bool(false)
        deserialize_char => visit_char('-')
        deserialize_str => visit_str("")
        deserialize_string => visit_str("")
        deserialize_option => visit_none()
        deserialize_any => visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 bytes byte_buf unit unit_struct identifier ignored_any
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let inner = self.inner()?;
        if name == SPANNED {
            // A place is two numbers before the value, and stand-ins give ones: `Span::STAND_IN`.
            return visitor.visit_seq(SeqDeserializer::new([inner; 3].into_iter()));
        }
        visitor.visit_newtype_struct(inner)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<Self>()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let inner = self.inner()?;
        visitor.visit_seq(SeqDeserializer::new(std::iter::repeat_n(inner, length)))
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
        visitor.visit_map(MapDeserializer::new(std::iter::empty::<(Self, Self)>()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let inner = self.inner()?;
        visitor.visit_map(MapDeserializer::new(fields.iter().map(|field| (*field, inner))))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let variant = variants.first().ok_or(Failure::Hollow)?;
        visitor.visit_enum(FirstVariant { variant, content: self.inner()? })
    }
}

impl<'de> IntoDeserializer<'de, Failure> for StandIn {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct FirstVariant {
    variant: &'static str,
    content: StandIn,
}

impl<'de> EnumAccess<'de> for FirstVariant {
    type Error = Failure;
    type Variant = StandIn;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, StandIn), Failure> {
        let name: de::value::StrDeserializer<'_, Failure> = self.variant.into_deserializer();
        Ok((seed.deserialize(name)?, self.content))
    }
}

impl<'de> VariantAccess<'de> for StandIn {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_struct("", fields, visitor)
    }
}
