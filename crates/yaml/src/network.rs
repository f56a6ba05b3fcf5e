//! Networks, in the form that addresses are compared in.

use std::net::IpAddr;

use ipnet::IpNet;

/// The IPv4 network for one that is mapped into IPv6 (`::ffff:10.0.0.0/104`), since addresses are
/// compared in canonical form.
pub fn canonical_network(network: IpNet) -> IpNet {
    let ip = network.addr().to_canonical();
    match (network, ip, network.prefix_len().checked_sub(96)) {
        (IpNet::V6(_), IpAddr::V4(_), Some(length)) => IpNet::new(ip, length).unwrap_or(network),
        _ => network,
    }
}
