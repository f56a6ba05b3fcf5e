//! The host that a request is for, from the target's authority and the Host field.

use std::{borrow::Cow, net::Ipv6Addr};

use http::{
    HeaderMap, Uri, Version,
    header::HOST,
    uri::{Authority, Scheme},
};

use super::TargetError;

/// The host that a request is for: lower case, without trailing dot, an IPv6 literal in brackets
/// and in its shortest form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host<'r> {
    pub(super) name: Cow<'r, str>,
    pub(super) port: Option<u16>,
}

impl<'r> Host<'r> {
    /// Reads `host[:port]`, the value of a Host field or the authority of a target.
    ///
    /// Stricter than RFC 3986, whose `reg-name` also admits percent escapes and characters such as
    /// `,` and `;`: no DNS name needs them, and two servers seldom read them alike.
    pub fn parse(text: &'r [u8]) -> Result<Self, TargetError> {
        //= rfc9110#section-4.2.4
        //# A sender MUST NOT generate the userinfo subcomponent
        //= rfc9110#section-4.2.4
        //# a recipient SHOULD parse for userinfo and treat its presence as an error
        //= rfc9113#section-8.3.1
        //# ":authority" MUST NOT include the deprecated userinfo subcomponent
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

    /// The name without the port: what routes are matched against.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The port, if one was written; it takes no part in matching.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    fn agrees_with(&self, other: &Host<'_>, default_port: Option<u16>) -> bool {
        //= rfc9113#section-8.3.1
        //# other servers MUST perform scheme-based normalization
        self.name == other.name && self.port.or(default_port) == other.port.or(default_port)
    }
}

/// The host that the request is for; `None` only on HTTP/1.0, which does not require one.
///
/// The target's authority takes the place of the Host field (RFC 9112, section 3.2.2; RFC 9113,
/// section 8.3.1), and the two have to agree: a server behind us may believe the other one.
/// CONNECT must be answered before this is called; its target is an error here.
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
            //= rfc9113#section-8.3.1
            //# A server SHOULD treat a request as malformed if it contains a "Host" header field
            //# that identifies an entity that differs from the entity in the ":authority"
            //# pseudo-header field
            if !authority.agrees_with(&field, default_port(uri.scheme())) {
                return Err(TargetError::HostMismatch);
            }
            //= rfc9113#section-8.3.1
            //# The recipient of an HTTP/2 request MUST NOT use the "Host" header field to determine
            //# the target URI if ":authority" is present
            Ok(Some(authority))
        }
        // An absolute target does not excuse HTTP/1.1 from sending Host (RFC 9112, section 3.2).
        (Some(_), None) if version == Version::HTTP_11 => Err(TargetError::MissingHost),
        (Some(host), None) | (None, Some(host)) => Ok(Some(host)),
        (None, None) if version < Version::HTTP_11 => Ok(None),
        //= rfc9112#section-3.2
        //# A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request
        //# message that lacks a Host header field
        (None, None) => Err(TargetError::MissingHost),
    }
}

/// The one Host field; an empty one is malformed, for no target that we accept lacks a host.
fn host_field(headers: &HeaderMap) -> Result<Option<Host<'_>>, TargetError> {
    let mut fields = headers.get_all(HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        //= rfc9112#section-3.2
        //# A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request
        //# message that lacks a Host header field
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
    let mut label_length = 0;
    let mut has_capitals = false;
    for byte in name.bytes() {
        match byte {
            b'.' if label_length > 0 => label_length = 0,
            _ if is_label_byte(byte) => label_length += 1,
            _ => return Err(TargetError::InvalidHost),
        }
        has_capitals |= byte.is_ascii_uppercase();
    }
    //= rfc9110#section-4.2.1
    //# A sender MUST NOT generate an "http" URI with an empty host identifier
    //= rfc9110#section-4.2.1
    //# A recipient that processes such a URI reference MUST reject it as invalid
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
