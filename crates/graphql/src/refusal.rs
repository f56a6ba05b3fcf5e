//! Requests that have no cost, since servers would refuse them, or read them in two ways.

use std::fmt;

use thiserror::Error;

use crate::bounds::{MAX_BATCH, MAX_BYTES, MAX_DEPTH, MAX_TOKENS};

/// Why a request is not to be executed. Clients read what it says.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The body, or the parameter `variables`, is no JSON.
    #[error("the request is not JSON ({0})")]
    NotJson(Place),
    /// The text of the document is not in UTF-8.
    #[error("the document is not UTF-8")]
    NotUtf8,
    /// Its body is not read here.
    #[error("the request cannot be read: it is too long, or in another form than JSON")]
    Unread,
    /// There is another value in place of a request, or none.
    #[error("a request is an object with a member `query`, or an array of such objects")]
    NoRequest,
    /// A batch has too many requests.
    #[error("the batch has more than {MAX_BATCH} requests")]
    LongBatch,
    /// A request of a batch is refused.
    #[error("request {number} of the batch: {why}")]
    InBatch {
        /// Which one; the first is 1.
        number: usize,
        /// Why.
        why: Box<Refusal>,
    },
    /// Two readers may see two values.
    #[error("`{0}` is there twice")]
    RepeatedMember(&'static str),
    /// Some readers would take it for this member, others not.
    #[error("a name that some servers read as `{0}` is not spelled `{0}`")]
    MisspelledMember(&'static str),
    /// A member is of another type than it must be.
    #[error("`{name}` must be {expected}")]
    MemberType {
        /// Its name.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Two readers may see two values of a variable.
    #[error("`variables` has a member twice")]
    RepeatedVariable,
    /// Some servers execute the text, others what the name stands for.
    #[error("`query` and `{0}` are both there: send one of them")]
    TextAndName(&'static str),
    /// Some servers prefer what is in the URL.
    #[error("`{0}` is in the URL, although the request has a body")]
    InUrl(&'static str),
    /// The name in the URL is not that of the body.
    #[error("`operationName` is another one in the URL than in the body")]
    TwoNames,
    /// The document is longer than this many bytes.
    #[error("the document is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The document, or all documents of a batch, have too many tokens.
    #[error("the request has more than {MAX_TOKENS} tokens")]
    TooManyTokens,
    /// Selections, or values, are nested too deeply.
    #[error("the document is nested more than {MAX_DEPTH} deep ({0})")]
    TooDeep(Place),
    /// It is no GraphQL.
    #[error("syntax error in the document ({0})")]
    Syntax(Place),
    /// There is something that no server executes, such as a type.
    #[error("the document has a definition that is no operation and no fragment ({0})")]
    NotExecutable(Place),
    /// Something that must be there once is there again.
    #[error("{what} is there twice ({place})")]
    Repeated {
        /// What.
        what: &'static str,
        /// Where it is there again.
        place: Place,
    },
    /// The document has no operation.
    #[error("the document has no operation")]
    NoOperation,
    /// The document has no operation with the name that the request asks for.
    #[error("the document has no operation with the name of `operationName`")]
    UnknownOperation,
    /// The document has several operations, and the request does not say which one.
    #[error("the document has several operations: `operationName` must name one")]
    UnnamedOperation,
    /// A fragment is spread that is not there.
    #[error("the document has no fragment of this name ({0})")]
    UnknownFragment(Place),
    /// A fragment spreads itself.
    #[error("the fragment that is spread here spreads itself ({0})")]
    FragmentCycle(Place),
    /// A variable is used that the operation does not define.
    #[error("the operation does not define this variable ({0})")]
    UnknownVariable(Place),
    /// The size of a connection cannot be counted by.
    #[error("`{argument}` {why} ({place})")]
    Size {
        /// The argument that has it.
        argument: &'static str,
        /// What is wrong with it.
        why: Unfitness,
        /// Where the argument is.
        place: Place,
    },
}

/// Why a size cannot be counted by.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unfitness {
    /// It is below zero.
    #[error("is negative")]
    Negative,
    /// GraphQL's integers have 32 bits.
    #[error("is larger than {}", i32::MAX)]
    TooLarge,
    /// It is something else.
    #[error("is not a whole number")]
    NotWhole,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first line is 1.
    pub line: usize,
    /// The first character of a line is 1.
    pub column: usize,
}

impl Place {
    /// The place of the character at this byte.
    pub(crate) fn at(text: &str, byte: usize) -> Place {
        let before = text.get(..byte).unwrap_or(text);
        let mut place = Place { line: 1, column: 1 };
        let mut last = '\0';
        for character in before.chars() {
            match (last, character) {
                ('\r', '\n') => {}
                (_, '\n' | '\r') => place = Place { line: place.line + 1, column: 1 },
                _ => place.column += 1,
            }
            last = character;
        }
        place
    }
}

impl From<serde_json::Error> for Place {
    fn from(error: serde_json::Error) -> Place {
        Place { line: error.line(), column: error.column() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_by_lines_of_any_end() {
        let text = "a\nb\r\nc\r\u{e9}d";
        for (byte, line, column) in
            [(0, 1, 1), (1, 1, 2), (2, 2, 1), (5, 3, 1), (7, 4, 1), (9, 4, 2), (99, 4, 3)]
        {
            assert_eq!(Place::at(text, byte), Place { line, column }, "{byte}");
        }
    }
}
