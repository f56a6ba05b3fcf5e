//! Where requests are forwarded to, as a policy says it. What a running proxy knows about the servers
//! (their addresses, their health, their connections) is kept with [`crate::upstream`].

use std::{
    fmt,
    num::{NonZeroU32, NonZeroUsize},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;
use rustls::pki_types::ServerName;

use super::{OwnHeaders, Statuses};

/// A group of servers that can stand in for each other.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in the policy.
    pub name: Box<str>,
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// How they are spoken to.
    pub transport: Transport,
    /// The version of HTTP that they are spoken to in.
    pub protocol: Protocol,
    /// Which of them gets a request.
    pub balance: Balance,
    /// How their health is asked for; none: it is not.
    pub health_check: Option<HealthCheck>,
    /// When one that fails requests gets none for a while; none: never.
    pub ejection: Option<Ejection>,
    /// How many requests a server may have.
    pub bounds: Bounds,
    /// When a request is tried again.
    pub retries: Retries,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long the upstream may take to answer with a response head.
    pub response_timeout: Duration,
    /// How long a body may make no progress, either way.
    pub idle_timeout: Duration,
    /// How long an unused connection is kept.
    pub keep_alive: Duration,
    /// How often names are resolved again.
    pub resolve_every: Duration,
    /// Headers that mean to it what this proxy says, and never what a client does.
    pub own_headers: Arc<OwnHeaders>,
    /// Where it is among the upstreams of all policies: what a running proxy knows about its servers
    /// is found by this.
    pub position: UpstreamPosition,
}

/// Where an upstream is among those of all policies. [`Policies::new`](super::Policies::new) gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamPosition {
    /// Position of its policy.
    pub policy: usize,
    /// Its position in that policy.
    pub upstream: usize,
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Name or address.
    pub host: Box<str>,
    /// TCP port.
    pub port: u16,
    /// Its share of the requests, beside the shares of the others.
    pub weight: NonZeroU32,
    /// The server as a `Host` field, for requests that have none.
    pub authority: HeaderValue,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// How servers are spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// As it is.
    Plain,
    /// In TLS.
    Tls(UpstreamTls),
}

/// What TLS towards an upstream takes: whom to trust, what to show.
#[derive(Clone)]
pub struct UpstreamTls {
    /// Its ALPN is empty: that is up to who connects.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the certificate must be for, and that is asked for; none: the server's own.
    pub server_name: Option<ServerName<'static>>,
    /// A digest of all that it was made from: equal ones are the same.
    pub fingerprint: [u8; 32],
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &UpstreamTls) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for UpstreamTls {}

/// Without keys.
impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// Versions of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without TLS by prior knowledge (RFC 9113 section 3.3).
    Http2,
}

/// Which server gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Of two that are drawn at random, by weight, the one with fewer requests in flight for its
    /// weight.
    #[default]
    LeastLoaded,
    /// One after the other, by weight.
    RoundRobin,
    /// The same one for the same caller, for as long as it is there (weighted rendezvous hashing).
    Caller,
}

/// How a server's health is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path, and query, that is asked for with GET.
    pub path: Box<str>,
    /// The `Host` field; none: the server's own.
    pub host: Option<HeaderValue>,
    /// From one question to the next.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Good answers in a row after which a server gets requests again.
    pub healthy_after: NonZeroU32,
    /// Bad answers in a row after which it gets none.
    pub unhealthy_after: NonZeroU32,
    /// Which answers are good.
    pub statuses: Statuses,
}

/// When a server that fails requests gets none for a while. The last one that is left always gets
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row: no connection, no response in time, a broken or unsound response, or one of
    /// `statuses`.
    pub failures: NonZeroU32,
    /// Responses that count as failures.
    pub statuses: Statuses,
    /// How long it is left out the first time; twice as long each time after that, at most the end.
    pub time: RangeInclusive<Duration>,
}

/// How many requests a server may have, of all workers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections to one server, unused ones included.
    pub max_connections: NonZeroUsize,
    /// Requests that wait for a connection to a server.
    pub queue: usize,
    /// How long one may wait.
    pub queue_timeout: Duration,
    /// How connections are shared out among clients when they get scarce.
    pub shares: Sharing,
}

/// How connections to a server are shared out among clients when they get scarce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// An address gets one of the last eighth, rounded down, only while it uses fewer than are free.
    #[default]
    Address,
    /// Whoever comes first gets them.
    Off,
}

/// When a request is tried again, at another server if there is one. Only requests that may be sent
/// twice are (RFC 9110 section 9.2.2), those without a body; or that were certainly never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// How often, after the first time.
    pub attempts: u8,
    /// Retries among a hundred requests, at most; a few are always allowed.
    pub budget_percent: u8,
    /// Responses for which a request is tried again.
    pub statuses: Statuses,
}

impl Upstream {
    /// An upstream of these servers, in plain HTTP/1.1, with everything else as it is by default.
    pub fn new(name: &str, servers: Vec<Server>) -> Upstream {
        Upstream {
            name: name.into(),
            servers,
            transport: Transport::Plain,
            protocol: Protocol::default(),
            balance: Balance::default(),
            health_check: None,
            ejection: Some(Ejection::default()),
            bounds: Bounds::default(),
            retries: Retries::default(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            keep_alive: Duration::from_secs(60),
            resolve_every: Duration::from_secs(30),
            own_headers: Arc::default(),
            position: UpstreamPosition::default(),
        }
    }
}

impl Default for Ejection {
    /// Five failures in a row, ten seconds, at most five minutes.
    fn default() -> Self {
        Ejection {
            failures: NonZeroU32::MIN.saturating_add(4),
            statuses: Statuses::default(),
            time: Duration::from_secs(10)..=Duration::from_secs(300),
        }
    }
}

impl Default for Bounds {
    /// 1024 connections, 1024 requests that wait at most a second.
    fn default() -> Self {
        Bounds {
            max_connections: NonZeroUsize::MIN.saturating_add(1023),
            queue: 1024,
            queue_timeout: Duration::from_secs(1),
            shares: Sharing::default(),
        }
    }
}

impl Default for Retries {
    /// Once, 20 of a hundred, for no statuses.
    fn default() -> Self {
        Retries { attempts: 1, budget_percent: 20, statuses: Statuses::default() }
    }
}
