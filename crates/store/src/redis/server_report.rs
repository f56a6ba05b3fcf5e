//! The report of a server's state.

use std::time::Duration;

use tollgate_clock::Timestamp;
use tollgate_keyword::keywords;
use tollgate_observe::metrics::HistogramTotal;

keywords! {
    /// The health of a server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ServerHealth {
        /// No worker has reached it yet.
        Unknown = "unknown",
        /// It answers.
        Serving = "serving",
        /// A request has waited for it in vain, and it is being probed.
        Doubted = "doubted",
        /// It cannot be reached, or answers too late to be of use.
        Away = "away",
    }
}

keywords! {
    /// The role of a server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ServerRole {
        /// It is not known.
        Unknown = "unknown",
        /// It takes charges.
        Primary = "primary",
        /// It says that it is primary, and is not used: another one is.
        Rival = "rival",
        /// It replicates a primary.
        Replica = "replica",
        /// It reports which server is primary.
        Sentinel = "sentinel",
    }
}

/// How far a replica is behind its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaLink {
    /// It is not known, or the server is no replica.
    Unknown,
    /// It replicates, and is so far behind.
    Up(Duration),
    /// It does not replicate.
    Down,
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerReport {
    /// Its host and port, and its database unless that is 0.
    pub server: String,
    /// Its role.
    pub role: ServerRole,
    /// Its health.
    pub health: ServerHealth,
    /// How long it has had this health.
    pub lasted: Duration,
    /// The last error with which it was away.
    pub last_error: Option<String>,
    /// The message with which it last refused a charge, if it has taken none since.
    pub refusal: Option<String>,
    /// How far it is behind its primary.
    pub link: ReplicaLink,
    /// How long its replies took that requests and the work behind them waited for.
    pub calls: HistogramTotal,
}

impl ServerReport {
    /// Since when it has its health, at `now`.
    pub fn began(&self, now: Timestamp) -> Timestamp {
        let lasted = u64::try_from(self.lasted.as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(now.as_micros().saturating_sub(lasted))
    }
}
