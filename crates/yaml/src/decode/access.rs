//! serde's view of what is inside a node: the items of a list, the entries of a mapping and
//! the content of a variant. What is left out is not seen from here.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::decoder::Decoder;
use super::failure::Failure;
use super::key::KeyDecoder;
use super::stand_in::StandIn;
use super::{Session, Unset};
use crate::node::{Node, Span, Spanned, Value};

/// The items of a list that are not left out.
pub(super) struct Items<'a, 'de> {
    session: &'a Session<'a>,
    items: std::slice::Iter<'de, Node>,
    unset: Unset,
}

impl<'a, 'de> Items<'a, 'de> {
    pub(super) fn new(session: &'a Session<'a>, items: &'de [Node], unset: Unset) -> Self {
        Self { session, items: items.iter(), unset }
    }
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        let Self { session, items, unset } = self;
        let Some(item) = items.find(|item| !session.leaves_out(item, *unset)) else {
            return Ok(None);
        };
        Decoder::new(self.session, item, None).attempt(seed).map(Some)
    }
}

/// The entries of a mapping that are known and not left out, then the stand-ins.
pub(super) struct Fields<'a, 'de> {
    session: &'a Session<'a>,
    /// The fields of a struct; a map takes any name.
    known: Option<&'static [&'static str]>,
    /// The fields that unknown keys are taken for, by the keys' places.
    meant: Vec<(Span, &'static str)>,
    entries: std::slice::Iter<'de, (Spanned<String>, Node)>,
    missing: Vec<&'static str>,
    unset: Unset,
    /// The value to the key that was given last; of a stand-in there is none.
    current: Option<Decoder<'a, 'de>>,
}

impl<'a, 'de> Fields<'a, 'de> {
    pub(super) fn new(
        session: &'a Session<'a>,
        entries: &'de [(Spanned<String>, Node)],
        unset: Unset,
    ) -> Self {
        let (known, meant, missing) = (None, Vec::new(), Vec::new());
        Self { session, known, meant, entries: entries.iter(), missing, unset, current: None }
    }

    /// Gives the `known` entries and those that are `meant` to be, and a stand-in for each that is
    /// `missing`.
    pub(super) fn of_struct(
        self,
        known: &'static [&'static str],
        meant: Vec<(Span, &'static str)>,
        missing: Vec<&'static str>,
    ) -> Self {
        Self { known: Some(known), meant, missing, ..self }
    }
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Failure;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        let Self { session, known, meant, entries, unset, .. } = self;
        let meant = |key: &Spanned<String>| {
            meant.iter().find_map(|(place, field)| (*place == key.span).then_some(*field))
        };
        let is_known = |key: &Spanned<String>| {
            known.is_none_or(|known| known.contains(&key.as_str())) || meant(key).is_some()
        };
        let next = entries.find(|(key, node)| is_known(key) && !session.leaves_out(node, *unset));
        let Some((key, node)) = next else {
            self.current = None;
            let Some(field) = self.missing.pop() else { return Ok(None) };
            let name: StrDeserializer<'_, Failure> = field.into_deserializer();
            return seed.deserialize(name).map(Some);
        };
        self.current = Some(Decoder::new(session, node, Some(key.span)));
        if let Some(field) = meant(key) {
            let name: StrDeserializer<'_, Failure> = field.into_deserializer();
            return seed.deserialize(name).map(Some);
        }
        match seed.deserialize(KeyDecoder::new(session, key)) {
            Err(Failure::Invalid { message, help, .. }) => {
                session.report(key.span, message, help);
                session.leave_out(node);
                Err(Failure::Again)
            }
            result => result.map(Some),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        match self.current.take() {
            Some(decoder) => decoder.attempt(seed),
            None => seed.deserialize(StandIn::default()).map_err(|_| Failure::Hollow),
        }
    }
}

/// A variant of an enum: a word, or a mapping of that word to its content.
pub(super) struct Variant<'a, 'de> {
    word: &'static str,
    content: Option<Decoder<'a, 'de>>,
}

impl<'a, 'de> Variant<'a, 'de> {
    pub(super) fn new(word: &'static str, content: Option<Decoder<'a, 'de>>) -> Self {
        Self { word, content }
    }

    fn content(self) -> Result<Decoder<'a, 'de>, Failure> {
        let word = self.word;
        let decoder = self.content.ok_or_else(|| {
            let message = format!("`{word}` needs a value");
            Failure::invalid(message, format!("write `{word}: …`"))
        })?;
        if decoder.session.is_left_out(decoder.node) { Err(Failure::Hollow) } else { Ok(decoder) }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Failure;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Failure> {
        let name: StrDeserializer<'_, Failure> = self.word.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        match self.content {
            Some(decoder) if decoder.node.value != Value::Null => {
                let message = format!("`{}` takes no value", self.word);
                Err(Failure::invalid(message, format!("write `{}` alone", self.word)))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        self.content()?.attempt(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.content()?.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let word = self.word;
        self.content()?.deserialize_struct(word, fields, visitor)
    }
}
