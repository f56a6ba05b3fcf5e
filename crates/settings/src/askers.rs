//! Who may ask at a listener for decisions.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::CurrentTokens;

/// What makes a listener one for decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedHere {
    /// Who may ask.
    pub askers: Askers,
    /// From where programs may call.
    pub programs: Askers,
    /// The token that programs need. None: they need none.
    pub token: Option<Arc<CurrentTokens>>,
    /// What they ask in.
    pub protocol: AskProtocol,
    /// The names and addresses by which they may ask, beside those that are always good, in lower
    /// case.
    pub hosts: Vec<String>,
}

/// What is spoken over HTTP at a listener for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskProtocol {
    /// Forward-auth, and calls of programs in JSON.
    Http,
    /// gRPC, as Envoy speaks it.
    Grpc,
}

/// The networks whose addresses may ask at a listener for decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Askers(Box<[IpNet]>);

impl Askers {
    pub(super) fn new(networks: impl IntoIterator<Item = IpNet>) -> Askers {
        Askers(networks.into_iter().collect())
    }

    pub(super) fn this_machine() -> Askers {
        Askers::written(["127.0.0.0/8", "::1/128"])
    }

    pub(super) fn everybody() -> Askers {
        Askers::written(["0.0.0.0/0", "::/0"])
    }

    fn written(networks: [&str; 2]) -> Askers {
        Askers::new(networks.iter().filter_map(|network| network.parse().ok()))
    }

    /// Whether this address is among them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}
