//! The parts of HTTP/1 messages: lines, and what is in them.

use http::Uri;
use memchr::memchr3;

use super::{CHUNK_SIZE_DIGITS, LINE_END, Version, Violation};

/// A line without its end.
pub(super) fn text(line: &[u8]) -> &[u8] {
    line.strip_suffix(LINE_END).unwrap_or(line)
}

/// The index after the first line end; `None` when it was not read yet.
pub(super) fn line_end(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    //= rfc9110#section-5.5
    //# a recipient of CR, LF, or NUL within a field value MUST either reject the message or replace
    //# each of those characters with SP
    let Some(at) = memchr3(b'\r', b'\n', b'\0', bytes) else { return Ok(None) };
    match bytes.get(at..) {
        Some([b'\r', b'\n', ..]) => Ok(Some(at + LINE_END.len())),
        Some([b'\r']) => Ok(None),
        //= rfc9112#section-2.2
        //# A recipient of such a bare CR MUST consider that element to be invalid or replace each
        //# bare CR with SP
        Some([b'\r', ..]) => Err(Violation::BareCr),
        Some([b'\n', ..]) => Err(Violation::BareLf),
        _ => Err(Violation::Nul),
    }
}

/// Like [`line_end`], when a read ended between the two bytes of a line end.
pub(super) fn line_feed(bytes: &[u8]) -> Result<Option<usize>, Violation> {
    match bytes {
        [] => Ok(None),
        [b'\n', ..] => Ok(Some(1)),
        _ => Err(Violation::BareCr),
    }
}

pub(super) fn split_request_line(text: &[u8]) -> Option<(Version, &[u8])> {
    let (version, text) = match text.strip_suffix(b" HTTP/1.1") {
        Some(text) => (Version::Http11, text),
        None => (Version::Http10, text.strip_suffix(b" HTTP/1.0")?),
    };
    let (method, target) = split_token(text);
    let target = target.strip_prefix(b" ")?;
    (!method.is_empty() && !target.is_empty()).then_some((version, target))
}

pub(super) fn check_target(target: &[u8]) -> Result<(), Violation> {
    let forbidden = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'#' | b'\\');
    let is_odd = |byte: u8| forbidden(byte) || matches!(byte, b'"' | b'<' | b'>' | b'`');
    // Without an early exit the compiler checks many bytes at a time; and there is none to find.
    let any_is_odd = target.iter().fold(false, |any, &byte| any | is_odd(byte));
    if !any_is_odd && target.starts_with(b"/") {
        return Ok(());
    }
    match target.iter().copied().find(|&byte| forbidden(byte)) {
        // Whether it will be taken for a target at all is for the type to say that it becomes.
        None => match Uri::try_from(target).as_ref().map(Uri::scheme_str) {
            // The absolute form of a scheme that is not spoken here is not for this server.
            Ok(None | Some("http" | "https")) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(Violation::BadTarget),
        },
        //= rfc9112#section-3.2
        //# A recipient SHOULD NOT attempt to autocorrect and then process the request without a
        //# redirect
        Some(b' ') => Err(Violation::BadRequestLine),
        Some(byte) => Err(Violation::TargetByte(byte)),
    }
}

/// A field's name and value, neither with anything in it that a server might take for something
/// else.
pub(super) fn split_field(text: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    match split_token(text) {
        (name @ [_, ..], [b':', value @ ..]) => match has_control(value) {
            false => Ok((name, value)),
            true => Err(Violation::BadFieldValue),
        },
        (_, [b' ' | b'\t', ..]) if matches!(text, [b' ' | b'\t', ..]) => {
            //= rfc9112#section-2.2
            //# A recipient that receives whitespace between the start-line and the first header
            //# field MUST either reject the message as invalid
            //= rfc9112#section-5.2
            //# A server that receives an obs-fold in a request message that is not within a
            //# "message/http" container MUST either reject the message by sending a 400 (Bad
            //# Request)
            Err(Violation::FoldedField)
        }
        _ => Err(bad_name(text)),
    }
}

/// What is wrong with a line that does not begin with a name and a colon.
fn bad_name(text: &[u8]) -> Violation {
    let colon = text.iter().position(|&byte| byte == b':');
    match colon.and_then(|colon| text.get(..colon)) {
        None => Violation::NoColon,
        Some([]) => Violation::EmptyFieldName,
        //= rfc9112#section-5.1
        //# A server MUST reject, with a response status code of 400 (Bad Request), any received
        //# request message that contains whitespace between a header field name and colon
        Some([.., b' ' | b'\t']) => Violation::SpaceBeforeColon,
        Some(_) => Violation::BadFieldName,
    }
}

/// Whether there is a control other than a tab. Without an early exit the compiler checks many
/// bytes at a time.
fn has_control(value: &[u8]) -> bool {
    //= rfc9110#section-5.5
    //# A recipient SHOULD treat other allowed octets in field content (i.e., obs-text) as opaque
    //# data
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    value.iter().fold(false, |any, &byte| any | is_control(byte))
}

/// RFC 9112 6.3: a request whose last coding is not chunked has no length, and that MUST be a 400.
/// Only past that is 6.1's 501 for codings that we do not know. One that was to say that there is
/// none left no doubt of the length while it was defined (RFC 2616 3.6), and is merely not known
/// any more.
//= rfc9112#section-6.3
//# the server MUST respond with the 400 (Bad Request) status code and then close the connection
pub(super) fn check_coding(value: &[u8]) -> Result<(), Violation> {
    //= rfc9112#section-7.1
    //# Their presence SHOULD be treated as an error
    let chunked = |coding: &[u8]| trim(coding).eq_ignore_ascii_case(b"chunked");
    let mut codings = value.rsplit(|&byte| byte == b',');
    if !codings.next().is_some_and(chunked) {
        let is_identity = trim(value).eq_ignore_ascii_case(b"identity");
        return Err(if is_identity { Violation::UnknownCoding } else { Violation::NotChunked });
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
pub(super) fn split_chunk_size(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    //= rfc9112#section-7.1
    //# recipients MUST anticipate potentially large hexadecimal numerals
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
pub(super) fn split_token(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| !is_token(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

/// Whether a byte may be in a token. Looked up, as it is asked of every byte of every name.
fn is_token(byte: u8) -> bool {
    #[expect(
        clippy::indexing_slicing,
        reason = "a byte is less than 256, and this runs at compile time"
    )]
    static TOKEN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0_u8;
        while byte < 128 {
            let is_symbol = matches!(
                byte,
                b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
            );
            table[byte as usize] = is_symbol || byte.is_ascii_alphanumeric();
            byte += 1;
        }
        table
    };
    TOKEN.get(usize::from(byte)).copied().unwrap_or(false)
}

/// Without optional whitespace, which is spaces and tabs and nothing else (RFC 9110 5.6.3).
pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    //= rfc9110#section-5.5
    //# a field parsing implementation MUST exclude such whitespace prior to evaluating the field
    //# value
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}
