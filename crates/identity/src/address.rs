//! The address of a client: that of the peer, or the one that trusted proxies report.
//!
//! The one thing to know: the chain of addresses is read from the right. Only its right end was
//! written by a trusted proxy; a client can write anything on the left.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue,
    header::{FORWARDED, HeaderName},
};
use ipnet::IpNet;
use tollgate_keyword::keywords;
use tollgate_yaml::canonical_network;

/// How many entries of a chain are read. A longer chain is cut here.
const MAX_HOPS: usize = 64;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static RFC_7239: HeaderName = FORWARDED;

/// The field that the trusted proxies write.
///
/// Only one field is read: a proxy that sets one may pass on the other as the client sent it, so
/// reading whichever is present would let clients choose their own address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`, which nearly every proxy writes.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

keywords! {
    ForwardedField { XForwardedFor = "x-forwarded-for", Forwarded = "forwarded" }
}

impl ForwardedField {
    /// The name of the field.
    pub fn name(self) -> &'static HeaderName {
        match self {
            ForwardedField::XForwardedFor => &X_FORWARDED_FOR,
            ForwardedField::Forwarded => &RFC_7239,
        }
    }
}

/// The networks of proxies that are trusted to report the client's address. By default there are
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Box<[IpNet]>,
    field: ForwardedField,
}

impl TrustedProxies {
    /// Trusts the proxies in `networks` to maintain `field`.
    pub fn new(networks: Vec<IpNet>, field: ForwardedField) -> Self {
        Self { networks: networks.into_iter().map(canonical_network).collect(), field }
    }

    /// The field that the trusted proxies maintain.
    pub fn field(&self) -> ForwardedField {
        self.field
    }

    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether `ip` belongs to a trusted proxy.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = canonical(ip);
        self.networks.iter().any(|network| network.contains(&ip))
    }
}

/// The canonical form of an address: IPv4 mapped into IPv6 (`::ffff:a.b.c.d`, as a dual-stack
/// socket reports it) becomes IPv4. Other embeddings, such as NAT64, stay IPv6, since any host may
/// send from those prefixes.
pub fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The client's address: the peer's, unless the peer is a trusted proxy.
///
/// Then it is the rightmost address of the chain that is not a trusted proxy. An entry that is not
/// an address ends the chain, since the entries before it cannot be trusted: the client is then the
/// hop that wrote it. If all are trusted, the leftmost is the client. The result is never the
/// unspecified address unless the peer's is, so it can always be a limit's key.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    match trusted.contains(peer) {
        true => address_behind(peer, headers, trusted),
        false => canonical(peer),
    }
}

/// The client's address behind a peer that is known to be a trusted proxy.
pub fn address_behind(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    let peer = canonical(peer);
    match trusted.field {
        ForwardedField::XForwardedFor => address_told(peer, headers, trusted),
        ForwardedField::Forwarded => {
            let lines = headers.get_all(FORWARDED).iter().rev();
            walk(peer, lines.flat_map(forwarded), trusted)
        }
    }
}

/// The client's address behind a proxy that asks about its request: it always says it in
/// `X-Forwarded-For`, whatever field the trusted proxies of requests write. A client that wrote
/// another field would choose its own address.
pub fn address_told(asker: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    let lines = headers.get_all(&X_FORWARDED_FOR).iter().rev();
    walk(canonical(asker), lines.flat_map(x_forwarded_for), trusted)
}

/// Whether the address that a proxy tells of its client can be read, if it tells one.
pub fn is_address_readable(headers: &HeaderMap) -> bool {
    let last = headers.get_all(&X_FORWARDED_FOR).iter().next_back();
    last.is_none_or(|line| x_forwarded_for(line).next().flatten().is_some())
}

/// The lengths of the address prefixes that count as one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of an IPv4 address, up to 32.
    pub ipv4: u8,
    /// Of an IPv6 address, up to 128.
    pub ipv6: u8,
}

impl Default for Prefixes {
    /// A whole IPv4 address; for IPv6 the network that one customer gets.
    fn default() -> Self {
        Prefixes { ipv4: 32, ipv6: 64 }
    }
}

/// The prefix of an address that counts as one client; the whole address if the length is too
/// large.
pub(super) fn prefix(ip: IpAddr, prefixes: Prefixes) -> IpNet {
    let ip = canonical(ip);
    let length = match ip {
        IpAddr::V4(_) => prefixes.ipv4,
        IpAddr::V6(_) => prefixes.ipv6,
    };
    IpNet::new(ip, length).unwrap_or_else(|_| IpNet::from(ip)).trunc()
}

/// The address that stands for all of a client in the names of counters: for IPv6 mostly the first
/// of its network.
pub fn counted_address(ip: IpAddr, prefixes: Prefixes) -> IpAddr {
    prefix(ip, prefixes).addr()
}

/// Follows the chain from the peer towards the client while the hops are trusted.
fn walk(
    peer: IpAddr,
    entries: impl Iterator<Item = Option<IpAddr>>,
    trusted: &TrustedProxies,
) -> IpAddr {
    let mut client = peer;
    for entry in entries.take(MAX_HOPS) {
        let Some(address) = entry else { break };
        client = address;
        if !trusted.contains(address) {
            break;
        }
    }
    client
}

/// The entries of an `X-Forwarded-For` line from the right; `None` for an entry that is not an
/// address.
fn x_forwarded_for(line: &HeaderValue) -> impl Iterator<Item = Option<IpAddr>> {
    line.as_bytes().rsplit(|byte| *byte == b',').map(node_address)
}

/// The entries of a `Forwarded` line from the right; `None` for an entry without an address.
fn forwarded(line: &HeaderValue) -> impl Iterator<Item = Option<IpAddr>> {
    let mut rest = Some(line.as_bytes());
    std::iter::from_fn(move || {
        let (before, element) = cut_last_element(rest?);
        rest = before;
        Some(forwarded_for(element))
    })
}

/// Splits the last element off a `Forwarded` line, at a comma outside quotes.
///
/// Quotes are matched from the right too. Matched from the left, a quote that a client opens would
/// swallow the elements that proxies append. An odd number of backslashes before a quote means that
/// it is escaped inside a quoted string, and does not open one.
fn cut_last_element(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let mut quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        let (before, rest) = line.split_at(at);
        match byte {
            b'"' if quoted => quoted = ends_in_escape(before),
            b'"' => quoted = true,
            b',' if !quoted => return (Some(before), rest.get(1..).unwrap_or_default()),
            _ => {}
        }
    }
    (None, line)
}

fn ends_in_escape(text: &[u8]) -> bool {
    text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in the `for` parameter of one element. None: the parameter is missing or repeated,
/// or the element is malformed.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    let mut rest = element.trim_ascii();
    while !rest.is_empty() {
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = rest.split_at(equals);
        let (value, after) = cut_value(value.get(1..)?)?;
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
        rest = match after.trim_ascii_start() {
            [] => break,
            [b';', next @ ..] => next.trim_ascii_start(),
            _ => return None,
        };
    }
    let mut unescaped = [0; MAX_NODE];
    node_address(unescape(node?, &mut unescaped)?)
}

/// Splits a parameter's value, without its quotes, from the text after it.
fn cut_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let [b'"', text @ ..] = text else {
        let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        return Some(text.split_at(end));
    };
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    })?;
    let (value, after) = text.split_at(end);
    Some((value, after.get(1..)?))
}

/// Longer than the longest address in brackets with a port.
const MAX_NODE: usize = 64;

/// Removes the backslashes of a quoted string. Writes to a buffer to avoid an allocation; a value
/// that does not fit is not an address.
fn unescape<'b>(value: &[u8], buffer: &'b mut [u8; MAX_NODE]) -> Option<&'b [u8]> {
    let mut length = 0;
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next()? } else { byte };
        *buffer.get_mut(length)? = *byte;
        length += 1;
    }
    buffer.get(..length)
}

/// Reads `ip`, `ipv4:port`, `[ipv6]` or `[ipv6]:port`. The unspecified address is refused.
fn node_address(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node.trim_ascii()).ok()?;
    let (ip, port) = if let Ok(ip) = node.parse() {
        (ip, "")
    } else if let Some(rest) = node.strip_prefix('[') {
        let (ip, port) = rest.split_once(']')?;
        (IpAddr::V6(ip.parse().ok()?), port)
    } else {
        let (ip, port) = node.split_at(node.find(':')?);
        (IpAddr::V4(ip.parse().ok()?), port)
    };
    let ip = canonical(ip);
    (is_port(port) && !ip.is_unspecified()).then_some(ip)
}

/// Whether `suffix` is empty, `:` and a port, or `:` and an obfuscated port (RFC 7239 section 6).
fn is_port(suffix: &str) -> bool {
    let Some(port) = suffix.strip_prefix(':') else { return suffix.is_empty() };
    match port.strip_prefix('_') {
        Some(name) => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !name.is_empty() && name.bytes().all(is_name)
        }
        None => port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok(),
    }
}

#[cfg(test)]
mod tests;
