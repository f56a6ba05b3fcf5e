//! What is open while a document is read.

use crate::path::Places;

/// An object or an array that is open, or the document.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// The places of its members or elements that are wanted.
    pub(super) children: Places,
    /// The places of the members that it had so far.
    pub(super) seen: Places,
    /// How many elements it had so far.
    pub(super) elements: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Document,
    Object,
    Array,
}

impl Frame {
    pub(super) fn new(kind: FrameKind, children: Places) -> Self {
        Frame { kind, children, seen: Places::NONE, elements: 0 }
    }
}
