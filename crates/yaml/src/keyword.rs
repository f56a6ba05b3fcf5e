//! Fields that take one of a few keywords.
//!
//! The parser, the JSON Schema and the name that reports print are made from the list of
//! [`Keyword`], so they cannot disagree.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use tollgate_keyword::Keyword;

/// A field of a raw struct that takes a keyword of `T`. It keeps the text:
/// [`Check::keyword`](super::Check::keyword) looks it up later, so that a misspelt keyword does not
/// end decoding and hide problems elsewhere.
#[derive(Clone, Debug)]
pub struct Choice<T> {
    text: String,
    keywords: PhantomData<T>,
}

impl<T> From<String> for Choice<T> {
    fn from(text: String) -> Self {
        Choice { text, keywords: PhantomData }
    }
}

impl<T> AsRef<str> for Choice<T> {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl<'de, T> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Choice::from)
    }
}

impl<T: Keyword> JsonSchema for Choice<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "keyword".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let keywords: Vec<&str> = T::KEYWORDS.iter().map(|(keyword, _)| *keyword).collect();
        json_schema!({ "type": "string", "enum": keywords })
    }
}
