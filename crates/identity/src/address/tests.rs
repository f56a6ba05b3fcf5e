//! Client addresses, against tables and properties.

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
fn the_client_is_the_rightmost_address_that_is_not_a_trusted_proxy() {
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
fn chain_ends_at_an_entry_that_is_not_an_address() {
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
fn chain_ends_after_64_entries() {
    let chain = |hops: usize| format!("198.51.100.7{}", ", 10.0.0.9".repeat(hops));
    assert_eq!(by_x_forwarded_for(PEER, &[&chain(63)]), ip("198.51.100.7"));
    assert_eq!(by_x_forwarded_for(PEER, &[&chain(64)]), ip("10.0.0.9"));
}

#[test]
fn forwarded_is_read_in_the_same_order() {
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
fn chain_ends_at_a_forwarded_element_without_an_address() {
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
    let headers =
        headers([(&X_FORWARDED_FOR, &b"198.51.100.7"[..]), (&FORWARDED, &b"for=203.0.113.9"[..])]);
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
fn addresses_with_one_prefix_are_one_client() {
    for (address, length, expected) in [
        ("192.0.2.1", 64, "192.0.2.0/24"),
        ("::ffff:192.0.2.1", 64, "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::/56"),
        ("2001:db8:1:2:3:4:5:6", 200, "2001:db8:1:2:3:4:5:6/128"),
    ] {
        let prefixes = Prefixes { ipv4: 24, ipv6: length };
        assert_eq!(prefix(ip(address), prefixes).to_string(), expected);
    }
}

mod arbitrary {
    use super::*;

    pub(super) fn field() -> impl Strategy<Value = ForwardedField> {
        prop::sample::select(vec![ForwardedField::XForwardedFor, ForwardedField::Forwarded])
    }

    /// A field line: any bytes that HTTP allows, or text that looks like a chain.
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
        let prefixes = Prefixes { ipv4: 32, ipv6: length };
        let client = |address: u128| prefix(IpAddr::from(address.to_be_bytes()), prefixes);
        let beyond = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        prop_assert_eq!(client(address), client((address & !beyond) | (other & beyond)));
        prop_assert_ne!(client(address), client(address ^ (beyond + 1)));
    }
}
