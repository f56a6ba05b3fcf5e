//! A request, as a log tells of it.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderValue, Method, uri::PathAndQuery};
use serde_json::{Map, Value};
use tollgate_clock::Timestamp;
use tollgate_usage::logged::LoggedUse;

/// A request, as a log describes it. A field that the log does not have is `None`.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it came: where a log has the end, that less the duration.
    pub time: Timestamp,
    /// Which line says so.
    pub place: Place,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// Its method.
    pub method: Method,
    /// The host that it was for, without a port.
    pub host: Option<HeaderValue>,
    /// Its path; with the query, if the log has it. It begins with a slash.
    pub target: Target,
    /// The status of its response.
    pub status: Option<u16>,
    /// Until its response had ended.
    pub took: Option<Duration>,
    /// What it has used besides, and cost.
    pub used: LoggedUse,
    /// Its header `user-agent`.
    pub user_agent: Option<HeaderValue>,
    /// Its header `referer`.
    pub referer: Option<HeaderValue>,
    /// What a log of tollgate says besides.
    pub own: Option<OwnFields>,
    /// The values of the fields that [`ReadOptions::wanted`](super::ReadOptions::wanted) names, in
    /// the same order.
    pub fields: Vec<Option<Box<str>>>,
}

/// What a request asked for.
#[derive(Clone, Debug)]
pub enum Target {
    /// A path, perhaps with a query.
    Valid(PathAndQuery),
    /// A text that no URL can have, which servers refuse.
    Invalid(Box<str>),
}

impl Target {
    /// It as the log has it.
    pub fn as_str(&self) -> &str {
        match self {
            Target::Valid(target) => target.as_str(),
            Target::Invalid(target) => target,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What only a log of tollgate says of a request.
#[derive(Clone, Debug, Default)]
pub struct OwnFields {
    /// The caller, kind and value: `user:42`.
    pub caller: Option<Arc<str>>,
    /// The caller's tier.
    pub tier: Option<Arc<str>>,
    /// What limits count by, if the log was asked for it.
    pub facts: Option<Map<String, Value>>,
    /// Why tollgate has denied it, in one word: `limit`, `auth`, `deny`, …
    pub denied: Option<Box<str>>,
    /// Of a request that another proxy or a program has asked about: who.
    pub asked_by: Option<Box<str>>,
    /// For how many denied requests the line stands: 1 for itself alone.
    pub stands_for: u32,
}

/// A line of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The position of its file among all that are read.
    pub file: u32,
    /// The number of the line in its file, from 1.
    pub line: u64,
}
