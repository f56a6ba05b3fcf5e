//! Fields that take one of a few keywords.
//!
//! The parser, the JSON Schema and the name that reports print are made from the list of
//! [`Keyword`], so they cannot disagree.

use std::{borrow::Cow, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use tollgate_keyword::Keyword;

use super::{Document, Problem, Spanned, suggest};

/// A field of a raw struct that takes a keyword of `T`. It keeps the text: [`Document::keyword`]
/// looks it up later, so that a misspelt keyword does not end decoding and hide problems elsewhere.
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

impl Document {
    /// The variant that `raw` names; a problem if it names none.
    pub fn keyword<T: Keyword>(
        &self,
        raw: &Spanned<Choice<T>>,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let text = raw.value.as_ref();
        let found = T::from_keyword(text);
        if found.is_none() {
            let keywords: Vec<&str> = T::KEYWORDS.iter().map(|(keyword, _)| *keyword).collect();
            let help = match suggest(text, keywords.iter().copied()) {
                Some(keyword) => format!("did you mean `{keyword}`?"),
                None => format!("one of: {}", keywords.join(", ")),
            };
            problems.push(self.problem(raw.span, format!("unknown value `{text}`"), help));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Door {
        Open,
        Closed,
    }

    tollgate_keyword::keywords! { Door { Open = "open", Closed = "closed" } }

    #[derive(Deserialize)]
    struct File {
        door: Spanned<Choice<Door>>,
    }

    fn door(text: &str) -> (Option<Door>, Vec<String>) {
        let document = Document::parse("f", &format!("door: {text}")).unwrap();
        let mut problems = Vec::new();
        let file: File = document.decode(&[], &mut problems).unwrap();
        let door = document.keyword(&file.door, &mut problems);
        (
            door,
            problems
                .iter()
                .map(|problem| format!("{} {}", problem.message(), problem.help()))
                .collect(),
        )
    }

    #[test]
    fn keyword_names_its_variant_and_the_variant_its_keyword() {
        assert_eq!(door("closed"), (Some(Door::Closed), vec![]));
        for (keyword, variant) in Door::KEYWORDS {
            assert_eq!(variant.keyword(), *keyword);
            assert_eq!(Door::from_keyword(keyword), Some(*variant));
        }
    }

    #[test]
    fn unknown_keyword_is_a_problem_with_the_known_ones() {
        let expected = vec!["unknown value `ajar` one of: open, closed".to_owned()];
        assert_eq!(door("ajar"), (None, expected));
        let expected = vec!["unknown value `close` did you mean `closed`?".to_owned()];
        assert_eq!(door("close"), (None, expected));
    }
}
