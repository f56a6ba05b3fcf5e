//! What is found on the way: rows of the table, each once, and what the reader has to do.

use std::collections::BTreeSet;

use crate::Finding;

/// The rows of the table, and what the reader has to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) to_do: Vec<String>,
    known: BTreeSet<Finding>,
    asked: BTreeSet<String>,
}

impl Report {
    /// A row, unless it is there: a part is looked at for each route that has it.
    pub(crate) fn add(&mut self, finding: Finding) {
        if self.known.insert(finding.clone()) {
            self.findings.push(finding);
        }
    }

    pub(crate) fn same(
        &mut self,
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) {
        self.add(Finding::same(place, there, here));
    }

    pub(crate) fn nearly(
        &mut self,
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) {
        self.add(Finding::nearly(place, there, here));
    }

    pub(crate) fn left_out(
        &mut self,
        place: impl Into<String>,
        there: impl Into<String>,
        here: impl Into<String>,
    ) {
        self.add(Finding::left_out(place, there, here));
    }

    /// All that another report has.
    pub(crate) fn absorb(&mut self, other: Report) {
        other.findings.into_iter().for_each(|finding| self.add(finding));
        other.to_do.into_iter().for_each(|text| self.ask(text));
    }

    /// Something that the reader has to do, once.
    pub(crate) fn ask(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.asked.insert(text.clone()) {
            self.to_do.push(text);
        }
    }
}
