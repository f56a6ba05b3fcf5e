//! The Gateway API of Kubernetes: HTTPRoutes and GRPCRoutes at the listeners of Gateways, as far as
//! they are routes here, and the limits and guards that policies put on them.
//!
//! - `field`: a part of a manifest; `pattern`: paths and hosts.
//! - `limit`: a limit to be, and which requests it counts; `guard`: who may pass.
//! - `objects`: what is in the files, and what of it is for whom.
//! - `backends`: upstreams, and what a route changes on the way.
//! - `plan`: routes with their limits as the sections of a policy, and their tests (`plan/cases`).

pub(crate) mod backends;
pub(crate) mod field;
pub(crate) mod guard;
pub(crate) mod limit;
pub(crate) mod objects;
pub(crate) mod pattern;
pub(crate) mod plan;

use std::cmp::Reverse;

use self::{
    field::Field,
    objects::Objects,
    pattern::{Pattern, common_host},
};
use crate::report::Report;

/// The most paths, and limits on them, that a policy is made of.
const MAX_PATHS: usize = 1_000;
pub(crate) const MAX_CHARGES: usize = 20_000;

/// A listener that a route is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener<'r> {
    pub(crate) namespace: &'r str,
    pub(crate) gateway: &'r str,
    /// None: its Gateway is in no file, and the route does not name it.
    pub(crate) name: Option<&'r str>,
}

/// A match of a route's rule, on a host.
#[derive(Clone)]
pub(crate) struct Path<'r> {
    pub(crate) kind: &'r str,
    pub(crate) namespace: &'r str,
    /// The name of its HTTPRoute or GRPCRoute.
    pub(crate) route: &'r str,
    pub(crate) rule: Field<'r>,
    pub(crate) rule_name: Option<&'r str>,
    pub(crate) pattern: Pattern,
    pub(crate) method: Option<&'r str>,
    /// None: any.
    pub(crate) host: Option<String>,
    pub(crate) listeners: Vec<Listener<'r>>,
}

/// What a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'r> {
    pub(crate) kind: &'r str,
    pub(crate) namespace: &'r str,
    pub(crate) name: &'r str,
    /// A listener, or a rule of a route.
    pub(crate) section: Option<&'r str>,
}

/// How near a policy is to a path: the last one is the nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Gateway,
    Listener,
    Route,
    Rule,
}

impl<'r> Target<'r> {
    /// What a reference of an object in a namespace means.
    pub(crate) fn of(reference: Field<'r>, namespace: &'r str) -> Self {
        Target {
            kind: reference.text_at(&["kind"]).unwrap_or_default(),
            namespace: reference.text_at(&["namespace"]).unwrap_or(namespace),
            name: reference.text_at(&["name"]).unwrap_or_default(),
            section: reference.text_at(&["sectionName"]),
        }
    }

    /// How near it is to a path at a listener; none: it is not for it.
    pub(crate) fn level(&self, path: &Path<'r>, listener: &Listener<'r>) -> Option<Level> {
        let is_route = self.kind == path.kind
            && self.name == path.route
            && are_alike(self.namespace, path.namespace);
        let is_gateway = self.kind == "Gateway"
            && self.name == listener.gateway
            && are_alike(self.namespace, listener.namespace);
        match self.section {
            None if is_route => Some(Level::Route),
            None if is_gateway => Some(Level::Gateway),
            Some(_) if is_route && self.section == path.rule_name => Some(Level::Rule),
            Some(_) if is_gateway && self.section == listener.name => Some(Level::Listener),
            _ => None,
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let section = self.section.map(|own| format!(", section {own}")).unwrap_or_default();
        format!("{} {}{section}", self.kind, self.name)
    }
}

/// Whether namespaces are one. What has none in its file gets one by the command that applies it.
pub(crate) fn are_alike(one: &str, other: &str) -> bool {
    one.is_empty() || other.is_empty() || one == other
}

/// The paths of all routes, the one that a gateway takes first before the others. `class`: only at
/// Gateways of this class.
pub(crate) fn paths<'r>(
    objects: &Objects<'r>,
    class: Option<&str>,
    report: &mut Report,
) -> Vec<Path<'r>> {
    let gateways: Vec<Field<'r>> = objects.of_kind("Gateway").collect();
    let mut paths = Vec::new();
    for kind in ["HTTPRoute", "GRPCRoute"] {
        for object in objects.of_kind(kind) {
            let (_, name) = object.name();
            let hosts = hosts(object, &gateways, class);
            if hosts.is_empty() {
                let message = "no listener of its Gateways takes it: it has no route here";
                report.left_out(object.place(), format!("{kind} {name}"), message);
            }
            let rules = object.items(&["spec", "rules"]).into_iter();
            let matches = rules.flat_map(|rule| {
                let matches = rule.items(&["matches"]);
                let matches = if matches.is_empty() { vec![rule] } else { matches };
                matches.into_iter().map(move |own| (rule, own))
            });
            for (rule, own) in matches {
                let Some((pattern, method)) = matched(own, kind, report) else { continue };
                for (host, listeners) in &hosts {
                    if paths.len() == MAX_PATHS {
                        let message = format!("more than {MAX_PATHS} matches and hosts in all");
                        object.complain(message, "import the routes of each Gateway by themselves");
                        return paths;
                    }
                    paths.push(Path {
                        kind,
                        namespace: object.name().0,
                        route: name,
                        rule,
                        rule_name: rule.text_at(&["name"]),
                        pattern: pattern.clone(),
                        method,
                        host: host.clone(),
                        listeners: listeners.clone(),
                    });
                }
            }
        }
    }
    paths.sort_by_cached_key(|path| {
        (
            host_rank(path.host.as_deref()),
            path.host.clone(),
            path.pattern.rank(),
            path.method.is_none(),
        )
    });
    without_hidden(paths, report)
}

/// The paths without those that others hide here: routes of several Gateways may have the same
/// host and path, and a policy knows one.
fn without_hidden<'r>(paths: Vec<Path<'r>>, report: &mut Report) -> Vec<Path<'r>> {
    let mut kept: Vec<Path<'r>> = Vec::new();
    for path in paths {
        let hides = |other: &&Path<'r>| {
            (&other.host, &other.pattern) == (&path.host, &path.pattern)
                && (other.method == path.method || other.method.is_none())
        };
        let Some(other) = kept.iter().find(hides) else {
            kept.push(path);
            continue;
        };
        let there = format!("{} {}, {}", path.kind, path.route, path.pattern.path());
        let message = format!(
            "{} {} has the same host and path, and comes first here: its limits hold, and not \
             those of this route. Import the routes of each Gateway by themselves (--class, or \
             other files)",
            other.kind, other.route
        );
        report.left_out(path.rule.place(), there, message);
    }
    kept
}

/// Hosts come before those that have them among others.
pub(crate) fn host_rank(host: Option<&str>) -> (u8, Reverse<usize>) {
    match host {
        Some(host) if !host.starts_with('*') => (0, Reverse(0)),
        Some(host) => (1, Reverse(host.len())),
        None => (2, Reverse(0)),
    }
}

fn labels(object: Field<'_>) -> Vec<(&str, &str)> {
    let labels = object.entries(&["metadata", "labels"]).into_iter();
    labels.filter_map(|(name, value)| Some((name, value.text()?))).collect()
}

/// The hosts of a route, each with the listeners that it is at.
fn hosts<'r>(
    object: Field<'r>,
    gateways: &[Field<'r>],
    class: Option<&str>,
) -> Vec<(Option<String>, Vec<Listener<'r>>)> {
    let names = object.texts(&["spec", "hostnames"]);
    let names: Vec<Option<&str>> =
        if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
    let mut hosts: Vec<(Option<String>, Vec<Listener<'r>>)> = Vec::new();
    for parent in object.items(&["spec", "parentRefs"]) {
        for (listener, hostname) in listeners(parent, object, gateways, class) {
            for host in names.iter().filter_map(|name| common_host(*name, hostname)) {
                match hosts.iter_mut().find(|(own, _)| *own == host) {
                    Some((_, listeners)) if listeners.contains(&listener) => {}
                    Some((_, listeners)) => listeners.push(listener),
                    None => hosts.push((host, vec![listener])),
                }
            }
        }
    }
    hosts
}

/// The listeners that a reference of a route means, with their hosts.
fn listeners<'r>(
    parent: Field<'r>,
    object: Field<'r>,
    gateways: &[Field<'r>],
    class: Option<&str>,
) -> Vec<(Listener<'r>, Option<&'r str>)> {
    let (own, _) = object.name();
    let Target { namespace, name: gateway, section, .. } = Target::of(parent, own);
    let is_it = |other: &&Field<'r>| {
        let (other, name) = other.name();
        name == gateway && are_alike(other, namespace)
    };
    let Some(found) = gateways.iter().find(is_it) else {
        // It is not known, so what routes say is all there is.
        let is_wanted = class.is_none();
        let listener = Listener { namespace, gateway, name: section };
        return if is_wanted { vec![(listener, None)] } else { Vec::new() };
    };
    if class.is_some_and(|class| found.text_at(&["spec", "gatewayClassName"]) != Some(class)) {
        return Vec::new();
    }
    let takes = |listener: &Field<'r>| {
        let from = listener.text_at(&["allowedRoutes", "namespaces", "from"]).unwrap_or("Same");
        let protocol = listener.text_at(&["protocol"]).unwrap_or("HTTP");
        let port = parent.text_at(&["port"]);
        ["HTTP", "HTTPS"].contains(&protocol)
            && (section.is_none() || section == listener.text_at(&["name"]))
            && (port.is_none() || port == listener.text_at(&["port"]))
            && (from != "Same" || are_alike(own, found.name().0))
            && from != "None"
    };
    let listeners = found.items(&["spec", "listeners"]).into_iter().filter(takes);
    let known = listeners.map(|listener| {
        let name = listener.text_at(&["name"]);
        let hostname = listener.text_at(&["hostname"]).filter(|name| !name.is_empty());
        (Listener { namespace, gateway, name }, hostname)
    });
    known.collect()
}

/// The path and method of a match; none: it has no counterpart.
fn matched<'r>(
    own: Field<'r>,
    kind: &str,
    report: &mut Report,
) -> Option<(Pattern, Option<&'r str>)> {
    let mut leave_out = |there: String| {
        let message = "routes match paths, methods, hosts and addresses. Such requests take the \
                       next route below that matches them, with its limits, or are 404: these \
                       limits are not in force for them";
        report.left_out(own.place(), there, message);
    };
    for condition in ["headers", "queryParams"] {
        if !own.items(&[condition]).is_empty() {
            leave_out(format!("a match by {condition}"));
            return None;
        }
    }
    let (name, what) =
        if kind == "GRPCRoute" { ("method", "a gRPC method") } else { ("path", "a path") };
    let written = own.at(&[name]);
    let of_type = written.and_then(|written| written.text_at(&["type"]));
    if of_type == Some("RegularExpression") {
        leave_out(format!("a match of {what} by a regular expression"));
        return None;
    }
    if kind == "HTTPRoute" {
        let path = written.and_then(|written| written.text_at(&["value"])).unwrap_or("/");
        let is_exact = of_type == Some("Exact");
        let pattern = if is_exact { Pattern::exact(path) } else { Pattern::below(path) };
        return Some((pattern, own.text_at(&["method"])));
    }
    let part = |name| written.and_then(|written| written.text_at(&[name]));
    match (part("service"), part("method")) {
        (None, None) => Some((Pattern::below("/"), None)),
        (Some(service), None) => Some((Pattern::below(&format!("/{service}")), None)),
        (Some(service), Some(method)) => {
            Some((Pattern::exact(&format!("/{service}/{method}")), None))
        }
        (None, Some(_)) => {
            leave_out("a gRPC method without its service".to_owned());
            None
        }
    }
}
