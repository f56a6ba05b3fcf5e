//! Networks with a meaning: the whole Internet, and private networks.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tollgate_yaml::canonical_network;

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

impl std::fmt::Display for IpVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            IpVersion::V4 => "IPv4",
            IpVersion::V6 => "IPv6",
        })
    }
}

/// The position of the first network that, together with those before it, covers every address of
/// an IP version, and that version: 0.0.0.0/1 and 128.0.0.0/1 do.
pub fn whole_internet(networks: &[IpNet]) -> Option<(usize, IpVersion)> {
    (0..networks.len()).find_map(|last| {
        let version = version_covered(networks.get(..=last)?)?;
        Some((last, version))
    })
}

/// The IP version of which `networks` cover every address.
fn version_covered(networks: &[IpNet]) -> Option<IpVersion> {
    let networks: Vec<IpNet> = networks.iter().copied().map(canonical_network).collect();
    // The IPv6 addresses of the Internet: no others are allocated.
    let global = Ipv6Net::new_assert([0x2000, 0, 0, 0, 0, 0, 0, 0].into(), 3);
    IpNet::aggregate(&networks).into_iter().find_map(|network| match network {
        IpNet::V4(network) => (network.prefix_len() == 0).then_some(IpVersion::V4),
        IpNet::V6(network) => network.contains(&global).then_some(IpVersion::V6),
    })
}

/// Private networks: RFC 1918 or unique local, carrier-grade NAT, link-local and loopback.
const PRIVATE_V4: [Ipv4Net; 6] = [
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(100, 64, 0, 0), 10),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(std::net::Ipv4Addr::new(127, 0, 0, 0), 8),
];
const PRIVATE_V6: [Ipv6Net; 3] = [
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    Ipv6Net::new_assert(std::net::Ipv6Addr::LOCALHOST, 128),
];

fn private_networks() -> impl Iterator<Item = IpNet> {
    PRIVATE_V4.into_iter().map(IpNet::from).chain(PRIVATE_V6.into_iter().map(IpNet::from))
}

/// Whether this address is in a private network.
pub fn is_private(address: IpAddr) -> bool {
    let address = address.to_canonical();
    private_networks().any(|network| network.contains(&address))
}

/// Whether the network contains private addresses.
pub fn holds_private(network: &IpNet) -> bool {
    let network = canonical_network(*network);
    private_networks().any(|private| private.contains(&network) || network.contains(&private))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn whole_internet_may_be_covered_in_parts() {
        for (texts, expected) in [
            (&["0.0.0.0/0"][..], Some((0, IpVersion::V4))),
            (&["10.0.0.0/8", "::/0"], Some((1, IpVersion::V6))),
            (&["2000::/3"], Some((0, IpVersion::V6))),
            (&["::ffff:0:0/96"], Some((0, IpVersion::V4))),
            (&["0.0.0.0/1", "::1/128", "128.0.0.0/1", "10.0.0.0/8"], Some((2, IpVersion::V4))),
            (&["0.0.0.0/1", "128.0.0.0/2"], None),
            (&["2000::/4"], None),
            (&["10.0.0.0/8", "fc00::/7"], None),
            (&[], None),
        ] {
            assert_eq!(whole_internet(&networks(texts)), expected, "{texts:?}");
        }
    }

    #[test]
    fn private_networks_are_recognised() {
        for (text, expected) in [
            ("10.1.0.0/16", true),
            ("10.0.0.0/7", true),
            ("172.32.0.0/12", false),
            ("172.31.0.0/16", true),
            ("127.0.0.1/32", true),
            ("::ffff:10.0.0.0/104", true),
            ("fd00::/8", true),
            ("2001:db8::/32", false),
            ("192.0.2.0/24", false),
        ] {
            assert_eq!(holds_private(&text.parse().unwrap()), expected, "{text}");
        }
        for (text, expected) in
            [("192.168.7.1", true), ("::1", true), ("8.8.8.8", false), ("0.0.0.0", false)]
        {
            assert_eq!(is_private(text.parse().unwrap()), expected, "{text}");
        }
    }
}
