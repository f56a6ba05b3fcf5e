//! Which requests are handled differently: they match another route, or their route has changed.
//!
//! The text of routes is not compared. Both routers match sample requests: for each two path
//! patterns that overlap a path of each depth, for each method that is named and one that is not,
//! for each host, for each network. A route that matches a sample matches all requests of which it
//! is a sample, so no difference is missed, and a route that no request can reach makes none.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;
use tollgate_policy::{
    AddressRules, HeaderEdits, KeyPart, Networks, PathRewrite, Policy, Route, in_words,
};

use super::{
    samples::{Samples, matchers},
    words,
};

/// Sample requests that are tried, at most: a policy of a thousand routes must not take long.
const MAX_SAMPLES: usize = 50_000;

/// Requests that are handled differently than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteChange {
    /// Their hosts; empty: all that the policy is for.
    pub hosts: Vec<String>,
    /// Their methods; empty: all. `*` stands for those that no route names.
    pub methods: Vec<String>,
    /// The networks of their clients; empty: all.
    pub from: Vec<String>,
    /// Their paths, as a pattern.
    pub path: String,
    /// The route that they matched before, if any.
    pub before: Option<String>,
    /// The route that they match now, if any.
    pub after: Option<String>,
    /// What the route does differently: `limits core -> core, search`.
    pub effects: Vec<String>,
}

/// The requests that differ, and whether all were compared.
pub(super) struct Routing {
    pub(super) changes: Vec<RouteChange>,
    pub(super) is_complete: bool,
}

/// A group of requests that took one route before and take one now.
type RoutePair = (Option<usize>, Option<usize>);

/// The samples in a group, by position.
#[derive(Default)]
struct SampleParts {
    methods: BTreeSet<usize>,
    hosts: BTreeSet<usize>,
    addresses: BTreeSet<usize>,
}

/// The differences between two versions of a policy.
pub(super) fn routing(old: &Policy, new: &Policy) -> Routing {
    let sides = Sides { old, new };
    let samples = Samples::of(old, new);
    let paths = sides.paths();
    let room = MAX_SAMPLES / samples.count().max(1);
    let mut order = Vec::new();
    let mut seen: HashMap<RoutePair, Option<SampleParts>> = HashMap::new();
    for (sample, request) in paths.iter().take(room).flat_map(|path| samples.requests(path)) {
        let key = (old.router.route(request), new.router.route(request));
        let sampled = seen.entry(key).or_insert_with(|| {
            let is_other = !sides.is_alike(key);
            is_other.then(|| {
                order.push(key);
                SampleParts::default()
            })
        });
        if let Some(sampled) = sampled {
            sampled.methods.insert(sample.method);
            sampled.hosts.insert(sample.host);
            sampled.addresses.insert(sample.address);
        }
    }
    let change = |key: RoutePair| {
        let sampled = seen.remove(&key).flatten().unwrap_or_default();
        RouteChange {
            hosts: samples.host_names(&sampled.hosts),
            methods: samples.method_names(&sampled.methods),
            from: samples.address_names(&sampled.addresses),
            path: sides.pattern(key),
            before: sides.before(key).map(|route| route.name.to_string()),
            after: sides.after(key).map(|route| route.name.to_string()),
            effects: sides.effects(key),
        }
    };
    Routing { changes: order.into_iter().map(change).collect(), is_complete: paths.len() <= room }
}

/// Two versions of a policy.
struct Sides<'p> {
    old: &'p Policy,
    new: &'p Policy,
}

impl<'p> Sides<'p> {
    fn before(&self, key: RoutePair) -> Option<&'p Route> {
        self.old.routes.get(key.0?)
    }

    fn after(&self, key: RoutePair) -> Option<&'p Route> {
        self.new.routes.get(key.1?)
    }

    /// Paths for each overlap of two patterns, of each depth up to one below all patterns.
    fn paths(&self) -> Vec<String> {
        let mut patterns: Vec<_> = Vec::new();
        let mut seen = HashSet::new();
        for matcher in matchers(self.old, self.new) {
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
                    if paths.len() > MAX_SAMPLES {
                        return paths;
                    }
                }
            }
        }
        paths
    }

    /// The paths that are moved: those that both routes match.
    fn pattern(&self, key: RoutePair) -> String {
        match (self.before(key), self.after(key)) {
            (Some(before), Some(after)) => {
                let overlap = before.path.overlap(&after.path);
                overlap.map_or_else(|| after.name.to_string(), |overlap| overlap.to_string())
            }
            (Some(route), None) | (None, Some(route)) => route.name.to_string(),
            (None, None) => String::new(),
        }
    }

    /// Whether a request is handled as before.
    fn is_alike(&self, key: RoutePair) -> bool {
        match (self.before(key), self.after(key)) {
            (None, None) => true,
            (Some(before), Some(after)) => {
                before.name == after.name && self.effects(key).is_empty()
            }
            _ => false,
        }
    }

    /// What the route does differently with the requests of a group.
    fn effects(&self, key: RoutePair) -> Vec<String> {
        let (Some(before), Some(after)) = (self.before(key), self.after(key)) else {
            return Vec::new();
        };
        let pairs = fields(before, self.old).into_iter().zip(fields(after, self.new));
        let differs = pairs.filter(|(before, after)| before != after);
        let mut effects: Vec<String> = differs
            .map(|((what, before), (_, after))| format!("{what} {before} -> {after}"))
            .collect();
        effects.extend(edited_headers(before, after));
        effects.extend(self.moved_parameters(before, after));
        effects
    }

    /// Path parameters in keys of limits that are another segment of the path now.
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
            .map(|(limit, name)| format!("{limit} counts by another path segment as path.{name}"))
            .collect()
    }
}

/// What a route does with its requests, one text a field.
fn fields(route: &Route, policy: &Policy) -> [(&'static str, String); 11] {
    // Named one by one, so that a new field cannot be forgotten here.
    let Route {
        name: _,             // routes are found by it
        label: _,            // changes no request
        position: _,         // the samples
        methods: _,          // the samples
        path: _,             // the samples
        reading: _,          // its upstream
        request_headers: _,  // `edited_headers`
        response_headers: _, // `edited_headers`
        addresses: AddressRules { allow, deny },
        auth,
        scopes,
        limits,
        upstream,
        cost,
        max_body,
        cors,
        upgrades,
        body: _, // its limits say so
        rewrite: PathRewrite { strip, add },
    } = route;
    let limits = limits.iter().filter_map(|at| policy.limits.get(*at));
    let limits = words::list(limits.map(|limit| limit.name.to_string()));
    let upstream = policy.upstreams.get(*upstream).map(|own| own.name.to_string());
    let strip = strip.iter().map(|prefix| format!("without {prefix}"));
    let prefixes = strip.chain(add.iter().map(|prefix| format!("below {prefix}")));
    let or = |text: Option<String>, other: &str| text.unwrap_or_else(|| other.to_owned());
    [
        ("limits", limits),
        ("allow", or(allow.as_ref().map(networks), "all")),
        ("deny", networks(deny)),
        ("auth", words::auth(auth, policy)),
        ("scopes", sorted(scopes)),
        ("upstream", upstream.unwrap_or_default()),
        ("cost", or(cost.as_ref().map(words::cost), "by limit")),
        ("max body", or(max_body.map(|bytes| format!("{bytes} bytes")), "any")),
        ("upgrades", sorted(upgrades)),
        ("path prefix", words::list(prefixes)),
        ("cors", or(cors.as_deref().map(words::cors), "none")),
    ]
}

/// Sorted, since the order in the file makes no difference.
fn networks(networks: &Networks) -> String {
    sorted(&networks.iter().map(in_words).collect::<Vec<_>>())
}

fn sorted(names: &[impl ToString]) -> String {
    let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.sort();
    words::list(names)
}

/// Without values, which may be passwords.
fn edited_headers(before: &Route, after: &Route) -> Vec<String> {
    let pairs = [
        ("request headers", &before.request_headers, &after.request_headers),
        ("response headers", &before.response_headers, &after.response_headers),
    ];
    let effect = |(what, before, after): (&str, &HeaderEdits, &HeaderEdits)| {
        let [from, to] = [before, after].map(words::header_edits);
        match from == to {
            _ if before == after => None,
            true => Some(format!("{what} have changed values")),
            false => Some(format!("{what} {from} -> {to}")),
        }
    };
    pairs.into_iter().filter_map(effect).collect()
}
