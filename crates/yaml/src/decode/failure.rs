//! Why a value could not be decoded, in the words of someone who writes YAML.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::{Error, Expected, Unexpected};

use crate::node::Span;
use crate::suggest::{advice, one_of};

/// Why a value could not be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The value is wrong, or at `at` a part of it.
    #[error("{message}")]
    Invalid { message: String, help: String, at: Option<Span> },
    /// The struct being decoded lacks a field that it requires.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// The value cannot be made from what is left of it; the reason has been recorded.
    #[error("incomplete")]
    Hollow,
    /// An error inside was recorded and its node left out; another round finds the rest.
    #[error("to be decoded again")]
    Again,
}

impl Failure {
    pub(super) fn invalid(message: String, help: impl Into<String>) -> Self {
        Self::Invalid { message, help: help.into(), at: None }
    }

    /// The same with a more exact place.
    pub(super) fn at(self, span: Span) -> Self {
        match self {
            Self::Invalid { message, help, .. } => Self::Invalid { message, help, at: Some(span) },
            other => other,
        }
    }
}

/// What visitors report. Wrong kinds of values seldom get here, as the decoder looks before it
/// calls the visitor.
impl Error for Failure {
    fn custom<T: Display>(message: T) -> Self {
        Self::invalid(message.to_string(), "")
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = expected_in_words(expected);
        let found = found_in_words(unexpected);
        Self::invalid(format!("expected {expected}, found {found}"), "")
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::invalid(format!("expected {expected}, found {length} items"), "")
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::invalid(format!("unknown value `{variant}`"), advice(variant, expected))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::invalid(format!("unknown field `{field}`"), one_of(expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

/// What to call a whole number within `range`; the bounds of 64 bits do not help a user.
pub(super) fn whole_number(range: &RangeInclusive<i128>) -> String {
    let start = *range.start();
    let end = *range.end();
    if end < i128::from(i64::MAX) {
        format!("a whole number from {start} to {end}")
    } else if start == 0 {
        "a whole number from 0".to_owned()
    } else {
        "a whole number".to_owned()
    }
}

fn expected_in_words(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "a string" | "a borrowed string" | "a character" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "a boolean" => "true or false".to_owned(),
        nonzero if nonzero.starts_with("a nonzero u") => "a whole number above 0".to_owned(),
        nonzero if nonzero.starts_with("a nonzero i") => "a whole number except 0".to_owned(),
        other if other.starts_with("struct ") => "a mapping".to_owned(),
        _ => expected,
    }
}

fn found_in_words(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("`{value}`"),
        Unexpected::Signed(value) => format!("`{value}`"),
        Unexpected::Float(value) => format!("`{value}`"),
        Unexpected::Char(value) => format!("`{value}`"),
        Unexpected::Str(value) => format!("`{value}`"),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}
