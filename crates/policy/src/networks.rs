//! Networks that client addresses are compared with: from which addresses a route is
//! taken, and which clients it admits.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

/// A set of networks, as their canonical addresses write them. A single address is a network, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Box<[IpNet]>);

impl Networks {
    /// Whether there is no network in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The networks, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &IpNet> {
        self.0.iter()
    }

    /// Whether one of them contains a canonical address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }

    /// Whether each network of `other` is within one of these.
    pub fn covers(&self, other: &Networks) -> bool {
        other.iter().all(|inner| self.iter().any(|outer| outer.contains(inner)))
    }

    fn find(&self, address: IpAddr) -> Option<&IpNet> {
        self.iter().find(|network| network.contains(&address))
    }
}

impl From<Vec<IpNet>> for Networks {
    fn from(networks: Vec<IpNet>) -> Self {
        Networks(networks.into())
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.iter().map(in_words).collect();
        f.write_str(&shown.join(", "))
    }
}

/// A network as policies write it: a single address has no length.
pub fn in_words(network: &IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// Which client addresses a route lets in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Only these; none: all.
    pub allow: Option<Networks>,
    /// Not these, even if they are allowed.
    pub deny: Networks,
}

/// Why a route refuses a client address. The message is for the log: clients do not learn the
/// rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// This network is denied.
    #[error("the route denies {}", in_words(.0))]
    Denied(IpNet),
    /// Only others are allowed.
    #[error("the address is not on the route's allow list")]
    NotAllowed,
}

impl AddressRules {
    /// Lets a canonical address in.
    ///
    /// # Errors
    /// [`AddressRefusal`] says which rule refuses it.
    pub fn admit(&self, address: IpAddr) -> Result<(), AddressRefusal> {
        if let Some(network) = self.deny.find(address) {
            return Err(AddressRefusal::Denied(*network));
        }
        match &self.allow {
            Some(allowed) if !allowed.contains(address) => Err(AddressRefusal::NotAllowed),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>().into()
    }

    #[test]
    fn deny_wins_over_allow_and_allow_refuses_all_others() {
        let rules = AddressRules {
            allow: Some(networks(&["10.0.0.0/8", "2001:db8::/32"])),
            deny: networks(&["10.1.0.0/16"]),
        };
        for (address, expected) in [
            ("10.0.0.1", None),
            ("10.1.0.1", Some("the route denies 10.1.0.0/16")),
            ("11.0.0.1", Some("the address is not on the route's allow list")),
            ("2001:db8::1", None),
            ("2001:db9::1", Some("the address is not on the route's allow list")),
        ] {
            let refusal = rules.admit(address.parse().unwrap()).err().map(|it| it.to_string());
            assert_eq!(refusal.as_deref(), expected, "{address}");
        }
        assert_eq!(AddressRules::default().admit([192, 0, 2, 1].into()), Ok(()));
    }

    #[test]
    fn networks_cover_what_is_within_one_of_them() {
        for (outer, inner, expected) in [
            (&["10.0.0.0/8"][..], &["10.1.0.0/16", "10.2.3.4/32"][..], true),
            (&["10.0.0.0/8"], &["10.1.0.0/16", "11.0.0.0/8"], false),
            (&["10.1.0.0/16"], &["10.0.0.0/8"], false),
            (&["0.0.0.0/0"], &["::1/128"], false),
            (&["::/0", "0.0.0.0/0"], &["::1/128", "127.0.0.1/32"], true),
        ] {
            assert_eq!(networks(outer).covers(&networks(inner)), expected, "{outer:?} {inner:?}");
        }
    }
}
