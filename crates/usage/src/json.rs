//! Reads JSON that comes in pieces, and tells of the values at some paths.
//!
//! It holds one value at most, and of that a bounded part; everything else passes. It takes what
//! RFC 8259 takes and nothing more: a document that another reader would read otherwise, or not at
//! all, must not be half understood here. Only the encoding of texts is not looked at.

mod beginning;
mod found;
mod frame;
mod number;
mod text;

use std::mem;

use self::{
    beginning::Beginning,
    frame::{Frame, FrameKind},
    number::NumberState,
    text::TextToken,
};
use crate::path::{Paths, Places};

pub use self::{
    found::{Finder, Found, FoundText, Lost, Malformed},
    number::Amount,
};

/// Reads documents one after another. Of all that passed, it keeps what [`Scanner::read`] needs to
/// go on with the next piece.
#[derive(Debug)]
pub struct Scanner {
    /// Whether a document may follow another.
    takes_several: bool,
    /// The object or array that is open.
    inside: Frame,
    /// Those around it, and the document.
    outer: Vec<Frame>,
    expected: Expected,
    token: Token,
    /// The places of the value that comes next.
    places: Places,
    /// What is kept of the token, for a name or a value that is wanted.
    kept: Vec<u8>,
    beginning: Beginning,
}

/// The most objects and arrays within each other.
const MAX_DEPTH: usize = 512;

/// The longest text and number that is kept, in bytes.
pub(crate) const MAX_KEPT: usize = 1024;

/// What may come next, between tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The beginning of a document.
    Document,
    /// The document has ended.
    Nothing,
    Value,
    /// The first element of an array, or its end.
    ElementOrEnd,
    /// The first member of an object, or its end.
    NameOrEnd,
    Name,
    Colon,
    CommaOrEnd,
}

/// What has begun and not ended yet.
#[derive(Debug)]
enum Token {
    None,
    Name(TextToken),
    Text(TextToken),
    Number(NumberState),
    /// What is left of `true`, `false` or `null`, and its value.
    Word(&'static [u8], Found<'static>),
}

impl Scanner {
    /// Of a single document.
    pub fn of_one() -> Self {
        Scanner {
            takes_several: false,
            inside: Frame::new(FrameKind::Document, Places::NONE),
            outer: Vec::new(),
            expected: Expected::Document,
            token: Token::None,
            places: Places::ROOT,
            kept: Vec::new(),
            beginning: Beginning::default(),
        }
    }

    /// Of documents one after another, such as one a line.
    pub fn of_several() -> Self {
        Scanner { takes_several: true, ..Scanner::of_one() }
    }

    /// Reads the next piece of a document, or of several, each time for the same paths.
    ///
    /// # Errors
    /// [`Malformed`], after which only [`Scanner::reset`] helps.
    pub fn read(
        &mut self,
        paths: &Paths,
        piece: &[u8],
        finder: &mut impl Finder,
    ) -> Result<(), Malformed> {
        // It is learned within a piece.
        self.beginning.end();
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match &self.token {
                Token::None => self.begin(paths, rest, finder)?,
                Token::Name(_) => self.name(paths, rest, finder)?,
                Token::Text(_) => self.text(paths, rest, finder)?,
                Token::Number(_) => self.number(paths, rest, finder)?,
                Token::Word(..) => self.word(paths, rest, finder)?,
            };
        }
        Ok(())
    }

    /// There are no further pieces. Says whether all documents that have begun have ended; of a
    /// single one, whether it has.
    pub fn finish(&mut self, paths: &Paths, finder: &mut impl Finder) -> bool {
        // Only the end says where a number ends that is a document.
        if let Token::Number(state) = self.token
            && state.is_whole()
            && self.inside.kind == FrameKind::Document
        {
            self.end_kept_number(paths, finder);
        }
        let is_over = match self.takes_several {
            true => matches!(self.expected, Expected::Document | Expected::Nothing),
            false => self.expected == Expected::Nothing,
        };
        is_over && matches!(self.token, Token::None)
    }

    /// Forgets what has begun: another document comes next.
    pub fn reset(&mut self) {
        self.inside = Frame::new(FrameKind::Document, Places::NONE);
        self.outer.clear();
        self.expected = Expected::Document;
        self.token = Token::None;
        self.places = Places::ROOT;
        self.kept.clear();
    }

    /// Takes what stands between tokens, and those that are whole, up to one that is not.
    fn begin<'r>(
        &mut self,
        paths: &Paths,
        bytes: &'r [u8],
        finder: &mut impl Finder,
    ) -> Result<&'r [u8], Malformed> {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match (byte, self.expected) {
                (b'"', Expected::NameOrEnd | Expected::Name) => {
                    self.begin_name(paths, after, finder)
                }
                (b',', Expected::CommaOrEnd) => {
                    self.pass_comma(after);
                    after
                }
                (b':', Expected::Colon) => {
                    self.expected = Expected::Value;
                    after
                }
                (b'}', Expected::NameOrEnd | Expected::CommaOrEnd) => {
                    self.close(FrameKind::Object, finder)?;
                    after
                }
                (b']', Expected::ElementOrEnd | Expected::CommaOrEnd) => {
                    self.close(FrameKind::Array, finder)?;
                    after
                }
                (b' ' | b'\n' | b'\r' | b'\t', _) => after,
                (_, Expected::Document | Expected::Value | Expected::ElementOrEnd) => {
                    self.begin_value(paths, rest, finder)?
                }
                _ => return Err(Malformed::Syntax),
            };
            if !matches!(self.token, Token::None) {
                break;
            }
        }
        Ok(rest)
    }

    fn pass_comma(&mut self, after: &[u8]) {
        if self.inside.kind != FrameKind::Object {
            self.expected = Expected::Value;
            return;
        }
        self.expected = Expected::Name;
        if self.outer.len() > 1 {
            return;
        }
        match self.inside.seen.is_empty() {
            true => self.beginning.extend(after),
            false => self.beginning.end(),
        }
    }

    fn begin_name<'r>(
        &mut self,
        paths: &Paths,
        after: &'r [u8],
        finder: &mut impl Finder,
    ) -> &'r [u8] {
        let Some((name, after)) = plain_text(after) else {
            self.kept.clear();
            self.token = Token::Name(TextToken::new(!self.inside.children.is_empty()));
            return after;
        };
        self.end_name(paths, Some(name), finder);
        // As a rule nothing stands between the two.
        match after.split_first() {
            Some((b':', after)) => {
                self.expected = Expected::Value;
                after
            }
            _ => after,
        }
    }

    fn begin_value<'r>(
        &mut self,
        paths: &Paths,
        rest: &'r [u8],
        finder: &mut impl Finder,
    ) -> Result<&'r [u8], Malformed> {
        let Some((&byte, after)) = rest.split_first() else { return Ok(rest) };
        self.place_value(paths, finder);
        match byte {
            b'{' => {
                self.open(FrameKind::Object, paths, finder)?;
                if self.outer.len() == 1
                    && let Some(after) = self.beginning.pass(rest)
                {
                    self.expected = Expected::Name;
                    return Ok(after);
                }
            }
            b'[' => self.open(FrameKind::Array, paths, finder)?,
            b'"' => {
                let is_kept = paths.has_end(self.places);
                if let Some((text, after)) = plain_text(after) {
                    if is_kept {
                        let text = FoundText { text: as_text(text), bytes: text.len() as u64 };
                        self.tell(paths, Found::Text(text), finder);
                    }
                    self.end_value(finder);
                    return Ok(after);
                }
                self.kept.clear();
                self.token = Token::Text(TextToken::new(is_kept));
            }
            b't' => return Ok(self.begin_word((b"rue", Found::Bool(true)), paths, after, finder)),
            b'f' => {
                return Ok(self.begin_word((b"alse", Found::Bool(false)), paths, after, finder));
            }
            b'n' => return Ok(self.begin_word((b"ull", Found::Null), paths, after, finder)),
            _ => {
                let mut state = NumberState::begin(byte).ok_or(Malformed::Syntax)?;
                let digits = state.read(after);
                let (number, after) = rest.split_at_checked(1 + digits).unwrap_or((rest, &[]));
                // More of it may be in the next piece.
                if after.is_empty() {
                    self.kept.clear();
                    self.keep(number);
                    self.token = Token::Number(state);
                } else if state.is_whole() {
                    self.end_number(paths, number, finder);
                } else {
                    return Err(Malformed::Syntax);
                }
                return Ok(after);
            }
        }
        Ok(after)
    }

    /// Finds the places of a value that begins. Of a member they are known from its name.
    fn place_value(&mut self, paths: &Paths, finder: &mut impl Finder) {
        let frame = &mut self.inside;
        if frame.kind != FrameKind::Array {
            return;
        }
        if frame.children.is_empty() {
            self.places = Places::NONE;
            return;
        }
        self.places = paths.element(frame.children, frame.elements);
        if frame.elements > 0 {
            let last = paths.last(frame.children);
            paths.through(last).for_each(|path| finder.lost(path, Lost::Superseded));
        }
        frame.elements = frame.elements.saturating_add(1);
    }

    fn open(
        &mut self,
        kind: FrameKind,
        paths: &Paths,
        finder: &mut impl Finder,
    ) -> Result<(), Malformed> {
        if self.outer.len() == MAX_DEPTH {
            return Err(Malformed::Depth);
        }
        self.tell(paths, Found::Container, finder);
        let children = paths.children(self.places);
        self.outer.push(mem::replace(&mut self.inside, Frame::new(kind, children)));
        self.expected = match kind {
            FrameKind::Object => Expected::NameOrEnd,
            FrameKind::Array | FrameKind::Document => Expected::ElementOrEnd,
        };
        Ok(())
    }

    fn close(&mut self, kind: FrameKind, finder: &mut impl Finder) -> Result<(), Malformed> {
        if self.inside.kind != kind {
            return Err(Malformed::Syntax);
        }
        self.inside = self.outer.pop().ok_or(Malformed::Syntax)?;
        self.end_value(finder);
        Ok(())
    }

    /// Tells of a value, if it is wanted.
    fn tell(&self, paths: &Paths, value: Found<'_>, finder: &mut impl Finder) {
        if paths.has_end(self.places) {
            paths.ends(self.places).for_each(|path| finder.found(path, value));
        }
    }

    fn end_value(&mut self, finder: &mut impl Finder) {
        self.token = Token::None;
        if self.inside.kind == FrameKind::Document {
            self.expected = match self.takes_several {
                true => Expected::Document,
                false => Expected::Nothing,
            };
            self.places = Places::ROOT;
            finder.end_document();
        } else {
            self.expected = Expected::CommaOrEnd;
        }
    }

    fn name<'r>(
        &mut self,
        paths: &Paths,
        rest: &'r [u8],
        finder: &mut impl Finder,
    ) -> Result<&'r [u8], Malformed> {
        let Token::Name(token) = &mut self.token else { return Ok(rest) };
        let (after, is_over) = token.read(rest, &mut self.kept)?;
        if is_over {
            let is_kept = token.kept(&self.kept).is_some();
            let kept = mem::take(&mut self.kept);
            self.end_name(paths, is_kept.then_some(&kept), finder);
            self.kept = kept;
        }
        Ok(after)
    }

    /// The name of a member has ended. None: it is none that is looked for.
    fn end_name<F: Finder>(&mut self, paths: &Paths, name: Option<&[u8]>, finder: &mut F) {
        self.token = Token::None;
        self.expected = Expected::Colon;
        self.places = Places::NONE;
        let frame = &mut self.inside;
        let Some(name) = name.filter(|_| !frame.children.is_empty()) else { return };
        self.places = paths.member(frame.children, name);
        if self.places.is_empty() {
            if F::MINDS_LETTERS {
                let alike = paths.members_alike(frame.children, name);
                paths.through(alike).for_each(|path| finder.lost(path, Lost::Repeated));
            }
            return;
        }
        if self.places.overlaps(frame.seen) {
            paths.through(self.places).for_each(|path| finder.lost(path, Lost::Repeated));
        }
        frame.seen = frame.seen.with(self.places);
    }

    fn text<'r>(
        &mut self,
        paths: &Paths,
        rest: &'r [u8],
        finder: &mut impl Finder,
    ) -> Result<&'r [u8], Malformed> {
        let Token::Text(token) = &mut self.token else { return Ok(rest) };
        let (after, is_over) = token.read(rest, &mut self.kept)?;
        if is_over {
            let (text, bytes) = (token.kept(&self.kept).and_then(as_text), token.bytes());
            self.tell(paths, Found::Text(FoundText { text, bytes }), finder);
            self.end_value(finder);
        }
        Ok(after)
    }

    fn number<'r>(
        &mut self,
        paths: &Paths,
        rest: &'r [u8],
        finder: &mut impl Finder,
    ) -> Result<&'r [u8], Malformed> {
        let Token::Number(state) = &mut self.token else { return Ok(rest) };
        let digits = state.read(rest);
        let is_whole = state.is_whole();
        let (number, after) = rest.split_at_checked(digits).unwrap_or((rest, &[]));
        self.keep(number);
        if !after.is_empty() {
            if !is_whole {
                return Err(Malformed::Syntax);
            }
            self.end_kept_number(paths, finder);
        }
        Ok(after)
    }

    /// Keeps a part of a number, as far as there is room.
    fn keep(&mut self, part: &[u8]) {
        let room = MAX_KEPT.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(part.get(..room).unwrap_or(part));
    }

    fn end_kept_number(&mut self, paths: &Paths, finder: &mut impl Finder) {
        let kept = mem::take(&mut self.kept);
        self.end_number(paths, &kept, finder);
        self.kept = kept;
    }

    fn end_number(&mut self, paths: &Paths, number: &[u8], finder: &mut impl Finder) {
        let number = number.get(..MAX_KEPT).unwrap_or(number);
        if paths.has_end(self.places)
            && let Some(number) = as_text(number)
        {
            self.tell(paths, Found::Number(number), finder);
        }
        self.end_value(finder);
    }

    /// Begins one of the words, of which so much is left.
    fn begin_word<'r>(
        &mut self,
        (left, value): (&'static [u8], Found<'static>),
        paths: &Paths,
        after: &'r [u8],
        finder: &mut impl Finder,
    ) -> &'r [u8] {
        let Some(after) = after.strip_prefix(left) else {
            self.token = Token::Word(left, value);
            return after;
        };
        self.tell(paths, value, finder);
        self.end_value(finder);
        after
    }

    fn word<'r>(
        &mut self,
        paths: &Paths,
        rest: &'r [u8],
        finder: &mut impl Finder,
    ) -> Result<&'r [u8], Malformed> {
        let Token::Word(left, value) = &mut self.token else { return Ok(rest) };
        let same = left.iter().zip(rest).take_while(|(own, other)| own == other).count();
        let (Some(still_left), Some(after)) = (left.get(same..), rest.get(same..)) else {
            return Ok(rest);
        };
        *left = still_left;
        if still_left.is_empty() {
            let value = *value;
            self.tell(paths, value, finder);
            self.end_value(finder);
        } else if !after.is_empty() {
            return Err(Malformed::Syntax);
        }
        Ok(after)
    }
}

/// A text that has begun, if it is whole and without escapes, as most are; and what comes after it.
fn plain_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(text::plain_bytes(bytes))?;
    match rest.split_first()? {
        (b'"', after) => Some((text, after)),
        _ => None,
    }
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
