//! Where a rule of a route sends requests, and what it changes on the way.

use super::{Path, field::Field};
use crate::{flow::Flow, manifest::namespace_of, report::Report, upstreams::Upstreams};

/// Stands for a server that is not known.
const UNKNOWN: &str = "http://backend.invalid:80";

/// What a rule does with requests.
pub(crate) struct Forward {
    /// The name of the upstream.
    pub(crate) upstream: String,
    /// Fields of the route.
    pub(crate) changes: Vec<(&'static str, Flow)>,
    /// Why the route must be closed, if it must.
    pub(crate) closed: Option<String>,
}

impl Forward {
    /// What the rule of a path does. `given`: where all requests go instead.
    pub(crate) fn of(
        path: &Path<'_>,
        given: Option<&str>,
        upstreams: &mut Upstreams,
        report: &mut Report,
    ) -> Forward {
        let backends = path.rule.items(&["backendRefs"]);
        let (changes, mut closed) = changes(path, report);
        let servers: Vec<Flow> = match given {
            Some(url) => vec![url.into()],
            None => backends.iter().filter_map(|own| server(*own, path, report)).collect(),
        };
        if backends.is_empty() && closed.is_none() {
            closed = Some("a rule without backendRefs".to_owned());
        }
        let name = match (given, backends.first().and_then(|own| own.text_at(&["name"]))) {
            (None, Some(name)) => name,
            _ => "app",
        };
        let servers = if servers.is_empty() { vec![UNKNOWN.into()] } else { servers };
        let upstream = Flow::fields([("servers", Flow::List(servers))])
            .with_some("protocol", (path.kind == "GRPCRoute").then_some("h2"))
            .with("paths", Flow::fields([]));
        Forward { upstream: upstreams.name(name, upstream), changes, closed }
    }
}

/// The server that a reference means; none: it gets no requests.
fn server(own: Field<'_>, path: &Path<'_>, report: &mut Report) -> Option<Flow> {
    let kind = own.text_at(&["kind"]).unwrap_or("Service");
    let name = own.text_at(&["name"]).unwrap_or_default();
    let port = own.text_at(&["port"]).unwrap_or("80");
    let namespace = namespace_of(own.text_at(&["namespace"]).unwrap_or(path.namespace));
    let is_host = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    let mut url = format!("http://{name}.{namespace}.svc.cluster.local:{port}");
    if kind != "Service" || !is_host(name) || !is_host(namespace) || port.parse::<u16>().is_err() {
        UNKNOWN.clone_into(&mut url);
        let there = format!("a backend of kind {kind}: {name}");
        let here = format!("write its URL in place of {url}, or import with --upstream");
        report.left_out(own.place(), there, here);
    }
    match own.number_at(&["weight"]) {
        None | Some(1) => Some(url.into()),
        Some(0) => None,
        Some(weight) => {
            let weight = u64::try_from(weight).unwrap_or(1).min(1000);
            Some(Flow::fields([("url", url.into()), ("weight", weight.into())]))
        }
    }
}

/// What filters change, as fields of a route, and why it must be closed, if it must.
fn changes(path: &Path<'_>, report: &mut Report) -> (Vec<(&'static str, Flow)>, Option<String>) {
    let mut changes = Vec::new();
    let mut closed = None;
    for filter in path.rule.items(&["filters"]) {
        let kind = filter.text_at(&["type"]).unwrap_or_default();
        let rewrite = filter.at(&["urlRewrite"]);
        let host = rewrite.and_then(|own| own.text_at(&["hostname"]));
        let prefix = rewrite.and_then(|own| own.text_at(&["path", "replacePrefixMatch"]));
        let is_full = rewrite.and_then(|own| own.at(&["path", "replaceFullPath"])).is_some();
        match kind {
            "RequestRedirect" | "ExtensionRef" => closed = Some(format!("a filter {kind}")),
            "URLRewrite" if !is_full => {
                if let Some(prefix) = prefix {
                    let own = [("strip_prefix", path.pattern.text()), ("add_prefix", prefix)];
                    let own = own.map(|(name, text)| (name, text.trim_end_matches('/')));
                    let own = own.into_iter().filter(|(_, text)| !text.is_empty());
                    changes.extend(own.map(|(name, text)| (name, text.into())));
                }
                if let Some(host) = host {
                    let set = Flow::fields([("set", Flow::fields([("host", host.into())]))]);
                    changes.push(("request_headers", set));
                }
            }
            kind => {
                let message = "requests and responses go on without this change: see \
                               request_headers, response_headers, strip_prefix and add_prefix of \
                               routes";
                let there = format!("a filter {kind}");
                report.left_out(filter.place(), there, message);
            }
        }
    }
    let others = ["timeouts", "retry", "sessionPersistence"];
    for name in others.into_iter().filter(|name| path.rule.at(&[name]).is_some()) {
        let message = "see response_timeout, retries and balance of upstreams";
        let there = format!("{name} of a rule");
        report.left_out(path.rule.place(), there, message);
    }
    (changes, closed)
}
