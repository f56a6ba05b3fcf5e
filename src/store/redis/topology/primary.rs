//! Who is primary of a part of the counters: one of the servers that the configuration names, or
//! whom Sentinels name. The servers have the last word.

use super::{Topology, sentinel::Service, shard::Servers};
use crate::{
    settings::{Endpoint, Primary},
    store::redis::servers::ServerRole,
};

/// Where the primary of a part of the counters is found.
pub(super) enum Election {
    Servers(Servers),
    Sentinels(Service),
}

impl Election {
    /// `name` is what people call this part.
    pub(super) fn new(name: &str, primary: &Primary, replicas: &[Endpoint]) -> Self {
        match primary {
            Primary::Fixed(primary) => Election::Servers(Servers::new(name, primary, replicas)),
            Primary::Sentinel { sentinels, service } => {
                Election::Sentinels(Service::new(service, sentinels))
            }
        }
    }

    /// The server that takes charges.
    pub(super) fn primary(&self) -> Option<Endpoint> {
        match self {
            Election::Servers(servers) => servers.primary().cloned(),
            Election::Sentinels(service) => service.primary(),
        }
    }

    /// The servers that follow it, as far as they are known.
    pub(super) fn replicas(&self) -> Vec<Endpoint> {
        match self {
            Election::Servers(servers) => servers.replicas(),
            Election::Sentinels(_) => Vec::new(),
        }
    }

    /// What each of its servers is for.
    pub(super) fn roles(&self) -> Vec<(Endpoint, ServerRole)> {
        match self {
            Election::Servers(servers) => servers.roles(),
            Election::Sentinels(service) => service.roles(),
        }
    }

    /// All servers that are asked for anything.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        match self {
            Election::Servers(servers) => servers.all().to_vec(),
            Election::Sentinels(service) => service.endpoints(),
        }
    }

    /// Asks who is primary.
    pub(super) async fn review(&self, topology: &Topology) {
        match self {
            Election::Servers(servers) => servers.review(topology).await,
            Election::Sentinels(service) => service.review(topology).await,
        }
    }
}
