//! Services and their upstreams as upstreams of a policy.

use std::net::Ipv6Addr;

use super::{file::File, identity::is_template, tell_of_rest};
use crate::{flow::Flow, names::Names, paths::literal, report::Report, section::Section};

/// A server that there is not, for an upstream that the reader has to write.
const NOWHERE: &str = "http://127.0.0.1:9";
const MAX_WEIGHT: u64 = 1000;
/// The largest weight of a target there.
const MOST: i64 = 65_535;
const DAY: i64 = 86_400_000;
const TIMEOUTS: [(&str, &str); 3] = [
    ("connect_timeout", "connect_timeout"),
    ("response_timeout", "read_timeout"),
    ("idle_timeout", "read_timeout"),
];
const REST: &str = "not read: see `health_check`, `ejection`, `tls` of upstreams";
/// Fields of services and upstreams that are read, or say nothing of requests.
const KNOWN: &str = "name id tags created_at updated_at url protocol host port path enabled \
    routes plugins filter_chains connect_timeout read_timeout write_timeout retries tls_verify \
    targets algorithm slots hash_on hash_fallback hash_on_cookie_path host_header _comment";

/// All upstreams, by the services that they are of.
#[derive(Default)]
pub(super) struct Backends {
    all: Vec<(usize, Backend, Flow)>,
    names: Names,
    missing: Vec<String>,
}

/// Where requests of a service go.
#[derive(Clone, Debug, Default)]
pub(super) struct Backend {
    /// The name of the upstream.
    pub(super) name: String,
    /// The host that the servers are asked for, unless it is the client's.
    pub(super) host: Option<String>,
    /// What stands in front of the path there.
    pub(super) prefix: Option<String>,
    /// Why no request may go there.
    pub(super) closed: Option<String>,
}

/// A server's scheme, host and port, and the path that requests get.
struct Address {
    scheme: &'static str,
    is_h2: bool,
    host: String,
    port: u64,
    path: String,
}

impl Backends {
    /// Where requests of a service go; `instead` is the URL that the reader gave for it.
    pub(super) fn of(
        &mut self,
        service: Option<usize>,
        (file, instead): (&File<'_>, Option<&str>),
        report: &mut Report,
    ) -> Backend {
        // Of none: what answers there is Kong itself.
        let key = service.unwrap_or(usize::MAX);
        if let Some((_, backend, _)) = self.all.iter().find(|(own, ..)| *own == key) {
            return backend.clone();
        }
        let entity = service.and_then(|at| file.services.get(at));
        let name = self.names.take(entity.map_or("nowhere", |own| &own.name));
        let mut backend = Backend { name: name.clone(), ..Backend::default() };
        let written = match entity {
            Some(own) => written(own.section, file, &mut backend, report),
            None => {
                backend.closed = Some("it has no service, so Kong answers itself".to_owned());
                Err(String::new())
            }
        };
        let flow = written.unwrap_or_else(|why| {
            let url = instead.unwrap_or(NOWHERE);
            if let Some(own) = entity {
                let there = format!("service {}: its servers", own.name);
                report.left_out(
                    own.section.place(),
                    there,
                    format!("{why}: {url} stands for them"),
                );
                if instead.is_none() {
                    self.missing.push(name.clone());
                }
            }
            Flow::fields([("servers", Flow::list([url]))])
        });
        self.all.push((key, backend.clone(), flow.with("paths", Flow::fields([]))));
        backend
    }

    /// The section of the policy.
    pub(super) fn section(self, report: &mut Report) -> Vec<(String, Flow)> {
        if !self.missing.is_empty() {
            let names = self.missing.join(", ");
            report.ask(format!("write the servers of upstreams, or give --upstream URL: {names}."));
        }
        self.all.into_iter().map(|(_, backend, flow)| (backend.name, flow)).collect()
    }
}

/// The upstream of a service. The error says why it cannot be written.
fn written(
    service: Section<'_>,
    file: &File<'_>,
    backend: &mut Backend,
    report: &mut Report,
) -> Result<Flow, String> {
    let address = address(service)?;
    let path = address.path.trim_end_matches('/');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    backend.prefix = Some(path.to_owned()).filter(|path| !path.is_empty());
    let is_path = path.is_empty() || (path.starts_with('/') && literal(path).is_some());
    if !is_path || !path.bytes().all(is_plain) {
        backend.closed = Some("the path of its service is no plain path".to_owned());
        backend.prefix = None;
    }
    let upstream = file.upstreams.iter().position(|own| own.name == address.host);
    let mut flow = match upstream {
        None => {
            backend.host = Some(address.authority());
            Flow::fields([("servers", Flow::list([address.url()]))])
        }
        Some(at) => pool(&address, (file, at), backend, report)?,
    };
    if address.is_h2 {
        flow = flow.with("protocol", "h2");
    }
    for (name, field) in TIMEOUTS {
        if let Ok(Some(millis @ 1..)) = service.number(field) {
            flow = flow.with(name, format!("{}ms", millis.min(DAY)));
        }
    }
    if address.scheme == "https" && service.text("tls_verify").as_deref() != Some("true") {
        let here =
            "verified: stricter. `tls: { ca_file: ... }` of the upstream names your authority";
        let there = "certificates of servers, which Kong does not verify unless it is told to";
        report.nearly(service.place(), there, here);
    }
    if ["retries", "write_timeout"].iter().any(|name| service.node(name).is_some()) {
        let here = "one more try, and `idle_timeout`: see `retries` of upstreams";
        report.nearly("services", "retries, write_timeout", here);
    }
    tell_of_rest(service, ("service", REST), KNOWN, report);
    Ok(flow)
}

impl Address {
    fn authority(&self) -> String {
        match (self.scheme, self.port) {
            ("http", 80) | ("https", 443) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    fn url(&self) -> String {
        format!("{}://{}:{}", self.scheme, self.host, self.port)
    }
}

fn address(service: Section<'_>) -> Result<Address, String> {
    let (protocol, host, port, path) = match service.text("url") {
        Some(url) if is_template(&url) => return Err("a template is in its URL".to_owned()),
        Some(url) => {
            let (scheme, rest) = url.split_once("://").ok_or("its URL has no scheme")?;
            let at = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(at);
            let named = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
            let (host, port) = match named {
                Some((host, port)) => (host, Some(port.to_owned())),
                None => (authority, None),
            };
            let usual = if ["https", "grpcs"].contains(&scheme) { "443" } else { "80" };
            let port = port.unwrap_or_else(|| usual.to_owned());
            (scheme.to_owned(), host.to_owned(), port, path.to_owned())
        }
        None => (
            service.text("protocol").unwrap_or_else(|| "http".to_owned()),
            service.text("host").unwrap_or_default(),
            service.text("port").unwrap_or_else(|| "80".to_owned()),
            service.text("path").unwrap_or_default(),
        ),
    };
    let (scheme, is_h2) = match protocol.as_str() {
        "http" => ("http", false),
        "https" => ("https", false),
        "grpc" => ("http", true),
        "grpcs" => ("https", true),
        _ => return Err("its protocol is neither HTTP nor gRPC".to_owned()),
    };
    let port = port.parse().ok().filter(|port| (1..=65_535).contains(port));
    match port.filter(|_| is_host(&host)) {
        Some(port) => Ok(Address { scheme, is_h2, host, port, path }),
        None => Err("it has no plain host and port".to_owned()),
    }
}

/// Whether a text is an address or a name: labels with dots between them.
fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = host.strip_suffix('.').unwrap_or(host);
    name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_plain))
}

/// A host and what is behind its last colon, if that is a port.
fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((host, port.parse().ok().filter(|port| *port > 0)?))
}

/// Whether a text is a host, with or without a port.
fn is_authority(text: &str) -> bool {
    is_host(split_port(text).map_or(text, |(host, _)| host))
}

/// An upstream of several servers, with its host.
fn pool(
    address: &Address,
    (file, at): (&File<'_>, usize),
    backend: &mut Backend,
    report: &mut Report,
) -> Result<Flow, String> {
    let own = file.upstreams.get(at).ok_or("it has no upstream")?;
    let targets = file.targets.iter().filter(|(own, _)| *own == at).map(|(_, own)| *own);
    let servers = servers(address, targets)?;
    backend.host = own.section.text("host_header").filter(|host| !is_template(host));
    if backend.host.as_ref().is_some_and(|host| !is_authority(host)) {
        backend.closed = Some("the `host_header` of its upstream is no host".to_owned());
        backend.host = None;
    }
    let what = format!("upstream {}", own.name);
    if backend.host.is_none() {
        let here = "the host that the client asks for, there the name of a target: set `host`";
        report.nearly(own.section.place(), format!("{what}: Host"), here);
    }
    tell_of_rest(own.section, (&what, REST), KNOWN, report);
    let is_single = servers.len() == 1;
    let flow = Flow::fields([("servers", Flow::List(servers))]);
    Ok(if is_single { flow } else { balanced(flow, own.section, report) })
}

/// The servers of an upstream.
fn servers<'d>(
    address: &Address,
    targets: impl Iterator<Item = Section<'d>>,
) -> Result<Vec<Flow>, String> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for own in targets {
        let target = own.text("target").unwrap_or_default();
        let (host, port) = split_port(&target).unwrap_or((&target, 8000));
        if !is_host(host) {
            return Err("a target has no plain host and port".to_owned());
        }
        let weight = own.number("weight")?.unwrap_or(100).clamp(0, MOST) as u64;
        let url = format!("{}://{host}:{port}", address.scheme);
        match found.iter_mut().find(|(own, _)| own.eq_ignore_ascii_case(&url)) {
            Some((_, all)) => *all += weight,
            None if weight > 0 => found.push((url, weight)),
            None => {}
        }
    }
    let most = found.iter().map(|(_, weight)| *weight).max().ok_or("it has no target")?;
    let is_even = found.iter().all(|(_, weight)| *weight == most);
    let scaled = |weight: u64| match most > MAX_WEIGHT {
        true => (weight * MAX_WEIGHT / most).max(1),
        false => weight,
    };
    let server = |(url, weight): (String, u64)| match is_even {
        true => Flow::Text(url),
        false => Flow::fields([("url", url.into()), ("weight", scaled(weight).into())]),
    };
    Ok(found.into_iter().map(server).collect())
}

fn balanced(flow: Flow, upstream: Section<'_>, report: &mut Report) -> Flow {
    let algorithm = upstream.text("algorithm").unwrap_or_else(|| "round-robin".to_owned());
    let hash = upstream.text("hash_on").filter(|own| own != "none");
    match (algorithm.as_str(), hash.as_deref()) {
        ("least-connections" | "latency", _) => flow,
        (_, Some("consumer")) => flow.with("balance", "caller"),
        ("round-robin", None) => flow.with("balance", "round_robin"),
        _ => {
            let here = "balance: least_loaded: a client may get another server each time";
            report.left_out(upstream.place(), format!("algorithm {algorithm} by a hash"), here);
            flow
        }
    }
}
