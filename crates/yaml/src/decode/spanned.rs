//! serde's view of a value with its place in the file.

use serde::de::value::U64Deserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, SeqAccess};

use super::failure::Failure;
use crate::node::Span;

/// A value after its place, as `Spanned` takes them.
pub(super) struct SpannedParts<D> {
    bounds: std::vec::IntoIter<usize>,
    value: Option<D>,
}

impl<D> SpannedParts<D> {
    pub(super) fn new(span: Span, value: D) -> Self {
        Self { bounds: vec![span.start, span.end].into_iter(), value: Some(value) }
    }
}

impl<'de, D: Deserializer<'de, Error = Failure>> SeqAccess<'de> for SpannedParts<D> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        if let Some(bound) = self.bounds.next() {
            let bound: U64Deserializer<Failure> = (bound as u64).into_deserializer();
            return seed.deserialize(bound).map(Some);
        }
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}
