//! Client addresses that all routes treat alike: one sample of each group.
//!
//! Two networks never overlap in part: one contains the other, or they are disjoint. So a network
//! minus the networks inside it is a region that no route divides, and one address represents it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tollgate_policy::{Matcher, in_words};

use super::labels::unique;

/// Client addresses that all routes treat alike.
pub(super) struct AddressGroup {
    /// One address of the group.
    pub(super) sample: IpAddr,
    /// Its networks as policies write them.
    pub(super) names: Vec<String>,
}

/// All addresses, grouped by which of the matchers take requests from them.
pub(super) fn address_groups<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Vec<AddressGroup> {
    let own: Vec<_> =
        matchers.map(|matcher| &matcher.from).filter(|from| !from.is_empty()).collect();
    let named: Vec<IpNet> = unique(own.iter().flat_map(|from| from.iter()).copied());
    let everything = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    let networks = unique(named.iter().copied().chain(everything));
    let mut groups: Vec<(Vec<bool>, AddressGroup)> = Vec::new();
    for (at, network) in networks.iter().enumerate() {
        let Some(sample) = outside_of_inner(network, &networks) else { continue };
        let name = if at < named.len() { in_words(network) } else { "other addresses".to_owned() };
        let taken_by: Vec<bool> = own.iter().map(|from| from.contains(sample)).collect();
        match groups.iter_mut().find(|(other, _)| *other == taken_by) {
            Some((_, group)) if group.names.contains(&name) => {}
            Some((_, group)) => group.names.push(name),
            None => groups.push((taken_by, AddressGroup { sample, names: vec![name] })),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The first address of a network that is in none of those within it; none if they fill it.
fn outside_of_inner(network: &IpNet, all: &[IpNet]) -> Option<IpAddr> {
    let inner = || all.iter().filter(|other| *other != network && network.contains(*other));
    let mut address = network.network();
    loop {
        let around = inner().filter(|other| other.contains(&address));
        let Some(widest) = around.min_by_key(|other| other.prefix_len()) else {
            return Some(address);
        };
        address = next(widest.broadcast()).filter(|next| network.contains(next))?;
    }
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn sample_is_outside_of_the_networks_within() {
        for (of, all, expected) in [
            ("10.0.0.0/8", &["10.0.0.0/16"][..], Some("10.1.0.0")),
            ("10.0.0.0/8", &["10.0.0.0/16", "10.0.0.0/24", "10.1.0.0/16"], Some("10.2.0.0")),
            ("10.0.0.0/8", &["10.0.0.0/9", "10.128.0.0/9"], None),
            ("0.0.0.0/0", &["128.0.0.0/1"], Some("0.0.0.0")),
            ("128.0.0.0/1", &["128.0.0.0/2", "192.0.0.0/2"], None),
            ("::/0", &["::/1", "10.0.0.0/8"], Some("8000::")),
        ] {
            let all: Vec<IpNet> = all.iter().map(|text| network(text)).collect();
            let sample = outside_of_inner(&network(of), &all).map(|address| address.to_string());
            assert_eq!(sample.as_deref(), expected, "{of} {all:?}");
        }
    }

    proptest! {
        #[test]
        fn prop_sample_is_found_where_one_network_is_smaller_than_what_is_around_it(
            inner in prop::collection::vec((any::<u32>(), 9..=32_u8), 0..20),
        ) {
            let mut all = vec![network("10.0.0.0/8")];
            for (bits, length) in inner {
                let address = Ipv4Addr::from_bits((10 << 24) | (bits >> 8));
                all.push(IpNet::new(address.into(), length).unwrap().trunc());
            }
            for own in &all {
                let within = |other: &&IpNet| *other != own && own.contains(*other);
                match outside_of_inner(own, &all) {
                    Some(sample) => {
                        prop_assert!(own.contains(&sample));
                        prop_assert!(!all.iter().filter(within).any(|it| it.contains(&sample)));
                    }
                    None => {
                        let inner: Vec<IpNet> = all.iter().filter(within).copied().collect();
                        prop_assert!(IpNet::aggregate(&inner).contains(own));
                    }
                }
            }
        }
    }
}
