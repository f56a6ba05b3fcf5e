//! The request target's one normal form: its path, and the host that it is for.
//!
//! What is matched is what is forwarded. A path is normalised once, before a route is looked for,
//! and the upstream receives exactly that text followed by the query as the client wrote it; so a
//! limit cannot be dodged by a spelling that only the upstream understands.

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
/// parameters first. All other parameters and characters stay as they are.
pub fn normalize_path(raw: &str, encoded_slash: EncodedSlash) -> Result<Cow<'_, str>, TargetError> {
    if is_plain(raw.as_bytes()) || is_normal(raw.as_bytes(), encoded_slash) {
        return Ok(Cow::Borrowed(raw));
    }
    rewrite(raw.as_bytes(), encoded_slash).map(Cow::Owned)
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
    match tail {
        [b'.'] | [b'.', b'/' | b';', ..] => Some(Dots::Current),
        [b'.', b'.'] | [b'.', b'.', b'/' | b';', ..] => Some(Dots::Parent),
        _ => None,
    }
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
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const ENCODED_SLASH: [EncodedSlash; 3] =
        [EncodedSlash::Reject, EncodedSlash::Keep, EncodedSlash::Decode];

    fn normalize(raw: &str) -> Result<String, TargetError> {
        normalize_path(raw, EncodedSlash::Reject).map(Cow::into_owned)
    }

    #[test]
    fn normal_paths_are_borrowed() {
        for path in [
            "/",
            "/repos/tokio-rs/tokio/issues",
            "/.well-known/jwks.json",
            "/...",
            "/..a/.b;c/d..",
            "/a%20b/%C3%A9/%25",
            "/a;v=1/{b}/$&'()*+,=:@!~",
            "/trailing/",
        ] {
            let normal = normalize_path(path, EncodedSlash::Reject);
            assert!(
                matches!(normal, Ok(Cow::Borrowed(same)) if same == path),
                "{path}: {normal:?}"
            );
        }
        assert!(matches!(normalize_path("/a%2Fb", EncodedSlash::Keep), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn spellings_of_one_path_have_one_normal_form() {
        for (raw, expected) in [
            ("//", "/"),
            ("/a//b///c", "/a/b/c"),
            ("/%61%2D%5f%7E", "/a-_~"),
            ("/%c3%a9", "/%C3%A9"),
            ("/%0d%0a", "/%0D%0A"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e;x=1/b", "/b"),
            ("/a/..;a=b/.;c/b", "/b"),
            ("/a/..%3B/b", "/a/..%3B/b"),
            ("/../../a", "/a"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/..", "/"),
            ("/a//../b", "/a/b"),
            ("/a/..//b", "/b"),
            ("//../..//a", "/a"),
        ] {
            assert_eq!(normalize(raw).as_deref(), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn an_escaped_slash_is_refused_kept_or_decoded() {
        for (encoded_slash, raw, expected) in [
            (EncodedSlash::Reject, "/a%2fb", Err(TargetError::EscapedSlash)),
            (EncodedSlash::Reject, "/a%2Fb", Err(TargetError::EscapedSlash)),
            (EncodedSlash::Keep, "/a%2fb", Ok("/a%2Fb")),
            (EncodedSlash::Keep, "/a/..%2fb", Ok("/a/..%2Fb")),
            (EncodedSlash::Decode, "/a%2fb", Ok("/a/b")),
            (EncodedSlash::Decode, "/a/%2e%2e%2F%2fb", Ok("/b")),
            (EncodedSlash::Decode, "/a%252fb", Ok("/a%252fb")),
        ] {
            let normal = normalize_path(raw, encoded_slash);
            assert_eq!(normal.as_deref().map_err(|error| *error), expected, "{raw}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for (raw, expected) in [
            ("", TargetError::NotAbsolute),
            ("*", TargetError::NotAbsolute),
            ("a/b", TargetError::NotAbsolute),
            ("%2fa", TargetError::NotAbsolute),
            ("/a b", TargetError::UnescapedByte),
            ("/a\tb", TargetError::UnescapedByte),
            ("/a\u{7f}", TargetError::UnescapedByte),
            ("/é", TargetError::UnescapedByte),
            ("/a?b", TargetError::UnescapedByte),
            ("/a\\b", TargetError::Backslash),
            ("/a%5cb", TargetError::Backslash),
            ("/a%5Cb", TargetError::Backslash),
            ("/a#b", TargetError::Fragment),
            ("/a%00", TargetError::EscapedNul),
            ("/a%", TargetError::InvalidEscape),
            ("/a%4", TargetError::InvalidEscape),
            ("/a%zz", TargetError::InvalidEscape),
            ("/a%+1", TargetError::InvalidEscape),
            ("/b\\/../c", TargetError::Backslash),
        ] {
            for encoded_slash in ENCODED_SLASH {
                assert_eq!(normalize_path(raw, encoded_slash), Err(expected), "{raw}");
            }
        }
    }

    #[test]
    fn a_query_is_checked_but_not_normalised() {
        for (raw, expected) in [
            ("", Ok(())),
            ("q=a/../b//c?d&e=%2e%2f%5c%41+;", Ok(())),
            ("q=a b", Err(TargetError::UnescapedByte)),
            ("q=\u{1}", Err(TargetError::UnescapedByte)),
            ("q=é", Err(TargetError::UnescapedByte)),
            ("q=\\", Err(TargetError::Backslash)),
            ("q#", Err(TargetError::Fragment)),
            ("q=%00", Err(TargetError::EscapedNul)),
            ("q=%", Err(TargetError::InvalidEscape)),
            ("q=%2", Err(TargetError::InvalidEscape)),
            ("q=%g0", Err(TargetError::InvalidEscape)),
        ] {
            assert_eq!(check_query(raw), expected, "{raw}");
        }
    }

    #[test]
    fn a_host_is_lower_case_without_port_and_trailing_dot() {
        for (raw, name, port) in [
            ("api.example.com", "api.example.com", None),
            ("API.Example.COM.:8443", "api.example.com", Some(8443)),
            ("localhost:", "localhost", None),
            ("my_service:00080", "my_service", Some(80)),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[2001:DB8:0::1]:443", "[2001:db8::1]", Some(443)),
        ] {
            let host = Host::parse(raw.as_bytes()).unwrap();
            assert_eq!((host.as_str(), host.port()), (name, port), "{raw}");
        }
        assert!(matches!(Host::parse(b"a.example:80"), Ok(Host { name: Cow::Borrowed(_), .. })));
        assert!(matches!(Host::parse(b"[::1]:80"), Ok(Host { name: Cow::Borrowed(_), .. })));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for raw in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a.:x",
            "a:-1",
            "a:+1",
            "a:65536",
            "a:80:80",
            "a b",
            " a",
            "a/b",
            "a?b",
            "a#b",
            "a,b",
            "a%41",
            "é",
            "::1",
            "2001:db8::1",
            "[::1",
            "::1]",
            "[]",
            "[::1]x",
            "[::1].",
            "[::1]80",
            "[1.2.3.4]",
            "[fe80::1%25eth0]",
            "[v1.a]",
        ] {
            assert_eq!(Host::parse(raw.as_bytes()), Err(TargetError::InvalidHost), "{raw}");
        }
        assert_eq!(Host::parse(b"user:pass@a"), Err(TargetError::Userinfo));
        assert_eq!(Host::parse(b"\xff"), Err(TargetError::InvalidHost));
    }

    fn host_of(
        uri: &str,
        fields: &[&str],
        version: Version,
    ) -> Result<Option<String>, TargetError> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(HOST, HeaderValue::from_str(field).unwrap());
        }
        let uri = uri.parse().unwrap();
        let host = request_host(&uri, &headers, version)?;
        Ok(host.map(|host| host.as_str().to_owned()))
    }

    #[test]
    fn every_version_but_http_1_0_names_exactly_one_host() {
        let host = || Ok(Some("a.example".to_owned()));
        for (uri, fields, version, expected) in [
            ("/", &["a.example"][..], Version::HTTP_11, host()),
            ("/", &[], Version::HTTP_11, Err(TargetError::MissingHost)),
            ("http://a.example/", &[], Version::HTTP_11, Err(TargetError::MissingHost)),
            ("/", &[""], Version::HTTP_11, Err(TargetError::InvalidHost)),
            ("http://a.example/", &[""], Version::HTTP_11, Err(TargetError::InvalidHost)),
            ("/", &["a.example", "a.example"], Version::HTTP_11, Err(TargetError::RepeatedHost)),
            ("*", &["a.example"], Version::HTTP_11, host()),
            ("/", &[], Version::HTTP_10, Ok(None)),
            ("/", &["a.example"], Version::HTTP_10, host()),
            ("http://a.example/", &[], Version::HTTP_10, host()),
            ("/", &["a.example", "b.example"], Version::HTTP_10, Err(TargetError::RepeatedHost)),
            ("/", &["a/b"], Version::HTTP_10, Err(TargetError::InvalidHost)),
            ("https://a.example/", &[], Version::HTTP_2, host()),
            ("/", &["a.example"], Version::HTTP_2, host()),
            ("/", &[], Version::HTTP_2, Err(TargetError::MissingHost)),
        ] {
            assert_eq!(host_of(uri, fields, version), expected, "{uri} {fields:?} {version:?}");
        }
    }

    #[test]
    fn target_and_host_field_agree_or_the_request_is_refused() {
        for (uri, field, agree) in [
            ("http://a.example/", "A.Example.", true),
            ("http://a.example/", "a.example:80", true),
            ("http://a.example:80/", "a.example", true),
            ("https://a.example/", "a.example:443", true),
            ("https://a.example:8443/", "a.example:8443", true),
            ("http://[::1]/", "[0:0::1]:80", true),
            ("http://a.example/", "b.example", false),
            ("http://a.example/", "a.example:8080", false),
            ("https://a.example/", "a.example:80", false),
            ("https://a.example:8443/", "a.example", false),
        ] {
            for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
                let host = host_of(uri, &[field], version);
                assert_eq!(host.is_ok(), agree, "{uri} {field}: {host:?}");
                assert!(agree || host == Err(TargetError::HostMismatch), "{uri} {field}: {host:?}");
            }
        }
    }

    #[test]
    fn authorities_with_userinfo_or_without_scheme_are_refused() {
        for (uri, expected) in [
            ("http://user@a.example/", TargetError::Userinfo),
            ("http://user:pass@a.example/", TargetError::Userinfo),
            ("a.example:443", TargetError::AuthorityForm),
            ("a.example", TargetError::AuthorityForm),
        ] {
            assert_eq!(host_of(uri, &["a.example"], Version::HTTP_11), Err(expected), "{uri}");
        }
    }

    #[test]
    fn targets_have_one_of_four_forms() {
        for (method, uri, expected) in [
            (Method::GET, "/a?b", Form::Origin),
            (Method::GET, "//a.example/b", Form::Origin),
            (Method::GET, "http://a.example/b", Form::Absolute),
            (Method::OPTIONS, "*", Form::Asterisk),
            (Method::GET, "*", Form::Origin),
            (Method::CONNECT, "a.example:443", Form::Authority),
            (Method::GET, "a.example:443", Form::Authority),
        ] {
            assert_eq!(form(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
        }
        let http2 = Uri::builder().scheme("https").authority("a.example").path_and_query("*");
        assert_eq!(form(&Method::OPTIONS, &http2.build().unwrap()), Form::Asterisk);
    }

    /// RFC 3986 taken literally, a copy of the path for each step.
    fn reference(raw: &str, encoded_slash: EncodedSlash) -> Option<String> {
        if !raw.starts_with('/') || raw.chars().any(|c| !c.is_ascii_graphic() || "\\#?".contains(c))
        {
            return None;
        }
        let mut unescaped = String::new();
        for (nth, piece) in raw.split('%').enumerate() {
            if nth == 0 {
                unescaped += piece;
                continue;
            }
            let digits = piece.get(..2).filter(|two| two.chars().all(|c| c.is_ascii_hexdigit()))?;
            let escape = format!("%{}", digits.to_uppercase());
            let plain = char::from(u8::from_str_radix(digits, 16).ok()?);
            match (plain, encoded_slash) {
                ('\0' | '\\', _) | ('/', EncodedSlash::Reject) => return None,
                ('/', EncodedSlash::Decode) => unescaped.push('/'),
                ('-' | '.' | '_' | '~', _) => unescaped.push(plain),
                _ if plain.is_ascii_alphanumeric() => unescaped.push(plain),
                _ => unescaped += &escape,
            }
            unescaped += &piece[2..];
        }
        let bare_dots: Vec<&str> = unescaped
            .split('/')
            .map(|segment| match segment.split(';').next() {
                Some(dots @ ("." | "..")) => dots,
                _ => segment,
            })
            .collect();
        let mut merged = remove_dot_segments(bare_dots.join("/"));
        while merged.contains("//") {
            merged = merged.replace("//", "/");
        }
        Some(merged)
    }

    /// Section 5.2.4, steps B to E; step A is for relative paths.
    fn remove_dot_segments(mut input: String) -> String {
        let mut output = String::new();
        while !input.is_empty() {
            if input.starts_with("/./") {
                input.replace_range(..3, "/");
            } else if input == "/." {
                input = "/".to_owned();
            } else if input.starts_with("/../") || input == "/.." {
                input.replace_range(..input.len().min(4), "/");
                output.truncate(output.rfind('/').unwrap_or(0));
            } else {
                let end = input[1..].find('/').map_or(input.len(), |slash| slash + 1);
                output.extend(input.drain(..end));
            }
        }
        output
    }

    mod arbitrary {
        use super::*;

        /// Paths made of what normalising is about, most of them valid.
        pub(super) fn path() -> impl Strategy<Value = String> {
            let piece = prop::sample::select(vec![
                "/", "/", "/", "//", ".", "..", "...", "%2e", "%2E", "/../", "/./", ";", ";a=b",
                "a", "b", "~", "%41", "%7e", "%2f", "%2F", "%25", "%252e", "%c3%A9", "%0a", "%3b",
                "{", ":",
            ]);
            let pieces = prop::collection::vec(piece, 0..16);
            pieces.prop_map(|pieces| format!("/{}", pieces.concat()))
        }

        /// As above, with something that may have to be refused in between.
        pub(super) fn doubtful_path() -> impl Strategy<Value = String> {
            (path(), "[ -~]?\\PC?%?[0-9a-f]{0,2}", path()).prop_map(|(a, b, c)| a + &b + &c)
        }

        pub(super) fn encoded_slash() -> impl Strategy<Value = EncodedSlash> {
            prop::sample::select(ENCODED_SLASH.to_vec())
        }
    }

    proptest! {
        #[test]
        fn prop_normalising_agrees_with_rfc_3986_taken_literally(
            path in prop_oneof![arbitrary::path(), arbitrary::doubtful_path(), ".*"],
            encoded_slash in arbitrary::encoded_slash(),
        ) {
            let normal = normalize_path(&path, encoded_slash).ok().map(Cow::into_owned);
            prop_assert_eq!(normal, reference(&path, encoded_slash));
        }

        #[test]
        fn prop_a_normal_path_stays_as_it_is(
            path in arbitrary::path(),
            encoded_slash in arbitrary::encoded_slash(),
        ) {
            if let Ok(normal) = normalize_path(&path, encoded_slash) {
                let again = normalize_path(&normal, encoded_slash);
                prop_assert!(
                    matches!(again, Ok(Cow::Borrowed(same)) if same == normal),
                    "{} became {:?}", normal, again
                );
            }
        }

        #[test]
        fn prop_a_normal_path_holds_nothing_to_dispute(
            path in arbitrary::doubtful_path(),
            encoded_slash in arbitrary::encoded_slash(),
        ) {
            if let Ok(normal) = normalize_path(&path, encoded_slash) {
                prop_assert!(normal.starts_with('/') && !normal.contains("//"));
                prop_assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!normal.contains(['\\', '#', '?']));
                for segment in normal.split('/') {
                    prop_assert!(!matches!(segment.split(';').next(), Some("." | "..")));
                }
            }
        }

        #[test]
        fn prop_a_host_is_a_fixed_point_or_refused(
            field in prop_oneof!["[a-zA-Z0-9.:_-]{0,20}", "\\[[0-9a-f:.]{0,20}\\](:[0-9]{0,6})?"],
        ) {
            if let Ok(host) = Host::parse(field.as_bytes()) {
                let again = Host::parse(host.as_str().as_bytes());
                let again = again.as_ref().map(Host::as_str);
                prop_assert_eq!(again, Ok(host.as_str()));
            }
        }

        #[test]
        fn prop_arbitrary_bytes_are_a_host_or_an_error(field in any::<Vec<u8>>()) {
            if let Ok(host) = Host::parse(&field) {
                prop_assert!(!host.as_str().is_empty());
                prop_assert!(!host.as_str().bytes().any(|byte| byte.is_ascii_uppercase()));
            }
        }

        #[test]
        fn prop_check_query_never_panics(query in ".*") {
            let _ = check_query(&query);
        }
    }
}
