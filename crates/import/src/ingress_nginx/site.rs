//! Routes: hosts, and the paths of each in the order in which nginx looks for them.

use ipnet::IpNet;

use super::{
    Import,
    annotations::Guards,
    ingress::{Ingress, Path},
    limits::{Key, Limits},
    paths::{self, Rewrite},
};
use crate::{Finding, Verdict, draft::EVERYBODY, flow::Flow, manifest::items};

/// An Ingress with what holds for all its paths.
pub(super) struct Served<'i, 'r> {
    pub(super) ingress: &'i Ingress<'r>,
    pub(super) limits: Limits,
    pub(super) guards: Guards,
    max_body: Option<String>,
}

/// A path of an Ingress.
pub(super) struct Located<'s, 'r> {
    /// The number of its Ingress.
    of: usize,
    pub(super) served: &'s Served<'s, 'r>,
    pub(super) path: Path<'r>,
}

/// A route that is written.
pub(super) struct Route {
    pub(super) host: String,
    pub(super) pattern: String,
    /// The number of its Ingress.
    pub(super) of: usize,
    pub(super) is_closed: bool,
}

impl<'r> Import<'r> {
    /// The routes, limits and tests of all Ingresses.
    pub(super) fn site(&mut self, ingresses: &[Ingress<'r>]) {
        let (canaries, ingresses): (Vec<_>, Vec<_>) =
            ingresses.iter().partition(|own| own.is_on("canary"));
        let variable = self.controller.variable.clone().unwrap_or("$binary_remote_addr".to_owned());
        let served: Vec<Served<'_, 'r>> = ingresses
            .into_iter()
            .map(|ingress| {
                let mut hosts = ingress.paths().into_iter().map(|path| path.host);
                let key = Key::of(&variable, hosts.all(|host| is_exact(&host)));
                self.note_proxy(ingress);
                let has_tls = !items(ingress.resource.at(&["spec", "tls"])).is_empty();
                self.redirects_to_tls |= has_tls && ingress.value("ssl-redirect") != Some("false");
                let (limits, guards) = (self.limits(ingress, &key), self.guards(ingress));
                Served { ingress, limits, guards, max_body: self.max_body(ingress) }
            })
            .collect();
        let mut paths = Vec::new();
        for (of, served) in served.iter().enumerate() {
            for path in served.ingress.paths() {
                self.add_path(Located { of, served, path }, &mut paths);
            }
        }
        self.note_variable(&variable, &served);
        self.note_canaries(&canaries, &paths);
        let mut routes = Vec::new();
        for host in self.hosts(&paths) {
            self.host(&host, &paths, &mut routes);
        }
        self.tests(&served, &routes);
    }

    /// Adds a path, unless an older Ingress has it.
    fn add_path<'s>(&mut self, own: Located<'s, 'r>, paths: &mut Vec<Located<'s, 'r>>) {
        let (path, ingress) = (&own.path, own.served.ingress);
        let is_same = |Located { path: other, .. }: &&Located<'_, '_>| {
            (&other.host, &other.path, &other.path_type)
                == (&path.host, &path.path, &path.path_type)
        };
        let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-.*_".contains(letter);
        if !path.host.chars().all(is_host) {
            let message = "a host is a name, such as shop.example.com";
            let help = "write it out";
            self.problems.push(ingress.resource.document.problem(path.span, message, help));
        }
        let Some(other) = paths.iter().find(is_same) else { return paths.push(own) };
        let reason = match ingress.created().is_empty() {
            true => "the files do not say which is older: the path is closed if either has a guard",
            false => "the older one, as the controller takes it",
        };
        if ingress.created().is_empty() && own.served.guards.are_some() {
            self.contested.push((path.host.clone(), path.path.clone()));
        }
        let there = format!("{}: {}{} once more", ingress.id(), path.host, path.path);
        let other = other.served.ingress.id();
        let here = format!("{other} has this path ({reason}): its limits hold");
        self.findings.push(Finding::left_out(ingress.place(path.span), there, here));
    }

    /// All hosts: names, then those with a star, then all others.
    fn hosts(&mut self, paths: &[Located<'_, '_>]) -> Vec<String> {
        let mut hosts: Vec<String> = paths.iter().map(|own| own.path.host.clone()).collect();
        hosts.sort_by_key(|host| {
            (host.is_empty(), host.starts_with('*'), usize::MAX - host.len(), host.clone())
        });
        hosts.dedup();
        if !hosts.iter().any(String::is_empty) {
            self.draft.hosts.clone_from(&hosts);
        }
        hosts
    }

    /// The routes of a host.
    fn host(&mut self, host: &str, all: &[Located<'_, 'r>], routes: &mut Vec<Route>) {
        let mut own: Vec<&Located<'_, 'r>> =
            all.iter().filter(|own| own.path.host == host).collect();
        let is_regex = own.iter().any(|Located { served, path, .. }| {
            let target = served.ingress.value("rewrite-target");
            served.ingress.is_on("use-regex") || target.is_some_and(|target| target != path.path)
        });
        own.sort_by_key(|Located { path, .. }| {
            let is_exact = !is_regex && path.path_type == "Exact";
            (!is_exact, usize::MAX - path.path.len())
        });
        let begin = routes.len();
        for located in &own {
            self.path(located, is_regex, routes);
        }
        self.close_locations(&own, begin, routes);
        self.note_host(host, &own);
        let is_whole = |own: &Route| own.pattern == "/**";
        let has_all = routes.iter().skip(begin).any(is_whole);
        let others = all.iter().any(|own| covers(&own.path.host, host));
        if let Some(first) = own.first().filter(|_| !has_all && others) {
            self.close_pattern(first, "/**", is_regex, routes);
        }
    }

    /// The routes of a path.
    fn path(&mut self, own: &Located<'_, 'r>, is_regex: bool, routes: &mut Vec<Route>) {
        let Located { of, served, path } = own;
        let (ingress, guards) = (served.ingress, &served.guards);
        let patterns = match is_regex {
            true => paths::regex_patterns(&path.path),
            false => paths::literal_pattern(&path.path, &path.path_type).map(|own| vec![own]),
        };
        let is_unwritten = patterns.is_none();
        let patterns = patterns.unwrap_or_else(|| match is_regex {
            true => vec![paths::spelt_out(&path.path)],
            // A literal path that no request can have takes none.
            false => Vec::new(),
        });
        let is_public =
            self.controller.unauthenticated.iter().any(|own| path.path.starts_with(own));
        let is_guarded = guards.is_closed || guards.is_authenticated && !is_public;
        let target = ingress.value("rewrite-target").filter(|own| *own != path.path);
        let rewrite = target.map(|target| paths::rewrite(&path.path, target));
        let is_lost = rewrite == Some(None);
        let is_contested =
            self.contested.iter().any(|own| (&own.0, &own.1) == (&path.host, &path.path));
        let is_behind = routes.iter().any(|own| own.host == path.host && own.pattern == "/**");
        let (upstream, is_served) = self.upstream(ingress, path, is_regex);
        let is_closed = is_guarded || is_unwritten || is_lost || is_contested || !is_served;
        let rewrite = rewrite.flatten().unwrap_or_default();
        let route = |pattern: &str, is_closed: bool| {
            let (host, pattern) = (path.host.clone(), pattern.to_owned());
            Route { host, pattern, of: *of, is_closed }
        };
        for pattern in &patterns {
            // What is taken off are whole segments.
            let whole = pattern.strip_suffix("*/**").filter(|_| !rewrite.strip.is_empty());
            if let Some(whole) = whole {
                let route = route(&format!("{whole}/**"), is_closed);
                self.open(served, route, (&upstream, &rewrite), routes);
            }
            let rewrite = if whole.is_some() { &Rewrite::default() } else { &rewrite };
            let route = route(pattern, is_closed || whole.is_some());
            self.open(served, route, (&upstream, rewrite), routes);
        }
        let outcome = Outcome {
            patterns: patterns.join(", "),
            is_lost,
            is_beyond: is_unwritten && !guards.is_closed && !guards.is_authenticated,
            is_behind,
            is_closed,
            is_exact: !is_regex && path.path_type == "Exact" && path.path != "/",
        };
        let (verdict, here) = outcome.said();
        let there = format!("{}: {}{}", ingress.id(), path.host, path.path);
        let row = Finding { verdict, ..Finding::same(ingress.place(path.span), there, here) };
        self.findings.push(row);
    }

    /// Writes a route.
    fn open(
        &mut self,
        served: &Served<'_, '_>,
        own: Route,
        (upstream, rewrite): (&str, &Rewrite),
        routes: &mut Vec<Route>,
    ) {
        let guards = &served.guards;
        let all =
            |networks: &[IpNet]| -> Vec<String> { networks.iter().map(IpNet::to_string).collect() };
        let deny = match own.is_closed {
            true => EVERYBODY.map(str::to_owned).into(),
            false => all(&guards.deny),
        };
        let vhost = served.ingress.value("upstream-vhost");
        let headers = |host: &str| Flow::fields([("set", Flow::fields([("host", host.into())]))]);
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let flow = route(&own.host, &own.pattern, upstream)
            .with_list("allow", all(&guards.allow))
            .with_list("deny", deny)
            .with_list("limits", served.limits.names.iter().cloned())
            .with_some("max_body", served.max_body.as_deref())
            .with_some("strip_prefix", some(&rewrite.strip))
            .with_some("add_prefix", some(&rewrite.add))
            .with_some("request_headers", vhost.map(headers));
        self.push(routes, own, flow);
    }

    /// Adds a route, unless there is one for the same requests.
    fn push(&mut self, routes: &mut Vec<Route>, own: Route, flow: Flow) {
        let is_known = |other: &Route| other.host == own.host && other.pattern == own.pattern;
        if !routes.iter().any(is_known) {
            self.draft.routes.push(flow);
            routes.push(own);
        }
    }

    /// Adds a closed route on the host of a path, with its upstream.
    fn close_pattern(
        &mut self,
        Located { of, served, path }: &Located<'_, 'r>,
        pattern: &str,
        ignores_case: bool,
        routes: &mut Vec<Route>,
    ) {
        let (upstream, _) = self.upstream(served.ingress, path, ignores_case);
        let flow = route(&path.host, pattern, &upstream).with("deny", Flow::list(EVERYBODY));
        let (host, pattern) = (path.host.clone(), pattern.to_owned());
        self.push(routes, Route { host, pattern, of: *of, is_closed: true }, flow);
    }

    /// Closes the locations of snippets, before all other routes of the host.
    fn close_locations(
        &mut self,
        paths: &[&Located<'_, 'r>],
        begin: usize,
        routes: &mut Vec<Route>,
    ) {
        let later = (routes.split_off(begin), self.draft.routes.split_off(begin));
        for own in paths {
            for pattern in &own.served.guards.locations {
                self.close_pattern(own, pattern, false, routes);
            }
        }
        for (own, route) in later.0.into_iter().zip(later.1) {
            self.push(routes, own, route);
        }
    }
}

/// What became of a path.
struct Outcome {
    patterns: String,
    /// Whether `rewrite-target` has no counterpart.
    is_lost: bool,
    /// Whether no patterns are like it.
    is_beyond: bool,
    /// Whether another path takes all its requests.
    is_behind: bool,
    is_closed: bool,
    is_exact: bool,
}

impl Outcome {
    fn said(&self) -> (Verdict, String) {
        use Verdict::{LeftOut, Nearly, Same};
        let patterns = &self.patterns;
        if self.is_lost {
            let why = "what rewrite-target makes of it cannot be said by `strip_prefix` and \
                       `add_prefix`";
            (LeftOut, format!("{why}: {patterns} is closed (403)"))
        } else if patterns.is_empty() {
            let why = "a regular expression without use-regex, which no request matches there: no \
                       route";
            (LeftOut, why.to_owned())
        } else if self.is_beyond {
            let why = "a regular expression that routes cannot say";
            (LeftOut, format!("{why}: all of {patterns} is closed (403)"))
        } else if self.is_behind {
            let why = "no request gets there, nor is counted by its limits: a longer expression \
                       before it takes all paths, there and here";
            (Same, why.to_owned())
        } else if self.is_closed {
            (Same, format!("route {patterns}, closed (403)"))
        } else if self.is_exact {
            (Nearly, format!("route {patterns}, which takes {patterns}/ as well"))
        } else {
            (Same, format!("route {patterns}"))
        }
    }
}

/// A route without a token.
fn route(host: &str, pattern: &str, upstream: &str) -> Flow {
    let matched = match host {
        "" => Flow::fields([("path", pattern.into())]),
        _ => Flow::fields([("host", host.into()), ("path", pattern.into())]),
    };
    Flow::fields([("match", matched), ("auth", "none".into()), ("upstream", upstream.into())])
}

fn is_exact(host: &str) -> bool {
    !host.is_empty() && !host.starts_with('*')
}

/// Whether requests to a host that has no route for them would take one of another host.
fn covers(other: &str, host: &str) -> bool {
    let is_below = other.strip_prefix('*').is_some_and(|end| host.ends_with(end));
    other != host && (other.is_empty() || is_below)
}
