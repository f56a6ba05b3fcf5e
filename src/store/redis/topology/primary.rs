//! Who is primary among the servers of a shard.
//!
//! The configuration, or a Sentinel, says who is; the servers have the last word. When the primary
//! is away or refuses to write, its replicas are asked, and one that says that it is primary is
//! believed.

use std::cell::RefCell;

use redis::Value;

use super::Topology;
use crate::{
    settings::{Endpoint, Primary},
    store::redis::servers::ServerRole,
};

/// A shard's servers.
pub(super) struct Election {
    members: RefCell<Members>,
    sentinels: Option<Sentinels>,
}

struct Members {
    /// None: no Sentinel has told yet.
    primary: Option<Endpoint>,
    replicas: Vec<Endpoint>,
}

struct Sentinels {
    endpoints: Vec<Endpoint>,
    service: String,
}

impl Election {
    pub(super) fn new(primary: &Primary, replicas: &[Endpoint]) -> Self {
        let (primary, sentinels) = match primary {
            Primary::Fixed(endpoint) => (Some(endpoint.clone()), None),
            Primary::Sentinel { sentinels, service } => {
                let service = service.clone();
                (None, Some(Sentinels { endpoints: sentinels.clone(), service }))
            }
        };
        let members = Members { primary, replicas: replicas.to_vec() };
        Election { members: RefCell::new(members), sentinels }
    }

    /// The server that takes charges.
    pub(super) fn primary(&self) -> Option<Endpoint> {
        self.members.borrow().primary.clone()
    }

    /// The servers that follow it.
    pub(super) fn replicas(&self) -> Vec<Endpoint> {
        self.members.borrow().replicas.clone()
    }

    /// What each of its servers is for.
    pub(super) fn roles(&self) -> Vec<(Endpoint, ServerRole)> {
        let members = self.members.borrow();
        let sentinels = self.sentinels.iter().flat_map(|sentinels| &sentinels.endpoints);
        let of = |role| move |endpoint: &Endpoint| (endpoint.clone(), role);
        let primary = members.primary.iter().map(of(ServerRole::Primary));
        let replicas = members.replicas.iter().map(of(ServerRole::Replica));
        primary.chain(replicas).chain(sentinels.map(of(ServerRole::Sentinel))).collect()
    }

    /// All servers that are asked for anything.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let members = self.members.borrow();
        let sentinels = self.sentinels.iter().flat_map(|sentinels| &sentinels.endpoints);
        members.primary.iter().chain(&members.replicas).chain(sentinels).cloned().collect()
    }

    /// Asks who is primary.
    pub(super) async fn review(&self, topology: &Topology) {
        if let Some(sentinels) = &self.sentinels {
            if let Some(primary) = sentinels.ask(topology).await {
                self.elect(&primary);
            }
            return;
        }
        let endpoints = self.endpoints();
        if let [_alone] = endpoints.as_slice() {
            return;
        }
        // The one that is primary now comes first, and stays it for as long as it says so. One that
        // only hesitates is not replaced: two that both take charges would be twice the limit.
        for endpoint in endpoints {
            match is_primary(topology, &endpoint).await {
                Some(true) => return self.elect(&endpoint),
                None if self.primary().as_ref() == Some(&endpoint)
                    && !topology.is_away(&endpoint) =>
                {
                    return;
                }
                Some(false) | None => {}
            }
        }
    }

    fn elect(&self, endpoint: &Endpoint) {
        let mut members = self.members.borrow_mut();
        if members.primary.as_ref() == Some(endpoint) {
            return;
        }
        let deposed = members.primary.replace(endpoint.clone());
        members.replicas.retain(|replica| replica != endpoint);
        if let Some(deposed) = deposed {
            tracing::warn!(server = %endpoint, %deposed, "another redis server is primary");
            // A Sentinel knows where it is, should it come back.
            if self.sentinels.is_none() {
                members.replicas.push(deposed);
            }
        }
    }
}

impl Sentinels {
    /// The primary's address, as the first Sentinel tells it that is right about it: one that is cut
    /// off from the others may not be.
    async fn ask(&self, topology: &Topology) -> Option<Endpoint> {
        for sentinel in &self.endpoints {
            let mut command = redis::cmd("SENTINEL");
            command.arg("get-master-addr-by-name").arg(&self.service);
            if let Some(reply) = topology.ask(sentinel, command).await
                && let Ok((host, port)) = redis::from_redis_value::<(String, u16)>(reply)
            {
                let primary = sentinel.at(&host, port);
                if is_primary(topology, &primary).await == Some(true) {
                    return Some(primary);
                }
            }
        }
        None
    }
}

/// Whether a server says that it is primary; none if it says nothing.
async fn is_primary(topology: &Topology, endpoint: &Endpoint) -> Option<bool> {
    let role = topology.ask(endpoint, redis::cmd("ROLE")).await?;
    let Value::Array(role) = role else { return None };
    Some(matches!(role.first(), Some(Value::BulkString(name)) if name == b"master"))
}
