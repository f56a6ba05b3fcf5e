//! Paths with their limits and guards as the routes of a policy.
//!
//! A limit that is for some of a route's paths, or for some addresses, makes several routes of it:
//! the narrower one first.

mod cases;

use super::{
    Path,
    backends::Forward,
    guard::{Guard, Issuers},
    host_rank,
    limit::{Limit, Methods},
    pattern::{Pattern, host_contains},
};
use crate::{
    Imported, Options,
    draft::{Draft, MAX_LIMITS},
    flow::Flow,
    gateway,
    report::Report,
    upstreams::Upstreams,
};

/// A path, and what policies put on it.
pub(crate) struct Served<'r> {
    pub(crate) path: Path<'r>,
    /// Where they are among all limits.
    pub(crate) limits: Vec<usize>,
    pub(crate) guard: Guard,
}

/// All that a policy is made of.
#[derive(Default)]
pub(crate) struct Plan<'r> {
    served: Vec<Served<'r>>,
    /// The limits on all of them.
    on_paths: usize,
    pub(crate) limits: Vec<Limit>,
    pub(crate) issuers: Issuers,
    pub(crate) report: Report,
    /// The form of limit headers.
    pub(crate) headers: &'static str,
}

/// A route to be.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) pattern: Pattern,
    pub(crate) host: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) from: Option<String>,
    pub(crate) limits: Vec<usize>,
    pub(crate) guard: Guard,
    upstream: String,
    changes: Vec<(&'static str, Flow)>,
}

impl<'r> Plan<'r> {
    /// `headers`: the form of limit headers.
    pub(crate) fn new(headers: &'static str) -> Self {
        Plan { headers, ..Plan::default() }
    }

    /// Adds a path. Too many limits on all paths are a problem of its rule, and false.
    pub(crate) fn serve(&mut self, served: Served<'r>) -> bool {
        let rule = served.path.rule;
        self.on_paths += served.limits.len();
        self.served.push(served);
        let fits = self.on_paths <= gateway::MAX_CHARGES;
        if !fits {
            let message = format!("more than {} limits on all routes", gateway::MAX_CHARGES);
            rule.complain(message, "import the routes of each Gateway by themselves");
        }
        fits
    }

    /// The policy. `title`: what it is made of.
    pub(crate) fn finish(mut self, title: String, options: &Options) -> Imported {
        let mut upstreams = Upstreams::default();
        let mut routes = Vec::new();
        for at in 0..self.served.len() {
            routes.extend(self.routes(at, &mut upstreams, options));
        }
        let routes = with_ends(routes);
        let has_jwt = self.issuers.section().is_some();
        let mut hosts: Vec<String> = Vec::new();
        if routes.iter().all(|route| route.host.is_some()) {
            for host in routes.iter().filter_map(|route| route.host.as_ref()) {
                if !hosts.contains(host) {
                    hosts.push(host.clone());
                }
            }
        }
        let used = |at: usize| routes.iter().any(|route| route.limits.contains(&at));
        let used: Vec<(usize, &Limit)> =
            self.limits.iter().enumerate().filter(|(at, _)| used(*at)).collect();
        let draft = Draft {
            title,
            to_do: self.report.to_do,
            hosts,
            upstreams: upstreams.section(),
            identity: self.issuers.section(),
            limits: used.iter().map(|(_, own)| (own.name.clone(), own.written(has_jwt))).collect(),
            overrides: used
                .iter()
                .flat_map(|(_, own)| own.overrides(self.issuers.are_several()))
                .collect(),
            responses: Some(Flow::fields([("headers", self.headers.into())])),
            routes: routes.iter().map(|route| written(route, &self.limits)).collect(),
            tests: cases::cases(&routes, &self.limits),
            ..Draft::default()
        };
        draft.finish(self.report.findings)
    }

    /// The routes of a path.
    fn routes(&mut self, at: usize, upstreams: &mut Upstreams, options: &Options) -> Vec<Route> {
        let Plan { served, limits, report, .. } = self;
        let Some(Served { path, limits: own, guard }) = served.get(at) else { return Vec::new() };
        let Forward { upstream, changes, closed } =
            Forward::of(path, options.upstream.as_deref(), upstreams, report);
        let mut guard = guard.clone();
        if let Some(why) = closed {
            let message =
                format!("the route {} is closed: say what it answers", path.pattern.path());
            report.left_out(path.rule.place(), why, message);
            guard = Guard::closed();
        }
        let of = |at: &usize| limits.get(*at).map(|limit| (*at, limit));
        let own: Vec<(usize, &Limit)> = own
            .iter()
            .filter_map(of)
            .filter(|(_, limit)| counts_method(limit, path.method))
            .collect();
        let mut patterns = vec![path.pattern.clone()];
        for pattern in own.iter().filter_map(|(_, limit)| limit.scope.pattern.as_ref()) {
            if path.pattern.contains(pattern) && !patterns.contains(pattern) {
                patterns.push(pattern.clone());
            }
        }
        patterns.sort_by_key(Pattern::rank);
        let mut routes = Vec::new();
        for pattern in patterns {
            let holds = |(_, limit): &&(usize, &Limit)| {
                limit.scope.pattern.as_ref().is_none_or(|own| own.contains(&pattern))
            };
            let own: Vec<(usize, &Limit)> = own.iter().filter(holds).copied().collect();
            for (from, limits) in by_address(&own, report) {
                routes.push(Route {
                    pattern: pattern.clone(),
                    host: path.host.clone(),
                    method: path.method.map(str::to_owned),
                    from,
                    limits,
                    guard: guard.clone(),
                    upstream: upstream.clone(),
                    changes: changes.clone(),
                });
            }
        }
        routes
    }
}

fn counts_method(limit: &Limit, method: Option<&str>) -> bool {
    method.is_none_or(|method| limit.scope.methods.count(method))
}

/// Limits by where requests come from: those from a network first, if that makes a difference.
fn by_address(
    limits: &[(usize, &Limit)],
    report: &mut Report,
) -> Vec<(Option<String>, Vec<usize>)> {
    let networks = limits.iter().filter_map(|(_, limit)| limit.scope.from.as_ref());
    let Some((network, _)) = networks.clone().next() else {
        return vec![(None, bounded(limits, |_| true, report))];
    };
    let mut sides = Vec::new();
    for (from, is_inside) in [(Some(network.clone()), true), (None, false)] {
        let holds = |limit: &Limit| match &limit.scope.from {
            Some((own, inside)) => own == network && *inside == is_inside,
            None => true,
        };
        sides.push((from, bounded(limits, holds, report)));
    }
    for (_, limit) in limits {
        if limit.scope.from.as_ref().is_some_and(|(own, _)| own != network) {
            let there = format!("a limit by another network than {network} on the same route");
            let message = "a route here is split by one network: this limit is not in force";
            report.left_out(&limit.place, there, message);
        }
    }
    sides
}

/// As many of the limits as a route takes.
fn bounded(
    limits: &[(usize, &Limit)],
    holds: impl Fn(&Limit) -> bool,
    report: &mut Report,
) -> Vec<usize> {
    let mut own: Vec<(usize, &Limit)> =
        limits.iter().filter(|(_, limit)| holds(limit)).copied().collect();
    for (_, limit) in own.drain(MAX_LIMITS.min(own.len())..) {
        let there = format!("limit {}, the ninth or a later one of a route", limit.name);
        let message = format!("a route takes {MAX_LIMITS} limits: this one is not in force there");
        report.left_out(&limit.place, there, message);
    }
    own.into_iter().map(|(at, _)| at).collect()
}

/// The routes with an end for each host that has less specific ones behind it: a gateway does not
/// look for a route among those.
fn with_ends(routes: Vec<Route>) -> Vec<Route> {
    let mut all: Vec<Route> = Vec::new();
    let mut hosts: Vec<Option<String>> = routes.iter().map(|route| route.host.clone()).collect();
    hosts.sort_by_key(|host| (host_rank(host.as_deref()), host.clone()));
    hosts.dedup();
    let root = Pattern::below("/");
    for host in &hosts {
        let own: Vec<Route> = routes.iter().filter(|route| route.host == *host).cloned().collect();
        let is_caught = own
            .iter()
            .any(|route| route.pattern == root && route.method.is_none() && route.from.is_none());
        let has_others = hosts
            .iter()
            .any(|other| other != host && host_contains(other.as_deref(), host.as_deref()));
        let end = own.first().filter(|_| !is_caught && has_others).map(|route| Route {
            pattern: root.clone(),
            method: None,
            from: None,
            limits: Vec::new(),
            guard: Guard::closed(),
            changes: Vec::new(),
            ..route.clone()
        });
        all.extend(own);
        all.extend(end);
    }
    all
}

fn written(route: &Route, limits: &[Limit]) -> Flow {
    let place = Flow::fields([("path", route.pattern.path().into())])
        .with_some("host", route.host.clone())
        .with_list("methods", route.method.clone())
        .with_list("from", route.from.clone());
    let mut own = route.guard.on(Flow::fields([("match", place)]));
    for (name, value) in &route.changes {
        own = own.with(name, value.clone());
    }
    let names = route.limits.iter().filter_map(|at| limits.get(*at));
    own.with("limits", Flow::list(names.map(|limit| limit.name.clone())))
        .with("upstream", route.upstream.clone())
}

/// What a method of a match says of HEAD: there it is another one.
pub(crate) fn head_note(path: &Path<'_>, report: &mut Report) {
    if path.method == Some("GET") {
        let message = "HEAD takes the route of GET, with its limits, and is another method there";
        report.nearly(path.rule.place(), "a match by method GET", message);
    }
}

/// Whether any request of a path counts.
pub(crate) fn concerns(path: &Path<'_>, methods: &Methods, pattern: Option<&Pattern>) -> bool {
    let is_method = path.method.is_none_or(|method| methods.count(method));
    let is_path =
        pattern.is_none_or(|own| own.contains(&path.pattern) || path.pattern.contains(own));
    is_method && is_path
}
