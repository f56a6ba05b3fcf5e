//! Where requests are forwarded to, as a policy describes it. The state of the servers (addresses,
//! health, connections) is kept in [`tollgate_upstream`].

use std::{
    fmt,
    num::{NonZeroU32, NonZeroUsize},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;
use rustls::pki_types::ServerName;
use tollgate_keyword::{Keyword, keywords};

use super::{OwnHeaders, PathReading, Statuses};

/// A group of interchangeable servers.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in the policy.
    pub name: Box<str>,
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// Whether connections to them use TLS.
    pub transport: Transport,
    /// The version of HTTP for connections to them.
    pub protocol: Protocol,
    /// Which of them gets a request.
    pub balance: Balance,
    /// How their health is checked; none: it is not.
    pub health_check: Option<HealthCheck>,
    /// When one that fails requests is ejected for a while; none: never.
    pub ejection: Option<Ejection>,
    /// How many requests a server may have.
    pub bounds: Bounds,
    /// When a request is retried.
    pub retries: Retries,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long the head of a response may take.
    pub response_timeout: Duration,
    /// How long the body of a request or of a response may make no progress.
    pub idle_timeout: Duration,
    /// How long an unused connection is kept.
    pub keep_alive: Duration,
    /// How often names are resolved again.
    pub resolve_every: Duration,
    /// How the servers read paths; none: nobody says, and they are taken literally.
    pub paths: Option<PathReading>,
    /// Headers that only this proxy may set: those of clients are removed.
    pub own_headers: Arc<OwnHeaders>,
    /// Where it is among the upstreams of all policies: what a running proxy knows about its
    /// servers is found by this.
    pub position: UpstreamPosition,
}

/// Where an upstream is among those of all policies. [`Policies::new`](super::Policies::new) gives
/// it.
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
    /// Its weight relative to the other servers.
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

/// Whether connections to servers use TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// No TLS.
    Plain,
    /// TLS.
    Tls(UpstreamTls),
}

/// TLS to an upstream: trusted authorities and the client certificate.
#[derive(Clone)]
pub struct UpstreamTls {
    /// Without ALPN, which the code that connects adds.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the certificate must be for, and that is sent as SNI; none: the server's own.
    pub server_name: Option<ServerName<'static>>,
    /// A digest of everything that it was made from. Equality compares it.
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

keywords! { Protocol { Http1 = "http1", Http2 = "h2" } }

/// Which server gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Of two that are drawn at random, by weight, the one with fewer requests in flight for its
    /// weight.
    #[default]
    LeastLoaded,
    /// One after the other, by weight.
    RoundRobin,
    /// Always the same one for a caller, as long as it is available (weighted rendezvous hashing).
    Caller,
}

keywords! {
    Balance { LeastLoaded = "least_loaded", RoundRobin = "round_robin", Caller = "caller" }
}

/// How a server's health is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path and query to request with GET.
    pub path: Box<str>,
    /// The `Host` field; none: the server's own.
    pub host: Option<HeaderValue>,
    /// The time between two checks.
    pub interval: Duration,
    /// How long a response may take.
    pub timeout: Duration,
    /// Successful checks in a row after which a server gets requests again.
    pub healthy_after: NonZeroU32,
    /// Failed checks in a row after which it gets none.
    pub unhealthy_after: NonZeroU32,
    /// The statuses of a successful check.
    pub statuses: Statuses,
}

/// When a server that fails requests is ejected for a while. The last server that is left is never
/// ejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row: no connection, no response in time, a broken or unsound response, or one
    /// of `statuses`.
    pub failures: NonZeroU32,
    /// Responses that count as failures.
    pub statuses: Statuses,
    /// The length of the first ejection, which doubles each time, and the longest.
    pub time: RangeInclusive<Duration>,
    /// How many of the servers may be ejected at once; one of several may always be.
    pub most_percent: u8,
}

impl Ejection {
    /// How many of so many servers may be ejected at once.
    pub fn most_of(&self, servers: usize) -> usize {
        (servers * usize::from(self.most_percent) / 100).max(1)
    }
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
    /// How connections are divided among clients when they get scarce.
    pub shares: Sharing,
    /// Bytes of responses that may be held for clients that do not read them.
    pub max_unread: u64,
}

/// How connections to a server are divided among clients when they get scarce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// An address gets one of the last eighth, rounded down, only while it uses fewer than are
    /// free.
    #[default]
    Address,
    /// First come, first served.
    Off,
}

keywords! { Sharing { Address = "address", Off = "off" } }

/// When a request is retried, at another server if there is one. Only requests that may be sent
/// twice are (RFC 9110 section 9.2.2), those without a body; or that were certainly never sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The number of retries of a request.
    pub attempts: u8,
    /// Retries among a hundred requests, at most; a few are always allowed.
    pub budget_percent: u8,
    /// Statuses of responses after which a request is retried.
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
            paths: None,
            own_headers: Arc::default(),
            position: UpstreamPosition::default(),
        }
    }
}

impl Upstream {
    /// Its fields and what they are, as people read them.
    pub fn in_words(&self) -> [(&'static str, String); 18] {
        // Named one by one, so that a new field cannot be forgotten here.
        let Upstream {
            name: _,        // the same: upstreams are found by their names
            own_headers: _, // identity: claims for the upstream, and where tokens come from
            position: _,    // given when all policies are put together
            servers: _,
            transport,
            protocol,
            balance,
            health_check,
            ejection,
            bounds: Bounds { max_connections, queue, queue_timeout, shares, max_unread },
            retries,
            connect_timeout,
            response_timeout,
            idle_timeout,
            keep_alive,
            resolve_every,
            paths,
        } = self;
        let time = |time: &Duration| format!("{time:?}");
        let none = || "none".to_owned();
        [
            ("servers", self.servers_in_words()),
            ("transport", transport.to_string()),
            ("protocol", protocol.keyword().to_owned()),
            ("balance", balance.keyword().to_owned()),
            ("health check", health_check.as_ref().map_or_else(none, HealthCheck::to_string)),
            ("ejection", ejection.as_ref().map_or_else(none, Ejection::to_string)),
            ("connections to a server", max_connections.to_string()),
            ("queue", queue.to_string()),
            ("queue timeout", time(queue_timeout)),
            ("shares", shares.keyword().to_owned()),
            ("bytes that clients do not read", max_unread.to_string()),
            ("retries", retries.to_string()),
            ("connect timeout", time(connect_timeout)),
            ("response timeout", time(response_timeout)),
            ("idle timeout", time(idle_timeout)),
            ("keep alive", time(keep_alive)),
            ("resolved every", time(resolve_every)),
            ("paths", paths.as_ref().map_or_else(none, PathReading::to_string)),
        ]
    }

    /// Its servers, with their weights unless all are alike.
    pub fn servers_in_words(&self) -> String {
        let first = self.servers.first().map(|server| server.weight);
        let are_alike = self.servers.iter().all(|server| Some(server.weight) == first);
        let server = |server: &Server| match are_alike {
            true => server.to_string(),
            false => format!("{server} (weight {})", server.weight),
        };
        self.servers.iter().map(server).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = match self {
            Transport::Plain => return f.write_str("plain"),
            Transport::Tls(tls) => tls,
        };
        // The fingerprint stands for all of it, and is compared where these texts are equal.
        let UpstreamTls { config: _, server_name, fingerprint: _ } = tls;
        match server_name {
            None => f.write_str("TLS"),
            Some(name) => write!(f, "TLS as {}", name.to_str()),
        }
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HealthCheck { path, host, interval, timeout, healthy_after, unhealthy_after, statuses } =
            self;
        f.write_str(path)?;
        if let Some(host) = host.as_ref().and_then(|host| host.to_str().ok()) {
            write!(f, " at {host}")?;
        }
        write!(
            f,
            " every {interval:?} within {timeout:?}, {statuses} is good, back after \
             {healthy_after}, out after {unhealthy_after}"
        )
    }
}

impl fmt::Display for Ejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ejection { failures, statuses, time, most_percent } = self;
        let (shortest, longest) = (time.start(), time.end());
        write!(
            f,
            "after {failures} failures (statuses {statuses}), for {shortest:?} to {longest:?}, \
             {most_percent} % at most"
        )
    }
}

impl fmt::Display for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retries { attempts, budget_percent, statuses } = self;
        match attempts {
            0 => f.write_str("none"),
            _ => write!(f, "{attempts}, at most {budget_percent} % (statuses {statuses})"),
        }
    }
}

impl Default for Ejection {
    /// Five failures in a row, ten seconds, at most five minutes, half of the servers.
    fn default() -> Self {
        Ejection {
            failures: NonZeroU32::MIN.saturating_add(4),
            statuses: Statuses::default(),
            time: Duration::from_secs(10)..=Duration::from_secs(300),
            most_percent: 50,
        }
    }
}

impl Default for Bounds {
    /// 1024 connections, 1024 requests that wait at most a second, 128 MiB for clients that do not
    /// read.
    fn default() -> Self {
        Bounds {
            max_connections: NonZeroUsize::MIN.saturating_add(1023),
            queue: 1024,
            queue_timeout: Duration::from_secs(1),
            shares: Sharing::default(),
            max_unread: 128 * 1024 * 1024,
        }
    }
}

impl Default for Retries {
    /// Once, 20 of a hundred, for no statuses.
    fn default() -> Self {
        Retries { attempts: 1, budget_percent: 20, statuses: Statuses::default() }
    }
}
