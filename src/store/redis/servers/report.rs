//! What is told of a server.

use std::time::Duration;

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerHealth {
    /// Nobody has reached it yet.
    Unknown,
    /// It answers.
    Serving,
    /// Somebody has waited for it in vain, and it is being asked whether it is there.
    Doubted,
    /// It is not there, or takes too long to be of use.
    Away,
}

/// What a server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// It is not known.
    Unknown,
    /// It takes charges.
    Primary,
    /// It says that it is primary, and is not used: another one is.
    Rival,
    /// It follows a primary.
    Replica,
    /// It knows who is primary.
    Sentinel,
}

/// How far a replica is behind its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaLink {
    /// It is not known, or the server is no replica.
    Unknown,
    /// It follows, so far behind.
    Up(Duration),
    /// It does not follow.
    Down,
}

/// What is told of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Its host and port, and its database unless that is 0.
    pub server: String,
    /// What it is for.
    pub role: ServerRole,
    /// How it is.
    pub health: ServerHealth,
    /// How long it has been so.
    pub lasted: Duration,
    /// Why it was last away.
    pub last_error: Option<String>,
    /// In which words it has refused charges lately, and none since was taken.
    pub refusal: Option<String>,
    /// How far it is behind its primary.
    pub link: ReplicaLink,
}

impl ServerHealth {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            ServerHealth::Unknown => "unknown",
            ServerHealth::Serving => "serving",
            ServerHealth::Doubted => "doubted",
            ServerHealth::Away => "away",
        }
    }
}

impl ServerRole {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            ServerRole::Unknown => "unknown",
            ServerRole::Primary => "primary",
            ServerRole::Rival => "rival",
            ServerRole::Replica => "replica",
            ServerRole::Sentinel => "sentinel",
        }
    }
}
