//! What is found on the way, each thing once.

use crate::Finding;

/// The rows of the table, and what the reader has to do.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) to_do: Vec<String>,
}

impl Report {
    fn add(&mut self, finding: Finding) {
        // A middleware is looked at for each of its routers.
        if !self.findings.contains(&finding) {
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

    pub(crate) fn ask(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.to_do.contains(&text) {
            self.to_do.push(text);
        }
    }
}
