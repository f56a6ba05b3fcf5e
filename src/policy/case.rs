//! Tests inside a policy: requests, and what is to become of them. `tollgate check` runs them; a
//! running proxy takes no notice.

use std::{net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, Method, Response, StatusCode, uri::PathAndQuery};

use super::CallerName;
use crate::identity::Vouched;

/// A request, perhaps sent more than once, and what is to become of the last one.
#[derive(Debug)]
pub struct Case {
    /// What it is about, for people.
    pub name: Option<Box<str>>,
    /// Where it is written: `api.yaml:40:5`.
    pub place: Box<str>,
    /// It goes on where the one before it ended, so much later. None: it begins anew.
    pub after: Option<Duration>,
    /// The request.
    pub given: Given,
    /// How often it is sent, at least once.
    pub repeat: u32,
    /// What is to become of the last one.
    pub expect: Expect,
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
    /// Its token or API key, which counts as verified.
    pub token: Option<Vouched>,
    /// The client's address.
    pub address: IpAddr,
    /// What the upstream answers.
    pub response: Response<()>,
}

/// What is to become of a request; what is none does not matter.
#[derive(Debug, Default)]
pub struct Expect {
    /// The status that the client sees.
    pub status: Option<StatusCode>,
    /// The limit that denies it.
    pub limit: Option<Box<str>>,
    /// The path pattern of its route.
    pub route: Option<Box<str>>,
    /// Who is charged.
    pub caller: Option<CallerName>,
    /// Headers that the client sees; none: not this one.
    pub headers: Vec<(HeaderName, Option<Box<str>>)>,
}
