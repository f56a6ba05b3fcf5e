//! Whether decisions are made without Redis at the moment, and why.

use std::fmt;

use super::{ServerHealth, ServerReport, ServerRole, Servers, Stores};
use crate::settings::StoreKind;

/// Why Redis does not decide about some callers, or about any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// A server that takes charges is not there, was never reached or is in doubt.
    Server(ServerReport),
    /// A server does not take charges: it refuses them in these words.
    Refusal {
        /// The server.
        server: String,
        /// What it says.
        words: String,
    },
    /// It is not known who takes the charges.
    NoPrimary,
    /// It is not known yet what the names of counters are hashed under.
    NoSecret,
}

impl Stores {
    /// Why Redis does not decide about some callers, or about any; nothing: it does, or need not.
    pub fn hindrances(&self) -> Vec<Hindrance> {
        let mut hindrances = Vec::new();
        for servers in self.deciding() {
            if servers.lacks_primary() {
                hindrances.push(Hindrance::NoPrimary);
            }
            let primaries = servers.report().into_iter();
            let primaries = primaries.filter(|report| report.role == ServerRole::Primary);
            hindrances.extend(primaries.filter_map(Hindrance::of));
        }
        if self.awaited_secret().is_some() {
            hindrances.push(Hindrance::NoSecret);
        }
        hindrances
    }

    /// The servers of the stores in Redis that decide about somebody.
    fn deciding(&self) -> impl Iterator<Item = &Servers> {
        let is_redis = |kind: &StoreKind| matches!(kind, StoreKind::Redis(_));
        let moved = self.moving.moved();
        let current =
            (is_redis(&self.settings.current) && moved < 100).then_some(&*self.current_servers);
        let next = self.settings.next.as_ref().filter(|next| is_redis(&next.to) && moved > 0);
        current.into_iter().chain(next.map(|_| &*self.next_servers))
    }
}

impl Hindrance {
    /// What keeps a server that takes charges from doing so.
    fn of(report: ServerReport) -> Option<Hindrance> {
        match (report.health, &report.refusal) {
            (ServerHealth::Serving, None) => None,
            (ServerHealth::Serving, Some(words)) => {
                let (server, words) = (report.server.clone(), words.clone());
                Some(Hindrance::Refusal { server, words })
            }
            (ServerHealth::Unknown | ServerHealth::Doubted | ServerHealth::Away, _) => {
                Some(Hindrance::Server(report))
            }
        }
    }

    /// Whether it may be over at once: a server is in doubt for a moment whenever it pauses.
    pub fn is_fleeting(&self) -> bool {
        match self {
            Hindrance::Server(report) => report.health == ServerHealth::Doubted,
            Hindrance::Refusal { .. } | Hindrance::NoPrimary | Hindrance::NoSecret => false,
        }
    }
}

/// In a few words.
impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hindrance::Server(ServerReport { server, health, last_error, .. }) => {
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
            Hindrance::Refusal { server, words } => {
                write!(f, "redis at {server} takes no charges: {words}")
            }
            Hindrance::NoPrimary => f.write_str("it is not known which redis server is primary"),
            Hindrance::NoSecret => f.write_str("the key secret that redis keeps is not known yet"),
        }
    }
}
