//! nginx: what it limits, who may use what, and where requests go.
//!
//! A server is a group of routes with its hosts, a location is one route or several. nginx chooses
//! the longest location, and a policy the first route, so locations are written in an order in which
//! both choose the same one. What refuses requests there and has no counterpart closes its routes.
//!
//! - `lexer`, `tree`: words and directives, with included files in their places.
//! - `keys` (with `maps`), `zones`: what is counted, and how much may pass.
//! - `paths`, `locations`, `access`, `upstreams`: routes.
//! - `rest`: what is written beside that. `trials`: tests of the policy. `times`: times and sizes.

mod access;
mod keys;
mod lexer;
mod locations;
mod paths;
mod rest;
mod times;
mod tree;
mod trials;
mod upstreams;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use tollgate_yaml::Problem;

use self::{
    keys::maps::Maps,
    locations::{Location, Route},
    paths::Kind,
    tree::Directive,
    zones::Zones,
};
use crate::{Finding, Imported, Input, Options, Problems, draft::Draft, flow::Flow, names::Names};

/// The policy for configurations of nginx: its files, or the output of `nginx -T`. Requests that
/// nginx does not forward go to `options.upstream`.
///
/// # Errors
/// What is wrong with the files.
pub fn nginx(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    let mut findings = Vec::new();
    let all = tree::read(inputs, &mut findings)?;
    let http = http_level(&all);
    let mut problems = Vec::new();
    let maps = Maps::new(&http);
    let zones = Zones::new(&http, &maps, &mut problems);
    let mut importer =
        Importer { http: &http, maps, zones, problems, findings, ..Importer::new(options) };
    let servers = importer.servers();
    let name = inputs.first().map_or("", |input| input.name.as_str());
    if servers.is_empty() && importer.problems.is_empty() {
        let help = "give the file with `server { … }` as well, or the output of `nginx -T`";
        importer.problems.push(Problem::whole_file(name, "there is no server", help));
    }
    let groups = importer.groups(&servers);
    importer.zones.name_limits();
    if importer.upstreams.is_empty() && importer.problems.is_empty() {
        let help = "write `--upstream http://127.0.0.1:8080`, such as an nginx that stays behind";
        importer.problems.push(Problem::whole_file(
            name,
            "nothing in it says where requests are forwarded",
            help,
        ));
    }
    if !importer.problems.is_empty() {
        return Err(importer.problems);
    }
    importer.rest(&all);
    Ok(importer.finish(&groups, inputs))
}

/// The directives of `http`; all, if the files are parts of it. Locations alone are a server.
fn http_level(all: &[Directive]) -> Vec<Directive> {
    let mut level: Vec<Directive> = Vec::new();
    for directive in all {
        match directive.name.as_str() {
            "http" => level.extend_from_slice(directive.inner()),
            _ => level.push(directive.clone()),
        }
    }
    let (locations, mut level): (Vec<_>, Vec<_>) =
        level.into_iter().partition(|directive| directive.name == "location");
    if let Some(first) = locations.first() {
        let place = first.place.clone();
        level.push(Directive {
            name: "server".to_owned(),
            args: Vec::new(),
            block: Some(locations),
            place,
        });
    }
    level
}

/// An import under way.
struct Importer<'c> {
    http: &'c [Directive],
    maps: Maps<'c>,
    zones: Zones<'c>,
    fallback: Option<String>,
    upstreams: Vec<(String, Flow)>,
    names: Names,
    identity: Option<Flow>,
    /// Whether some expression makes no difference between upper and lower case.
    ignores_case: bool,
    /// Whether the server at hand refuses what cannot be told apart.
    closes_server: bool,
    /// The statuses of denials, and in how many places.
    statuses: BTreeMap<u16, usize>,
    findings: Vec<Finding>,
    seen: BTreeSet<Finding>,
    /// Rows for several places each.
    groups: Vec<(Finding, BTreeSet<String>)>,
    to_do: Vec<String>,
    problems: Problems,
}

/// A server, and its locations in the order of routes.
struct Server<'c> {
    directive: &'c Directive,
    first_name: Option<&'c str>,
    locations: Vec<Location<'c>>,
    /// Whether some of its locations refuse requests.
    refuses: bool,
}

/// The routes of a server for a host; None: all hosts that no other has.
struct Group {
    host: Option<String>,
    routes: Vec<Route>,
}

/// The directives around a place, the outermost level first: `http`, `server`, locations.
#[derive(Clone)]
struct Levels<'c> {
    levels: Vec<&'c [Directive]>,
    server: Option<&'c Directive>,
}

impl<'c> Levels<'c> {
    /// The directives of one of these names on the nearest level that has any: as nginx inherits.
    fn nearest(&self, names: &[&str]) -> Vec<&'c Directive> {
        let of_level = |level: &&'c [Directive]| -> Vec<&'c Directive> {
            level.iter().filter(|directive| names.contains(&directive.name.as_str())).collect()
        };
        self.levels.iter().rev().map(of_level).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn one(&self, name: &str) -> Option<&'c Directive> {
        self.nearest(&[name]).pop()
    }

    fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|directive| directive.arg(0).eq_ignore_ascii_case("on"))
    }

    /// The innermost level.
    fn own(&self) -> &'c [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// All directives, the nearest ones first.
    fn all(&self) -> impl Iterator<Item = &'c Directive> + '_ {
        self.levels.iter().rev().flat_map(|level| level.iter())
    }

    fn server(&self) -> Option<&'c Directive> {
        self.server
    }

    fn is_server(&self) -> bool {
        self.levels.len() == 2
    }

    fn within(&self, block: &'c [Directive]) -> Self {
        let mut inner = self.clone();
        inner.levels.push(block);
        inner
    }
}

fn all_networks() -> Vec<String> {
    ["0.0.0.0/0", "::/0"].map(str::to_owned).into()
}

impl<'c> Server<'c> {
    fn new(directive: &'c Directive, http: &'c [Directive]) -> Self {
        let levels = Levels { levels: vec![http, directive.inner()], server: Some(directive) };
        let mut locations = Vec::new();
        // Locations within locations; the tree bounds how deep they are.
        let mut open = vec![levels.clone()];
        while let Some(levels) = open.pop() {
            for directive in levels.own().iter().filter(|directive| directive.name == "location") {
                let (kind, text) = paths::location(&directive.args);
                let levels = levels.within(directive.inner());
                locations.push(Location {
                    kind,
                    text,
                    levels: levels.clone(),
                    directive: Some(directive),
                });
                open.push(levels);
            }
        }
        if !locations.iter().any(|location| {
            location.text == "/" && matches!(location.kind, Kind::Prefix | Kind::Final)
        }) {
            locations.push(Location {
                kind: Kind::Prefix,
                text: "/",
                levels: levels.clone(),
                directive: None,
            });
        }
        let finals: Vec<&str> = locations
            .iter()
            .filter(|location| location.kind == Kind::Final)
            .map(|location| location.text)
            .collect();
        locations.sort_by_cached_key(|location| {
            let is_before_expressions = location.kind == Kind::Final
                || finals.iter().any(|text| location.text.starts_with(text));
            let length = std::cmp::Reverse(location.text.len());
            match location.kind {
                Kind::Exact => (0, length),
                Kind::Regex { .. } => (2, std::cmp::Reverse(0)),
                _ if is_before_expressions => (1, length),
                _ => (3, length),
            }
        });
        let first_name = levels
            .own()
            .iter()
            .find(|directive| directive.name == "server_name")
            .map(|names| names.arg(0))
            .filter(|name| !name.is_empty());
        let mut open = vec![levels.own(), http];
        let mut refuses = false;
        while let Some(level) = open.pop() {
            refuses |= level.iter().any(|directive| {
                matches!(directive.name.as_str(), "allow" | "deny" | "internal" | "limit_except")
                    || access::is_guard(directive)
            });
            open.extend(
                level
                    .iter()
                    .filter(|directive| directive.name == "location")
                    .filter_map(|directive| directive.block.as_deref()),
            );
        }
        Server { directive, first_name, locations, refuses }
    }

    /// The location to which a redirect within nginx leads.
    fn find(&self, target: &str) -> Option<Location<'c>> {
        let path = target.split(['?', '$']).next().unwrap_or_default();
        let is_named =
            |location: &&Location<'_>| location.kind == Kind::Named && location.text == target;
        let takes = |location: &&Location<'_>| match location.kind {
            Kind::Exact => location.text == path,
            Kind::Regex { .. } => path.ends_with(".php") && location.text.contains("\\.php"),
            Kind::Prefix | Kind::Final => path.starts_with(location.text),
            Kind::Named => false,
        };
        let mut locations = self.locations.iter();
        if target.starts_with('@') { locations.find(is_named) } else { locations.find(takes) }
            .cloned()
    }

    /// Whether it answers all requests itself: another server has what it leads to.
    fn is_answer(&self) -> bool {
        let answers =
            |level: &[Directive]| level.iter().any(|directive| directive.name == "return");
        let is_root =
            |location: &&Location<'_>| location.text == "/" && location.kind != Kind::Exact;
        let root = self.locations.iter().find(is_root);
        answers(self.directive.inner()) || root.is_some_and(|root| answers(root.levels.own()))
    }

    fn is_default(&self) -> bool {
        self.directive.inner().iter().any(|directive| {
            directive.name == "listen"
                && directive.args.iter().any(|arg| arg == "default_server" || arg == "default")
        })
    }
}

impl<'c> Importer<'c> {
    fn new(options: &Options) -> Self {
        Importer {
            http: &[],
            maps: Maps::default(),
            zones: Zones::default(),
            fallback: options.upstream.clone(),
            upstreams: Vec::new(),
            names: Names::default(),
            identity: None,
            ignores_case: false,
            closes_server: false,
            statuses: BTreeMap::new(),
            findings: Vec::new(),
            seen: BTreeSet::new(),
            groups: Vec::new(),
            to_do: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// The servers; those that only answer come last, since others may have their names.
    fn servers(&self) -> Vec<Server<'c>> {
        let servers = self.http.iter().filter(|directive| directive.name == "server");
        let mut servers: Vec<Server<'c>> =
            servers.map(|directive| Server::new(directive, self.http)).collect();
        servers.sort_by_key(Server::is_answer);
        servers
    }

    /// The routes of all servers, by host: exact ones, then the longest of those with an asterisk,
    /// then those of the default server.
    fn groups(&mut self, servers: &[Server<'c>]) -> Vec<Group> {
        let candidates = || servers.iter().filter(|server| !server.is_answer());
        let default = candidates()
            .find(|server| server.is_default())
            .or_else(|| candidates().next())
            .or(servers.first());
        let default = default.map(|server| &server.directive.place);
        let mut taken = BTreeSet::new();
        let mut groups: Vec<Group> = Vec::new();
        for server in servers {
            let is_default = Some(&server.directive.place) == default;
            let hosts = self.hosts(server, is_default, &mut taken);
            if hosts.is_empty() && !is_default {
                let why = match server.is_answer() {
                    true => {
                        "another server has its names: for a redirect write `redirect: https` at the listener, in the settings"
                    }
                    false => {
                        "no host leads to it here: a policy has no ports, and another server has its names or all others. Its routes are not in the policy"
                    }
                };
                self.row(Finding::left_out(
                    server.directive.place.to_string(),
                    format!("server {}", server.first_name.unwrap_or("without a name")),
                    why,
                ));
                continue;
            }
            self.closes_server = false;
            let mut routes: Vec<Route> = Vec::new();
            for location in server.locations.iter().filter(|location| location.kind != Kind::Named)
            {
                routes.extend(self.route(server, location));
            }
            if self.closes_server {
                routes.iter_mut().for_each(Route::close);
            }
            groups.extend(
                hosts.into_iter().map(|host| Group { host: Some(host), routes: routes.clone() }),
            );
            if is_default {
                groups.push(Group { host: None, routes });
            }
        }
        groups.sort_by_key(|group| match &group.host {
            None => (2, 0),
            Some(host) if host.starts_with('*') => (1, usize::MAX - host.len()),
            Some(_) => (0, 0),
        });
        let has_wildcards = groups
            .iter()
            .any(|group| group.host.as_ref().is_some_and(|host| host.starts_with('*')));
        // The default server takes its own names anyway, unless another one's asterisk does.
        let default = servers.iter().find(|server| Some(&server.directive.place) == default);
        let own = default
            .map(|server| names(server).flat_map(hosts_of).collect::<Vec<_>>())
            .unwrap_or_default();
        groups.retain(|group| {
            has_wildcards || group.host.as_ref().is_none_or(|host| !own.contains(host))
        });
        groups
    }

    /// The hosts of a server that no other one has.
    fn hosts(
        &mut self,
        server: &Server<'c>,
        is_default: bool,
        taken: &mut BTreeSet<String>,
    ) -> Vec<String> {
        let mut hosts = Vec::new();
        for name in names(server) {
            let own = hosts_of(name);
            let is_none = name.is_empty() || name == "_" || name == "$hostname";
            let place = server.directive.place.to_string();
            let there = format!("server_name {name}");
            if own.is_empty() && !is_none {
                let rest = if is_default {
                    "takes all hosts that no other server has"
                } else {
                    "its requests take the routes of the default server"
                };
                self.row(Finding::left_out(
                    place,
                    there,
                    format!("a host is a name or *.name here: this server {rest}"),
                ));
                continue;
            }
            for host in own {
                if taken.insert(host.clone()) {
                    hosts.push(host);
                } else if !server.is_answer() {
                    self.row(Finding::left_out(place.clone(), there.clone(), "another server has this name, at another port maybe: a policy has no ports, and that one's routes are taken"));
                }
            }
        }
        hosts
    }

    /// The upstream for what nginx does not forward.
    fn fallback(&mut self) -> Option<String> {
        let url = self.fallback.clone()?;
        Some(self.named_upstream("nginx", Flow::fields([("servers", Flow::list([url]))])))
    }

    /// A row, unless it is there.
    fn row(&mut self, finding: Finding) {
        if self.seen.insert(finding.clone()) {
            self.findings.push(finding);
        }
    }

    fn note_to_do(&mut self, paragraph: &str) {
        if !self.to_do.iter().any(|known| known == paragraph) {
            self.to_do.push(paragraph.to_owned());
        }
    }

    /// The status of most denials that can be written, with rows for others.
    fn denied_status(&mut self) -> u64 {
        let is_usable =
            |status: u16| (400..=499).contains(&status) && status != 444 || status == 503;
        let most = self
            .statuses
            .iter()
            .filter(|(status, _)| is_usable(**status))
            .max_by_key(|(_, count)| **count);
        let chosen = most.map_or(503, |(status, _)| *status);
        let mut open: Vec<&[Directive]> = vec![self.http];
        while let Some(level) = open.pop() {
            for directive in level {
                open.extend(directive.block.as_deref());
                if !matches!(directive.name.as_str(), "limit_req_status" | "limit_conn_status") {
                    continue;
                }
                match directive.arg(0).parse() {
                    Ok(status) if status == chosen => {
                        self.row_of(directive, "`denied_status` of the policy, with `Retry-After`")
                    }
                    Ok(444) => self.row_nearly(
                        directive,
                        &format!("closes the connection there; here the answer is {chosen}"),
                    ),
                    _ => self.row_nearly(
                        directive,
                        &format!("a policy has one status for denials: {chosen}"),
                    ),
                }
            }
        }
        chosen.into()
    }

    fn finish(mut self, groups: &[Group], inputs: &[Input]) -> Imported {
        let zones = self.zones.findings(self.http);
        self.findings.extend(zones);
        self.note_rooms();
        let status = self.denied_status();
        let unused = self.maps.all().count();
        if unused > 0 && self.zones.zones.is_empty() {
            self.row(Finding::same("http", format!("{unused} maps"), "no limit uses them"));
        }
        if self.ignores_case {
            self.row(Finding::nearly(
                "location ~*",
                "expressions that make no difference between A and a",
                "`paths: { case: ignore }`: no route of the policy makes one",
            ));
        }
        let routes = groups
            .iter()
            .flat_map(|group| {
                group.routes.iter().flat_map(|route| route.written(&self, group.host.as_deref()))
            })
            .collect();
        let paths = if self.ignores_case {
            Flow::fields([("case", "ignore".into())])
        } else {
            Flow::fields([])
        };
        let (limits, overrides) = self.zones.written(self.identity.is_some());
        let responses = Flow::fields([
            ("denied_status", status.into()),
            ("headers", "none".into()),
            ("rate_limit_path", "off".into()),
        ]);
        let tests = self.trials(groups, status);
        for (mut finding, places) in std::mem::take(&mut self.groups) {
            if places.len() > 1 {
                finding.there = format!("{} (in {} places)", finding.there, places.len());
            }
            self.findings.push(finding);
        }
        let files: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).take(5).collect();
        let draft = Draft {
            title: format!("Made by `tollgate import nginx` of {}.", files.join(", ")),
            to_do: self.to_do,
            upstreams: self
                .upstreams
                .into_iter()
                .map(|(name, flow)| (name, flow.with("paths", paths.clone())))
                .collect(),
            identity: self.identity,
            limits,
            overrides,
            routes,
            // As nginx does: these fields go on, and no limit looks at them.
            method_override: Some("ignore".to_owned()),
            responses: Some(responses),
            tests,
            ..Draft::default()
        };
        draft.finish(self.findings)
    }
}

/// The names of a server, as they are written.
fn names<'c>(server: &Server<'c>) -> impl Iterator<Item = &'c str> + use<'c> {
    let names = server.directive.inner().iter().filter(|directive| directive.name == "server_name");
    names.flat_map(|names| names.args.iter().map(String::as_str))
}

/// The hosts that a name stands for; none if it is an expression, or no name.
fn hosts_of(name: &str) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let base = name.strip_prefix("*.").or(name.strip_prefix('.')).unwrap_or(&name);
    let is_host = !base.is_empty()
        && base.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    match (is_host, name.starts_with('.')) {
        (false, _) => Vec::new(),
        (true, true) => vec![base.to_owned(), format!("*.{base}")],
        (true, false) => vec![name],
    }
}

#[cfg(test)]
mod tests;
