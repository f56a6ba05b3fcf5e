//! YAML text to typed raw structs, or every problem with its place.
//!
//! Policies and settings are edited by hand, so a reader deserves all mistakes of a file in one
//! run, each with line, column and what to write instead. Plain serde stops at the first. Here the
//! text becomes a tree that remembers places ([`Document::parse`]), and the tree is decoded into
//! serde types as often as it takes to find everything that is wrong ([`Document::decode`]).
//!
//! - `check`: what is said about values, the same in policies and settings.
//! - `load`: text to tree; the only file that knows the YAML library.
//! - `doubt`: what is no longer said because of a problem before it.
//! - `duration`, `size`: times and sizes with their units.
//! - `environment`: what `${NAME}` stands for, filled into the tree.
//! - `network`: networks in canonical form.
//! - `node`: the tree, and the types that keep a place beside a value.
//! - `decode`: tree to types, collecting problems.
//! - `example`: what a field takes, from the JSON Schema of its file.
//! - `keyword`: fields that take one of a few keywords.
//! - `problem`: a problem, and how it is shown; `mask` and `conceal`: what is not shown of it.
//! - `schema`: what editors check a file by.
//! - `sources`: where files and environment variables are read from.
//! - `suggest`: "did you mean".
//!
//! What a file is about, its reader brings: the types and the schema. Only [`warning`] knows
//! more: it lists what is legal in policies and settings, and unwise.
//!
//! The types to know first:
//!
//! - [`Document`]: a YAML file that is well formed.
//! - [`Check`]: what checks its values, and notes problems in an [`Inspection`].
//! - [`Problem`]: something that is wrong in a file, and what to write instead.
//! - [`Spanned`]: a value and where it is written.
//! - [`Sources`]: files and environment, with others laid over them.
//! - [`warning::Warning`]: something that is most likely a mistake.

mod check;
mod conceal;
mod decode;
mod doubt;
mod duration;
mod environment;
mod example;
mod keyword;
mod load;
mod mask;
mod network;
mod node;
mod problem;
mod schema;
mod size;
mod sources;
mod suggest;
pub mod warning;

use std::fmt;

use schemars::Schema;
use serde::de::DeserializeOwned;

pub use self::check::{ABOVE_ZERO, Check, Inspection};
pub use self::conceal::names_credential;
pub use self::decode::Later;
pub use self::doubt::Doubts;
pub use self::duration::{DurationError, duration_in_words, parse_duration};
pub use self::environment::literal;
pub use self::keyword::Choice;
pub use self::network::canonical_network;
pub use self::node::{Entries, Node, Span, Spanned, Value};
pub use self::problem::Problem;
pub use self::schema::schema_of;
pub use self::size::Size;
pub use self::sources::{Endings, Inputs, Sources};
pub use self::suggest::suggest;

use self::decode::Unset;
use self::environment::Unfilled;
use self::problem::Source;

/// A YAML file that is well formed and whose root is a mapping.
#[derive(Clone)]
pub struct Document {
    source: Source,
    root: Node,
    unfilled: Unfilled,
    /// What its fields take, for advice.
    schema: Option<&'static Schema>,
    /// Whether what lacks a required field is decoded with a stand-in for it.
    keeps_stand_ins: bool,
}

/// Without its values, some of which may be of the environment.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Document {
    /// Reads `text` as it stands; `name` is how problems call the file. A byte order mark at the
    /// start is dropped, and spans count from behind it.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the YAML itself: nothing behind it can be trusted.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problem> {
        let mut source = Source::new(name, text.strip_prefix('\u{feff}').unwrap_or(text));
        let root = load::load(&source)?;
        source.conceal(conceal::concealed(&root));
        Ok(Self {
            source,
            root,
            unfilled: Unfilled::default(),
            schema: None,
            keeps_stand_ins: false,
        })
    }

    /// The same with the environment variables that values name (`${NAME}`) filled in.
    ///
    /// # Errors
    ///
    /// As [`Document::parse`]. A variable that is not set is a problem of [`Document::decode`],
    /// among the others.
    pub fn parse_with(name: &str, text: &str, sources: &Sources) -> Result<Self, Problem> {
        let mut document = Self::parse(name, text)?;
        let Self { source, root, unfilled, .. } = &mut document;
        *unfilled = environment::fill(root, source, sources);
        Ok(document)
    }

    /// The same, with advice by `schema`: problems show what the field takes.
    #[must_use]
    pub fn with_schema(self, schema: &'static Schema) -> Self {
        Self { schema: Some(schema), ..self }
    }

    /// Decodes what lacks a required field with a stand-in for it, at [`Span::is_stand_in`]: for a
    /// [`Check`], which says nothing of that place, and so finds what is wrong beside it.
    #[must_use]
    pub fn with_stand_ins(self) -> Self {
        Self { keeps_stand_ins: true, ..self }
    }

    /// Decodes the whole document as a `T`, adding every problem to `problems`, sorted by place.
    ///
    /// What failed is left out of the result where `T` can do without it: an optional field, an
    /// item of a list, an entry of a map. So with problems, a `Some` is good for looking for more
    /// problems and for nothing else; and a name that seems undefined may have been left out.
    /// `None` means that something failed that `T` cannot do without. What names an environment
    /// variable that is not set has failed as well.
    pub fn decode<T: DeserializeOwned>(
        &self,
        later: &[Later],
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        self.decode_node(&self.root, later, problems)
    }

    /// Decodes one node of this document, as [`Document::decode`] does the root. For settings
    /// whose type depends on the kind of the value.
    pub fn decode_node<T: DeserializeOwned>(
        &self,
        node: &Node,
        later: &[Later],
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let (decoded, found) = decode::decode(self, node, later, Unset::LeaveOut);
        problems.extend(found);
        problems.extend(self.unfilled.problems.iter().cloned());
        problems.sort();
        problems.dedup();
        decoded
    }

    /// What is written at a node, whatever is wrong with it: for names that other parts of the
    /// document refer to. What names a variable that is not set is no name, list or section there,
    /// so that it is seen that something is written.
    pub fn decode_written<T: DeserializeOwned>(&self, node: &Node) -> Option<T> {
        decode::decode(self, node, &[], Unset::Show).0
    }

    /// Whether what is written at `span` names an environment variable that is not set.
    pub(crate) fn is_unset(&self, span: Span) -> bool {
        self.unfilled.places.contains(&span)
    }

    /// A problem at `span`. Leave `help` empty when there is nothing to advise.
    pub fn problem(
        &self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Problem {
        self.source.problem(span, message.into(), help.into())
    }

    /// The text at `span`, as written; empty if `span` is not of this document.
    pub fn source(&self, span: Span) -> &str {
        self.source.at(span)
    }

    /// What the file is called in problems.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The root, which is a mapping.
    pub fn root(&self) -> &Node {
        &self.root
    }
}

#[cfg(test)]
mod tests;
