//! Tests inside a policy: requests, and the responses expected. `tollgate check` runs them, and
//! a proxy runs them, too, before it puts the policy in force.

use std::{net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, Method, Response, StatusCode, uri::PathAndQuery};
use tollgate_clock::Timestamp;
use tollgate_identity::AssumedToken;
use tollgate_yaml::Problem;

use super::CallerName;

/// How many requests the tests of all policies together may send: a start and each reload run them,
/// and are not to take long.
pub const MAX_REQUESTS: u64 = 500_000;

/// A request, perhaps sent more than once, and the response expected to the last one.
#[derive(Debug)]
pub struct Case {
    /// What it is about, for people.
    pub name: Option<Box<str>>,
    /// Where it is written: a problem of that place, without a message.
    pub place: Problem,
    /// When it begins, and with which counters.
    pub begin: Begin,
    /// The request.
    pub given: Given,
    /// How often it is sent, at least once.
    pub repeat: u32,
    /// How much time passes between two of these requests.
    pub every: Duration,
    /// The response expected to the last one.
    pub expect: Expect,
}

/// When a test begins, and with which counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this instant, with nothing charged before.
    At(Timestamp),
    /// So long after the test before it, with the counters as that one left them.
    After(Duration),
}

/// A request, and what the upstream answers if it is asked.
#[derive(Debug)]
pub struct Given {
    /// Its method.
    pub method: Method,
    /// The host that it is for.
    pub host: Box<str>,
    /// What it asks for.
    pub target: PathAndQuery,
    /// Its headers, but for `host`.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Box<[u8]>,
    /// Its token or API key, which counts as verified.
    pub token: Option<AssumedToken>,
    /// The client's address.
    pub address: IpAddr,
    /// What the upstream answers.
    pub response: Response<Box<[u8]>>,
}

/// The response that a test expects; a field without a value is not compared.
#[derive(Debug, Default)]
pub struct Expect {
    /// The status that the client sees.
    pub status: Option<StatusCode>,
    /// The limit that denies it.
    pub limit: Option<Box<str>>,
    /// The limits that would have denied it if they were enforced, each by its name, in
    /// alphabetical order: `core`, `search;candidate`.
    pub would_deny: Option<Vec<Box<str>>>,
    /// The path pattern of its route.
    pub route: Option<Box<str>>,
    /// Who is charged.
    pub caller: Option<CallerName>,
    /// How many of the repeated requests are not refused.
    pub admitted: Option<u32>,
    /// Headers that the client sees; none: not this one.
    pub headers: Vec<(HeaderName, Option<Box<str>>)>,
}
