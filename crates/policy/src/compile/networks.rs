//! Networks: client addresses that a route is for, and those that it lets in.

use ipnet::IpNet;
use tollgate_yaml::{Check, Spanned};

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
}
