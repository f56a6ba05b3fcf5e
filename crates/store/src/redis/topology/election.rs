//! Which server is primary of a part of the counters: one of the servers in the settings, or the
//! one that Sentinels report. The answer of the server itself decides.

use tollgate_settings::{Primary, RedisAddress};

use super::{Topology, sentinel::Service, shard::ShardServers};
use crate::redis::server_report::ServerRole;

/// How the primary of a part of the counters is found.
pub(in crate::redis) enum Election {
    Servers(ShardServers),
    Sentinels(Service),
}

impl Election {
    /// `name` is the name of this part for operators.
    pub(super) fn new(name: &str, primary: &Primary, replicas: &[RedisAddress]) -> Self {
        match primary {
            Primary::Fixed(primary) => {
                Election::Servers(ShardServers::new(name, primary, replicas))
            }
            Primary::Sentinel { sentinels, service } => {
                Election::Sentinels(Service::new(service, sentinels))
            }
        }
    }

    /// The server that takes charges.
    pub(super) fn primary(&self) -> Option<RedisAddress> {
        match self {
            Election::Servers(servers) => servers.primary().cloned(),
            Election::Sentinels(service) => service.primary(),
        }
    }

    /// Its replicas, as far as they are known.
    pub(super) fn replicas(&self) -> Vec<RedisAddress> {
        match self {
            Election::Servers(servers) => servers.replicas(),
            Election::Sentinels(_) => Vec::new(),
        }
    }

    /// The role of each server.
    pub(super) fn roles(&self) -> Vec<(RedisAddress, ServerRole)> {
        match self {
            Election::Servers(servers) => servers.roles(),
            Election::Sentinels(service) => service.roles(),
        }
    }

    /// Queries which server is primary.
    pub(super) async fn review(&self, topology: &Topology) {
        match self {
            Election::Servers(servers) => servers.review(topology).await,
            Election::Sentinels(service) => service.review(topology).await,
        }
    }
}
