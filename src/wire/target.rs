//! The request target's one normal form: its path, and the host that it is for.
//!
//! What is matched is what is forwarded. A path is normalised once, before a route is looked for,
//! and the upstream receives exactly that text followed by the query as the client wrote it; so a
//! limit cannot be dodged by a spelling that only the upstream understands.

mod disguise;

use std::{borrow::Cow, net::Ipv6Addr};

use http::{
    HeaderMap, Method, Uri, Version,
    header::HOST,
    uri::{Authority, Scheme},
};
use thiserror::Error;

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
    /// `%00`, which ends the text for servers written in C.
    #[error("target holds an escaped nul")]
    EscapedNul,
    /// `%2f` in a path where [`EncodedSlash::Reject`] holds.
    #[error("path holds an escaped slash")]
    EscapedSlash,
    /// A dot segment that only a server shows that decodes twice, or folds characters.
    #[error("path holds a dot segment in disguise")]
    HiddenDots,
    /// UTF-8 that takes more bytes for a character than it needs (RFC 3629, section 10).
    #[error("path holds overlong UTF-8")]
    Overlong,
    /// A `%` without two hexadecimal digits behind it.
    #[error("target holds an invalid percent escape")]
    InvalidEscape,
    /// Neither the target nor a Host field says whom the request is for.
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

/// The host that a request is for: lower case, without trailing dot, an IPv6 literal in brackets
/// and in its shortest form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host<'r> {
    name: Cow<'r, str>,
    port: Option<u16>,
}

impl<'r> Host<'r> {
    /// Reads `host[:port]`, the value of a Host field or the authority of a target.
    ///
    /// Stricter than RFC 3986, whose `reg-name` also admits percent escapes and characters such as
    /// `,` and `;`: no DNS name needs them, and two servers seldom read them alike.
    pub fn parse(text: &'r [u8]) -> Result<Self, TargetError> {
        if text.contains(&b'@') {
            return Err(TargetError::Userinfo);
        }
        let host_end = match text.first() {
            Some(b'[') => text.iter().position(|byte| *byte == b']').map(|bracket| bracket + 1),
            _ => text.iter().position(|byte| *byte == b':'),
        };
        let text = str::from_utf8(text).map_err(|_| TargetError::InvalidHost)?;
        let (host, port) = text.split_at(host_end.unwrap_or(text.len()));
        let name = if host.starts_with('[') { ipv6_name(host)? } else { dns_name(host)? };
        Ok(Self { name, port: parse_port(port)? })
    }

    /// The name alone: what routes are matched against.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The port, if one was written; it takes no part in matching.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    fn agrees_with(&self, other: &Host<'_>, default_port: Option<u16>) -> bool {
        self.name == other.name && self.port.or(default_port) == other.port.or(default_port)
    }
}

/// Whom the request is for; `None` only on HTTP/1.0, where nobody needs to be named.
///
/// The target's authority takes the place of the Host field (RFC 9112, section 3.2.2; RFC 9113,
/// section 8.3.1), and the two have to agree: a server behind us may believe the other one.
/// CONNECT is to be answered before this is asked; its target is an error here.
pub fn request_host<'r>(
    uri: &'r Uri,
    headers: &'r HeaderMap,
    version: Version,
) -> Result<Option<Host<'r>>, TargetError> {
    let authority = match (uri.authority(), uri.scheme()) {
        (Some(_), None) => return Err(TargetError::AuthorityForm),
        (authority, _) => authority.map(parse_authority).transpose()?,
    };
    match (authority, host_field(headers)?) {
        (Some(authority), Some(field)) => {
            if !authority.agrees_with(&field, default_port(uri.scheme())) {
                return Err(TargetError::HostMismatch);
            }
            Ok(Some(authority))
        }
        // An absolute target does not excuse HTTP/1.1 from sending Host (RFC 9112, section 3.2).
        (Some(_), None) if version == Version::HTTP_11 => Err(TargetError::MissingHost),
        (Some(host), None) | (None, Some(host)) => Ok(Some(host)),
        (None, None) if version < Version::HTTP_11 => Ok(None),
        (None, None) => Err(TargetError::MissingHost),
    }
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

/// Tells the shape of a target.
pub fn form(method: &Method, uri: &Uri) -> Form {
    // HTTP/2 sends `*` together with an authority, so this comes before Absolute.
    if *method == Method::OPTIONS && uri.path() == "*" {
        return Form::Asterisk;
    }
    match (uri.scheme(), uri.authority()) {
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

/// What becomes of the escape in a path whose digits `tail` begins with.
fn read_escape(tail: &[u8], encoded_slash: EncodedSlash) -> Result<Escape, TargetError> {
    match (escaped_byte(tail)?, encoded_slash) {
        (0, _) => Err(TargetError::EscapedNul),
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

/// The one Host field; an empty one is malformed, for no target that we accept lacks a host.
fn host_field(headers: &HeaderMap) -> Result<Option<Host<'_>>, TargetError> {
    let mut fields = headers.get_all(HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(TargetError::RepeatedHost);
    }
    field.map(|field| Host::parse(field.as_bytes())).transpose()
}

fn parse_authority(authority: &Authority) -> Result<Host<'_>, TargetError> {
    Host::parse(authority.as_str().as_bytes())
}

fn default_port(scheme: Option<&Scheme>) -> Option<u16> {
    match scheme?.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// Reads `:port`. RFC 3986, section 3.2.3 lets the digits be missing, which means the default.
fn parse_port(suffix: &str) -> Result<Option<u16>, TargetError> {
    match suffix.strip_prefix(':') {
        None if suffix.is_empty() => Ok(None),
        Some("") => Ok(None),
        // `u16::from_str` would take a sign.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map(Some).map_err(|_| TargetError::InvalidHost)
        }
        _ => Err(TargetError::InvalidHost),
    }
}

fn dns_name(host: &str) -> Result<Cow<'_, str>, TargetError> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let (mut label_length, mut has_capitals) = (0, false);
    for byte in name.bytes() {
        match byte {
            b'.' if label_length > 0 => label_length = 0,
            _ if is_label_byte(byte) => label_length += 1,
            _ => return Err(TargetError::InvalidHost),
        }
        has_capitals |= byte.is_ascii_uppercase();
    }
    if label_length == 0 {
        return Err(TargetError::InvalidHost);
    }
    Ok(if has_capitals { name.to_ascii_lowercase().into() } else { name.into() })
}

/// Letters, digits, hyphens, and the underscore that container networks put into names.
fn is_label_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'A'..=b'Z' | b'-' | b'_')
}

fn ipv6_name(host: &str) -> Result<Cow<'_, str>, TargetError> {
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: Ipv6Addr =
        literal.and_then(|text| text.parse().ok()).ok_or(TargetError::InvalidHost)?;
    let name = format!("[{address}]");
    Ok(if name == host { Cow::Borrowed(host) } else { Cow::Owned(name) })
}

#[cfg(test)]
mod tests;
