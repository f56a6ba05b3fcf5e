//! Documents one after another, such as the events of a stream, as a rule begin alike: with an
//! identifier, a time, the name of a model. What is known to have nothing that is wanted is passed
//! over. The same bytes from the same state lead to the same state, so nothing is lost by that.

/// How documents begin: the first members of an object that nobody wants.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// The first bytes of the document from which it was learned.
    bytes: Vec<u8>,
    /// How many of them are of members that nobody wants, with the comma after each.
    known: usize,
    /// It is being learned: how many bytes there were from the document on.
    learned_from: Option<usize>,
}

/// The longest beginning that is kept, in bytes.
const MAX_BYTES: usize = 256;

impl Beginning {
    /// What is left of a document that begins as is known. Of another one it is learned.
    pub(super) fn pass<'r>(&mut self, document: &'r [u8]) -> Option<&'r [u8]> {
        let known = self.bytes.get(..self.known).filter(|known| !known.is_empty());
        let after = known.and_then(|known| document.strip_prefix(known));
        if after.is_none() {
            self.bytes.clear();
            self.bytes.extend_from_slice(document.get(..MAX_BYTES).unwrap_or(document));
            self.known = 0;
            self.learned_from = Some(document.len());
        }
        after
    }

    /// Nothing was wanted so far, and another member comes: the bytes that are left.
    pub(super) fn extend(&mut self, left: &[u8]) {
        let known = self.learned_from.and_then(|all| all.checked_sub(left.len()));
        match known.filter(|known| *known <= self.bytes.len()) {
            Some(known) => self.known = known,
            None => self.end(),
        }
    }

    /// What comes next is no part of it.
    pub(super) fn end(&mut self) {
        self.learned_from = None;
    }
}
