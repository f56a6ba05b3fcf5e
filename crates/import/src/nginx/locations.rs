//! A location as a route.

use super::{
    Importer,
    access::Access,
    answer::Answer,
    directive::Directive,
    expressions::{self, Patterns},
    levels::Levels,
    lexer::Place,
    paths::{self, Kind},
    route::{Deep, Route},
    rows::{ANSWERED, UNSAID},
    server::{Location, Server},
    times,
    upstreams::Target,
    uses::Use,
};
use crate::{Finding, Verdict, draft::EVERYBODY, flow::Flow};

/// What becomes of a location.
struct Treatment<'l, 'c> {
    server: &'l Server<'c>,
    location: &'l Location<'c>,
    there: String,
    access: Access,
    /// Whether nothing of it is open, there as here.
    is_refused: bool,
    /// Whether everybody gets the same answer there.
    is_alike: bool,
    is_internal: bool,
    is_closed: bool,
    /// How it differs.
    notes: Vec<String>,
}

impl<'c> Importer<'c> {
    /// The route of a location, or none if its requests take other routes.
    pub(super) fn route(&mut self, server: &Server<'c>, location: &Location<'c>) -> Option<Route> {
        let levels = &location.levels;
        let there = match location.directive {
            Some(directive) => directive.said(),
            None => "paths without a location".to_owned(),
        };
        let access = self.access(levels);
        let is_internal = has(levels.own(), "internal");
        let answer = self.answer(levels);
        let is_refused = answer >= Answer::Refused || access.deny == EVERYBODY || is_internal;
        let is_alike = access.deny == EVERYBODY && !access.is_closed && answer != Answer::Unknown;
        let is_closed = access.is_closed || is_refused;
        let notes = Vec::new();
        let mut own = Treatment {
            server,
            location,
            there,
            access,
            is_refused,
            is_alike,
            is_internal,
            is_closed,
            notes,
        };
        let (target, limited) = self.content(server, location, 0);
        let mut target = self.usable(&mut own, target)?;
        if is_internal {
            own.notes.push("`internal`: closed (403; 404 there)".to_owned());
        }
        let Some(patterns) = self.patterns(&own, target.is_whole) else {
            self.without_patterns(own);
            return None;
        };
        own.notes.append(&mut target.notes);
        own.note_patterns(&patterns, target.is_whole);
        let open_methods = self.open_methods(levels);
        let uses = match own.is_uncounted() {
            true => Vec::new(),
            false => self.limits_of(server, &limited, open_methods.as_deref()),
        };
        let (is_closed, needs_token) = (own.is_closed, own.access.needs_token);
        let (place, finding) = (own.place(), own.finding(&patterns.paths, &target.upstream));
        let there = own.there;
        let fields = self.route_fields(levels, target, own.access);
        self.rows_of_locations.push(finding);
        let Patterns { paths: patterns, depth, deeper: paths, .. } = patterns;
        let deep = depth.map(|depth| Deep { there, depth, paths });
        Some(Route { place, patterns, uses, open_methods, is_closed, needs_token, fields, deep })
    }

    /// Where its requests go; none if they take other routes.
    fn usable(
        &mut self,
        own: &mut Treatment<'_, 'c>,
        target: Result<Target, String>,
    ) -> Option<Target> {
        let why = match target {
            Ok(target) => return Some(target),
            // What is closed keeps its upstream and its limits, for when its reader opens it.
            Err(_) if own.is_refused => return Some(Target::default()),
            Err(why) => why,
        };
        if let Some(upstream) = self.fallback() {
            own.notes.push(format!("{why}, so they go to {upstream}"));
            return Some(Target { upstream, ..Target::default() });
        }
        let (place, there) = (own.place(), &own.there);
        let is_expression = matches!(own.location.kind, Kind::Regex { .. });
        if !own.is_closed && is_expression && !own.access.refuses() {
            let here = format!("{why}: these paths take the other routes, and their limits");
            self.row(Finding::left_out(place.to_string(), there, here));
            return None;
        }
        if !own.is_closed {
            self.close(&place, format!("{there}: {why}"), &ANSWERED);
            own.is_closed = true;
        }
        Some(Target::default())
    }

    /// A row for an expression that no pattern is like.
    fn without_patterns(&mut self, own: Treatment<'_, 'c>) {
        let place = own.place();
        if own.is_closed {
            self.close(&place, own.there, &UNSAID);
            self.closes_server = true;
        } else {
            let here = "this regular expression cannot be said by patterns: these paths take the \
                        other routes, and their limits";
            self.row(Finding::left_out(place.to_string(), own.there, here));
        }
    }

    /// The patterns of a location's paths.
    fn patterns(&mut self, own: &Treatment<'_, 'c>, is_whole: bool) -> Option<Patterns> {
        let text = own.location.text;
        let path = match own.location.kind {
            Kind::Exact => paths::exact(text),
            Kind::Prefix | Kind::Final if is_whole && !text.ends_with('/') => {
                format!("{}/**", paths::exact(text))
            }
            Kind::Prefix | Kind::Final => paths::prefix(text),
            Kind::Named => return None,
            Kind::Regex { ignores_case } => {
                // A wider route that is open would let requests past one that is not.
                let patterns = expressions::regex(text).filter(|patterns| {
                    own.is_closed || !patterns.is_wider || !own.server.refuses
                })?;
                self.ignores_case |=
                    ignores_case && text.bytes().any(|byte| byte.is_ascii_alphabetic());
                return Some(patterns);
            }
        };
        Some(Patterns { paths: vec![path], ..Patterns::default() })
    }

    /// What is limited there. `limit_req` and `limit_conn` are each those of the nearest level that
    /// has some. `open`: the methods that are not refused, if not all.
    fn limits_of(
        &mut self,
        server: &Server<'c>,
        levels: &Levels<'c>,
        open: Option<&[String]>,
    ) -> Vec<Use> {
        let mut uses = Vec::new();
        for name in ["limit_req", "limit_conn"] {
            let is_dry = levels.is_on(&format!("{name}_dry_run"));
            let status_name = format!("{name}_status");
            let found = levels.nearest(&[name]);
            if !found.is_empty() {
                let status = levels.one(&status_name).and_then(|status| status.arg(0).parse().ok());
                // Denials by rate are more frequent.
                let weight = if name == "limit_req" { 2 } else { 1 };
                *self.statuses.entry(status.unwrap_or(503)).or_default() += weight;
            }
            if let Some(first) = found.first().filter(|_| levels.one(&status_name).is_none()) {
                self.unwritten.push((name, first.place.clone()));
            }
            for directive in found {
                uses.extend(self.uses(directive, server.first_name, is_dry, open));
            }
        }
        uses
    }

    /// The methods that `limit_except` names.
    fn open_methods(&mut self, levels: &Levels<'c>) -> Option<Vec<String>> {
        let directive = levels.own().iter().find(|directive| directive.name == "limit_except")?;
        let is_plain =
            directive.inner().iter().all(|inner| inner.name == "deny" && inner.arg(0) == "all");
        let here = "a route for these methods, and a closed one for others";
        self.row(match is_plain {
            true => directive.same(here),
            false => directive.nearly(format!("{here}: stricter, as some may use others there")),
        });
        let mut methods: Vec<String> =
            directive.args.iter().map(|method| method.to_ascii_uppercase()).collect();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".to_owned());
        }
        Some(methods)
    }

    /// The fields of its routes, but for where they are in force.
    fn route_fields(
        &mut self,
        levels: &Levels<'c>,
        target: Target,
        access: Access,
    ) -> Vec<(&'static str, Flow)> {
        let mut fields = target.fields;
        let max_body = levels.one("client_max_body_size");
        let size = times::size(max_body.map_or("1m", |directive| directive.arg(0)));
        if let Some(directive) = max_body {
            self.grouped(directive.same("`max_body` of the routes"));
        }
        if let Some(size) = size.filter(|size| size.trim_end_matches(char::is_alphabetic) != "0") {
            let size = size.parse::<u64>().map_or(Flow::Text(size), Flow::from);
            fields.push(("max_body", size));
        }
        for (name, list) in [("allow", access.allow), ("deny", access.deny)] {
            if !list.is_empty() {
                fields.push((name, Flow::list(list)));
            }
        }
        if let Some(edits) = self.response_headers(levels) {
            fields.push(("response_headers", edits));
        }
        if !target.upstream.is_empty() {
            fields.push(("upstream", target.upstream.into()));
        }
        fields
    }
}

impl Treatment<'_, '_> {
    fn place(&self) -> Place {
        self.location.directive.unwrap_or(self.server.directive).place.clone()
    }

    fn note_patterns(&mut self, patterns: &Patterns, is_whole: bool) {
        let Location { kind, text, .. } = self.location;
        let mut note = |note: &str| self.notes.push(note.to_owned());
        if patterns.is_wider {
            note("the patterns take more paths than the expression does");
        }
        if let Some(depth) = patterns.depth {
            note(&format!("down to {depth} folders"));
        }
        if *kind == Kind::Exact && text.len() > 1 && !self.is_closed {
            note("with and without a slash at the end");
        }
        if is_whole && !text.ends_with('/') {
            note("whole segments alone");
        }
    }

    /// Whether it is answered before any limit.
    fn is_uncounted(&self) -> bool {
        self.access.deny == EVERYBODY
            || self.is_internal
            || has(self.location.levels.own(), "return")
            || has(self.server.directive.inner(), "return")
    }

    fn finding(&self, paths: &[String], upstream: &str) -> Finding {
        let shown = match paths {
            [path] => path.clone(),
            [first, ..] => format!("{first} and {} more", paths.len() - 1),
            [] => "no route: no path is like this".to_owned(),
        };
        let here = match self.is_closed {
            true => format!("{shown}: closed (403)"),
            false => format!("{shown}, to {upstream}"),
        };
        let (place, there) = (self.place().to_string(), self.there.as_str());
        let finding = Finding::but_for(&self.notes, place, there, here);
        match self.is_closed && !self.is_alike {
            true => Finding { verdict: Verdict::Nearly, ..finding },
            false => finding,
        }
    }
}

fn has(level: &[Directive], name: &str) -> bool {
    level.iter().any(|directive| directive.name == name)
}
