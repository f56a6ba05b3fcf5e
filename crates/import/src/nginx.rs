//! nginx: what it limits, who may use what, and where requests go.
//!
//! A server is a group of routes with its hosts, a location is one route or several. nginx chooses
//! the longest location, and a policy the first route, so locations are written in an order in
//! which both choose the same one. What refuses requests there and has no counterpart closes its
//! routes.
//!
//! - `lexer`, `tree`: words and directives, with included files in their places; `directive`: one
//!   of them, `levels`: those around a place.
//! - `keys`, `maps`, `zones`: what is counted, and how much may pass; `uses`: where; `rates`: rates
//!   as both write them.
//! - `server`, `hosts`: servers, and which of them a host leads to.
//! - `locations`: a location as a route, of these: `paths` and `expressions`, its patterns (`deep`:
//!   what they do not reach); `access` and `answer`, what refuses (`tokens`, by `auth_jwt`);
//!   `content`, where requests end up, and `upstreams`, where they are forwarded, with `rewrites`,
//!   `headers` and `response_headers` for what is changed. `route`: it in the policy.
//! - `rest`: what is written beside that. `trials`: tests of the policy. `rows`: rows of the table.
//!   `times`: times and sizes.

mod access;
mod answer;
mod content;
mod deep;
mod directive;
mod expressions;
mod headers;
mod hosts;
mod keys;
mod levels;
mod lexer;
mod locations;
mod maps;
mod paths;
mod patterns;
mod rates;
mod response_headers;
mod rest;
mod rewrites;
mod route;
mod rows;
mod server;
pub(crate) mod times;
mod tokens;
mod tree;
mod trials;
mod upstreams;
mod uses;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    directive::{Directive, within},
    hosts::HostRoutes,
    lexer::Place,
    maps::Maps,
    rows::Closing,
    server::Server,
    zones::Zones,
};
use crate::{
    Finding, Imported, Input, Options, Problems,
    draft::{Draft, MAX_LIMITS},
    flow::Flow,
    problem_of_all,
    report::Report,
    upstreams::Upstreams,
};

/// The policy for configurations of nginx: its files, or the output of `nginx -T`. Requests that
/// nginx does not forward go to `options.upstream`.
///
/// # Errors
/// What is wrong with the files.
pub fn nginx(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    let mut report = Report::default();
    let all = tree::read(inputs, &mut report)?;
    let http = http_level(&all);
    let mut problems = Vec::new();
    let maps = Maps::new(&http);
    let zones = Zones::new(&http, &maps, &mut problems);
    let fallback = options.upstream.clone();
    let mut importer =
        Importer { http: &http, maps, zones, fallback, problems, report, ..Importer::default() };
    let servers = importer.servers();
    if servers.is_empty() && importer.problems.is_empty() {
        let help = "give the file with `server { … }` as well, or the output of `nginx -T`";
        importer.problems.push(problem_of_all(inputs, "there is no server", help));
    }
    let groups = importer.groups(&servers);
    importer.zones.name_limits();
    importer.check_limits(&groups);
    if importer.upstreams.first().is_none() && importer.problems.is_empty() {
        let help = "write `--upstream http://127.0.0.1:8080`, such as an nginx that stays behind";
        let message = "nothing in it says where requests are forwarded";
        importer.problems.push(problem_of_all(inputs, message, help));
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
        let (name, place) = ("server".to_owned(), first.place.clone());
        level.push(Directive { name, args: Vec::new(), block: Some(locations), place });
    }
    level
}

/// An import under way.
#[derive(Default)]
struct Importer<'c> {
    http: &'c [Directive],
    maps: Maps<'c>,
    zones: Zones<'c>,
    fallback: Option<String>,
    upstreams: Upstreams,
    identity: Option<Flow>,
    /// Whether some expression makes no difference between upper and lower case.
    ignores_case: bool,
    /// Whether the server at hand refuses what cannot be told apart.
    closes_server: bool,
    /// The rows of its locations.
    rows_of_locations: Vec<Finding>,
    /// Why routes are closed, and where.
    closed: Vec<(Closing, Vec<String>)>,
    /// The statuses of denials, and in how many places.
    statuses: BTreeMap<u16, usize>,
    /// Limits of places whose status is not written, and is 503.
    unwritten: Vec<(&'static str, Place)>,
    report: Report,
    /// Rows for several places each.
    repeated: Vec<(Finding, BTreeSet<String>)>,
    problems: Problems,
}

impl<'c> Importer<'c> {
    /// The servers; those that only answer come last, since others may have their names.
    fn servers(&self) -> Vec<Server<'c>> {
        let servers = self.http.iter().filter(|directive| directive.name == "server");
        let mut servers: Vec<Server<'c>> =
            servers.map(|directive| Server::new(directive, self.http)).collect();
        servers.sort_by_key(Server::is_answer);
        servers
    }

    /// The upstream for what nginx does not forward.
    fn fallback(&mut self) -> Option<String> {
        let url = self.fallback.clone()?;
        Some(self.upstreams.name("nginx", Flow::fields([("servers", Flow::list([url]))])))
    }

    /// Notes routes with more limits than a policy lets them have.
    fn check_limits(&mut self, groups: &[HostRoutes]) {
        let mut known = BTreeSet::new();
        for route in groups.iter().flat_map(|group| &group.routes) {
            let count = route.most_limits(&self.zones);
            if count > MAX_LIMITS && known.insert(route.place.to_string()) {
                let message = format!("its routes have {count} limits, and may have {MAX_LIMITS}");
                let help = "take some `limit_req` or `limit_conn` out, or give all places of a \
                            zone the same `burst`: each other one is a limit more";
                self.problems.push(route.place.problem(message, help));
            }
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
        let one_status =
            format!("a policy has one status for denials, `responses.denied_status`: {chosen}");
        let is_status = |directive: &&Directive| {
            matches!(directive.name.as_str(), "limit_req_status" | "limit_conn_status")
        };
        for directive in within(self.http, |_| true).into_iter().filter(is_status) {
            let here = match directive.arg(0).parse() {
                Ok(status) if status == chosen => {
                    self.grouped(
                        directive
                            .same("`responses.denied_status` of the policy, with `Retry-After`"),
                    );
                    continue;
                }
                Ok(444) => format!("closes the connection there; here the answer is {chosen}"),
                _ => one_status.clone(),
            };
            self.grouped(directive.nearly(here));
        }
        for (name, place) in std::mem::take(&mut self.unwritten) {
            if chosen != 503 {
                let there = format!("{name} without `{name}_status`");
                let here = format!("503 there; {one_status}");
                self.grouped(Finding::nearly(place.to_string(), there, here));
            }
        }
        chosen.into()
    }

    fn finish(mut self, groups: &[HostRoutes], inputs: &[Input]) -> Imported {
        let status = self.denied_status();
        self.last_rows();
        self.ask_for_closed();
        let tests = self.trials(groups, status);
        let (limits, overrides) = self.zones.written(self.identity.is_some());
        let first = self.upstreams.first().unwrap_or_default();
        let routes = groups.iter().flat_map(|HostRoutes { host, routes }| {
            routes.iter().map(|route| (route, host.as_deref()))
        });
        let routes =
            routes.flat_map(|(route, host)| route.written(&self.zones, first, host)).collect();
        let paths = Flow::fields([]).with_some("case", self.ignores_case.then_some("ignore"));
        let upstreams = self.upstreams.section().into_iter();
        let upstreams = upstreams.map(|(name, flow)| (name, flow.with("paths", paths.clone())));
        let files: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).take(5).collect();
        let draft = Draft {
            title: format!("Made by `tollgate import nginx` of {}.", files.join(", ")),
            to_do: self.report.to_do,
            upstreams: upstreams.collect(),
            identity: self.identity,
            limits,
            overrides,
            routes,
            // As nginx does: these fields go on, and no limit looks at them.
            method_override: Some("ignore".to_owned()),
            responses: Some(Flow::fields([
                ("denied_status", status.into()),
                ("headers", "none".into()),
                ("rate_limit_path", "off".into()),
            ])),
            tests,
            ..Draft::default()
        };
        draft.finish(self.report.findings)
    }

    /// The rows of what is known when all servers are read.
    fn last_rows(&mut self) {
        for row in self.zones.findings_of_uses() {
            self.row(row);
        }
        self.report.findings.extend(self.zones.findings(self.http));
        let unused = self.maps.count();
        if unused > 0 && self.zones.is_empty() {
            self.row(Finding::same("http", format!("{unused} maps"), "no limit uses them"));
        }
        if self.ignores_case {
            self.row(Finding::nearly(
                "location ~*",
                "expressions that make no difference between A and a",
                "`paths: { case: ignore }`: no route of the policy makes one",
            ));
        }
        for (mut finding, places) in std::mem::take(&mut self.repeated) {
            if places.len() > 1 {
                finding.there = format!("{} (in {} places)", finding.there, places.len());
            }
            self.report.findings.push(finding);
        }
    }
}

#[cfg(test)]
mod tests;
