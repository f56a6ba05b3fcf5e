//! Who the client is on the network: the peer, or whom trusted proxies say it is.
//!
//! The one thing to know: the chain is walked from the right. Only its right end was written by
//! somebody we trust; a client can put whatever it likes on the left.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue,
    header::{FORWARDED, HeaderName},
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The IPv6 prefix that is one client: the smallest network that a site is given.
pub const DEFAULT_IPV6_PREFIX: u8 = 64;

/// How many entries of a chain are looked at; whoever has more proxies than that ends here.
const MAX_HOPS: usize = 64;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

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

/// The networks whose word about the client is taken. The default trusts nobody.
#[derive(Clone, Debug, Default)]
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
    let peer = canonical(peer);
    if !trusted.contains(peer) {
        return peer;
    }
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

/// The part of an address that is one client: all of an IPv4 address, the first `ipv6_prefix` bits
/// of an IPv6 address (all of it, if that is more than there are).
pub(super) fn prefix(ip: IpAddr, ipv6_prefix: u8) -> IpNet {
    match canonical(ip) {
        IpAddr::V4(ip) => IpNet::V4(Ipv4Net::from(ip)),
        IpAddr::V6(ip) => {
            let network = Ipv6Net::new(ip, ipv6_prefix).unwrap_or_else(|_| Ipv6Net::from(ip));
            IpNet::V6(network.trunc())
        }
    }
}

/// Reads a mapped network (`::ffff:10.0.0.0/104`) as the IPv4 network that it is, since addresses
/// are compared in canonical form.
fn canonical_network(network: IpNet) -> IpNet {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: &str = "10.0.0.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn trusted(field: ForwardedField) -> TrustedProxies {
        let networks = ["10.0.0.0/8", "2001:db8:ff::/48"].map(|network| network.parse().unwrap());
        TrustedProxies::new(networks.to_vec(), field)
    }

    fn headers<'a>(lines: impl IntoIterator<Item = (&'a HeaderName, &'a [u8])>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(name, HeaderValue::from_bytes(line).unwrap());
        }
        headers
    }

    fn by_x_forwarded_for(peer: &str, lines: &[&str]) -> IpAddr {
        let headers = headers(lines.iter().map(|line| (&X_FORWARDED_FOR, line.as_bytes())));
        client_address(ip(peer), &headers, &trusted(ForwardedField::XForwardedFor))
    }

    fn by_forwarded(lines: &[&str]) -> IpAddr {
        let headers = headers(lines.iter().map(|line| (&FORWARDED, line.as_bytes())));
        client_address(ip(PEER), &headers, &trusted(ForwardedField::Forwarded))
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_sends() {
        assert_eq!(by_x_forwarded_for("192.0.2.1", &["198.51.100.7"]), ip("192.0.2.1"));
        assert_eq!(by_x_forwarded_for("::ffff:192.0.2.1", &["198.51.100.7"]), ip("192.0.2.1"));
    }

    #[test]
    fn the_client_is_the_rightmost_address_that_is_no_trusted_proxy() {
        for (lines, expected) in [
            (&[][..], PEER),
            (&["198.51.100.7"], "198.51.100.7"),
            (&["1.1.1.1, 198.51.100.7"], "198.51.100.7"),
            (&["1.1.1.1,198.51.100.7 ,\t10.0.0.2, 10.0.0.3"], "198.51.100.7"),
            (&["1.1.1.1", "198.51.100.7", "10.0.0.2"], "198.51.100.7"),
            (&["198.51.100.7:4711"], "198.51.100.7"),
            (&["2001:db8::7"], "2001:db8::7"),
            (&["[2001:db8::7]"], "2001:db8::7"),
            (&["[2001:db8::7]:4711, 2001:db8:ff::1"], "2001:db8::7"),
            (&["::ffff:198.51.100.7"], "198.51.100.7"),
            (&["198.51.100.7, ::ffff:10.0.0.2"], "198.51.100.7"),
            (&["10.0.0.4, 10.0.0.3", "10.0.0.2"], "10.0.0.4"),
        ] {
            assert_eq!(by_x_forwarded_for(PEER, lines), ip(expected), "{lines:?}");
        }
        assert_eq!(by_x_forwarded_for("::ffff:10.0.0.1", &["198.51.100.7"]), ip("198.51.100.7"));
    }

    #[test]
    fn trust_ends_at_what_is_no_address() {
        for entry in [
            "",
            "unknown",
            "_hidden",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:65536",
            "1.2.3.4:+1",
            "1.2.3.4:80:80",
            "1.2.3.4 5.6.7.8",
            "[1.2.3.4]",
            "[::1",
            "::1]",
            "[::1]1",
            "fe80::1%eth0",
            "[fe80::1%1]",
            "\"1.2.3.4\"",
            "example.com",
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "[::]:80",
            "é",
        ] {
            let line = format!("198.51.100.7, {entry}");
            assert_eq!(by_x_forwarded_for(PEER, &[&line]), ip(PEER), "{entry}");
            let line = format!("198.51.100.7, {entry}, 10.0.0.2, 10.0.0.3");
            assert_eq!(by_x_forwarded_for(PEER, &[&line]), ip("10.0.0.2"), "{entry}");
        }
        assert_eq!(by_x_forwarded_for(PEER, &["198.51.100.7", ""]), ip(PEER));
    }

    #[test]
    fn the_walk_ends_after_64_entries() {
        let chain = |hops: usize| format!("198.51.100.7{}", ", 10.0.0.9".repeat(hops));
        assert_eq!(by_x_forwarded_for(PEER, &[&chain(63)]), ip("198.51.100.7"));
        assert_eq!(by_x_forwarded_for(PEER, &[&chain(64)]), ip("10.0.0.9"));
    }

    #[test]
    fn forwarded_is_walked_in_the_same_way() {
        for (lines, expected) in [
            (&[][..], PEER),
            (&["for=198.51.100.7"], "198.51.100.7"),
            (&["For=\"198.51.100.7:4711\";proto=https;by=10.0.0.1"], "198.51.100.7"),
            (&["proto=https; for=\"[2001:db8::7]:4711\" ; host=a"], "2001:db8::7"),
            (&["for=\"198.51.100.7:_port\""], "198.51.100.7"),
            (&["for=\"\\1\\98.51.100.7\";"], "198.51.100.7"),
            (&["for=1.1.1.1, for=198.51.100.7, for=10.0.0.2"], "198.51.100.7"),
            (&["for=1.1.1.1", "for=198.51.100.7", "for=10.0.0.2"], "198.51.100.7"),
            (&["for=198.51.100.7;host=\"a,for=1.1.1.1\""], "198.51.100.7"),
            (&["for=198.51.100.7;host=\"\\\",for=1.1.1.1;\\\\\", for=10.0.0.2"], "198.51.100.7"),
            (&["for=10.0.0.3, for=10.0.0.2"], "10.0.0.3"),
        ] {
            assert_eq!(by_forwarded(lines), ip(expected), "{lines:?}");
        }
    }

    #[test]
    fn trust_ends_at_a_forwarded_element_without_an_address() {
        for element in [
            "",
            ";",
            "for",
            "for=",
            "for=\"\"",
            "for=unknown",
            "for=_hidden",
            "for=\"_hidden:80\"",
            "proto=https",
            "for=1.2.3.4;for=1.2.3.4",
            "for =1.2.3.4",
            "for=\"1.2.3.4",
            "for=1.2.3.4\"",
            "for=\"1.2.3.4\"x",
            "for=\"1.2.3.4\\",
            "for=0.0.0.0",
            "x;for=1.2.3.4",
        ] {
            let line = format!("for=198.51.100.7, {element}, for=10.0.0.2");
            assert_eq!(by_forwarded(&[&line]), ip("10.0.0.2"), "{element}");
        }
        let long = format!("for=\"{}1.2.3.4\"", "\\ ".repeat(1000));
        assert_eq!(by_forwarded(&[&long]), ip(PEER));
    }

    #[test]
    fn only_the_configured_field_is_read() {
        let headers = headers([
            (&X_FORWARDED_FOR, &b"198.51.100.7"[..]),
            (&FORWARDED, &b"for=203.0.113.9"[..]),
        ]);
        for (field, expected) in [
            (ForwardedField::XForwardedFor, "198.51.100.7"),
            (ForwardedField::Forwarded, "203.0.113.9"),
        ] {
            assert_eq!(client_address(ip(PEER), &headers, &trusted(field)), ip(expected));
        }
    }

    #[test]
    fn a_mapped_network_trusts_the_ipv4_addresses_in_it() {
        let networks = vec!["::ffff:10.0.0.0/104".parse().unwrap()];
        let trusted = TrustedProxies::new(networks, ForwardedField::default());
        assert!(trusted.contains(ip("10.255.0.1")));
        assert!(trusted.contains(ip("::ffff:10.255.0.1")));
        assert!(!trusted.contains(ip("11.0.0.1")));
        assert!(!TrustedProxies::default().contains(ip("10.255.0.1")));
    }

    #[test]
    fn only_mapped_addresses_become_ipv4() {
        for (address, expected) in [
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("::192.0.2.1", "::192.0.2.1"),
            ("64:ff9b::192.0.2.1", "64:ff9b::192.0.2.1"),
            ("::1", "::1"),
        ] {
            assert_eq!(canonical(ip(address)), ip(expected), "{address}");
        }
    }

    #[test]
    fn an_ipv6_client_is_its_prefix() {
        for (address, length, expected) in [
            ("192.0.2.1", 64, "192.0.2.1/32"),
            ("::ffff:192.0.2.1", 64, "192.0.2.1/32"),
            ("2001:db8:1:2:3:4:5:6", DEFAULT_IPV6_PREFIX, "2001:db8:1:2::/64"),
            ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::/56"),
            ("2001:db8:1:2:3:4:5:6", 200, "2001:db8:1:2:3:4:5:6/128"),
        ] {
            assert_eq!(prefix(ip(address), length).to_string(), expected);
        }
    }

    mod arbitrary {
        use super::*;

        pub(super) fn field() -> impl Strategy<Value = ForwardedField> {
            prop::sample::select(vec![ForwardedField::XForwardedFor, ForwardedField::Forwarded])
        }

        /// A field line: any bytes that HTTP lets through, or what looks like a chain.
        pub(super) fn line() -> impl Strategy<Value = Vec<u8>> {
            let byte = prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8];
            let piece = prop::sample::select(vec![
                "for=",
                "for",
                "=",
                ";",
                ",",
                ", ",
                "\"",
                "\\",
                "10.0.0.2",
                "1.1.1.1",
                "[2001:db8::7]",
                ":80",
                "unknown",
                "::",
                "0.0.0.0",
                "proto=http",
                " ",
            ]);
            prop_oneof![
                prop::collection::vec(byte, 0..40),
                prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes()),
            ]
        }

        pub(super) fn address() -> impl Strategy<Value = IpAddr> {
            any::<IpAddr>().prop_filter("unspecified", |ip| !canonical(*ip).is_unspecified())
        }
    }

    fn both_fields(lines: &[Vec<u8>]) -> HeaderMap {
        let names = [&X_FORWARDED_FOR, &FORWARDED];
        headers(lines.iter().flat_map(|line| names.map(|name| (name, line.as_slice()))))
    }

    proptest! {
        #[test]
        fn prop_an_untrusted_peer_cannot_choose_its_address(
            peer in any::<IpAddr>(),
            lines in prop::collection::vec(arbitrary::line(), 0..4),
            field in arbitrary::field(),
        ) {
            let trusted = trusted(field);
            prop_assume!(!trusted.contains(peer));
            prop_assert_eq!(client_address(peer, &both_fields(&lines), &trusted), canonical(peer));
        }

        #[test]
        fn prop_what_a_client_writes_does_not_hide_what_a_proxy_appends(
            client in arbitrary::address(),
            port in any::<Option<u16>>(),
            mut lines in prop::collection::vec(arbitrary::line(), 1..4),
            (field, same_line) in (arbitrary::field(), any::<bool>()),
        ) {
            let trusted = trusted(field);
            prop_assume!(!trusted.contains(client));
            let node = match (client, port) {
                (IpAddr::V4(_), None) => client.to_string(),
                (IpAddr::V6(_), None) => format!("[{client}]"),
                (_, Some(port)) => std::net::SocketAddr::new(client, port).to_string(),
            };
            let appended = match field {
                ForwardedField::XForwardedFor => node,
                ForwardedField::Forwarded => format!("proto=http;for=\"{node}\";host=\"a,\\\"b\""),
            };
            match lines.last_mut() {
                Some(line) if same_line => line.extend(format!(", {appended}").bytes()),
                _ => lines.push(appended.into_bytes()),
            }
            let address = client_address(ip(PEER), &both_fields(&lines), &trusted);
            prop_assert_eq!(address, canonical(client));
        }

        #[test]
        fn prop_no_header_makes_the_client_unspecified(
            lines in prop::collection::vec(arbitrary::line(), 0..4),
            field in arbitrary::field(),
        ) {
            let everyone = ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
            let trusted = TrustedProxies::new(everyone.to_vec(), field);
            let address = client_address(ip(PEER), &both_fields(&lines), &trusted);
            prop_assert!(!address.is_unspecified() && address == canonical(address));
        }

        #[test]
        fn prop_two_ipv6_addresses_are_one_client_if_they_share_the_prefix(
            address in any::<u128>(),
            other in any::<u128>(),
            length in 1..=128_u8,
        ) {
            let client = |address: u128| prefix(IpAddr::from(address.to_be_bytes()), length);
            let beyond = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
            prop_assert_eq!(client(address), client((address & !beyond) | (other & beyond)));
            prop_assert_ne!(client(address), client(address ^ (beyond + 1)));
        }
    }
}
