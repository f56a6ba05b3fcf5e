//! Services as upstreams.

use super::files::{Configuration, Target};
use crate::{draft::NOWHERE, flow::Flow, report::Report, section::Section};

/// The largest weight of a server.
const MAX_WEIGHT: i64 = 1000;

/// An upstream to be.
pub(super) struct Upstream {
    /// What it is called there.
    pub(super) name: String,
    pub(super) flow: Flow,
    /// Why no request may go there: Traefik itself answers them.
    pub(super) closed: Option<String>,
}

/// A server: its URL without a path, and its weight.
struct Server {
    url: String,
    weight: i64,
    is_h2: bool,
}

/// The upstream of a router; `instead` is the URL that the reader has given for it.
pub(super) fn upstream(
    configuration: &Configuration<'_>,
    target: &Target<'_>,
    instead: Option<&str>,
    report: &mut Report,
) -> Upstream {
    let (name, found) = match target {
        Target::Named(name) => (name.clone(), of_file(configuration, name, report)),
        Target::Kubernetes(namespace, services) => {
            let names: Vec<String> =
                services.iter().filter_map(|service| service.text("name")).collect();
            (names.join("-"), of_kubernetes(namespace, services, report))
        }
    };
    let is_internal = name.ends_with("@internal");
    let closed = if is_internal {
        let here = "there is no such service here: its routes are closed";
        report.left_out("services", &name, here);
        Some(format!("`{name}` is Traefik itself"))
    } else {
        has_own_middlewares(configuration, target)
            .then(|| "the service's own middlewares are not read".to_owned())
    };
    let servers = found.and_then(of_one_kind).unwrap_or_else(|why| {
        if !is_internal {
            tell_of_servers(&name, &why, instead, report);
        }
        let url = instead.unwrap_or(NOWHERE).to_owned();
        vec![Server { url, weight: 1, is_h2: false }]
    });
    let server = |server: &Server| match server.weight {
        1 => Flow::Text(server.url.clone()),
        weight => {
            Flow::fields([("url", server.url.as_str().into()), ("weight", (weight as u64).into())])
        }
    };
    let is_h2 = servers.iter().any(|server| server.is_h2);
    let flow = Flow::fields([("servers", Flow::list(servers.iter().map(server)))])
        .with_some("protocol", is_h2.then_some("h2"))
        .with("paths", Flow::fields([]));
    Upstream { name, flow, closed }
}

/// The servers, if there are some, and all of one kind.
fn of_one_kind(servers: Vec<Server>) -> Result<Vec<Server>, String> {
    let kind = |server: &Server| (server.url.starts_with("https:"), server.is_h2);
    let first = servers.first().map(kind);
    match first.is_some() && servers.iter().all(|server| Some(kind(server)) == first) {
        true => Ok(servers),
        false => Err("servers of one kind are missing".to_owned()),
    }
}

fn tell_of_servers(name: &str, why: &str, instead: Option<&str>, report: &mut Report) {
    let here = format!("{why}: {} stands for them", instead.unwrap_or(NOWHERE));
    report.left_out(format!("service {name}"), "its servers", here);
    if instead.is_none() {
        report.ask(format!("write the servers of upstream `{name}`, or give --upstream URL."));
    }
}

fn has_own_middlewares(configuration: &Configuration<'_>, target: &Target<'_>) -> bool {
    match target {
        Target::Named(name) => configuration.service(name).is_some_and(has_middlewares),
        Target::Kubernetes(_, services) => services.iter().copied().any(has_middlewares),
    }
}

/// The servers of a service of a file. The error says why they cannot be written.
fn of_file(
    configuration: &Configuration<'_>,
    name: &str,
    report: &mut Report,
) -> Result<Vec<Server>, String> {
    let service = configuration.service(name);
    let service = service.ok_or_else(|| format!("`{name}` is not in the files"))?;
    let Some(balancer) = service.section("loadBalancer") else {
        return Err("weighted, mirroring and failover services cannot be written".to_owned());
    };
    let others = balancer.others("servers middlewares");
    tell_of_options(&others.collect::<Vec<_>>(), name, service, report);
    balancer
        .items("servers")
        .filter(|server| server.number("weight") != Ok(Some(0)))
        .map(|own| {
            let url = own.text("url").unwrap_or_default();
            let server = server(&url, own.number("weight")?.unwrap_or(1))?;
            let is_bare = url
                .rsplit_once("://")
                .is_none_or(|(_, rest)| !rest.trim_end_matches('/').contains('/'));
            if !is_bare {
                report.left_out(
                    own.place(),
                    "the path of a server's URL",
                    "it is not added to requests",
                );
            }
            Ok(server)
        })
        .collect()
}

/// The addresses of services of Kubernetes.
fn of_kubernetes(
    namespace: &str,
    services: &[Section<'_>],
    report: &mut Report,
) -> Result<Vec<Server>, String> {
    let mut servers = Vec::new();
    for own in services {
        let name = own.text("name").unwrap_or_default();
        if own.text("kind").is_some_and(|kind| kind != "Service") || name.contains('@') {
            return Err(format!("`{name}` is no Service"));
        }
        let others = own.others("middlewares name namespace kind port scheme weight");
        tell_of_options(&others.collect::<Vec<_>>(), &name, *own, report);
        let Ok(Some(port)) = own.number("port") else {
            return Err(format!("the port of `{name}` is no number"));
        };
        let namespace = own.text("namespace").unwrap_or_else(|| namespace.to_owned());
        let scheme = own
            .text("scheme")
            .unwrap_or_else(|| if port == 443 { "https" } else { "http" }.to_owned());
        let weight = own.number("weight")?.unwrap_or(1);
        servers.push(server(&format!("{scheme}://{name}.{namespace}.svc:{port}"), weight)?);
        report.nearly(
            own.place(),
            format!("Service {namespace}/{name}"),
            "its address in the cluster, which spreads connections over the pods; Traefik spreads \
             requests",
        );
    }
    Ok(servers)
}

fn has_middlewares(service: Section<'_>) -> bool {
    let balancer = service.section("loadBalancer");
    [Some(service), balancer].iter().flatten().any(|own| own.node("middlewares").is_some())
}

fn tell_of_options(names: &[&str], service: &str, place: Section<'_>, report: &mut Report) {
    if !names.is_empty() {
        report.left_out(
            place.place(),
            format!("service {service}: {}", names.join(", ")),
            "the upstream has what is usual here: see `health_check`, `balance`, `tls` of \
             upstreams",
        );
    }
}

/// The error has no password of the URL.
fn server(url: &str, weight: i64) -> Result<Server, String> {
    let (scheme, rest) = url.split_once("://").ok_or("a server has no URL")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let port = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let has_port = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    if authority.is_empty() || !has_port || !authority.bytes().all(is_plain) {
        return Err("the URL of a server has no plain host and port".to_owned());
    }
    let (scheme, is_h2) = match scheme {
        "http" | "https" => (scheme, false),
        "h2c" => ("http", true),
        _ => return Err("the URL of a server is neither http, https nor h2c".to_owned()),
    };
    let url = format!("{scheme}://{authority}");
    Ok(Server { url, weight: weight.clamp(1, MAX_WEIGHT), is_h2 })
}
