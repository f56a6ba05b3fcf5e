//! Why Redis does not decide at the moment, for health checks and the status page.

use std::fmt;

use tollgate_settings::StoreKind;

use crate::{ServerHealth, ServerReport, ServerRole, Servers, Stores};

/// Why Redis does not decide about some callers, or about any caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Degradation {
    /// A server that takes charges is away, was never reached, or is in doubt.
    Server(ServerReport),
    /// A server refuses charges with this message.
    Refusal {
        /// The server.
        server: String,
        /// Its message.
        message: String,
    },
    /// It is not known which server takes the charges.
    NoPrimary,
    /// The secret that keys are hashed with is not known yet.
    NoSecret,
}

impl Stores {
    /// Why Redis does not decide about some callers, or about any; empty if it decides all that it
    /// should.
    pub fn degradations(&self) -> Vec<Degradation> {
        let mut degradations = Vec::new();
        for servers in self.deciding() {
            if servers.lacks_primary() {
                degradations.push(Degradation::NoPrimary);
            }
            let primaries = servers.report().into_iter();
            let primaries = primaries.filter(|report| report.role == ServerRole::Primary);
            degradations.extend(primaries.filter_map(Degradation::of));
        }
        if self.awaited_secret().is_some() {
            degradations.push(Degradation::NoSecret);
        }
        degradations
    }

    /// The servers of the stores in Redis that decide about any caller.
    fn deciding(&self) -> impl Iterator<Item = &Servers> {
        let is_redis = |kind: &StoreKind| matches!(kind, StoreKind::Redis(_));
        let moved = self.moving.moved();
        let current =
            (is_redis(&self.settings.current) && moved < 100).then_some(&*self.current_servers);
        let next = self.settings.next.as_ref().filter(|next| is_redis(&next.to) && moved > 0);
        current.into_iter().chain(next.map(|_| &*self.next_servers))
    }
}

impl Degradation {
    /// What keeps a server from taking charges.
    fn of(report: ServerReport) -> Option<Degradation> {
        match (report.health, &report.refusal) {
            (ServerHealth::Serving, None) => None,
            (ServerHealth::Serving, Some(message)) => {
                let server = report.server.clone();
                let message = message.clone();
                Some(Degradation::Refusal { server, message })
            }
            (ServerHealth::Unknown | ServerHealth::Doubted | ServerHealth::Away, _) => {
                Some(Degradation::Server(report))
            }
        }
    }

    /// Whether it may be over at once: a server is in doubt for a moment whenever it pauses.
    pub fn is_transient(&self) -> bool {
        match self {
            Degradation::Server(report) => report.health == ServerHealth::Doubted,
            Degradation::Refusal { .. } | Degradation::NoPrimary | Degradation::NoSecret => false,
        }
    }
}

/// In a few words.
impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Degradation::Server(ServerReport { server, health, last_error, .. }) => {
                match (health, last_error) {
                    (ServerHealth::Unknown, _) => {
                        write!(f, "redis at {server} was not reached yet")
                    }
                    (ServerHealth::Away, Some(error)) => {
                        write!(f, "redis at {server} is away: {error}")
                    }
                    (ServerHealth::Away, None) => write!(f, "redis at {server} is away"),
                    (ServerHealth::Doubted | ServerHealth::Serving, _) => {
                        write!(f, "redis at {server} has not answered in time")
                    }
                }
            }
            Degradation::Refusal { server, message } => {
                write!(f, "redis at {server} takes no charges: {message}")
            }
            Degradation::NoPrimary => f.write_str("it is not known which redis server is primary"),
            Degradation::NoSecret => {
                f.write_str("the key secret that redis keeps is not known yet")
            }
        }
    }
}
