//! Rows of the table: each is there once, and what many places say alike is one row.

use std::collections::BTreeSet;

use super::{Importer, directive::Directive, lexer::Place};
use crate::Finding;

impl Importer<'_> {
    /// A row, unless it is there.
    pub(super) fn row(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    pub(super) fn left_out(&mut self, directive: &Directive, why: &str) {
        self.grouped(directive.left_out(why));
    }

    /// A row for something that closes routes, and what to write instead.
    pub(super) fn close(&mut self, place: &Place, there: impl Into<String>, instead: &str) {
        self.report.ask(format!(
            "some routes are closed (`deny: [0.0.0.0/0, \"::/0\"]`), since what refuses requests \
             there has no counterpart.\nAt {place}: {instead}; then take the `deny` out."
        ));
        let here = format!("no counterpart: its routes are closed (403). Instead, {instead}");
        self.row(Finding::left_out(place.to_string(), there, here));
    }

    /// A row, unless there is one that says the same of another place: that is counted there.
    pub(super) fn grouped(&mut self, finding: Finding) {
        let is_alike = |other: &&mut (Finding, BTreeSet<String>)| {
            other.0.verdict == finding.verdict
                && other.0.here == finding.here
                && other.0.there == finding.there
        };
        match self.repeated.iter_mut().find(is_alike) {
            Some((_, places)) => {
                places.insert(finding.place);
            }
            None => self.repeated.push((finding.clone(), [finding.place].into())),
        }
    }
}
