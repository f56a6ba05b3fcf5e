//! What the reader tells of.

use thiserror::Error;

use super::MAX_DEPTH;

/// What a reader does with what it finds.
pub trait Finder {
    /// Whether a member that is wanted must not be there in other letters either: some readers take
    /// `Model` for `model`.
    const MINDS_LETTERS: bool = false;

    /// There is such a value at the end of the path of this number.
    fn found(&mut self, path: usize, value: Found<'_>);

    /// What was found at the path of this number is superseded, or is there twice.
    fn lost(&mut self, path: usize, why: Lost);

    /// A document has ended.
    fn end_document(&mut self) {}
}

/// A value at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'v> {
    /// `null`, which counts as not there.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(&'v str),
    /// A text, without its escapes.
    Text(FoundText<'v>),
    /// An array or an object, which begins here.
    Container,
}

/// A text at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundText<'v> {
    /// The text; none: it is longer than what is kept, or is no Unicode.
    pub text: Option<&'v str>,
    /// How many bytes it has in UTF-8.
    pub bytes: u64,
}

/// Why something that was found does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// There is a later element in an array of which the path takes the last.
    Superseded,
    /// An object has the member twice, or in other letters: two readers may see two values.
    Repeated,
}

/// Why bytes are no JSON.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Malformed {
    /// Something stands where nothing of its kind may.
    #[error("it is no JSON")]
    Syntax,
    /// It is nested too deeply.
    #[error("its values are nested more than {MAX_DEPTH} deep")]
    Depth,
}
