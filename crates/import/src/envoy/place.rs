//! Places in files.

use std::cmp::Ordering;

use tollgate_yaml::{Document, Span};

/// A file.
#[derive(Clone, Copy)]
pub(super) struct Source<'c> {
    /// Its number among the files.
    pub(super) file: usize,
    pub(super) document: &'c Document,
}

/// A part of a file. In the order of the files.
#[derive(Clone, Copy)]
pub(super) struct Place<'c> {
    source: Source<'c>,
    span: Span,
}

impl<'c> Source<'c> {
    pub(super) fn place(self, span: Span) -> Place<'c> {
        Place { source: self, span }
    }
}

impl Place<'_> {
    /// As the table has it.
    pub(super) fn text(&self) -> String {
        self.source.document.problem(self.span, "", "").place()
    }

    fn order(&self) -> (usize, Span) {
        (self.source.file, self.span)
    }
}

impl PartialEq for Place<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Place<'_> {}

impl PartialOrd for Place<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
