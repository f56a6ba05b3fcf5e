//! Which requests are treated otherwise than before: they match another route, or the route does
//! something else with them.
//!
//! Nothing is compared as it is written. Sample requests are put to both routers: for each two path
//! patterns that overlap a path of each depth, for each method that is named and one that is not,
//! for each host. A route that matches a sample matches all requests of which it is a sample, so no
//! difference is missed, and a route that no request can reach makes none.

use std::collections::{BTreeSet, HashMap, HashSet};

use http::Method;
use serde::Serialize;

use super::words;
use crate::policy::{
    HeaderEdits, HostPattern, KeyPart, Matcher, PathRewrite, Policy, Request, Route,
};

/// Sample requests that are tried, at most: a policy of a thousand routes must not take long.
const MAX_SAMPLES: usize = 50_000;

/// Requests that are treated otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteChange {
    /// Their hosts; empty: all that the policy is for.
    pub hosts: Vec<String>,
    /// Their methods; empty: all. `*` stands for those that no route names.
    pub methods: Vec<String>,
    /// Their paths, as a pattern.
    pub path: String,
    /// The route that they matched; none: none.
    pub before: Option<String>,
    /// The route that they match now; none: none.
    pub after: Option<String>,
    /// What is done otherwise: `limits core -> core, search`.
    pub effects: Vec<String>,
}

/// What is known of the requests that differ, and whether all were tried.
pub(super) struct Routing {
    pub(super) changes: Vec<RouteChange>,
    pub(super) is_complete: bool,
}

/// A group of requests that took one route before and take one now.
type Moved = (Option<usize>, Option<usize>);

/// The samples in a group, by position.
#[derive(Default)]
struct Sampled {
    methods: BTreeSet<usize>,
    hosts: BTreeSet<usize>,
}

/// The differences between two versions of a policy.
pub(super) fn routing(old: &Policy, new: &Policy) -> Routing {
    let sides = Sides { old, new };
    let (methods, hosts) = (sides.methods(), sides.hosts());
    let paths = sides.paths();
    let room = MAX_SAMPLES / (methods.len() * hosts.len()).max(1);
    let mut order = Vec::new();
    let mut seen: HashMap<Moved, Option<Sampled>> = HashMap::new();
    for path in paths.iter().take(room) {
        for (host_at, host) in hosts.iter().enumerate() {
            for (method_at, method) in methods.iter().enumerate() {
                let request = Request { host: host.sample.as_deref(), path, method };
                let key = (old.router.route(request), new.router.route(request));
                let sampled = seen.entry(key).or_insert_with(|| {
                    let is_other = !sides.is_alike(key);
                    is_other.then(|| {
                        order.push(key);
                        Sampled::default()
                    })
                });
                if let Some(sampled) = sampled {
                    sampled.methods.insert(method_at);
                    sampled.hosts.insert(host_at);
                }
            }
        }
    }
    let change = |key: Moved| {
        let sampled = seen.remove(&key).flatten().unwrap_or_default();
        let method = |at: &usize| match methods.get(*at) {
            Some(method) if *at + 1 < methods.len() => vec![method.to_string()],
            _ => vec!["*".to_owned()],
        };
        let host = |at: &usize| hosts.get(*at).map(|host| host.names.clone()).unwrap_or_default();
        RouteChange {
            hosts: some_of(&sampled.hosts, hosts.len(), host),
            methods: some_of(&sampled.methods, methods.len(), method),
            path: sides.pattern(key),
            before: sides.before(key).map(|route| route.name.to_string()),
            after: sides.after(key).map(|route| route.name.to_string()),
            effects: sides.effects(key),
        }
    };
    Routing { changes: order.into_iter().map(change).collect(), is_complete: paths.len() <= room }
}

/// Names of what was chosen of `all`; empty: all of it.
fn some_of(
    chosen: &BTreeSet<usize>,
    all: usize,
    names: impl Fn(&usize) -> Vec<String>,
) -> Vec<String> {
    match chosen.len() == all {
        true => Vec::new(),
        false => chosen.iter().flat_map(names).collect(),
    }
}

/// Two versions of a policy.
struct Sides<'p> {
    old: &'p Policy,
    new: &'p Policy,
}

/// Hosts that all routes treat alike.
struct Hosts {
    /// One of them; none: a request without one.
    sample: Option<String>,
    /// As policies write them.
    names: Vec<String>,
}

impl<'p> Sides<'p> {
    fn matchers(&self) -> impl Iterator<Item = &'p Matcher> {
        self.old.router.matchers().iter().chain(self.new.router.matchers())
    }

    fn before(&self, key: Moved) -> Option<&'p Route> {
        self.old.routes.get(key.0?)
    }

    fn after(&self, key: Moved) -> Option<&'p Route> {
        self.new.routes.get(key.1?)
    }

    /// Methods that routes name, and last one that none does.
    fn methods(&self) -> Vec<Method> {
        let mut methods: Vec<Method> = Vec::new();
        for method in self.matchers().flat_map(|matcher| &matcher.methods) {
            if !methods.contains(method) {
                methods.push(method.clone());
            }
        }
        let other = (0..)
            .filter_map(|number| Method::from_bytes(format!("OTHER{number}").as_bytes()).ok())
            .find(|method| !methods.contains(method));
        methods.extend(other);
        methods
    }

    /// Hosts that routes name, grouped by which routes are for them, and the policies' own.
    fn hosts(&self) -> Vec<Hosts> {
        let of_routes: Vec<&HostPattern> =
            self.matchers().flat_map(|matcher| &matcher.hosts).collect();
        let of_policies = self.old.hosts.iter().chain(&self.new.hosts);
        let mut patterns: Vec<&HostPattern> = Vec::new();
        for pattern in of_policies.chain(of_routes.iter().copied()) {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        let is_fallback = self.old.hosts.is_empty() || self.new.hosts.is_empty();
        let named = patterns.into_iter().map(|own| (Some(host_sample(own)), words::host(own)));
        let others = is_fallback.then(|| (None, "other hosts".to_owned()));
        let mut groups: Vec<(Vec<bool>, Hosts)> = Vec::new();
        for (sample, name) in named.chain(others) {
            let takes =
                |own: &&HostPattern| sample.as_deref().is_some_and(|host| own.matches(host));
            let taken_by: Vec<bool> = of_routes.iter().map(takes).collect();
            match groups.iter_mut().find(|(other, _)| *other == taken_by) {
                Some((_, hosts)) => hosts.names.push(name),
                None => groups.push((taken_by, Hosts { sample, names: vec![name] })),
            }
        }
        groups.into_iter().map(|(_, hosts)| hosts).collect()
    }

    /// One path for each way in which two patterns overlap, of each depth up to one that is below
    /// all patterns.
    fn paths(&self) -> Vec<String> {
        let mut patterns: Vec<_> = Vec::new();
        let mut seen = HashSet::new();
        for matcher in self.matchers() {
            if seen.insert(matcher.path.to_string()) {
                patterns.push(&matcher.path);
            }
        }
        let max_depth = patterns.iter().map(|pattern| pattern.depth()).max().unwrap_or(0) + 1;
        let mut known = HashSet::new();
        let mut paths = Vec::new();
        for (at, left) in patterns.iter().enumerate() {
            for right in patterns.iter().skip(at) {
                let Some(overlap) = left.overlap(right) else { continue };
                for path in overlap.samples(max_depth) {
                    if known.insert(path.clone()) {
                        paths.push(path);
                    }
                }
                if paths.len() > MAX_SAMPLES {
                    return paths;
                }
            }
        }
        paths
    }

    /// The paths that are moved: those that both routes match.
    fn pattern(&self, key: Moved) -> String {
        match (self.before(key), self.after(key)) {
            (Some(before), Some(after)) => {
                let overlap = before.path.overlap(&after.path);
                overlap.map_or_else(|| after.name.to_string(), |overlap| overlap.to_string())
            }
            (Some(route), None) | (None, Some(route)) => route.name.to_string(),
            (None, None) => String::new(),
        }
    }

    /// Whether a request is treated as before.
    fn is_alike(&self, key: Moved) -> bool {
        match (self.before(key), self.after(key)) {
            (None, None) => true,
            (Some(before), Some(after)) => {
                before.name == after.name && self.effects(key).is_empty()
            }
            _ => false,
        }
    }

    /// What is done otherwise with the requests of a group.
    fn effects(&self, key: Moved) -> Vec<String> {
        let (Some(before), Some(after)) = (self.before(key), self.after(key)) else {
            return Vec::new();
        };
        let pairs = [
            ("limits", limits(before, self.old), limits(after, self.new)),
            ("auth", words::auth(&before.auth, self.old), words::auth(&after.auth, self.new)),
            ("scopes", scopes(before), scopes(after)),
            ("upstream", upstream(before, self.old), upstream(after, self.new)),
            ("cost", cost(before), cost(after)),
            ("max body", max_body(before), max_body(after)),
            ("upgrades", upgrades(before), upgrades(after)),
            ("path prefix", prefixes(before), prefixes(after)),
            ("cors", cors(before), cors(after)),
        ];
        let differs = pairs.into_iter().filter(|(_, before, after)| before != after);
        let mut effects: Vec<String> =
            differs.map(|(what, before, after)| format!("{what} {before} -> {after}")).collect();
        effects.extend(edited_headers(before, after));
        effects.extend(self.moved_parameters(before, after));
        effects
    }

    /// Parameters that limits count by and that stand for another part of the path now.
    fn moved_parameters(&self, before: &Route, after: &Route) -> Vec<String> {
        let limits = after.limits.iter().filter_map(|at| self.new.limits.get(*at));
        let charged_before = |name: &str| {
            let mut limits = before.limits.iter().filter_map(|at| self.old.limits.get(*at));
            limits.any(|limit| *limit.name == *name)
        };
        let parameters = limits.filter(|limit| charged_before(&limit.name)).flat_map(|limit| {
            let parts = limit.per.parts.iter().filter_map(|part| match part {
                KeyPart::PathParameter(name) => Some(name),
                _ => None,
            });
            parts.map(|part| (&limit.name, part))
        });
        parameters
            .filter(|(_, name)| {
                let [before, after] = [before, after].map(|route| route.path.parameter_at(name));
                before.is_some() && before != after
            })
            .map(|(limit, name)| format!("{limit} counts by another part of the path as {name}"))
            .collect()
    }
}

/// A host that matches, and no other pattern but those that match all its like.
pub(super) fn host_sample(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Exact(name) => name.to_string(),
        // No host has a space, so no pattern spells this out.
        HostPattern::Below(suffix) => format!(" {suffix}"),
    }
}

fn limits(route: &Route, policy: &Policy) -> String {
    let limits = route.limits.iter().filter_map(|at| policy.limits.get(*at));
    words::list(limits.map(|limit| limit.name.to_string()))
}

fn upstream(route: &Route, policy: &Policy) -> String {
    policy.upstreams.get(route.upstream).map_or(String::new(), |own| own.name.to_string())
}

fn scopes(route: &Route) -> String {
    let mut scopes: Vec<String> = route.scopes.iter().map(ToString::to_string).collect();
    scopes.sort();
    words::list(scopes)
}

fn cost(route: &Route) -> String {
    route.cost.as_ref().map_or_else(|| "by limit".to_owned(), words::cost)
}

fn max_body(route: &Route) -> String {
    route.max_body.map_or_else(|| "any".to_owned(), |bytes| format!("{bytes} bytes"))
}

fn upgrades(route: &Route) -> String {
    let mut upgrades: Vec<String> = route.upgrades.iter().map(ToString::to_string).collect();
    upgrades.sort();
    words::list(upgrades)
}

fn prefixes(route: &Route) -> String {
    let PathRewrite { strip, add } = &route.rewrite;
    let strip = strip.iter().map(|prefix| format!("without {prefix}"));
    words::list(strip.chain(add.iter().map(|prefix| format!("below {prefix}"))))
}

fn cors(route: &Route) -> String {
    route.cors.as_deref().map_or_else(|| "none".to_owned(), words::cors)
}

/// Values are not told: they may be passwords.
fn edited_headers(before: &Route, after: &Route) -> Vec<String> {
    let pairs = [
        ("request headers", &before.request_headers, &after.request_headers),
        ("response headers", &before.response_headers, &after.response_headers),
    ];
    let effect = |(what, before, after): (&str, &HeaderEdits, &HeaderEdits)| {
        let [from, to] = [before, after].map(words::header_edits);
        match from == to {
            _ if before == after => None,
            true => Some(format!("{what} have other values")),
            false => Some(format!("{what} {from} -> {to}")),
        }
    };
    pairs.into_iter().filter_map(effect).collect()
}
