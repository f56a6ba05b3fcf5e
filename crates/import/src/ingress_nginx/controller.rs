//! The ConfigMap of the controller: defaults for all Ingresses.

use ipnet::IpNet;

use super::{
    Import,
    ingress::{Entry, entries},
    limits::networks,
    snippet::Snippet,
};
use crate::{Finding, manifest::Resource, words};

/// What the controller says for all Ingresses.
#[derive(Debug, Default)]
pub(super) struct Controller {
    pub(super) is_given: bool,
    /// The variable that limits count by.
    pub(super) variable: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) allow: Vec<IpNet>,
    pub(super) deny: Vec<IpNet>,
    pub(super) is_closed: bool,
    pub(super) is_authenticated: bool,
    /// Paths that begin so are not authenticated.
    pub(super) unauthenticated: Vec<String>,
    pub(super) locations: Vec<String>,
    entries: Vec<Entry>,
    /// Whether clients are named by another proxy.
    pub(super) is_behind_proxy: bool,
}

/// Keys that make a ConfigMap that of the controller.
const MARKS: &str = "\
    allow-snippet-annotations block-cidrs denylist-source-range enable-real-ip global-auth-url \
    http-snippet limit-conn-status-code limit-conn-zone-variable limit-req-status-code \
    server-snippet use-forwarded-headers whitelist-source-range";

/// Keys that say nothing of limits, access or the way of requests.
const IGNORED: &str = "\
    access-log allow-snippet-annotations disable-access-log enable-brotli error-log gzip- \
    keep-alive log-format max-worker proxy-buffer server-tokens use-gzip worker-";

/// Keys that name the client.
const BEHIND_PROXY: &str = "\
    compute-full-forwarded-for enable-real-ip forwarded-for-header proxy-real-ip-cidr \
    use-forwarded-headers use-proxy-protocol";

impl Controller {
    /// What it does without a ConfigMap.
    pub(super) fn new() -> Self {
        let unauthenticated = vec!["/.well-known/acme-challenge".to_owned()];
        Controller { unauthenticated, ..Controller::default() }
    }

    /// The value of a key.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let entry = self.entries.iter().find(|entry| entry.name == name && !entry.value.is_empty());
        entry.map(|entry| entry.value.as_str())
    }

    /// Whether a ConfigMap is the controller's.
    pub(super) fn is_of(resource: &Resource) -> bool {
        let is_named = ["ingress-nginx-controller", "nginx-configuration", "ingress-controller"]
            .iter()
            .any(|name| resource.name.ends_with(name));
        let data = entries(resource, &["data"]);
        resource.kind == "ConfigMap"
            && (is_named || data.iter().any(|entry| words::has(MARKS, &entry.name)))
    }
}

impl Import<'_> {
    /// Reads the controller's ConfigMap.
    pub(super) fn read_controller(&mut self, resource: &Resource) {
        self.controller.is_given = true;
        self.controller.entries = entries(resource, &["data"]);
        for entry in self.controller.entries.clone() {
            if !entry.value.is_empty() {
                self.read_key(resource, &entry);
            }
        }
    }

    fn read_key(&mut self, resource: &Resource, entry: &Entry) {
        let (name, value) = (entry.name.as_str(), entry.value.as_str());
        let place = resource.place(entry.span);
        let is_off = ["false", "off"].contains(&value);
        let there = format!("{name}: {value}");
        let row = match name {
            "limit-req-status-code" => {
                self.controller.status = value.parse().ok();
                Finding::same(place, there, "`denied_status`")
            }
            "limit-conn-status-code" => {
                let general = self.controller.value("limit-req-status-code").unwrap_or("503");
                let here = "`denied_status` is one for all limits: that of limit-req-status-code";
                match value == general {
                    true => Finding::same(place, there, "`denied_status`"),
                    false => Finding::nearly(place, there, here),
                }
            }
            "limit-conn-zone-variable" => {
                self.controller.variable = Some(value.to_owned());
                return;
            }
            "proxy-body-size" => {
                Finding::same(place, there, "`max_body`, where an Ingress says nothing else")
            }
            "proxy-connect-timeout" | "proxy-read-timeout" | "proxy-send-timeout" => {
                let here = "timeouts of upstreams, where an Ingress says nothing else";
                Finding::same(place, there, here)
            }
            "whitelist-source-range" | "denylist-source-range" | "block-cidrs" => {
                self.take_networks(place, name, value)
            }
            "no-auth-locations" => {
                let paths = value.split(',').map(|own| own.trim().to_owned());
                self.controller.unauthenticated = paths.filter(|own| !own.is_empty()).collect();
                return;
            }
            "global-auth-url" => {
                self.controller.is_authenticated = true;
                let here = "another service is asked about each request: write `identity`. All \
                            routes are closed (403), but for those with `enable-global-auth: \
                            false`";
                Finding::left_out(place, name, here)
            }
            "http-snippet" | "server-snippet" | "location-snippet" => {
                return self.take_snippet(&place, name, value);
            }
            _ if words::has(BEHIND_PROXY, name) => {
                self.controller.is_behind_proxy |= !is_off;
                Finding::nearly(place, name, "`trusted_proxies` of the settings: see below")
            }
            _ if is_off || words::begin(IGNORED, name) => return,
            _ if name.starts_with("limit-rate") => {
                let here = "a limit of bytes a second for each response: no counterpart";
                Finding::left_out(place, name, here)
            }
            _ => Finding::left_out(place, name, "of the controller: not in the policy"),
        };
        self.findings.push(row);
    }

    /// The networks that may pass, or may not.
    fn take_networks(&mut self, place: String, name: &str, value: &str) -> Finding {
        match networks(value) {
            Some(own) if name.starts_with('w') => self.controller.allow = own,
            Some(own) => self.controller.deny.extend(own),
            None => {
                self.controller.is_closed = true;
                let here = "not all are addresses or networks: all routes are closed (403)";
                return Finding::left_out(place, name, here);
            }
        }
        let here = "`allow` and `deny` of all routes, also where an Ingress has its own";
        Finding::same(place, format!("{name}: {value}"), here)
    }

    fn take_snippet(&mut self, place: &str, name: &str, value: &str) {
        let snippet = Snippet::read(value);
        self.note_snippet(place, name, &snippet);
        self.controller.is_closed |= snippet.closes();
        let locations = snippet.locations.into_iter().filter_map(|(_, own)| own).flatten();
        self.controller.locations.extend(locations);
        self.controller.status = snippet.status.or(self.controller.status);
    }
}
