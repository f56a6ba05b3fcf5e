//! The state of upstream servers, for operators and for Prometheus.

use std::{net::SocketAddr, time::Instant};

use tollgate_keyword::keywords;

use super::{Member, answers::UpstreamTotal, ejection::Eligibility};

/// An upstream of a policy.
#[derive(Clone, Debug)]
pub struct UpstreamReport {
    /// The policy's name.
    pub policy: Box<str>,
    /// The upstream's name in the policy.
    pub upstream: Box<str>,
    /// What was counted of its requests.
    pub total: UpstreamTotal,
    /// In the order of the policy.
    pub servers: Vec<ServerReport>,
}

/// A server of an upstream.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Its name or address, with its port.
    pub server: String,
    /// Requests sent to it since the start.
    pub requests: u64,
    /// Requests of these that failed.
    pub failures: u64,
    /// How often one of its addresses was left out because it had failed requests.
    pub ejections: u64,
    /// Its answers, in the order of [`AnswerCounts::NAMES`](super::AnswerCounts::NAMES).
    pub answers: [u64; 6],
    /// The addresses that its name resolves to now.
    pub members: Vec<MemberReport>,
}

/// One address of a server.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// The address.
    pub address: SocketAddr,
    /// Whether it gets requests.
    pub state: MemberState,
    /// Requests in flight.
    pub in_flight: usize,
}

keywords! {
    /// Whether an address gets requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MemberState {
        /// It does.
        Serving = "serving",
        /// It does not: its health probes fail.
        Unhealthy = "unhealthy",
        /// It does not: too many requests failed.
        Ejected = "ejected",
    }
}

impl MemberReport {
    pub(super) fn of(member: &Member, now: Instant) -> MemberReport {
        let state = match member.record.eligibility(now) {
            _ if !member.health.is_good() => MemberState::Unhealthy,
            Eligibility::Eligible => MemberState::Serving,
            Eligibility::Ejected | Eligibility::DueForTrial => MemberState::Ejected,
        };
        MemberReport { address: member.address, state, in_flight: member.in_flight() }
    }
}
