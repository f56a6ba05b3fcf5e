//! Who the client is on the network: the peer, or whom trusted proxies say it is.
//!
//! The one thing to know: the chain is walked from the right. Only its right end was written by
//! somebody we trust; a client can put whatever it likes on the left.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue,
    header::{FORWARDED, HeaderName},
};
use ipnet::IpNet;

/// How many entries of a chain are looked at; whoever has more proxies than that ends here.
const MAX_HOPS: usize = 64;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static RFC_7239: HeaderName = FORWARDED;

/// The field that the trusted proxies write.
///
/// There is one, and the other is never read: a proxy that sets the one may well pass on the other
/// as a client sent it, so taking whichever is present would let clients name their own address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedField {
    /// `X-Forwarded-For`, the custom that nearly every proxy follows.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ForwardedField {
    /// Its name.
    pub fn name(self) -> &'static HeaderName {
        match self {
            ForwardedField::XForwardedFor => &X_FORWARDED_FOR,
            ForwardedField::Forwarded => &RFC_7239,
        }
    }
}

/// The networks whose word about the client is taken. The default trusts nobody.
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

    /// Whether nobody is trusted.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether `ip` belongs to a trusted proxy.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = canonical(ip);
        self.networks.iter().any(|network| network.contains(&ip))
    }
}

/// The one spelling of an address: IPv4 that came mapped into IPv6 (`::ffff:a.b.c.d`, as a socket
/// that listens on both reports it) is IPv4. Other embeddings, such as NAT64, stay IPv6: anybody
/// may send from those prefixes.
pub fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The client's address: the peer's, unless the peer is a trusted proxy.
///
/// Then it is the rightmost address of the chain that is not itself a trusted proxy. An entry that
/// is no address ends the walk, for it is not known what stood behind it: the client is the hop
/// that wrote it. If all are trusted, the leftmost is the client. What this returns is never
/// unspecified unless the peer is, so it is always fit to be a key.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    match trusted.contains(peer) {
        true => address_behind(peer, headers, trusted),
        false => canonical(peer),
    }
}

/// The client's address behind a peer that is a trusted proxy for whatever reason.
pub fn address_behind(peer: IpAddr, headers: &HeaderMap, trusted: &TrustedProxies) -> IpAddr {
    let peer = canonical(peer);
    match trusted.field {
        ForwardedField::XForwardedFor => {
            let lines = headers.get_all(&X_FORWARDED_FOR).iter().rev();
            walk(peer, lines.flat_map(x_forwarded_for), trusted)
        }
        ForwardedField::Forwarded => {
            let lines = headers.get_all(FORWARDED).iter().rev();
            walk(peer, lines.flat_map(forwarded), trusted)
        }
    }
}

/// How many bits of an address are one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of an IPv4 address, up to 32.
    pub ipv4: u8,
    /// Of an IPv6 address, up to 128.
    pub ipv6: u8,
}

impl Default for Prefixes {
    /// All of an IPv4 address; the network of one customer of IPv6.
    fn default() -> Self {
        Prefixes { ipv4: 32, ipv6: 64 }
    }
}

/// The part of an address that is one client; all of it, if that is more than there is.
pub(super) fn prefix(ip: IpAddr, prefixes: Prefixes) -> IpNet {
    let ip = canonical(ip);
    let length = match ip {
        IpAddr::V4(_) => prefixes.ipv4,
        IpAddr::V6(_) => prefixes.ipv6,
    };
    IpNet::new(ip, length).unwrap_or_else(|_| IpNet::from(ip)).trunc()
}

/// Reads a mapped network (`::ffff:10.0.0.0/104`) as the IPv4 network that it is, since addresses
/// are compared in canonical form.
pub fn canonical_network(network: IpNet) -> IpNet {
    let (ip, length) = (network.addr().to_canonical(), network.prefix_len());
    match (network, ip, length.checked_sub(96)) {
        (IpNet::V6(_), IpAddr::V4(_), Some(length)) => IpNet::new(ip, length).unwrap_or(network),
        _ => network,
    }
}

/// Goes from the peer towards the client as long as the next hop can be trusted.
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

/// The entries of an `X-Forwarded-For` line from the right, `None` for what is no address.
fn x_forwarded_for(line: &HeaderValue) -> impl Iterator<Item = Option<IpAddr>> {
    line.as_bytes().rsplit(|byte| *byte == b',').map(node_address)
}

/// The entries of a `Forwarded` line from the right, `None` for what names no address.
fn forwarded(line: &HeaderValue) -> impl Iterator<Item = Option<IpAddr>> {
    let mut rest = Some(line.as_bytes());
    std::iter::from_fn(move || {
        let (before, element) = cut_last_element(rest?);
        rest = before;
        Some(forwarded_for(element))
    })
}

/// Cuts the last element off a `Forwarded` line: at a comma outside quotes.
///
/// Quotes are followed from the right as well. From the left, a client could open a quote that
/// swallows what the proxies append behind it. A quote within a quoted string is told from the one
/// that opens it by the odd number of backslashes before it.
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

/// The address in the `for` parameter of one element; none if it is missing or repeated, or if the
/// element is malformed.
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

/// Splits a parameter's value, without its quotes, from what follows it.
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

/// More than the longest address in brackets with a port.
const MAX_NODE: usize = 64;

/// Takes the backslashes out of a quoted string, in place of an allocation: what does not fit is
/// no address.
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

/// Reads `ip`, `ipv4:port`, `[ipv6]` or `[ipv6]:port`. An unspecified address is none.
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

/// Whether `suffix` is empty, `:` and a port, or `:` and an obfuscated one (RFC 7239, section 6).
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
