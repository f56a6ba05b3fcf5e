//! Where requests go: Services, with the protocol and the timeouts of annotations.

use tollgate_yaml::{Node, Value};

use super::{
    Import,
    ingress::{Ingress, Path},
};
use crate::{
    Finding, Verdict,
    draft::NOWHERE,
    flow::Flow,
    manifest::{field, items, namespace_of, text},
    nginx::times,
};

/// The controller's, in seconds.
const CONNECT_TIMEOUT: u64 = 5;
const READ_TIMEOUT: u64 = 60;
/// The longest timeout here.
const MAX_TIMEOUT: u64 = 86_400;
/// The controller's bound of bodies.
const MAX_BODY: &str = "1m";

impl Import<'_> {
    /// The name of the upstream of a path, and whether requests may go there.
    pub(super) fn upstream(
        &mut self,
        ingress: &Ingress<'_>,
        path: &Path<'_>,
        ignores_case: bool,
    ) -> (String, bool) {
        let protocol = ingress.value("backend-protocol").unwrap_or("HTTP").to_ascii_uppercase();
        let scheme = if ["HTTPS", "GRPCS"].contains(&protocol.as_str()) { "https" } else { "http" };
        let server = self.server(ingress, path, scheme);
        let is_open = server.is_some() && protocol != "FCGI";
        let (name, url) = server.unwrap_or_else(|| ("none".to_owned(), NOWHERE.to_owned()));
        let timeout = |name: &str, default| {
            let written = ingress.value(name).or_else(|| self.controller.value(name));
            let number = written.and_then(|text| text.trim_end_matches('s').parse::<u64>().ok());
            Flow::Text(format!("{}s", number.unwrap_or(default).clamp(1, MAX_TIMEOUT)))
        };
        let read_timeout = timeout("proxy-read-timeout", READ_TIMEOUT);
        let case = Flow::fields([("case", "ignore".into())]);
        let read_timeout =
            Some(read_timeout).filter(|own| *own != Flow::Text(format!("{READ_TIMEOUT}s")));
        let upstream = Flow::fields([("servers", Flow::list([url]))])
            .with("paths", if ignores_case { case } else { Flow::fields([]) })
            .with("connect_timeout", timeout("proxy-connect-timeout", CONNECT_TIMEOUT))
            .with_some("response_timeout", read_timeout.clone())
            .with_some("idle_timeout", read_timeout)
            .with_some("protocol", protocol.starts_with("GRPC").then_some("h2"));
        (self.upstreams.name(&name, upstream), is_open)
    }

    /// The name and the URL of a backend.
    fn server(
        &mut self,
        ingress: &Ingress<'_>,
        path: &Path<'_>,
        scheme: &str,
    ) -> Option<(String, String)> {
        let backend = path.backend?;
        let service = field(backend, "service");
        let name = service.map_or_else(|| field(backend, "serviceName"), |own| field(own, "name"));
        let Some(name) = name.and_then(text) else {
            let here = "its backend is no Service: the route is closed (403)";
            self.path_left_out(ingress, path, here);
            return None;
        };
        let port = service.and_then(|own| field(own, "port"));
        let port = port.and_then(|own| field(own, "number").or_else(|| field(own, "name")));
        let port = port.or_else(|| field(backend, "servicePort"));
        let namespace = ingress.namespace();
        let host = format!("{namespace}-{name}");
        let url = |port: &str| format!("{scheme}://{name}.{namespace}.svc.cluster.local:{port}");
        let (number, port) = match port.map(|node| &node.value) {
            Some(Value::Integer(number)) => (Some(number.to_string()), ""),
            Some(Value::String(own)) if own.parse::<u16>().is_ok() => (Some(own.clone()), ""),
            Some(Value::String(own)) => (self.port(namespace, name, own), own.as_str()),
            _ => (None, "none"),
        };
        if let Some(number) = number {
            return Some((host, url(&number)));
        }
        let assumed = url(if scheme == "https" { "443" } else { "80" });
        let url = self.options.upstream.clone().unwrap_or(assumed);
        let here = format!(
            "the number of port {port} of Service {name} is not in the files: {url} stands for it. \
             Give what `kubectl get service -A -o yaml` prints as well, or write the number"
        );
        self.path_left_out(ingress, path, &here);
        Some((host, url))
    }

    /// The number of a named port, if the files have its Service.
    fn port(&self, namespace: &str, name: &str, port: &str) -> Option<String> {
        let is_service = |own: &&crate::manifest::Resource| {
            own.kind == "Service" && own.name == name && namespace_of(&own.namespace) == namespace
        };
        let service = self.resources.iter().find(is_service)?;
        let is_port = |own: &&Node| field(own, "name").and_then(text) == Some(port);
        let port = items(service.at(&["spec", "ports"])).iter().find(is_port)?;
        match field(port, "port").map(|node| &node.value) {
            Some(Value::Integer(number)) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The bound of bodies: none is any size.
    pub(super) fn max_body(&mut self, ingress: &Ingress<'_>) -> Option<String> {
        let entry = ingress.get("proxy-body-size");
        let written = entry.map(|entry| entry.value.as_str());
        let general = self.controller.value("proxy-body-size").unwrap_or(MAX_BODY).to_owned();
        let size = size(written.unwrap_or(&general));
        let bound = size.clone().unwrap_or_else(|| "1MiB".to_owned());
        if let Some(entry) = entry {
            let here = match (&size, bound.as_str()) {
                (None, _) => "no size that nginx takes: `max_body: 1MiB`".to_owned(),
                (Some(_), "0") => "bodies of any size".to_owned(),
                (Some(own), _) => format!("`max_body: {own}`"),
            };
            self.findings.push(ingress.row(entry, Verdict::same_if(size.is_some()), here));
        }
        (bound != "0").then_some(bound)
    }

    /// Rows for protocol and timeouts.
    pub(super) fn note_proxy(&mut self, ingress: &Ingress<'_>) {
        for (name, here) in [
            ("proxy-connect-timeout", "`connect_timeout` of its upstream"),
            ("proxy-read-timeout", "`response_timeout` and `idle_timeout` of its upstream"),
            (
                "proxy-send-timeout",
                "`idle_timeout` of its upstream is one for both ways: that of proxy-read-timeout",
            ),
        ] {
            let Some(entry) = ingress.get(name) else { continue };
            let is_same = name != "proxy-send-timeout" && entry.value.parse::<u64>().is_ok()
                || Some(entry.value.as_str()) == ingress.value("proxy-read-timeout");
            self.findings.push(ingress.row(entry, Verdict::same_if(is_same), here));
        }
        if let Some(entry) = ingress.get("backend-protocol") {
            let (verdict, here) = match entry.value.to_ascii_uppercase().as_str() {
                "HTTP" => (Verdict::Same, "http://"),
                "GRPC" => (Verdict::Same, "`protocol: h2`"),
                "HTTPS" | "GRPCS" => (
                    Verdict::Nearly,
                    "https://, whose certificates are always checked: see `tls` of its upstream",
                ),
                "AUTO_HTTP" => (Verdict::Nearly, "http://, whatever the client speaks"),
                _ => (Verdict::LeftOut, "no such protocol: the routes are closed (403)"),
            };
            self.findings.push(ingress.row(entry, verdict, here));
        }
        if let Some(entry) = ingress.get("upstream-vhost") {
            let here = "`request_headers` of its routes set the host";
            self.findings.push(ingress.row(entry, Verdict::Same, here));
        }
    }

    fn path_left_out(&mut self, ingress: &Ingress<'_>, path: &Path<'_>, here: &str) {
        let there = format!("{}: {}{}", ingress.id(), path.host, path.path);
        let finding = Finding::left_out(ingress.place(path.span), there, here);
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

/// A size of nginx as one of a policy; `0` is any.
fn size(text: &str) -> Option<String> {
    let size = times::size(text.trim())?;
    Some(if size.trim_end_matches(char::is_alphabetic) == "0" { "0".to_owned() } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_nginx_are_sizes_of_policies() {
        for (text, expected) in [
            ("1m", Some("1MiB")),
            ("100M", Some("100MiB")),
            ("8k", Some("8KiB")),
            ("2g", Some("2GiB")),
            ("512", Some("512")),
            ("0", Some("0")),
            ("0m", Some("0")),
            ("10mb", None),
            ("big", None),
        ] {
            assert_eq!(size(text).as_deref(), expected, "{text}");
        }
    }
}
