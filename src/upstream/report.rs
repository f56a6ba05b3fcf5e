//! How the servers of upstreams are, for people and for Prometheus.

use std::{net::SocketAddr, time::Instant};

use super::{Endpoint, ejection::Standing};

/// An upstream of a policy.
#[derive(Clone, Debug)]
pub struct UpstreamReport {
    /// The policy's name.
    pub policy: Box<str>,
    /// The upstream's, in the policy.
    pub upstream: Box<str>,
    /// In the order of the policy.
    pub servers: Vec<ServerReport>,
}

/// A server of an upstream.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Its name or address, with its port.
    pub server: String,
    /// Requests that it ever got.
    pub requests: u64,
    /// Those of them that it has failed.
    pub failures: u64,
    /// What its name stands for now.
    pub endpoints: Vec<EndpointReport>,
}

/// One address of a server.
#[derive(Clone, Debug)]
pub struct EndpointReport {
    /// The address.
    pub address: SocketAddr,
    /// Whether it gets requests.
    pub state: EndpointState,
    /// Requests that it has now.
    pub in_flight: usize,
}

/// Whether an address gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It does.
    Serving,
    /// It does not: it says that it is not well, or nothing.
    Unhealthy,
    /// It does not: it has failed too many.
    Ejected,
}

impl EndpointState {
    /// All states.
    pub const ALL: [EndpointState; 3] =
        [EndpointState::Serving, EndpointState::Unhealthy, EndpointState::Ejected];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            EndpointState::Serving => "serving",
            EndpointState::Unhealthy => "unhealthy",
            EndpointState::Ejected => "ejected",
        }
    }
}

impl EndpointReport {
    pub(super) fn of(endpoint: &Endpoint, now: Instant) -> EndpointReport {
        let state = match endpoint.record.standing(now) {
            _ if !endpoint.health.is_good() => EndpointState::Unhealthy,
            Standing::In => EndpointState::Serving,
            Standing::Out | Standing::Due => EndpointState::Ejected,
        };
        EndpointReport { address: endpoint.address, state, in_flight: endpoint.in_flight() }
    }
}
