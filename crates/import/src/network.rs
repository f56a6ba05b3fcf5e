//! Networks of addresses.

use std::net::IpAddr;

use ipnet::IpNet;

/// Fields in which proxies write the client's address.
pub(crate) const ADDRESS_HEADERS: &str = "\
    cf-connecting-ip fastly-client-ip fly-client-ip forwarded true-client-ip x-client-ip \
    x-forwarded-for x-original-forwarded-for x-real-ip";

/// A network, or an address as one; its bits behind the length are kept.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    match text.split_once('/') {
        Some((address, bits)) => IpNet::new(address.parse().ok()?, bits.parse().ok()?).ok(),
        None => text.parse::<IpAddr>().ok().map(IpNet::from),
    }
}

/// Whether a network has an address.
pub(crate) fn network_has(text: &str, address: IpAddr) -> bool {
    network(text).is_some_and(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_addresses() {
        for (network, address, expected) in [
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("10.0.0.0/8", "10.9.9.9", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("10.0.0.0/33", "10.0.0.0", false),
        ] {
            let has = network_has(network, address.parse().unwrap());
            assert_eq!(has, expected, "{network} {address}");
        }
    }
}
