//! Tree to types, collecting problems.
//!
//! serde gives up at the first error. So the tree is decoded again and again: what failed is
//! recorded and left out of the next round, until a round finds nothing new. A required field that
//! is missing is recorded too, and gets a stand-in, so that the next one that is missing shows;
//! what holds a stand-in is then left out of what is above it, unless the document keeps it. A
//! mistyped field is taken for the one that it is meant to be, if that is not there.
//!
//! - `decoder`: one node; `deserialize`: serde's view of it; `access`: its content; `key`: a key.
//! - `failure`: why something could not be decoded.
//! - `spanned`: a value with its place.
//! - `stand_in`: the value in place of a missing field.
//!
//! Not supported, because serde buffers them and loses their places: `flatten`, `untagged`, and
//! tags inside of the mapping. Take a [`Node`] there.

mod access;
mod decoder;
mod deserialize;
mod failure;
mod key;
mod spanned;
mod stand_in;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use self::decoder::Decoder;
use self::failure::Failure;
use super::Document;
use super::node::{Node, Span, Spanned};
use super::problem::Problem;
use super::suggest::{advice, mistyped, one_of};

/// More problems than anyone reads in one go; they bound the work for a hostile file.
const MOST_PROBLEMS: usize = 100;
/// A round finds a problem, or leaves out something because of one found before.
const MOST_ROUNDS: usize = 10 * MOST_PROBLEMS;

/// Names that the design has for a section and that this version does not know yet. They get a
/// message of their own, because "unknown" would send the user looking for a typing mistake.
#[derive(Clone, Copy, Debug)]
pub struct Later {
    /// The serde name of the struct or enum.
    pub section: &'static str,
    /// Its fields or variants to come.
    pub fields: &'static [&'static str],
}

/// What becomes of a value that names an environment variable which is not set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unset {
    /// It seems not to be written.
    LeaveOut,
    /// It is something that is no name, list or section.
    Show,
}

/// Decodes `node` of `document`, and says everything that is wrong with it, sorted by place.
pub(super) fn decode<T: DeserializeOwned>(
    document: &Document,
    node: &Node,
    later: &[Later],
    unset: Unset,
) -> (Option<T>, BTreeSet<Problem>) {
    let session = Session { document, later, unset, findings: RefCell::default() };
    let decoded = session.decode(node);
    let mut problems = session.findings.into_inner().problems;
    if problems.len() == MOST_PROBLEMS {
        let message = format!("too many problems; {MOST_PROBLEMS} of them follow");
        problems.insert(Problem::whole_file(document.name(), message, ""));
    }
    (decoded, problems)
}

/// The rounds over one tree.
struct Session<'a> {
    document: &'a Document,
    later: &'a [Later],
    unset: Unset,
    /// In a cell, as serde copies the decoder at will.
    findings: RefCell<Findings>,
}

/// What the rounds so far have found. Nodes are distinguished by address: the tree stays put, and
/// one place may be in it several times, by way of aliases.
#[derive(Default)]
struct Findings {
    problems: BTreeSet<Problem>,
    left_out: HashSet<*const Node>,
    /// Required fields that a mapping lacks.
    missing: HashMap<*const Node, Vec<&'static str>>,
}

impl Session<'_> {
    fn decode<T: DeserializeOwned>(&self, root: &Node) -> Option<T> {
        if self.is_left_out(root) {
            return None;
        }
        for _ in 0..MOST_ROUNDS {
            if let Ok(decoded) = Decoder::new(self, root, None).attempt(PhantomData) {
                return Some(decoded);
            }
            if self.is_left_out(root) || self.is_full() {
                return None;
            }
        }
        None
    }

    fn is_full(&self) -> bool {
        self.findings.borrow().problems.len() >= MOST_PROBLEMS
    }

    fn is_left_out(&self, node: &Node) -> bool {
        self.leaves_out(node, self.unset)
    }

    fn leaves_out(&self, node: &Node, unset: Unset) -> bool {
        // What names a variable that is not set has no value, as the document knows already.
        unset == Unset::LeaveOut && self.document.is_unset(node.span)
            || self.findings.borrow().left_out.contains(&std::ptr::from_ref(node))
    }

    fn leave_out(&self, node: &Node) {
        self.findings.borrow_mut().left_out.insert(node);
    }

    fn report(&self, span: Span, message: String, help: String) {
        self.note(self.document.problem(span, message, help));
    }

    /// Reports what leaves nothing out: only what is said of `doubtful` may follow from it.
    fn report_alone(&self, mut problem: Problem, doubtful: &[Span]) {
        problem.doubtful = Some(doubtful.into());
        self.note(problem);
    }

    fn note(&self, problem: Problem) {
        if !self.is_full() {
            self.findings.borrow_mut().problems.insert(problem);
        }
    }

    fn is_later(&self, section: &str, name: &str) -> bool {
        self.later.iter().any(|later| later.section == section && later.fields.contains(&name))
    }

    /// Reports a field that no `section` has, whose place is `around`. Returns the one that is
    /// mistyped.
    fn report_unknown_field(
        &self,
        section: &str,
        fields: &'static [&'static str],
        key: &Spanned<String>,
        around: &[Span],
    ) -> Option<&'static str> {
        let name = key.as_str();
        if self.is_later(section, name) {
            let help = "remove it; this version would ignore it".to_owned();
            let message = format!("`{name}` is not supported yet");
            self.report_alone(self.document.problem(key.span, message, help), around);
            return None;
        }
        let message = format!("unknown field `{name}` in {}", with_article(section));
        if let Some(help) = self.document.help_for_misplaced(key) {
            self.report_alone(self.document.problem(key.span, message, help), around);
            return None;
        }
        // The value of one that is not mistyped may be of another kind: a secret, not its file.
        let meant = mistyped(name, fields.iter().copied());
        let doubtful = if meant.is_some() { &[] } else { around };
        let problem = self.document.problem(key.span, message, advice(name, fields));
        self.report_alone(problem, doubtful);
        meant
    }

    /// The variant that `word` names.
    fn variant(
        &self,
        section: &str,
        variants: &'static [&'static str],
        word: &str,
    ) -> Result<&'static str, Failure> {
        if let Some(variant) = variants.iter().find(|variant| **variant == word) {
            return Ok(variant);
        }
        Err(if self.is_later(section, word) {
            Failure::invalid(format!("`{word}` is not supported yet"), one_of(variants))
        } else {
            Failure::invalid(format!("unknown value `{word}`"), advice(word, variants))
        })
    }

    fn missing_fields(&self, mapping: &Node) -> Vec<&'static str> {
        let missing = &self.findings.borrow().missing;
        missing.get(&std::ptr::from_ref(mapping)).cloned().unwrap_or_default()
    }

    /// Notes a missing field; false if it was noted before, so that another round is no use.
    fn note_missing(&self, mapping: &Node, field: &'static str) -> bool {
        let missing = &mut self.findings.borrow_mut().missing;
        let fields = missing.entry(std::ptr::from_ref(mapping)).or_default();
        let is_new = !fields.contains(&field);
        if is_new {
            fields.push(field);
        }
        is_new
    }
}

/// `noun` with "a" or "an"; of the names that start with a `u`, most sound like "user".
fn with_article(noun: &str) -> String {
    let is_vowel = noun.starts_with(['a', 'e', 'i', 'o']) || noun.starts_with("up");
    format!("{} {noun}", if is_vowel { "an" } else { "a" })
}

#[cfg(test)]
mod tests;
