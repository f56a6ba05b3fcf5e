//! Upstreams: their servers, which of them gets a request, how many it may have and how long it may
//! take.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    ops::RangeInclusive,
    time::Duration,
};

use http::{HeaderValue, Uri};
use tollgate_wire::target::Host;
use tollgate_yaml::{Check, Entries, Node, Span, Spanned, Value};

use super::{Compiler, words::DAY};
use crate::{
    Bounds, Server, Transport, Upstream,
    file::{LATER, RawQueue, RawServer, RawUpstream},
};

const MAX_WEIGHT: u32 = 1000;
const MAX_CONNECTIONS: u32 = 65_535;
const MAX_QUEUE: u32 = 65_535;
const MAX_UNREAD: RangeInclusive<u64> = 1 << 20..=64 << 30;
const RESOLVE_EVERY: RangeInclusive<Duration> = Duration::from_millis(10)..=DAY;

/// A server as it is written.
pub(super) struct WrittenServer {
    pub(super) server: Server,
    /// Whether its address is `https://`.
    pub(super) is_secure: bool,
    pub(super) span: Span,
}

impl Compiler<'_> {
    /// Those that are sound.
    pub(super) fn upstreams(&mut self, raw: &Spanned<Entries<RawUpstream>>) -> Vec<Upstream> {
        if raw.value.is_empty() {
            let help = "name at least one: `api: { servers: [http://127.0.0.1:9000] }`";
            self.refuse(raw.span, "no upstream", help);
        }
        raw.value.iter().filter_map(|(name, upstream)| self.upstream(name, upstream)).collect()
    }

    fn upstream(&mut self, name: &Spanned<String>, raw: &RawUpstream) -> Option<Upstream> {
        let defaults = Upstream::new(&name.value, Vec::new());
        let servers = self.servers(&raw.servers);
        let transport = match &servers {
            Some(servers) => self.transport(raw, servers),
            None => Some(Transport::Plain),
        };
        let protocol = self.keyword_or_default(raw.protocol.as_ref());
        let balance = self.keyword_or_default(raw.balance.as_ref());
        let health_check = raw.health_check.as_ref().and_then(|raw| self.health_check(&raw.value));
        let ejection = self.ejection(raw.ejection.as_ref());
        let bounds = self.bounds(raw, &defaults.bounds);
        let retries = self.retries(raw.retries.as_ref());
        let paths = self.path_reading(raw.paths.as_ref());
        Some(Upstream {
            // First, so that their mistakes are found whatever else is wrong.
            connect_timeout: self.duration(&raw.connect_timeout, defaults.connect_timeout),
            response_timeout: self.duration(&raw.response_timeout, defaults.response_timeout),
            idle_timeout: self.duration(&raw.idle_timeout, defaults.idle_timeout),
            keep_alive: self.duration(&raw.keep_alive, defaults.keep_alive),
            resolve_every: self.time_or(&raw.resolve_every, RESOLVE_EVERY, defaults.resolve_every),
            servers: servers?.into_iter().map(|written| written.server).collect(),
            transport: transport?,
            protocol: protocol?,
            balance: balance?,
            health_check,
            ejection: ejection?,
            bounds: bounds?,
            retries: retries?,
            paths: paths?,
            name: defaults.name,
            own_headers: defaults.own_headers,
            position: defaults.position,
        })
    }

    /// At least one, all different, all sound.
    fn servers(&mut self, raw: &Spanned<Vec<Node>>) -> Option<Vec<WrittenServer>> {
        if raw.value.is_empty() {
            let help = "write `servers: [http://127.0.0.1:9000]`";
            self.refuse(raw.span, "an upstream needs a server", help);
        }
        let mut servers: Vec<WrittenServer> = Vec::new();
        for node in &raw.value {
            let Some(written) = self.server(node) else { continue };
            let same = |other: &WrittenServer| {
                written.server.host == other.server.host && written.server.port == other.server.port
            };
            if servers.iter().any(same) {
                let message = format!("server `{}` appears twice", written.server);
                self.refuse(node.span, message, "remove one, and give the other more `weight`");
            }
            servers.push(written);
        }
        let is_sound = !servers.is_empty() && servers.len() == raw.value.len();
        is_sound.then_some(servers)
    }

    fn server(&mut self, node: &Node) -> Option<WrittenServer> {
        let (url, weight) = match &node.value {
            Value::Mapping(_) => {
                let raw: RawServer = self.decode(node, LATER)?;
                let weight = self.positive(&raw.weight, NonZeroU32::MIN, MAX_WEIGHT);
                (raw.url, weight)
            }
            Value::String(url) => {
                (Spanned { value: url.clone(), span: node.span }, NonZeroU32::MIN)
            }
            other => {
                let message = format!("expected the address of a server, found {}", other.kind());
                let help =
                    "write `http://host:port`, or `{ url: \"http://host:port\", weight: 2 }`";
                self.note(node.span, message, help);
                return None;
            }
        };
        let (server, is_secure) = self.address(&url)?;
        let server = Server { weight, ..server };
        Some(WrittenServer { server, is_secure, span: url.span })
    }

    /// A server by its address, and whether it is spoken to in TLS.
    fn address(&mut self, raw: &Spanned<String>) -> Option<(Server, bool)> {
        const HELP: &str = "write `http://host:port` or `https://host:port`";
        let uri = raw.value.parse::<Uri>().ok();
        let is_secure = match uri.as_ref().and_then(Uri::scheme_str) {
            Some("http") => Some(false),
            Some("https") => Some(true),
            _ => None,
        };
        let authority = uri.as_ref().and_then(Uri::authority);
        let (Some(is_secure), Some(authority)) = (is_secure, authority) else {
            let message = format!("`{}` is not the address of a server", raw.value);
            self.note(raw.span, message, HELP);
            return None;
        };
        let is_bare = raw.value.ends_with(authority.as_str());
        if authority.as_str().contains('@') || !is_bare {
            self.refuse(raw.span, "a server is a host and a port, nothing more", HELP);
            return None;
        }
        let host = Host::parse(authority.as_str().as_bytes()).ok();
        let port = match authority.port() {
            // `host:` has no port, and yet a colon.
            None if authority.as_str().ends_with(':') => None,
            None if is_secure => Some(443),
            None => Some(80),
            Some(port) => Some(port.as_u16()).filter(|port| *port > 0),
        };
        let (Some(host), Some(port)) = (host, port) else {
            self.refuse(raw.span, "a server without a usable host or port", HELP);
            return None;
        };
        let server = Server {
            host: host.as_str().trim_matches(['[', ']']).into(),
            port,
            weight: NonZeroU32::MIN,
            authority: HeaderValue::from_str(&authority.as_str().to_ascii_lowercase()).ok()?,
        };
        Some((server, is_secure))
    }

    fn bounds(&mut self, raw: &RawUpstream, defaults: &Bounds) -> Option<Bounds> {
        let most = defaults.max_connections.get() as u32;
        let max_connections = self.number_or(&raw.max_connections, 1..=MAX_CONNECTIONS, most);
        let unset = RawQueue::default();
        let RawQueue { size, timeout } = raw.queue.as_ref().unwrap_or(&unset);
        let queue = self.number_or(size, 0..=MAX_QUEUE, defaults.queue as u32);
        let queue_timeout = self.duration(timeout, defaults.queue_timeout);
        let shares = self.keyword_or_default(raw.shares.as_ref());
        Some(Bounds {
            max_connections: NonZeroUsize::new(max_connections as usize)?,
            queue: queue as usize,
            queue_timeout,
            shares: shares?,
            max_unread: self.bytes_or(&raw.max_unread, MAX_UNREAD, defaults.max_unread),
        })
    }
}
