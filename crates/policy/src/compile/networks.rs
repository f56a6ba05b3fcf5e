//! Networks: client addresses that a route is for, and those that it lets in.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_identity::canonical_network;
use tollgate_yaml::Spanned;

use super::Compiler;
use crate::{AddressRules, Networks, file::RawRoute};

impl Compiler<'_> {
    /// Which client addresses a route lets in.
    pub(super) fn address_rules(&mut self, raw: &RawRoute) -> Option<AddressRules> {
        let allow = self.networks_in("allow", raw.allow.as_ref());
        let deny = self.networks(&raw.deny);
        Some(AddressRules { allow: allow?, deny: deny? })
    }

    /// The networks that a field lists. A list of none could be read as all or as none, so it
    /// is refused.
    pub(super) fn networks_in(
        &mut self,
        field: &str,
        raw: Option<&Spanned<Vec<Spanned<String>>>>,
    ) -> Option<Option<Networks>> {
        let Some(raw) = raw else { return Some(None) };
        if raw.value.is_empty() {
            let help = format!("name networks, as in `{field}: [10.0.0.0/8]`, or remove it");
            self.refuse(raw.span, format!("`{field}` lists no network"), help);
            return None;
        }
        self.networks(&raw.value).map(Some)
    }

    fn networks(&mut self, raw: &[Spanned<String>]) -> Option<Networks> {
        let mut networks = Vec::new();
        for entry in raw {
            let network = self.network(entry);
            if network.is_some() && networks.contains(&network) {
                self.refuse(entry.span, format!("`{}` is listed twice", entry.value), "remove one");
            }
            networks.push(network);
        }
        let networks: Option<Vec<IpNet>> = networks.into_iter().collect();
        networks.map(Networks::from)
    }

    /// A network, or an address, which is a network of one.
    pub(super) fn network(&mut self, raw: &Spanned<String>) -> Option<IpNet> {
        let network = self.try_network(raw);
        if network.is_none() {
            self.refuse(
                raw.span,
                format!("`{}` is neither an address nor a network", raw.value),
                "write one such as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32",
            );
        }
        network
    }

    /// The same, where a text that is no network may be something else.
    pub(super) fn try_network(&mut self, raw: &Spanned<String>) -> Option<IpNet> {
        if let Ok(address) = raw.value.parse::<IpAddr>() {
            return Some(address.to_canonical().into());
        }
        let network = raw.value.parse::<IpNet>().ok()?;
        if network.trunc() != network {
            self.refuse(
                raw.span,
                format!("`{network}` has bits set after its prefix"),
                format!("write {}", network.trunc()),
            );
        }
        Some(canonical_network(network))
    }
}
