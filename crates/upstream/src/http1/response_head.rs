//! The head of a response, read strictly (RFC 9112 sections 4 to 6).

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;
use memchr::memchr;

use super::{body_length::BodyLength, chunked::Chunked};

/// Bytes of a head that is passed on.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Bytes that may come before a response's head is complete: interim responses and the head.
const MAX_INTERIM_BYTES: usize = 128 * 1024;
/// Interim responses (1xx) to one request that are taken for something else than an attack.
pub(crate) const MAX_INTERIM: u32 = 32;
const MAX_FIELDS: usize = 256;
/// Fields that most responses gain on their way to the client: room for them is made at once.
const FIELDS_GAINED: usize = 8;
/// What every head begins with.
const VERSION: &[u8] = b"HTTP/1.";
/// The last status code of a defined class (RFC 9110 section 15).
const LAST_STATUS: u16 = 599;

/// Reads the heads that come for one request: interim responses, and the response's own.
#[derive(Debug, Default)]
pub struct HeadReader {
    /// Where the line begins whose end was not read yet.
    line: usize,
    /// Bytes that were looked at.
    scanned: usize,
    /// Interim responses so far.
    interim: u32,
    /// Bytes of heads that are over, and of empty lines before them.
    interim_bytes: usize,
}

/// A response's head, and what it says about the message.
#[derive(Debug)]
pub struct ResponseHead {
    /// The head.
    pub response: Response<()>,
    /// How long the body is.
    pub length: BodyLength,
    /// Whether the server keeps the connection open after the body.
    pub is_persistent: bool,
}

impl ResponseHead {
    /// Whether another head follows for the same request.
    pub fn is_interim(&self) -> bool {
        let status = self.response.status();
        status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Why a head cannot be passed on.
#[derive(Debug)]
pub enum HeadError {
    /// It is no head in HTTP/1.1.
    Malformed(httparse::Error),
    /// Two readers could understand it differently, or nothing comes of all that is sent.
    Unsound,
}

/// The request that a response is for, as far as the response depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    /// The response has no body, whatever its head says.
    pub is_head: bool,
    /// The server may switch to another protocol.
    pub may_switch: bool,
}

impl HeadReader {
    /// Takes the next head out of what was read, that of an interim response or the response's own;
    /// none if it is not complete yet.
    ///
    /// # Errors
    /// It cannot be passed on.
    pub fn take(
        &mut self,
        read: &mut BytesMut,
        expected: Expected,
    ) -> Result<Option<ResponseHead>, HeadError> {
        let Some(end) = self.end_of_head(read)? else { return Ok(None) };
        if self.is_too_large(end) {
            return Err(HeadError::Unsound);
        }
        let head = read.split_to(end).freeze();
        self.pass(end);
        let head = parse(&head, expected)?;
        if head.response.status() == StatusCode::SWITCHING_PROTOCOLS && !expected.may_switch {
            return Err(HeadError::Unsound);
        }
        //= rfc9110#section-15.2
        //# A client MUST be able to parse one or more 1xx responses received prior to a final
        //# response
        self.interim += u32::from(head.is_interim());
        if self.interim > MAX_INTERIM {
            return Err(HeadError::Unsound);
        }
        Ok(Some(head))
    }

    /// Where the head ends that was read; none if its end was not. Line ends are looked at here: a
    /// reader that needs no carriage return before a line feed (RFC 9112 section 2.2 lets it) would
    /// see other fields than one that does.
    fn end_of_head(&mut self, read: &mut BytesMut) -> Result<Option<usize>, HeadError> {
        while let Some(length) = read.get(self.scanned..).and_then(|rest| memchr(b'\n', rest)) {
            let end = self.scanned + length;
            let line = read.get(self.line..end).unwrap_or_default();
            match line {
                b"\r" if self.line == 0 => {
                    // An empty line before a head is passed over.
                    read.advance(end + 1);
                    self.pass(end + 1);
                }
                b"\r" => return Ok(Some(end + 1)),
                [.., b'\r'] => {
                    self.line = end + 1;
                    self.scanned = end + 1;
                }
                _ => return Err(HeadError::Unsound),
            }
        }
        self.scanned = read.len();
        // A server that speaks something else may never send an empty line.
        let begin = read.get(..VERSION.len()).unwrap_or(read);
        if !VERSION.starts_with(begin) && begin != b"\r" {
            return Err(HeadError::Malformed(httparse::Error::Version));
        }
        if self.is_too_large(self.scanned) {
            return Err(HeadError::Unsound);
        }
        Ok(None)
    }

    /// Whether a head has too many bytes, alone or with those before it.
    fn is_too_large(&self, bytes: usize) -> bool {
        bytes > MAX_HEAD_BYTES || self.interim_bytes + bytes > MAX_INTERIM_BYTES
    }

    /// So many bytes were taken out of what was read.
    fn pass(&mut self, bytes: usize) {
        self.interim_bytes += bytes;
        self.line = 0;
        self.scanned = 0;
    }
}

/// What fields say about the framing of their message.
#[derive(Default)]
struct Framing {
    has_transfer_coding: bool,
    is_chunked: bool,
    /// The length, and with how many digits it is written.
    length: Option<(u64, usize)>,
    closes: bool,
    keeps: bool,
}

fn parse(head: &Bytes, expected: Expected) -> Result<ResponseHead, HeadError> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default()
        //= rfc9112#section-5.2
        //# A proxy or gateway that receives an obs-fold in a response message that is not within a
        //# "message/http" container MUST either discard the message and replace it with a 502 (Bad
        //# Gateway)
        .parse_response_with_uninit_headers(&mut parsed, head, &mut fields)
        .map_err(HeadError::Malformed)?;
    // The head ends where its lines say, or it is another head for the parser than for others.
    if status != httparse::Status::Complete(head.len()) {
        return Err(HeadError::Unsound);
    }
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    //= rfc9110#section-15
    //# a client MUST understand the class of any status code
    let status = status.filter(|status| status.as_u16() <= LAST_STATUS);
    //= rfc9110#section-15
    //# A client that receives a response with an invalid status code SHOULD process the response as
    //# if it had a 5xx (Server Error) status code
    let status = status.ok_or(HeadError::Unsound)?;
    let mut framing = Framing::default();
    let mut headers = HeaderMap::with_capacity(parsed.headers.len() + FIELDS_GAINED);
    for field in &*parsed.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else { return Err(HeadError::Unsound) };
        framing.read(&name, &value)?;
        headers.append(name, value);
    }
    let is_http10 = parsed.version == Some(0);
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if is_http10 {
        *response.version_mut() = Version::HTTP_10;
    }
    //= rfc9112#section-4
    //# A client SHOULD ignore the reason-phrase content
    let reason = parsed.reason.filter(|reason| status.canonical_reason() != Some(reason));
    if let Some(Ok(reason)) = reason.map(|reason| ReasonPhrase::try_from(reason.as_bytes())) {
        response.extensions_mut().insert(reason);
    }
    //= rfc9110#section-6
    //# a client MUST retain knowledge of the request when parsing, interpreting, or caching a
    //# corresponding response
    let length = framing.body_length(status, is_http10, expected)?;
    // What comes after such a head (RFC 9110 section 8.6) would be its body for one reader, and the
    // next response for another.
    let is_ambiguous = status == StatusCode::NO_CONTENT && framing.declares_content();
    //= rfc9112#section-9.3
    //# HTTP implementations SHOULD support persistent connections
    let is_kept = if is_http10 { framing.keeps } else { true };
    let ends_with_connection = matches!(length, BodyLength::UntilClose);
    //= rfc9112#section-9.6
    //# A client that receives a "close" connection option MUST cease sending requests on that
    //# connection and close the connection
    let is_persistent = is_kept && !framing.closes && !is_ambiguous && !ends_with_connection;
    Ok(ResponseHead { response, length, is_persistent })
}

impl Framing {
    fn read(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), HeadError> {
        if *name == header::CONTENT_LENGTH {
            for length in value.as_bytes().split(|byte| *byte == b',') {
                let text = length.trim_ascii();
                //= rfc9112#section-6.3
                //# then the message framing is invalid and the recipient MUST treat it as an
                //# unrecoverable error
                let length = (number(text).ok_or(HeadError::Unsound)?, text.len());
                if self.length.replace(length).is_some_and(|other| other != length) {
                    return Err(HeadError::Unsound);
                }
            }
        } else if *name == header::TRANSFER_ENCODING {
            self.is_chunked =
                !self.has_transfer_coding && value.as_bytes().eq_ignore_ascii_case(b"chunked");
            self.has_transfer_coding = true;
        } else if *name == header::CONNECTION {
            for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        Ok(())
    }

    fn declares_content(&self) -> bool {
        self.has_transfer_coding || self.length.is_some_and(|(length, _)| length > 0)
    }

    /// How long the body is. A length that is given twice, and a transfer coding that was not asked
    /// for, are errors even where there is no body.
    fn body_length(
        &self,
        status: StatusCode,
        is_http10: bool,
        expected: Expected,
    ) -> Result<BodyLength, HeadError> {
        //= rfc9112#section-6.1
        //# A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding
        //# header field MUST treat the message as if the framing is faulty
        let is_unsound = !self.is_chunked || self.length.is_some() || is_http10;
        if self.has_transfer_coding && is_unsound {
            return Err(HeadError::Unsound);
        }
        if status.is_informational() && self.declares_content() {
            return Err(HeadError::Unsound);
        }
        let has_none = status.is_informational()
            || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        Ok(match self.length {
            _ if has_none || expected.is_head => BodyLength::NONE,
            Some((length, _)) => BodyLength::Bytes(length),
            //= rfc9112#section-6.1
            //# A recipient MUST be able to parse the chunked transfer coding
            None if self.is_chunked => BodyLength::Chunked(Chunked::new()),
            None => BodyLength::UntilClose,
        })
    }
}

/// A number in decimal digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    //= rfc9110#section-8.6
    //# a recipient MUST anticipate potentially large decimal numerals and prevent parsing errors
    //# due to integer conversion overflows
    let digits = str::from_utf8(text).ok().filter(|_| text.iter().all(u8::is_ascii_digit))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests;
