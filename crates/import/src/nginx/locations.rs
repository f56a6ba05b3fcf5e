//! A location as a route.

use super::{
    Importer, Levels, Server,
    access::Access,
    all_networks,
    keys::maps::Condition,
    paths::{self, DEPTH, Kind, Patterns},
    times,
    tree::Directive,
    upstreams::{Target, is_redirect},
    zones::Use,
};
use crate::{Finding, flow::Flow};

/// A location of a server.
#[derive(Clone)]
pub(super) struct Location<'c> {
    pub(super) kind: Kind,
    pub(super) text: &'c str,
    pub(super) levels: Levels<'c>,
    /// None: it is what no location of the server takes.
    pub(super) directive: Option<&'c Directive>,
}

/// A location's route, or its routes: one for each pattern and group of methods.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) patterns: Vec<String>,
    pub(super) uses: Vec<Use>,
    /// Methods that `limit_except` leaves open.
    open_methods: Option<Vec<String>>,
    pub(super) is_closed: bool,
    needs_token: bool,
    pub(super) fields: Vec<(&'static str, Flow)>,
}

/// What answers before any limit.
enum Answer {
    /// It goes on.
    None,
    /// nginx answers itself, and refuses nothing.
    Served,
    Refused,
}

impl<'c> Importer<'c> {
    /// The routes of a location, or none if its requests take other routes.
    pub(super) fn route(&mut self, server: &Server<'c>, location: &Location<'c>) -> Option<Route> {
        let levels = &location.levels;
        let place = location
            .directive
            .or(levels.server())
            .map(|directive| directive.place.to_string())
            .unwrap_or_default();
        let there = match location.directive {
            Some(directive) => directive.said(),
            None => "paths without a location".to_owned(),
        };
        let access = self.access(levels);
        let answer = self.answer(levels);
        let is_internal = levels.own().iter().any(|directive| directive.name == "internal");
        let is_answered =
            |level: &[Directive]| level.iter().any(|directive| directive.name == "return");
        let is_refused =
            access.deny == all_networks() || is_internal || matches!(answer, Answer::Refused);
        let mut is_closed = access.is_closed || is_refused;
        let (target, limited) = self.content(server, location, 0);
        let mut notes = Vec::new();
        // What is closed keeps its upstream and its limits, for when its reader opens it.
        let mut target = match target {
            Ok(target) => target,
            Err(_) if is_refused => Target::default(),
            Err(why) => match self.fallback() {
                Some(upstream) => {
                    notes.push(format!("{why}, so they go to {upstream}"));
                    Target { upstream, ..Target::default() }
                }
                None if is_closed => Target::default(),
                None if matches!(location.kind, Kind::Regex { .. }) && !access.refuses() => {
                    let here =
                        format!("{why}: these paths take the other routes, and their limits");
                    self.row(Finding::left_out(place, there, here));
                    return None;
                }
                None => {
                    is_closed = true;
                    let instead = "say by `--upstream URL` where requests go that nginx does not \
                                   forward, such as an nginx that stays behind";
                    self.close(place.clone(), format!("{there}: {why}"), instead);
                    Target::default()
                }
            },
        };
        if is_internal {
            notes.push("`internal`: closed (403; 404 there)".to_owned());
        }
        let Some(Patterns { paths, is_wider, is_bounded }) =
            self.patterns(location, is_closed, target.is_whole, server)
        else {
            let here = match is_closed {
                true => {
                    "what this regular expression refuses cannot be said by patterns: all routes of the server are closed (403). Instead, write a route with `deny` for these paths"
                }
                false => {
                    "this regular expression cannot be said by patterns: these paths take the other routes, and their limits"
                }
            };
            if is_closed {
                self.close(place, there, "write routes with `deny` for the paths that it refuses");
                self.closes_server = true;
            } else {
                self.row(Finding::left_out(place, there, here));
            }
            return None;
        };
        notes.append(&mut target.notes);
        if is_wider {
            notes.push("the patterns take more paths than the expression does".to_owned());
        }
        if is_bounded {
            notes.push(format!("down to {DEPTH} folders"));
        }
        if location.kind == Kind::Exact && location.text.len() > 1 && !is_closed {
            notes.push("with and without a slash at the end".to_owned());
        }
        if target.is_whole && !location.text.ends_with('/') {
            notes.push("whole segments alone".to_owned());
        }
        let is_uncounted = access.deny == all_networks()
            || is_internal
            || is_answered(levels.own())
            || levels.server().is_some_and(|server| is_answered(server.inner()));
        let uses = if is_uncounted { Vec::new() } else { self.limits_of(server, &limited) };
        let open_methods = self.open_methods(levels);
        let mut fields = target.fields;
        self.body_size(levels, &mut fields);
        let Access { allow, deny, needs_token, .. } = access;
        for (name, list) in [("allow", allow), ("deny", deny)] {
            if !list.is_empty() {
                fields.push((name, Flow::list(list)));
            }
        }
        if !target.upstream.is_empty() {
            fields.push(("upstream", target.upstream.clone().into()));
        }
        let shown = match &paths[..] {
            [path] => path.clone(),
            [first, ..] => format!("{first} and {} more", paths.len() - 1),
            [] => "no route: no path is like this".to_owned(),
        };
        let mut here = shown;
        if is_closed {
            here.push_str(": closed (403)");
        } else {
            here = format!("{here}, to {}", target.upstream);
        }
        for note in &notes {
            here = format!("{here}; {note}");
        }
        let is_same = notes.is_empty() && (!is_closed || is_refused);
        let finding = if is_same {
            Finding::same(place, there, here)
        } else {
            Finding::nearly(place, there, here)
        };
        self.row(finding);
        Some(Route { patterns: paths, uses, open_methods, is_closed, needs_token, fields })
    }

    /// The patterns of a location's paths.
    fn patterns(
        &mut self,
        location: &Location<'c>,
        is_closed: bool,
        is_whole: bool,
        server: &Server<'c>,
    ) -> Option<Patterns> {
        let of = |path: String| Some(Patterns { paths: vec![path], ..Patterns::default() });
        match location.kind {
            Kind::Exact => of(paths::exact(location.text)),
            Kind::Prefix | Kind::Final if is_whole && !location.text.ends_with('/') => {
                of(format!("{}/**", paths::exact(location.text)))
            }
            Kind::Prefix | Kind::Final => of(paths::prefix(location.text)),
            Kind::Named => None,
            Kind::Regex { ignores_case } => {
                // A wider route that is open would let requests past one that is not.
                let patterns = paths::regex(location.text)
                    .filter(|patterns| is_closed || !patterns.is_wider || !server.refuses)?;
                if ignores_case && location.text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
                    self.ignores_case = true;
                }
                Some(patterns)
            }
        }
    }

    /// Where its requests end up, and whose limits hold for them: those of the first location on the
    /// way that has some.
    fn content(
        &mut self,
        server: &Server<'c>,
        location: &Location<'c>,
        hops: usize,
    ) -> (Result<Target, String>, Levels<'c>) {
        let levels = &location.levels;
        let is_pass =
            |directive: &&Directive| matches!(directive.name.as_str(), "proxy_pass" | "grpc_pass");
        let own: Vec<&Directive> = levels.own().iter().collect();
        let result = |importer: &mut Self| match own.iter().copied().find(is_pass) {
            Some(pass) => importer.target(levels, location.kind, location.text, pass),
            None => Err(served(&own)),
        };
        let last = levels
            .one("try_files")
            .filter(|_| !own.iter().any(|directive| is_content(directive)))
            .and_then(|tried| tried.args.last());
        let next = last
            .filter(|last| hops < 4 && !last.starts_with('='))
            .and_then(|last| server.find(last));
        let Some(next) =
            next.filter(|next| next.text != location.text || next.kind != location.kind)
        else {
            return (result(self), levels.clone());
        };
        let (target, limited) = self.content(server, &next, hops + 1);
        let target = target.map(|mut target| {
            target.notes.push(
                "files that `try_files` finds come from the upstream as well, and are counted"
                    .to_owned(),
            );
            target
        });
        let has_limits = !levels.nearest(&["limit_req"]).is_empty()
            || !levels.nearest(&["limit_conn"]).is_empty();
        let guarded = self.access(&next.levels);
        let target = if guarded.is_closed || guarded.needs_token {
            Err("`try_files` leads to a location that refuses requests".to_owned())
        } else {
            target
        };
        (target, if has_limits { levels.clone() } else { limited })
    }

    /// What is limited there. `limit_req` and `limit_conn` are each those of the nearest level that
    /// has some.
    fn limits_of(&mut self, server: &Server<'c>, levels: &Levels<'c>) -> Vec<Use> {
        let mut uses = Vec::new();
        for name in ["limit_req", "limit_conn"] {
            let is_dry = levels.is_on(&format!("{name}_dry_run"));
            let found = levels.nearest(&[name]);
            if !found.is_empty() {
                let status = levels
                    .one(&format!("{name}_status"))
                    .and_then(|status| status.arg(0).parse().ok());
                // Denials by rate are more frequent.
                let weight = if name == "limit_req" { 2 } else { 1 };
                *self.statuses.entry(status.unwrap_or(503)).or_default() += weight;
            }
            for directive in found {
                uses.extend(self.uses(directive, server.first_name, is_dry));
            }
        }
        uses
    }

    /// What `return`, `if` and `rewrite` make of requests before anything else.
    fn answer(&mut self, levels: &Levels<'c>) -> Answer {
        let mut answer = Answer::None;
        let server =
            levels.server().into_iter().flat_map(Directive::inner).filter(|_| !levels.is_server());
        let own = levels.own().iter();
        let is_rewritten = levels.own().iter().any(|directive| directive.name == "proxy_pass");
        for directive in server.chain(own) {
            let (place, there) = (directive.place.to_string(), directive.said());
            match directive.name.as_str() {
                "return" if status(directive) >= 400 => {
                    self.row(Finding::nearly(
                        place,
                        format!("{there} {}", directive.arg(0)),
                        "closed: 403",
                    ));
                    answer = Answer::Refused;
                }
                "return" => {
                    self.left_out(directive, "nginx answers itself: no route can do so");
                    answer = Answer::Served;
                }
                "rewrite" if is_redirect(directive) => {
                    self.left_out(directive, "these requests are forwarded, and not sent elsewhere")
                }
                "rewrite" if is_rewritten && directive.arg(2) == "break" => {}
                "rewrite" => {
                    answer = Answer::Refused;
                    self.close(place, there, "write a route for the paths that it makes, or let the upstream rewrite them");
                }
                "if" => match worst(directive, 0) {
                    Some(refusing) if refusing.name == "return" => {
                        answer = Answer::Refused;
                        self.close(place, format!("{there} {{ return {} }}", refusing.arg(0)), "write what it refuses as routes (`methods`, `from`, `host`), or let the upstream refuse it");
                    }
                    Some(_) => {
                        answer = Answer::Refused;
                        self.close(place, format!("{there} with a rewrite"), "write a route for the paths that it makes, or let the upstream rewrite them");
                    }
                    None => self.left_out(directive, "nothing of it is done: it refuses nothing"),
                },
                _ => {}
            }
        }
        answer
    }

    /// The methods that `limit_except` names.
    fn open_methods(&mut self, levels: &Levels<'c>) -> Option<Vec<String>> {
        let directive = levels.own().iter().find(|directive| directive.name == "limit_except")?;
        let is_plain =
            directive.inner().iter().all(|inner| inner.name == "deny" && inner.arg(0) == "all");
        let here = "a route for these methods, and a closed one for others";
        let place = directive.place.to_string();
        self.row(match is_plain {
            true => Finding::same(place, directive.said(), here),
            false => Finding::nearly(
                place,
                directive.said(),
                format!("{here}: stricter, as some may use others there"),
            ),
        });
        let mut methods: Vec<String> =
            directive.args.iter().map(|method| method.to_ascii_uppercase()).collect();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".to_owned());
        }
        Some(methods)
    }

    fn body_size(&mut self, levels: &Levels<'c>, fields: &mut Vec<(&'static str, Flow)>) {
        let directive = levels.one("client_max_body_size");
        let size = times::size(directive.map_or("1m", |directive| directive.arg(0)));
        if let Some(directive) = directive {
            self.row_of(directive, "`max_body` of the routes");
        }
        if let Some(size) = size.filter(|size| size.trim_end_matches(char::is_alphabetic) != "0") {
            let size = size.parse::<u64>().map_or(Flow::Text(size), Flow::from);
            fields.push(("max_body", size));
        }
    }
}

impl Route {
    /// Refuses all its requests from now on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.uses.clear();
    }

    pub(super) fn needs_token(&self) -> bool {
        self.needs_token && !self.is_closed
    }

    pub(super) fn open_methods(&self) -> Option<&Vec<String>> {
        self.open_methods.as_ref()
    }

    /// The texts of `allow` or `deny`.
    pub(super) fn list<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r str> {
        let lists = self.fields.iter().filter(move |(field, _)| *field == name);
        let items =
            lists.flat_map(|(_, list)| if let Flow::List(items) = list { &items[..] } else { &[] });
        items
            .filter_map(|item| if let Flow::Text(text) = item { Some(text.as_str()) } else { None })
    }

    /// The routes of the policy: a group of methods each, where methods differ.
    pub(super) fn written(&self, importer: &Importer<'_>, host: Option<&str>) -> Vec<Flow> {
        let conditions: Vec<&Condition> = self
            .uses
            .iter()
            .filter_map(|used| {
                Some(&importer.zones.zones.get(used.zone)?.key.as_ref().ok()?.condition)
            })
            .collect();
        let mut methods: Vec<&String> = self.open_methods.iter().flatten().collect();
        for condition in &conditions {
            if let Condition::Methods(own) | Condition::NotMethods(own) = condition {
                methods.extend(own.iter().filter(|own| {
                    self.open_methods.as_ref().is_none_or(|open| open.contains(own))
                }));
            }
        }
        methods.sort();
        methods.dedup();
        // A group of methods, None for all others, and the limits that they charge.
        let mut groups: Vec<(Vec<&String>, bool, Vec<String>)> = Vec::new();
        for method in methods.iter().map(|method| Some(*method)).chain([None]) {
            let is_other = method.is_none() && self.open_methods.is_some();
            let is_closed = self.is_closed || is_other;
            let is_counted = |condition: &&Condition| match condition {
                Condition::Methods(own) => method.is_some_and(|method| own.contains(method)),
                Condition::NotMethods(own) => method.is_none_or(|method| !own.contains(method)),
                _ => true,
            };
            let mut limits = Vec::new();
            for (used, _) in self
                .uses
                .iter()
                .zip(&conditions)
                .filter(|(_, condition)| !is_other && is_counted(condition))
            {
                limits.extend(importer.zones.limits(used));
            }
            match groups.iter_mut().find(|(names, closed, known)| {
                method.is_some() && !names.is_empty() && *closed == is_closed && *known == limits
            }) {
                Some((names, _, _)) => names.extend(method),
                None => groups.push((method.into_iter().collect(), is_closed, limits)),
            }
        }
        // A route for GET is for HEAD as well: one for HEAD alone comes before it.
        groups.sort_by_key(|(names, _, _)| {
            (names.is_empty(), names.iter().any(|name| *name == "GET"))
        });
        let mut routes = Vec::new();
        for (names, is_closed, limits) in groups {
            for path in &self.patterns {
                let mut matcher = Flow::fields([("path", path.as_str().into())]);
                if let Some(host) = host {
                    matcher = matcher.with("host", host);
                }
                if !names.is_empty() {
                    matcher = matcher
                        .with("methods", Flow::list(names.iter().map(|name| (*name).clone())));
                }
                let auth = if self.needs_token { "required" } else { "none" };
                let mut route = Flow::fields([("match", matcher), ("auth", auth.into())]);
                if !limits.is_empty() {
                    route = route.with("limits", Flow::list(limits.clone()));
                }
                let fields = self.fields.iter().filter(|(name, _)| !is_closed || *name != "deny");
                route = fields.fold(route, |route, (name, value)| route.with(name, value.clone()));
                if is_closed {
                    route = route.with("deny", Flow::list(all_networks()));
                }
                if !self.fields.iter().any(|(name, _)| *name == "upstream") {
                    let first = importer.upstreams.first().map_or("", |(name, _)| name.as_str());
                    route = route.with("upstream", first);
                }
                routes.push(route);
            }
        }
        routes
    }
}

/// Why nginx answers itself.
fn served(own: &[&Directive]) -> String {
    match own.iter().find(|directive| is_content(directive)) {
        Some(directive) => format!("`{}` has no counterpart", directive.name),
        None => "nginx serves files there".to_owned(),
    }
}

fn is_content(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    name.ends_with("_pass")
        || name.starts_with("content_by_lua")
        || matches!(
            name,
            "return"
                | "js_content"
                | "perl"
                | "stub_status"
                | "alias"
                | "autoindex"
                | "empty_gif"
                | "flv"
                | "mp4"
                | "dav_methods"
        )
}

/// The status of a `return`; a mere address is a redirect.
fn status(directive: &Directive) -> u16 {
    directive.arg(0).parse().unwrap_or(302)
}

/// What of an `if` refuses requests or turns them elsewhere.
fn worst(directive: &Directive, depth: usize) -> Option<&Directive> {
    directive.inner().iter().find_map(|inner| match inner.name.as_str() {
        "return" if status(inner) >= 400 => Some(inner),
        "rewrite" if !is_redirect(inner) => Some(inner),
        "deny" | "proxy_pass" | "break" => None,
        _ if depth < 24 => worst(inner, depth + 1),
        _ => None,
    })
}
