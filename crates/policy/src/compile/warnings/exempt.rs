//! Networks that are exempt and hold everybody, or everybody behind a load balancer.

use ipnet::IpNet;
use tollgate_identity::{holds_private, whole_internet};
use tollgate_yaml::{
    Check, Spanned,
    warning::{Condition, OnSettings, Rule},
};

use crate::{compile::Compiler, file::RawPolicy};

impl Compiler<'_> {
    pub(super) fn warn_of_exempt_networks(&mut self, raw: &RawPolicy) {
        let written: Vec<(&Spanned<String>, IpNet)> =
            raw.exempt.iter().filter_map(|raw| Some((raw, self.try_network(raw)?))).collect();
        let networks: Vec<IpNet> = written.iter().map(|(_, network)| *network).collect();
        if let Some((last, version)) = whole_internet(&networks)
            && let Some((raw, _)) = written.get(last)
        {
            let message = format!("every {version} address is exempt: no limit holds for them");
            let help = "list only the addresses that are yours";
            self.warn(Rule::WholeInternet, raw.span, message, help);
            return;
        }
        let is_private = |network: &IpNet| network.prefix_len() > 0 && holds_private(network);
        for (raw, network) in written.iter().filter(|(_, network)| is_private(network)) {
            let message = format!(
                "behind a load balancer in `{}` every client is exempt: the settings trust no \
                 proxy to say who the client is",
                raw.value
            );
            let help = "name the load balancer in `trusted_proxies` of the settings, or exempt \
                        callers instead of addresses";
            self.warn(Rule::ExemptBalancer, raw.span, message, help);
            self.only(Condition::With(OnSettings::AllClientsIn(*network)));
        }
    }
}
