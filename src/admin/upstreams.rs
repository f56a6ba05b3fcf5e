//! Upstreams on the admin pages: how their servers are, and what they have to do.
//!
//! What metrics are labelled by is bounded by the policies: servers, not the addresses that their
//! names have from time to time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_gate::Shared;
use tollgate_keyword::Keyword;
use tollgate_upstream::{
    AnswerCounts, Keeper, MemberReport, MemberState, ServerReport, UpstreamReport,
};

use super::exposition::{Exposition, MetricKind};

/// An upstream of a policy in force.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct UpstreamStatus {
    /// The name of the policy.
    pub policy: String,
    /// Its name there.
    pub name: String,
    /// Its servers.
    pub servers: Vec<ServerStatus>,
}

/// A server of an upstream.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct ServerStatus {
    /// Its name or address, with its port.
    pub server: String,
    /// What the name stands for.
    pub addresses: Vec<EndpointStatus>,
    /// Requests that it got, retries included.
    pub requests: u64,
    /// Those of them that it failed.
    pub failures: u64,
}

/// One address of a server.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
pub struct EndpointStatus {
    /// The address, with the port.
    pub address: String,
    /// `serving`, `unhealthy` or `ejected`.
    pub state: String,
    /// Requests that it has now.
    pub in_flight: usize,
}

/// All upstreams in force.
pub(super) fn all(shared: &Shared) -> Vec<UpstreamReport> {
    shared.keeper.as_ref().map(Keeper::report).unwrap_or_default()
}

/// Their metrics.
pub(super) fn write_metrics(text: &mut Exposition, shared: &Shared) {
    let upstreams = all(shared);
    let each = |text: &mut Exposition, number: &dyn Fn(&ServerReport) -> u64| {
        for UpstreamReport { policy, upstream, servers, .. } in &upstreams {
            for report in servers {
                let server = report.server.as_str();
                let labels = [("policy", &**policy), ("upstream", &**upstream), ("server", server)];
                text.sample(&labels, number(report));
            }
        }
    };
    let help = "Requests that servers got, retries included, by the class of the response's status; `error`: there was no response.";
    text.family("tollgate_upstream_requests_total", MetricKind::Counter, help);
    for UpstreamReport { policy, upstream, servers, .. } in &upstreams {
        for ServerReport { server, answers, .. } in servers {
            for (code, number) in AnswerCounts::NAMES.into_iter().zip(answers) {
                let labels = [
                    ("policy", &**policy),
                    ("upstream", &**upstream),
                    ("server", server),
                    ("code", code),
                ];
                text.sample(&labels, *number);
            }
        }
    }
    let help = "From sending a request to a server to the head of its response.";
    text.family("tollgate_upstream_request_duration_seconds", MetricKind::Histogram, help);
    for UpstreamReport { policy, upstream, total, .. } in &upstreams {
        text.histogram(&[("policy", policy), ("upstream", upstream)], &total.duration);
    }
    let help = "Attempts after the first one of a request.";
    text.family("tollgate_upstream_retries_total", MetricKind::Counter, help);
    for UpstreamReport { policy, upstream, total, .. } in &upstreams {
        text.sample(&[("policy", policy), ("upstream", upstream)], total.retries);
    }
    let help = "How often an address of a server was left out because it had failed requests.";
    text.family("tollgate_upstream_ejections_total", MetricKind::Counter, help);
    each(text, &|server| server.ejections);
    let help = "Requests that servers failed.";
    text.family("tollgate_upstream_failures_total", MetricKind::Counter, help);
    each(text, &|server| server.failures);
    text.family(
        "tollgate_upstream_in_flight",
        MetricKind::Gauge,
        "Requests that servers have now.",
    );
    each(text, &|server| server.members.iter().map(|member| member.in_flight as u64).sum());
    for state in MemberState::all() {
        let (name, help) = match state {
            MemberState::Serving => {
                ("tollgate_upstream_serving", "Addresses of servers that get requests.")
            }
            MemberState::Unhealthy => (
                "tollgate_upstream_unhealthy",
                "Addresses of servers that are left out because they are not healthy.",
            ),
            MemberState::Ejected => (
                "tollgate_upstream_ejected",
                "Addresses of servers that are left out because they failed requests.",
            ),
        };
        text.family(name, MetricKind::Gauge, help);
        each(text, &|server| {
            server.members.iter().filter(|member| member.state == state).count() as u64
        });
    }
}

impl From<UpstreamReport> for UpstreamStatus {
    fn from(report: UpstreamReport) -> Self {
        UpstreamStatus {
            policy: report.policy.into(),
            name: report.upstream.into(),
            servers: report.servers.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ServerReport> for ServerStatus {
    fn from(report: ServerReport) -> Self {
        let ServerReport { server, requests, failures, members, .. } = report;
        let addresses = members.iter().map(Into::into).collect();
        ServerStatus { server, addresses, requests, failures }
    }
}

impl From<&MemberReport> for EndpointStatus {
    fn from(report: &MemberReport) -> Self {
        EndpointStatus {
            address: report.address.to_string(),
            state: report.state.keyword().into(),
            in_flight: report.in_flight,
        }
    }
}
