//! A request, as a log tells of it.

use std::{net::IpAddr, time::Duration};

use http::{HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};

use crate::clock::Timestamp;

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
    pub host: Option<Box<str>>,
    /// Its path; with the query, if the log has it. It begins with a slash.
    pub target: Box<str>,
    /// The status of its response.
    pub status: Option<u16>,
    /// Until its response had ended.
    pub took: Option<Duration>,
    /// Headers of the request that the log has, such as `user-agent` and `referer`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What a log of tollgate says besides.
    pub own: Option<Box<OwnFields>>,
    /// The values of the fields that [`ReadOptions::wanted`](super::ReadOptions::wanted) names, in the
    /// same order.
    pub fields: Vec<Option<Box<str>>>,
}

/// What only a log of tollgate says of a request.
#[derive(Clone, Debug, Default)]
pub struct OwnFields {
    /// The caller, kind and value: `user:42`.
    pub caller: Option<Box<str>>,
    /// The caller's tier.
    pub tier: Option<Box<str>>,
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
