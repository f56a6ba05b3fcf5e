//! Rows of the table: each is there once, and what many places say alike is one row.

use std::collections::BTreeSet;

use super::{Importer, directive::Directive};
use crate::Finding;

impl Importer<'_> {
    /// A row, unless it is there.
    pub(super) fn row(&mut self, finding: Finding) {
        if self.seen.insert(finding.clone()) {
            self.findings.push(finding);
        }
    }

    /// A row for something that is the same; one for all directives with this text.
    pub(super) fn row_of(&mut self, directive: &Directive, here: &str) {
        self.grouped(Finding::same(directive.place.to_string(), directive.said(), here));
    }

    pub(super) fn row_nearly(&mut self, directive: &Directive, here: &str) {
        self.grouped(Finding::nearly(directive.place.to_string(), directive.said(), here));
    }

    pub(super) fn left_out(&mut self, directive: &Directive, why: &str) {
        self.grouped(Finding::left_out(directive.place.to_string(), directive.said(), why));
    }

    /// A row for something that closes routes, and what to write instead.
    pub(super) fn close(&mut self, place: String, there: String, instead: &str) {
        self.note_to_do(&format!(
            "some routes are closed (`deny: [0.0.0.0/0, \"::/0\"]`), since \
             what refuses requests there has no counterpart.\nAt {place}: {instead}; then take the \
             `deny` out."
        ));
        self.row(Finding::left_out(
            place,
            there,
            format!("no counterpart: its routes are closed (403). Instead, {instead}"),
        ));
    }

    pub(super) fn note_to_do(&mut self, paragraph: &str) {
        if !self.to_do.iter().any(|known| known == paragraph) {
            self.to_do.push(paragraph.to_owned());
        }
    }

    /// A row, unless there is one that says the same of another place: that is counted there.
    fn grouped(&mut self, finding: Finding) {
        let is_alike = |other: &&mut (Finding, BTreeSet<String>)| {
            other.0.verdict == finding.verdict
                && other.0.here == finding.here
                && other.0.there == finding.there
        };
        match self.groups.iter_mut().find(is_alike) {
            Some((_, places)) => {
                places.insert(finding.place);
            }
            None => self.groups.push((finding.clone(), [finding.place].into())),
        }
    }
}

/// A row for something that is the same, but for the notes.
pub(super) fn same_but_for(
    place: impl Into<String>,
    there: impl Into<String>,
    here: String,
    notes: &[String],
) -> Finding {
    match notes.is_empty() {
        true => Finding::same(place, there, here),
        false => Finding::nearly(place, there, noted(here, notes)),
    }
}

/// A text and its notes.
pub(super) fn noted(text: String, notes: &[String]) -> String {
    std::iter::once(text).chain(notes.iter().cloned()).collect::<Vec<_>>().join("; ")
}
