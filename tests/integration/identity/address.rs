//! Which address a request is from: the peer's, or what trusted proxies say, and no other.

use crate::support::{Policy, Proxy, Request, Upstream, get};

/// Distinguishes addresses by their used count.
fn by_address(upstream: &Upstream, settings: &str) -> Proxy {
    let policy = Policy::before(upstream)
        .limits(&["ip: { per: client.ip, rate: 100/hour }"])
        .routes(&["{ match: { path: /** }, limits: [ip] }"]);
    Proxy::with_settings(&format!("workers: 1\n{settings}"), &[&policy])
}

fn used(proxy: &Proxy, request: Request) -> u32 {
    let response = proxy.send(request);
    response.assert_status(200).field("x-ratelimit-used").unwrap().parse().unwrap()
}

#[test]
fn untrusted_peer_cannot_choose_its_address() {
    let upstream = Upstream::start();
    let proxy = by_address(&upstream, "");
    for (number, (name, value)) in [
        ("x-forwarded-for", "203.0.113.1"),
        ("x-forwarded-for", "203.0.113.2"),
        ("forwarded", "for=203.0.113.3"),
        ("x-real-ip", "203.0.113.4"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(used(&proxy, get("/").field(name, value)), number as u32 + 1);
    }
    let seen = upstream.last().fields;
    assert_eq!(seen.one("x-forwarded-for"), Some("127.0.0.1"));
}

#[test]
fn trusted_proxy_tells_the_address_from_right_to_left() {
    let upstream = Upstream::start();
    let proxy = by_address(&upstream, "trusted_proxies: [127.0.0.1, 10.0.0.0/8]");
    for (chain, expected) in [
        ("203.0.113.1", 1),
        ("198.51.100.9, 203.0.113.1", 2),
        ("198.51.100.9, 203.0.113.1, 10.1.2.3", 3),
        ("203.0.113.1, 198.51.100.9", 1),
        ("::ffff:203.0.113.1", 4),
        ("203.0.113.1:4711", 5),
        // What is no address ends the chain: the hop that wrote it is the client.
        ("203.0.113.1, unknown, 10.1.2.3", 1),
        ("203.0.113.1, , 10.1.2.3", 2),
        // All trusted: the leftmost.
        ("10.9.9.9, 10.1.2.3", 1),
        // Nothing usable: the peer.
        ("garbage", 1),
        ("", 2),
    ] {
        assert_eq!(used(&proxy, get("/").from(chain)), expected, "for {chain:?}");
    }
    assert_eq!(used(&proxy, get("/")), 3);
    let two_lines = get("/").from("198.51.100.1").from("203.0.113.1");
    assert_eq!(used(&proxy, two_lines), 6);
    // The field that these proxies do not write is the client's own.
    assert_eq!(used(&proxy, get("/").field("forwarded", "for=203.0.113.1")), 4);
}

#[test]
fn trusted_proxies_may_write_forwarded_instead() {
    let upstream = Upstream::start();
    let settings = "trusted_proxies: [127.0.0.1]\nclient_address_from: forwarded";
    let proxy = by_address(&upstream, settings);
    for (value, expected) in [
        ("for=203.0.113.1", 1),
        ("for=198.51.100.9, for=203.0.113.1;proto=https", 2),
        ("for=198.51.100.9, For=\"203.0.113.1:47\"", 3),
        ("for=_hidden", 1),
        ("for=\"[2001:db8::1]:443\"", 1),
    ] {
        assert_eq!(used(&proxy, get("/").field("forwarded", value)), expected, "for {value:?}");
    }
    assert_eq!(used(&proxy, get("/").from("203.0.113.1")), 2);
}

#[test]
fn ipv6_addresses_of_one_network_are_one_client() {
    let upstream = Upstream::start();
    let proxy = by_address(&upstream, "trusted_proxies: [127.0.0.1]");
    for (address, expected) in [
        ("2001:db8:1:2::1", 1),
        ("2001:db8:1:2::2", 2),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", 3),
        ("[2001:db8:1:2::3]", 4),
        ("2001:0DB8:0001:0002::4", 5),
        ("2001:db8:1:3::1", 1),
    ] {
        assert_eq!(used(&proxy, get("/").from(address)), expected, "for {address}");
    }
}

#[test]
fn network_of_a_caller_is_as_wide_as_the_policy_says() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .callers(&["{ name: anonymous, key: client.ip, ipv6_prefix: 48 }"])
        .rate("100/hour");
    let proxy = Proxy::with_settings("workers: 1\ntrusted_proxies: [127.0.0.1]", &[&policy]);
    assert_eq!(used(&proxy, get("/").from("2001:db8:1:2::1")), 1);
    assert_eq!(used(&proxy, get("/").from("2001:db8:1:3::1")), 2);
    assert_eq!(used(&proxy, get("/").from("2001:db8:2:2::1")), 1);
}
