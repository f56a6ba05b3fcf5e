//! Hosts, and which server's routes each has.

use std::collections::BTreeSet;

use super::{Importer, paths::Kind, route::Route, server::Server};
use crate::Finding;

/// The routes of a server for a host; None: all hosts that no other has.
pub(super) struct HostRoutes {
    pub(super) host: Option<String>,
    pub(super) routes: Vec<Route>,
}

impl<'c> Importer<'c> {
    /// The routes of all servers, by host: exact ones, then the longest of those with an asterisk,
    /// then those of the default server.
    pub(super) fn groups(&mut self, servers: &[Server<'c>]) -> Vec<HostRoutes> {
        let candidates = || servers.iter().filter(|server| !server.is_answer());
        let default = candidates()
            .find(|server| server.is_default())
            .or_else(|| candidates().next())
            .or(servers.first());
        let mut taken = BTreeSet::new();
        let mut groups: Vec<HostRoutes> = Vec::new();
        for server in servers {
            let is_default =
                default.is_some_and(|other| other.directive.place == server.directive.place);
            let hosts = self.hosts(server, is_default, &mut taken);
            if hosts.is_empty() && !is_default {
                self.without_hosts(server);
                continue;
            }
            let routes = self.routes(server);
            let hosts = hosts.into_iter().map(Some).chain(is_default.then_some(None));
            groups.extend(hosts.map(|host| HostRoutes { host, routes: routes.clone() }));
        }
        groups.sort_by_key(|group| match &group.host {
            None => (2, 0),
            Some(host) if host.starts_with('*') => (1, usize::MAX - host.len()),
            Some(_) => (0, 0),
        });
        let is_wildcard =
            |group: &HostRoutes| group.host.as_ref().is_some_and(|host| host.starts_with('*'));
        if !groups.iter().any(is_wildcard) {
            // The default server takes its own names anyway.
            let own: Vec<String> = default.into_iter().flat_map(names).flat_map(hosts_of).collect();
            groups.retain(|group| group.host.as_ref().is_none_or(|host| !own.contains(host)));
        }
        groups
    }

    /// A row for a server that no host leads to.
    fn without_hosts(&mut self, server: &Server<'_>) {
        let why = match server.is_answer() {
            true => {
                "another server has its names: for a redirect write `redirect: https` at the \
                 listener, in the settings"
            }
            false => {
                "no host leads to it here: a policy has no ports, and another server has its names \
                 or all others. Its routes are not in the policy"
            }
        };
        let there = format!("server {}", server.first_name.unwrap_or("without a name"));
        self.row(Finding::left_out(server.directive.place.to_string(), there, why));
    }

    fn routes(&mut self, server: &Server<'c>) -> Vec<Route> {
        self.closes_server = false;
        let locations = server.locations.iter().filter(|location| location.kind != Kind::Named);
        let mut routes = self.rewritten(server);
        routes.extend(locations.filter_map(|location| self.route(server, location)));
        for row in std::mem::take(&mut self.rows_of_locations) {
            self.row(match self.closes_server {
                true => Finding::nearly(
                    row.place,
                    row.there,
                    "closed (403), as all of the server: a path might be one that an expression \
                     refuses which patterns cannot say",
                ),
                false => row,
            });
        }
        if self.closes_server {
            routes.iter_mut().for_each(Route::close);
        }
        self.with_deep(routes)
    }

    /// The hosts of a server that no other one has.
    fn hosts(
        &mut self,
        server: &Server<'c>,
        is_default: bool,
        taken: &mut BTreeSet<String>,
    ) -> Vec<String> {
        let place = server.directive.place.to_string();
        let mut hosts = Vec::new();
        for name in names(server) {
            let own = hosts_of(name);
            let there = format!("server_name {name}");
            if own.is_empty() && !matches!(name, "" | "_" | "$hostname") {
                let rest = match is_default {
                    true => "takes all hosts that no other server has",
                    false => "its requests take the routes of the default server",
                };
                let why = format!("a host is a name or *.name here: this server {rest}");
                self.row(Finding::left_out(&place, there, why));
                continue;
            }
            for host in own {
                if taken.insert(host.clone()) {
                    hosts.push(host);
                } else if !server.is_answer() {
                    let why = "another server has this name, at another port maybe: a policy has \
                               no ports, and that one's routes are taken";
                    self.row(Finding::left_out(&place, &there, why));
                }
            }
        }
        hosts
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
