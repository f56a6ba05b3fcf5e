//! The framing of HTTP/1 requests, checked beside hyper.
//!
//! The one thing to know: hyper decides alone where a message ends, and some of what it forgives
//! can't be seen in the request that it hands on (a `content-length` dropped beside
//! `transfer-encoding`, an outer coding, a fragment, bare line feeds). A server behind us may
//! forgive differently, and that difference is request smuggling. So every byte of a connection
//! passes here first; hyper's request number n is served only when [`Framing::verdict`] of n is
//! `Ok`. Where hyper is lenient this is strict; nothing is repaired, and after the first violation
//! nothing more is read.

mod syntax;
mod violation;

use std::mem;

use self::syntax::{
    check_coding, check_target, line_end, line_feed, split_chunk_size, split_field,
    split_request_line, text, trim,
};
pub use self::violation::{Violation, ViolationKind};

use super::{
    HeadLimits,
    content_length::{ContentLength, content_length},
};

/// Empty lines that may stand before a request line: RFC 9112 2.2 asks for one, for old clients
/// that end a body with one; hyper takes any number.
//= rfc9112#section-2.2
//# a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty
//# line (CRLF)
const LEADING_EMPTY_LINES: usize = 2;
/// What a request line may hold beside its target: the method, two spaces, version and line end.
const REQUEST_LINE_OVERHEAD: usize = 64;
/// Chunk extensions of one body, in sum. They are used in practice only to make a server read.
const EXTENSION_BYTES: usize = 4096;
/// The digits of the largest `u64`.
const CHUNK_SIZE_DIGITS: usize = 16;
const LINE_END: &[u8] = b"\r\n";

/// Follows the messages of one HTTP/1 connection: bytes in, verdicts out.
///
/// What it says depends on the bytes alone, never on how reads cut them. Lines are looked at where
/// they lie; only one that is cut by the end of a read is copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Framing {
    limits: HeadLimits,
    expect: Expect,
    /// Of the head that is being read; after it, of the body's chunks and trailers.
    message: Message,
    heads: u64,
    /// The first violation, and the request that it spoils. There is no second.
    refused: Option<(u64, Violation)>,
    /// The beginning of a line whose end was not read yet.
    partial: Vec<u8>,
}

/// What became of the bytes of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// How many of them may go on: all, but for those of a head that is refused and what follows.
    pub goes_on: usize,
    /// Where among them the newest head begins, if it does not in an earlier read.
    pub head: Option<usize>,
}

/// What a connection is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between messages: nothing of the next one was read.
    Idle,
    /// A request head began and is not complete.
    Head,
    /// A head is complete and its body is not.
    Body,
    /// There was a violation, or the connection was detached: nothing is looked at any more.
    Closed,
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Line(Line),
    /// Data of known length; `left` is never 0, so a message ends with its last byte.
    Data {
        left: u64,
        then: Line,
    },
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Request,
    Field,
    ChunkSize,
    ChunkEnd,
    Trailer,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    version: Version,
    length: Length,
    /// Bytes of the head, or of the trailers.
    bytes: usize,
    fields: usize,
    extension_bytes: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Version {
    #[default]
    Http11,
    Http10,
}

/// How a head says where its body ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Length {
    #[default]
    Unsaid,
    Chunked,
    /// The number of digits separates `5` from `05`: equal numbers of equal width are equal digits.
    Content {
        bytes: u64,
        digits: usize,
    },
}

impl Framing {
    /// A connection of which nothing was read yet.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            limits,
            expect: Expect::Line(Line::Request),
            message: Message::default(),
            heads: 0,
            refused: None,
            partial: Vec::new(),
        }
    }

    /// Takes the next bytes of the connection, as many as a read happened to give.
    //= rfc9110#section-2.3
    //# A recipient SHOULD parse a received protocol element defensively
    //= rfc9112#section-2.2
    //# A recipient MUST parse an HTTP message as a sequence of octets
    pub fn read(&mut self, bytes: &[u8]) -> Checked {
        let mut rest = bytes;
        let mut head = None;
        while !rest.is_empty() {
            if self.is_between() {
                head = Some(bytes.len() - rest.len());
            }
            let read = match self.expect {
                Expect::Line(Line::Field) if self.partial.is_empty() => self.read_fields(rest),
                Expect::Line(line) => self.read_line(line, rest),
                Expect::Data { left, then } => Ok(self.skip(left, then, rest)),
                Expect::Nothing => break,
            };
            match read {
                Ok(after) => rest = after,
                Err(violation) => {
                    self.refuse(violation);
                    break;
                }
            }
        }
        let held_back = self.refused_head().map(|_| head.unwrap_or(0));
        Checked { goes_on: held_back.unwrap_or(bytes.len()), head }
    }

    /// Whether nothing was read of the next message, not even an empty line before it.
    pub fn is_between(&self) -> bool {
        matches!(self.expect, Expect::Line(Line::Request))
            && self.partial.is_empty()
            && self.message.bytes == 0
    }

    /// Why a head was refused, if that is what happened: hyper never sees it whole.
    pub fn refused_head(&self) -> Option<Violation> {
        self.refused.filter(|(request, _)| *request > self.heads).map(|(_, violation)| violation)
    }

    /// Whether the request with this ordinal (1, 2, …) may be served.
    ///
    /// A violation spoils its own request and all that follow. One in a body spoils its request
    /// as soon as it is read, which may be after that request was served in good faith; then
    /// `verdict(heads())` is an error, and the body must fail at that point, for hyper may not see
    /// anything wrong with it.
    pub fn verdict(&self, request: u64) -> Result<(), Violation> {
        match self.refused {
            Some((first, violation)) if request >= first => Err(violation),
            _ if request > self.heads => Err(Violation::OutOfStep),
            _ => Ok(()),
        }
    }

    /// What the connection is in the middle of: which of the deadlines runs.
    pub fn phase(&self) -> Phase {
        match self.expect {
            // An empty line before a request is not yet a request.
            Expect::Line(Line::Request) if self.partial.is_empty() => Phase::Idle,
            Expect::Line(Line::Request | Line::Field) => Phase::Head,
            Expect::Line(Line::ChunkSize | Line::ChunkEnd | Line::Trailer)
            | Expect::Data { .. } => Phase::Body,
            Expect::Nothing => Phase::Closed,
        }
    }

    /// Complete heads read so far: the ordinal of the newest request.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Ignores all that follows: after a 101, or a CONNECT that was granted, it is no HTTP.
    pub fn detach(&mut self) {
        self.expect = Expect::Nothing;
        self.partial = Vec::new();
    }

    fn refuse(&mut self, violation: Violation) {
        let request = match self.expect {
            Expect::Line(Line::Request | Line::Field) => self.heads.saturating_add(1),
            _ => self.heads,
        };
        self.refused = Some((request, violation));
        self.detach();
    }

    fn skip<'b>(&mut self, left: u64, then: Line, bytes: &'b [u8]) -> &'b [u8] {
        let rest = usize::try_from(left).ok().and_then(|left| bytes.get(left..));
        self.expect = match rest {
            Some(_) => Expect::Line(then),
            None => Expect::Data { left: left.saturating_sub(bytes.len() as u64), then },
        };
        rest.unwrap_or_default()
    }

    /// Reads the fields that lie whole in these bytes: the usual head in one go. Whatever ends
    /// that, be it the head's end, a cut line or a limit, is for [`Self::read_line`].
    fn read_fields<'b>(&mut self, mut bytes: &'b [u8]) -> Result<&'b [u8], Violation> {
        while let Ok(Some(end)) = line_end(bytes)
            && end > LINE_END.len()
            && end <= self.room(Line::Field).0
            && self.message.fields < self.limits.fields
            && let Some((line, rest)) = bytes.split_at_checked(end)
        {
            self.message.take_field(line)?;
            bytes = rest;
        }
        self.read_line(Line::Field, bytes)
    }

    /// Reads up to the end of a line; returns what follows it.
    ///
    /// A violation is found at the byte that makes it one, be it a forbidden byte or one too many,
    /// so that it can't depend on where reads end which of two comes first.
    fn read_line<'b>(&mut self, line: Line, bytes: &'b [u8]) -> Result<&'b [u8], Violation> {
        let (room, excess) = self.room(line);
        let room = room.saturating_sub(self.partial.len());
        let window = bytes.get(..room).unwrap_or(bytes);
        let end = if self.partial.ends_with(b"\r") { line_feed(window) } else { line_end(window) }?;
        match end.and_then(|end| bytes.split_at_checked(end)) {
            Some((text, rest)) if self.partial.is_empty() => {
                self.take_line(line, text)?;
                Ok(rest)
            }
            Some((text, rest)) => {
                // Taken, not cleared: an idle connection keeps no buffer.
                let mut whole = mem::take(&mut self.partial);
                whole.extend_from_slice(text);
                self.take_line(line, &whole)?;
                Ok(rest)
            }
            None if bytes.len() > room => Err(excess),
            None => {
                self.partial.extend_from_slice(bytes);
                Ok(&[])
            }
        }
    }

    /// How long a line may be, with its end, and what it is when it is longer.
    fn room(&self, line: Line) -> (usize, Violation) {
        let limits = &self.limits;
        let (room, excess) = match line {
            Line::Request => (
                limits.target_bytes.saturating_add(REQUEST_LINE_OVERHEAD),
                Violation::TargetTooLong,
            ),
            Line::Field | Line::Trailer => (limits.field_bytes, Violation::FieldTooLarge),
            Line::ChunkSize => {
                let extensions = EXTENSION_BYTES.saturating_sub(self.message.extension_bytes);
                return (
                    CHUNK_SIZE_DIGITS + extensions + LINE_END.len(),
                    Violation::ExtensionsTooLarge,
                );
            }
            Line::ChunkEnd => return (LINE_END.len(), Violation::BadChunkEnd),
        };
        let left = limits.head_bytes.saturating_sub(self.message.bytes);
        if left < room { (left, Violation::HeadTooLarge) } else { (room, excess) }
    }

    /// Takes one whole line, its end included.
    fn take_line(&mut self, line: Line, bytes: &[u8]) -> Result<(), Violation> {
        let empty = bytes == LINE_END;
        match line {
            Line::Request if empty => self.message.take_leading_line()?,
            Line::Request => {
                self.message.take_request_line(bytes, self.limits.target_bytes)?;
                self.expect = Expect::Line(Line::Field);
            }
            Line::Field if empty => self.end_head(),
            Line::Trailer if empty => {
                self.message = Message::default();
                self.expect = Expect::Line(Line::Request);
            }
            Line::Field | Line::Trailer if self.message.fields >= self.limits.fields => {
                return Err(Violation::TooManyFields);
            }
            Line::Field => self.message.take_field(bytes)?,
            Line::Trailer => self.message.take_trailer(bytes)?,
            Line::ChunkSize => {
                self.expect = match self.message.take_chunk_size(bytes)? {
                    0 => Expect::Line(Line::Trailer),
                    left => Expect::Data { left, then: Line::ChunkEnd },
                };
            }
            Line::ChunkEnd => self.expect = Expect::Line(Line::ChunkSize),
        }
        Ok(())
    }

    fn end_head(&mut self) {
        let head = mem::take(&mut self.message);
        self.heads = self.heads.saturating_add(1);
        self.expect = match head.length {
            Length::Unsaid | Length::Content { bytes: 0, .. } => Expect::Line(Line::Request),
            Length::Content { bytes: left, .. } => Expect::Data { left, then: Line::Request },
            Length::Chunked => Expect::Line(Line::ChunkSize),
        };
    }
}

impl Message {
    /// Takes an empty line before the request line. Nothing else was counted so far.
    fn take_leading_line(&mut self) -> Result<(), Violation> {
        if self.bytes / LINE_END.len() >= LEADING_EMPTY_LINES {
            return Err(Violation::LeadingLines);
        }
        self.bytes = self.bytes.saturating_add(LINE_END.len());
        Ok(())
    }

    fn take_request_line(&mut self, line: &[u8], target_bytes: usize) -> Result<(), Violation> {
        self.bytes = self.bytes.saturating_add(line.len());
        //= rfc9112#section-3.2
        //# Recipients of an invalid request-line SHOULD respond with either a 400 (Bad Request)
        //# error or a 301 (Moved Permanently) redirect
        let (version, target) = split_request_line(text(line)).ok_or(Violation::BadRequestLine)?;
        if target.len() > target_bytes {
            return Err(Violation::TargetTooLong);
        }
        self.version = version;
        check_target(target)
    }

    // Without the hint this is a call for each field, and a head costs a tenth more.
    #[inline(always)]
    fn take_field(&mut self, line: &[u8]) -> Result<(), Violation> {
        self.count_field(line);
        let (name, value) = split_field(text(line))?;
        if name.eq_ignore_ascii_case(b"content-length") {
            self.length = self.length.and_content(value)?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            //= rfc9112#section-6.1
            //# A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding
            //# header field MUST treat the message as if the framing is faulty
            if self.version == Version::Http10 {
                return Err(Violation::CodingInHttp10);
            }
            self.length = self.length.and_coding(value)?;
        }
        Ok(())
    }

    /// Takes a trailer field. What it says of lengths comes too late to mean anything.
    fn take_trailer(&mut self, line: &[u8]) -> Result<(), Violation> {
        self.count_field(line);
        split_field(text(line)).map(drop)
    }

    fn count_field(&mut self, line: &[u8]) {
        self.bytes = self.bytes.saturating_add(line.len());
        self.fields = self.fields.saturating_add(1);
    }

    fn take_chunk_size(&mut self, line: &[u8]) -> Result<u64, Violation> {
        let (size, extensions) = split_chunk_size(text(line)).ok_or(Violation::BadChunkSize)?;
        self.extension_bytes = self.extension_bytes.saturating_add(extensions.len());
        if self.extension_bytes > EXTENSION_BYTES {
            return Err(Violation::ExtensionsTooLarge);
        }
        Ok(size)
    }
}

impl Length {
    /// The length after a `content-length` field with this value.
    fn and_content(self, value: &[u8]) -> Result<Self, Violation> {
        let ContentLength { bytes, digits } = content_length(trim(value))?;
        let content = Self::Content { bytes, digits };
        match self {
            Self::Unsaid => Ok(content),
            Self::Content { .. } if self == content => Ok(content),
            Self::Content { .. } => Err(Violation::RepeatedLength),
            Self::Chunked => Err(Violation::TwoLengths),
        }
    }

    /// The length after a `transfer-encoding` field with this value.
    fn and_coding(self, value: &[u8]) -> Result<Self, Violation> {
        match self {
            Self::Unsaid => check_coding(value).map(|()| Self::Chunked),
            Self::Content { .. } => Err(Violation::TwoLengths),
            Self::Chunked => Err(Violation::RepeatedCoding),
        }
    }
}

#[cfg(test)]
mod tests;
