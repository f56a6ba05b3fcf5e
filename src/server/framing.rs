//! The framing of HTTP/1 requests, checked beside hyper.
//!
//! The one thing to know: hyper decides alone where a message ends, and some of what it forgives
//! can't be seen in the request that it hands on (a `content-length` dropped beside
//! `transfer-encoding`, an outer coding, a fragment, bare line feeds). A server behind us may
//! forgive differently, and that difference is request smuggling. So every byte of a connection
//! passes here first; hyper's request number n is served only when [`Framing::verdict`] of n is
//! `Ok`. Where hyper is lenient this is strict; nothing is repaired, and after the first violation
//! nothing more is read.

use std::mem;

use memchr::{memchr, memchr3};

/// Empty lines that may stand before a request line: RFC 9112 2.2 asks for one, for old clients
/// that end a body with one; hyper takes any number.
const LEADING_EMPTY_LINES: usize = 2;
/// What a request line may hold beside its target: the method, two spaces, version and line end.
const REQUEST_LINE_OVERHEAD: usize = 64;
/// Chunk extensions of one body, in sum. Nobody uses them but to make us read.
const EXTENSION_BYTES: usize = 4096;
/// The digits of the largest `u64`.
const CHUNK_SIZE_DIGITS: usize = 16;
const LINE_END: &[u8] = b"\r\n";

/// Follows the messages of one HTTP/1 connection: bytes in, verdicts out.
///
/// What it says depends on the bytes alone, never on how reads cut them. Lines are looked at where
/// they lie; only one that is cut by the end of a read is copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Framing {
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

/// How large a request head may be; trailers are held to the same, save the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// The whole head, with empty lines before it and the one after it.
    pub head_bytes: usize,
    /// How many fields.
    pub fields: usize,
    /// One field line, with its line end.
    pub field_bytes: usize,
    /// The request target.
    pub target_bytes: usize,
}

/// What a connection is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between messages: nothing of the next one was read.
    Idle,
    /// A request head began and is not complete.
    Head,
    /// A head is complete and its body is not.
    Body,
    /// There was a violation, or the connection was detached: nothing is looked at any more.
    Closed,
}

/// Why a request is refused. RFC 9112 unless another is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Both ways to say a length (6.1: "ought to be handled as an error").
    #[error("transfer-encoding together with content-length")]
    TwoLengths,
    /// HTTP/1.0 has no transfer codings; whoever relays one did not understand it (6.1).
    #[error("transfer-encoding in HTTP/1.0")]
    CodingInHttp10,
    /// A list over several fields is legal, and read differently everywhere.
    #[error("more than one transfer-encoding field")]
    RepeatedCoding,
    /// `chunked` is not the last coding, or not once, or has parameters (6.3, 7.1).
    #[error("transfer-encoding does not end in exactly one chunked")]
    NotChunked,
    /// `chunked` is the last coding, after one that is not implemented here (6.1).
    #[error("transfer coding other than chunked")]
    UnknownCoding,
    /// Several lengths that are not the same digits (6.3).
    #[error("content-length fields that differ")]
    RepeatedLength,
    /// Not one plain decimal number that fits 64 bits (RFC 9110 8.6).
    #[error("content-length is not a number")]
    BadLength,
    /// A line that begins with whitespace: a folded field (5.2), or a space before the first (2.2).
    #[error("folded field")]
    FoldedField,
    /// `name : value` (5.1).
    #[error("whitespace between field name and colon")]
    SpaceBeforeColon,
    /// `: value`.
    #[error("empty field name")]
    EmptyFieldName,
    /// A field line without a colon.
    #[error("field without a colon")]
    NoColon,
    /// A NUL in a line.
    #[error("nul byte")]
    Nul,
    /// A carriage return that ends no line (2.2).
    #[error("bare carriage return")]
    BareCr,
    /// A line feed without its carriage return, which 2.2 lets a recipient take or leave.
    #[error("bare line feed")]
    BareLf,
    /// Not exactly `method SP target SP HTTP/1.1`, or `1.0` (3).
    #[error("malformed request line")]
    BadRequestLine,
    /// A byte that no target holds raw (3.2): a fragment, a backslash, a control, non-ASCII.
    #[error("raw byte {0:#04x} in the request target")]
    TargetByte(u8),
    /// More empty lines before a request line than anyone sends by mistake.
    #[error("too many empty lines before a request")]
    LeadingLines,
    /// See `HeadLimits::target_bytes`.
    #[error("request target too long")]
    TargetTooLong,
    /// See `HeadLimits::head_bytes`.
    #[error("head too large")]
    HeadTooLarge,
    /// See `HeadLimits::fields`.
    #[error("too many fields")]
    TooManyFields,
    /// See `HeadLimits::field_bytes`.
    #[error("field too large")]
    FieldTooLarge,
    /// Not 1 to 16 hexadecimal digits, then the line's end or a `;` (7.1).
    #[error("malformed chunk size")]
    BadChunkSize,
    /// More chunk extensions than anyone needs (7.1.1 asks for a limit).
    #[error("chunk extensions too large")]
    ExtensionsTooLarge,
    /// Chunk data that goes on past its size (7.1).
    #[error("chunk longer than its size")]
    BadChunkEnd,
    /// Asked about a request of which no complete head was read: hyper sees other messages than
    /// we do, so none can be trusted.
    #[error("request out of step with the connection")]
    OutOfStep,
}

/// What a refused client is told: the kinds of [`Violation`] that are answered differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViolationKind {
    /// Malformed or ambiguous.
    Malformed,
    /// The request target is longer than allowed.
    TargetTooLong,
    /// The head, its number of fields or one field is larger than allowed.
    HeadTooLarge,
    /// Well-formed, but with a transfer coding that is not implemented.
    UnknownCoding,
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
    /// The number of digits tells `5` from `05`: equal numbers of equal width are equal digits.
    Content {
        bytes: u64,
        digits: usize,
    },
}

impl Framing {
    /// A connection of which nothing was read yet.
    pub(super) fn new(limits: HeadLimits) -> Self {
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
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let rest = match self.expect {
                Expect::Line(Line::Field) if self.partial.is_empty() => self.read_fields(bytes),
                Expect::Line(line) => self.read_line(line, bytes),
                Expect::Data { left, then } => Ok(self.skip(left, then, bytes)),
                Expect::Nothing => return,
            };
            match rest {
                Ok(rest) => bytes = rest,
                Err(violation) => return self.refuse(violation),
            }
        }
    }

    /// Whether the request with this ordinal (1, 2, …) may be served.
    ///
    /// A violation spoils its own request and all that follow. One in a body spoils its request
    /// as soon as it is read, which may be after that request was served in good faith; then
    /// `verdict(heads())` is an error, and the body must fail at that point, for hyper may not see
    /// anything wrong with it.
    pub(super) fn verdict(&self, request: u64) -> Result<(), Violation> {
        match self.refused {
            Some((first, violation)) if request >= first => Err(violation),
            _ if request > self.heads => Err(Violation::OutOfStep),
            _ => Ok(()),
        }
    }

    /// What the connection is in the middle of: which of the deadlines runs.
    pub(super) fn phase(&self) -> Phase {
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
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Ignores all that follows: after a 101, or a CONNECT that was granted, it is no HTTP.
    pub(super) fn detach(&mut self) {
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

impl Default for HeadLimits {
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, fields: 100, field_bytes: 16 * 1024, target_bytes: 8 * 1024 }
    }
}

impl Violation {
    /// How this is answered.
    pub fn kind(&self) -> ViolationKind {
        match self {
            Self::UnknownCoding => ViolationKind::UnknownCoding,
            Self::TargetTooLong => ViolationKind::TargetTooLong,
            Self::HeadTooLarge | Self::TooManyFields | Self::FieldTooLarge => {
                ViolationKind::HeadTooLarge
            }
            Self::TwoLengths
            | Self::CodingInHttp10
            | Self::RepeatedCoding
            | Self::NotChunked
            | Self::RepeatedLength
            | Self::BadLength
            | Self::FoldedField
            | Self::SpaceBeforeColon
            | Self::EmptyFieldName
            | Self::NoColon
            | Self::Nul
            | Self::BareCr
            | Self::BareLf
            | Self::BadRequestLine
            | Self::TargetByte(_)
            | Self::LeadingLines
            | Self::BadChunkSize
            | Self::ExtensionsTooLarge
            | Self::BadChunkEnd
            | Self::OutOfStep => ViolationKind::Malformed,
        }
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
        let content = content_length(value)?;
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

/// A line without its end.
fn text(line: &[u8]) -> &[u8] {
    line.strip_suffix(LINE_END).unwrap_or(line)
}

/// The index after the first line end; `None` when it was not read yet.
fn line_end(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    let Some(at) = memchr3(b'\r', b'\n', b'\0', bytes) else { return Ok(None) };
    match bytes.get(at..) {
        Some([b'\r', b'\n', ..]) => Ok(Some(at + LINE_END.len())),
        Some([b'\r']) => Ok(None),
        Some([b'\r', ..]) => Err(Violation::BareCr),
        Some([b'\n', ..]) => Err(Violation::BareLf),
        _ => Err(Violation::Nul),
    }
}

/// Like [`line_end`], when a read ended between the two bytes of a line end.
fn line_feed(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    match bytes {
        [] => Ok(None),
        [b'\n', ..] => Ok(Some(1)),
        _ => Err(Violation::BareCr),
    }
}

fn split_request_line(text: &[u8]) -> Option<(Version, &[u8])> {
    let (version, text) = match text.strip_suffix(b" HTTP/1.1") {
        Some(text) => (Version::Http11, text),
        None => (Version::Http10, text.strip_suffix(b" HTTP/1.0")?),
    };
    let (method, target) = split_token(text);
    let target = target.strip_prefix(b" ")?;
    (!method.is_empty() && !target.is_empty()).then_some((version, target))
}

fn check_target(target: &[u8]) -> Result<(), Violation> {
    let forbidden = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'#' | b'\\');
    // Without an early exit the compiler checks many bytes at a time; and there is none to find.
    if !target.iter().fold(false, |any, &byte| any | forbidden(byte)) {
        return Ok(());
    }
    let found = target.iter().copied().find(|&byte| forbidden(byte));
    match found {
        None => Ok(()),
        Some(b' ') => Err(Violation::BadRequestLine),
        Some(byte) => Err(Violation::TargetByte(byte)),
    }
}

/// A field's name and value. That the name is a token is left to hyper, which refuses all others:
/// what is looked for here is what some servers repair.
fn split_field(text: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    if let [b' ' | b'\t', ..] = text {
        return Err(Violation::FoldedField);
    }
    let colon = memchr(b':', text).ok_or(Violation::NoColon)?;
    match text.split_at_checked(colon) {
        Some(([.., b' ' | b'\t'], _)) => Err(Violation::SpaceBeforeColon),
        Some((name @ [_, ..], [b':', value @ ..])) => Ok((name, value)),
        _ => Err(Violation::EmptyFieldName),
    }
}

fn content_length(value: &[u8]) -> Result<Length, Violation> {
    let digits = trim(value);
    if digits.is_empty() {
        return Err(Violation::BadLength);
    }
    let number = digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    let bytes = number.ok_or(Violation::BadLength)?;
    Ok(Length::Content { bytes, digits: digits.len() })
}

/// RFC 9112 6.3: a request whose last coding is not chunked has no length, and that MUST be a 400.
/// Only past that is 6.1's 501 for codings that we do not know.
fn check_coding(value: &[u8]) -> Result<(), Violation> {
    let chunked = |coding: &[u8]| trim(coding).eq_ignore_ascii_case(b"chunked");
    let mut codings = value.rsplit(|&byte| byte == b',');
    if !codings.next().is_some_and(chunked) {
        return Err(Violation::NotChunked);
    }
    let mut others = codings.peekable();
    if others.peek().is_none() {
        return Ok(());
    }
    match others.any(|coding| trim(coding).is_empty() || chunked(coding)) {
        true => Err(Violation::NotChunked),
        false => Err(Violation::UnknownCoding),
    }
}

/// A chunk's size, and its extensions with their semicolon.
fn split_chunk_size(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if !(1..=CHUNK_SIZE_DIGITS).contains(&digits) {
        return None;
    }
    let (digits, extensions) = text.split_at_checked(digits)?;
    let size = digits.iter().try_fold(0_u64, |size, &byte| {
        char::from(byte).to_digit(16).map(|digit| size << 4 | u64::from(digit))
    })?;
    matches!(extensions, [] | [b';', ..]).then_some((size, extensions))
}

/// The longest token (RFC 9110 5.6.2) at the beginning, and the rest.
fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = text.iter().position(|byte| !is_token(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

/// Without optional whitespace, which is spaces and tabs and nothing else (RFC 9110 5.6.3).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests;
