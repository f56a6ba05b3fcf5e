//! The request target's one normal form: its path, and the host that it is for.
//!
//! A path is normalised once, before a route is looked for, and the upstream receives that text
//! followed by the query as the client wrote it; so a limit cannot be dodged by a spelling that
//! only the upstream understands.
//!
//! Characters such as `@` and `:` may be delimiters to a server, and their escapes data (RFC 3986,
//! section 2.2), so the normal form keeps both. Most frameworks make no difference: what is matched
//! and counted is the [`plain_form`].

mod disguise;
mod host;
mod spelling;

use std::borrow::Cow;

use http::{Method, Uri};
use thiserror::Error;
use tollgate_keyword::keywords;

pub use self::host::{Host, request_host};

/// Why a request target is refused. None of these is repaired or guessed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The path is empty or relative, or is `*` where it may not be.
    #[error("path does not begin with a slash")]
    NotAbsolute,
    /// A control, a space, a byte outside ASCII, or a `?` inside the path.
    #[error("target holds a byte that has to be escaped")]
    UnescapedByte,
    /// A backslash, which some servers take for a slash: raw anywhere, escaped in a path.
    #[error("target holds a backslash")]
    Backslash,
    /// A fragment, which a client keeps to itself (RFC 9110, section 4.2.5).
    #[error("target holds a fragment")]
    Fragment,
    /// `%00` in a query, which ends the text for servers written in C.
    #[error("query holds an escaped nul")]
    EscapedNul,
    /// `%00` to `%1F` and `%7F` in a path. Some servers cut them off: a pattern that ends in `$`
    /// matches before a line feed, so that `/login%0A` is `/login` to them.
    #[error("path holds an escaped control character")]
    EscapedControl,
    /// `%2f` in a path where [`EncodedSlash::Reject`] holds.
    #[error("path holds an escaped slash")]
    EscapedSlash,
    /// A dot segment that only a server shows that decodes twice, or folds characters.
    #[error("path holds a dot segment in disguise")]
    HiddenDots,
    /// Another proxy forwards the path as it came, and servers may read it otherwise than it was
    /// judged here.
    #[error("path is not in its normal form, in which it was judged")]
    NotNormal,
    /// UTF-8 that takes more bytes for a character than it needs (RFC 3629, section 10).
    #[error("path holds overlong UTF-8")]
    Overlong,
    /// A `%` without two hexadecimal digits behind it.
    #[error("target holds an invalid percent escape")]
    InvalidEscape,
    /// Neither the target nor a Host field names the host.
    #[error("request names no host")]
    MissingHost,
    /// More than one Host field, even if they are equal (RFC 9112, section 3.2).
    #[error("request has more than one host field")]
    RepeatedHost,
    /// A Host field or authority that is no `host[:port]`.
    #[error("host is malformed")]
    InvalidHost,
    /// The target's authority and the Host field name different hosts or ports.
    #[error("target and host field disagree")]
    HostMismatch,
    /// `user@host`, which is only ever sent to mislead (RFC 9110, section 4.2.4).
    #[error("authority holds userinfo")]
    Userinfo,
    /// An authority alone, which only CONNECT may ask for.
    #[error("target is an authority alone")]
    AuthorityForm,
}

/// What `%2f` in a path means: a setting, because APIs that carry names with slashes need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlash {
    /// The request is refused.
    #[default]
    Reject,
    /// It is data inside its segment and stays `%2F`.
    Keep,
    /// It is a slash, as some upstreams take it to be.
    Decode,
}

keywords! { EncodedSlash { Reject = "reject", Keep = "keep", Decode = "decode" } }

/// Brings a path to its normal form; a path that is already normal is borrowed.
///
/// Escapes of unreserved characters are decoded, once, and the others are put in upper case; then
/// dot segments are removed as RFC 3986, section 5.2.4 does it; then repeated slashes are merged.
/// A segment of dots and parameters (`..;a=b`) counts as dots, because servlet containers drop the
/// parameters first; so does `..%3Ba=b`, which a proxy between may decode. All other parameters and
/// characters stay as they are, unless they are dots in disguise.
pub fn normalize_path(raw: &str, encoded_slash: EncodedSlash) -> Result<Cow<'_, str>, TargetError> {
    if is_plain(raw.as_bytes()) {
        return Ok(Cow::Borrowed(raw));
    }
    let normal = if is_normal(raw.as_bytes(), encoded_slash) {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(rewrite(raw.as_bytes(), encoded_slash)?)
    };
    if normal.contains('%') {
        disguise::check(&normal)?;
    }
    Ok(normal)
}

/// A path in normal form as routes match it and counters count it: the escapes of all characters
/// that may stand in a path as themselves are decoded (`/users/%40me` is `/users/@me`).
///
/// The others (spaces, `%25`, `%2F`, what is not ASCII) stay, in upper case, so that no two plain
/// forms are the same path. Segments stay the same segments.
pub fn plain_form(normal: &str) -> Cow<'_, str> {
    decode_where(normal, |byte| matches!(classify(byte), Class::Plain))
}

/// A part of a path in normal form with these ASCII characters decoded.
pub fn with_decoded<'p>(part: &'p str, characters: &[u8]) -> Cow<'p, str> {
    decode_where(part, |byte| characters.contains(&byte))
}

/// Whether a part of a path escapes an unreserved character, or one of these: servers that match a
/// path before they decode it take it for another one.
pub fn escapes_needlessly(part: &str, reserved: &[u8]) -> bool {
    let is_needless = |byte| is_unreserved(byte) || reserved.contains(&byte);
    matches!(decode_where(part, is_needless), Cow::Owned(_))
}

/// Decodes the escapes of some ASCII characters in a text whose escapes are well-formed.
fn decode_where(text: &str, is_decoded: impl Fn(u8) -> bool) -> Cow<'_, str> {
    // Most have none.
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let decodes = |escape: &str| {
        let byte = escaped_byte(escape.as_bytes()).ok();
        byte.filter(|byte| byte.is_ascii() && is_decoded(*byte))
    };
    let mut pieces = text.split('%');
    let first = pieces.next().unwrap_or_default();
    if pieces.clone().all(|piece| decodes(piece).is_none()) {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    decoded.push_str(first);
    for piece in pieces {
        match (decodes(piece), piece.get(2..)) {
            (Some(byte), Some(rest)) => {
                decoded.push(char::from(byte));
                decoded.push_str(rest);
            }
            _ => {
                decoded.push('%');
                decoded.push_str(piece);
            }
        }
    }
    Cow::Owned(decoded)
}

/// Checks that a path which is forwarded as it came, and not in its normal form, has the segments
/// of that form: escapes may differ in what they spell out, and in the case of their digits.
///
/// # Errors
/// [`TargetError::NotNormal`].
pub fn check_same_segments(raw: &str, normal: &str) -> Result<(), TargetError> {
    match spelling::is_same(raw.as_bytes(), normal.as_bytes()) {
        true => Ok(()),
        false => Err(TargetError::NotNormal),
    }
}

/// Checks a query, which is forwarded untouched: nothing is matched on it.
pub fn check_query(raw: &str) -> Result<(), TargetError> {
    let mut rest = raw.as_bytes();
    while let [byte, tail @ ..] = rest {
        match classify(*byte) {
            Class::Plain | Class::Slash | Class::Question => {}
            Class::Percent if escaped_byte(tail)? == 0 => return Err(TargetError::EscapedNul),
            Class::Percent => {}
            Class::Refused(error) => return Err(error),
        }
        rest = tail;
    }
    Ok(())
}

/// The shape of a request target (RFC 9112, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`; also `*` with any method but OPTIONS, which [`normalize_path`] then refuses.
    Origin,
    /// `http://host/path`, and what HTTP/2 sends as `:scheme`, `:authority` and `:path`.
    Absolute,
    /// `OPTIONS *`: about the server as a whole.
    Asterisk,
    /// `host:port`, which only CONNECT may send.
    Authority,
}

/// The form of a target.
pub fn form(method: &Method, uri: &Uri) -> Form {
    // HTTP/2 sends `*` together with an authority, so this comes before Absolute.
    //= rfc9110#section-7.1
    //# These forms MUST NOT be used with other methods
    if *method == Method::OPTIONS && uri.path() == "*" {
        return Form::Asterisk;
    }
    match (uri.scheme(), uri.authority()) {
        //= rfc9112#section-3.2.2
        //# A server MUST accept the absolute-form in requests
        (Some(_), _) => Form::Absolute,
        (None, Some(_)) => Form::Authority,
        (None, None) => Form::Origin,
    }
}

/// What a raw byte is to a path or a query.
#[derive(Clone, Copy)]
enum Class {
    Plain,
    Slash,
    Percent,
    Question,
    Refused(TargetError),
}

fn classify(byte: u8) -> Class {
    match byte {
        b'/' => Class::Slash,
        b'%' => Class::Percent,
        b'?' => Class::Question,
        b'\\' => Class::Refused(TargetError::Backslash),
        b'#' => Class::Refused(TargetError::Fragment),
        b'!'..=b'~' => Class::Plain,
        _ => Class::Refused(TargetError::UnescapedByte),
    }
}

/// Recognises most normal paths, those without escapes and without a dot behind a slash, in a
/// third of the time that [`is_normal`] takes: nothing here branches, so the compiler uses vector
/// instructions.
fn is_plain(path: &[u8]) -> bool {
    let refused_bytes = path.iter().fold(false, |any, byte| {
        let special = (*byte == b'%') | (*byte == b'?') | (*byte == b'#') | (*byte == b'\\');
        any | special | !byte.is_ascii_graphic()
    });
    let refused_pairs = path.iter().zip(path.iter().skip(1)).fold(false, |any, (first, second)| {
        any | ((*first == b'/') & ((*second == b'/') | (*second == b'.')))
    });
    path.starts_with(b"/") & !refused_bytes & !refused_pairs
}

/// Decides in one pass, without allocating, whether [`rewrite`] would change nothing. It says no
/// to every path that is to be refused, so that only `rewrite` has to know why.
fn is_normal(path: &[u8], encoded_slash: EncodedSlash) -> bool {
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        let normal = match classify(*byte) {
            Class::Plain => true,
            Class::Slash => !matches!(tail, [b'/', ..]) && leading_dots(tail).is_none(),
            Class::Percent => is_normal_escape(tail, encoded_slash),
            Class::Question | Class::Refused(_) => false,
        };
        if !normal {
            return false;
        }
        rest = tail;
    }
    path.starts_with(b"/")
}

fn rewrite(path: &[u8], encoded_slash: EncodedSlash) -> Result<String, TargetError> {
    //= rfc9113#section-8.3.1
    //# This pseudo-header field MUST NOT be empty for "http" or "https" URIs
    let [b'/', rest @ ..] = path else { return Err(TargetError::NotAbsolute) };
    let mut normal = NormalPath::with_capacity(path.len());
    let mut rest = rest.iter();
    while let Some(&byte) = rest.next() {
        match classify(byte) {
            Class::Plain => normal.text.push(char::from(byte)),
            Class::Slash => normal.end_segment(),
            Class::Percent => {
                match read_escape(rest.as_slice(), encoded_slash)? {
                    Escape::Decode(b'/') => normal.end_segment(),
                    Escape::Decode(byte) => normal.text.push(char::from(byte)),
                    Escape::Keep => normal.push_escape(rest.as_slice()),
                }
                rest.nth(1);
            }
            Class::Question => return Err(TargetError::UnescapedByte),
            Class::Refused(error) => return Err(error),
        }
    }
    Ok(normal.finish())
}

/// A path under construction: whole segments and their slashes, then the segment that is open.
struct NormalPath {
    /// ASCII only, and begins with a slash.
    text: String,
    /// Where the open segment begins: just behind a slash.
    open: usize,
}

impl NormalPath {
    fn with_capacity(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity);
        text.push('/');
        Self { text, open: 1 }
    }

    /// Adds an escape, whose digits `tail` begins with, in upper case.
    fn push_escape(&mut self, tail: &[u8]) {
        self.text.push('%');
        self.text.extend(tail.iter().take(2).map(|digit| char::from(digit.to_ascii_uppercase())));
    }

    fn end_segment(&mut self) {
        if !self.remove_dots() {
            self.text.push('/');
        }
        self.open = self.text.len();
    }

    /// Removes the open segment if it is dots, and with `..` the one before it: also an empty one,
    /// as RFC 3986 does, which is why slashes are merged only at the end.
    fn remove_dots(&mut self) -> bool {
        let segment = self.text.as_bytes().get(self.open..).unwrap_or_default();
        let keep = match leading_dots(segment) {
            None => return false,
            Some(Dots::Current) => self.open,
            Some(Dots::Parent) => {
                let parent = self.text.get(..self.open - 1).and_then(|path| path.rfind('/'));
                parent.map_or(1, |slash| slash + 1)
            }
        };
        self.text.truncate(keep);
        true
    }

    fn finish(mut self) -> String {
        self.remove_dots();
        let mut after_slash = false;
        self.text.retain(|character| {
            let repeated = character == '/' && after_slash;
            after_slash = character == '/';
            !repeated
        });
        self.text
    }
}

enum Dots {
    Current,
    Parent,
}

/// Whether the first segment of `tail` is dots, with or without parameters.
fn leading_dots(tail: &[u8]) -> Option<Dots> {
    let (dots, rest) = match tail {
        [b'.', b'.', rest @ ..] => (Dots::Parent, rest),
        [b'.', rest @ ..] => (Dots::Current, rest),
        _ => return None,
    };
    matches!(rest, [] | [b'/' | b';', ..] | [b'%', b'3', b'B' | b'b', ..]).then_some(dots)
}

enum Escape {
    Decode(u8),
    Keep,
}

/// How to treat the escape in a path whose digits `tail` begins with.
fn read_escape(tail: &[u8], encoded_slash: EncodedSlash) -> Result<Escape, TargetError> {
    match (escaped_byte(tail)?, encoded_slash) {
        (control, _) if control.is_ascii_control() => Err(TargetError::EscapedControl),
        (b'\\', _) => Err(TargetError::Backslash),
        (b'/', EncodedSlash::Reject) => Err(TargetError::EscapedSlash),
        (b'/', EncodedSlash::Decode) => Ok(Escape::Decode(b'/')),
        (byte, _) if is_unreserved(byte) => Ok(Escape::Decode(byte)),
        _ => Ok(Escape::Keep),
    }
}

fn is_normal_escape(tail: &[u8], encoded_slash: EncodedSlash) -> bool {
    matches!(read_escape(tail, encoded_slash), Ok(Escape::Keep))
        && !tail.iter().take(2).any(u8::is_ascii_lowercase)
}

/// A text without its percent-encoding (RFC 3986 section 2.1). None: it is malformed, or stands for
/// no text.
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let is_escape = *first == b'%';
        decoded.push(if is_escape { escaped_byte(after).ok()? } else { *first });
        rest = if is_escape { after.get(2..)? } else { after };
    }
    String::from_utf8(decoded).ok()
}

fn escaped_byte(tail: &[u8]) -> Result<u8, TargetError> {
    let [high, low, ..] = tail else { return Err(TargetError::InvalidEscape) };
    match (hex_value(*high), hex_value(*low)) {
        (Some(high), Some(low)) => Ok(high << 4 | low),
        _ => Err(TargetError::InvalidEscape),
    }
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests;
