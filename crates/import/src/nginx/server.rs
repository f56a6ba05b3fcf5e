//! A server, and its locations in the order of routes.

use std::cmp::Reverse;

use super::{
    access::is_guard,
    directive::{Directive, within},
    levels::Levels,
    paths::{self, Kind},
};

/// A server, and its locations in the order of routes.
pub(super) struct Server<'c> {
    pub(super) directive: &'c Directive,
    pub(super) first_name: Option<&'c str>,
    pub(super) locations: Vec<Location<'c>>,
    /// Whether some of its locations refuse requests.
    pub(super) refuses: bool,
}

/// A location of a server.
#[derive(Clone)]
pub(super) struct Location<'c> {
    pub(super) kind: Kind,
    pub(super) text: &'c str,
    pub(super) levels: Levels<'c>,
    /// None: it is what no location of the server takes.
    pub(super) directive: Option<&'c Directive>,
}

impl<'c> Server<'c> {
    pub(super) fn new(directive: &'c Directive, http: &'c [Directive]) -> Self {
        let levels = Levels { levels: vec![http, directive.inner()], server: Some(directive) };
        let mut names = levels.own().iter().filter(|directive| directive.name == "server_name");
        let first_name = names.next().map(|names| names.arg(0)).filter(|name| !name.is_empty());
        let is_location = |directive: &Directive| directive.name == "location";
        let mut of_server = within(levels.own(), is_location).into_iter();
        let refuses = of_server.any(refuses) || within(http, is_location).into_iter().any(refuses);
        Server { directive, first_name, locations: locations(levels), refuses }
    }

    /// The location to which a redirect within nginx leads.
    pub(super) fn find(&self, target: &str) -> Option<Location<'c>> {
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
    pub(super) fn is_answer(&self) -> bool {
        let answers =
            |level: &[Directive]| level.iter().any(|directive| directive.name == "return");
        let is_root =
            |location: &&Location<'_>| location.text == "/" && location.kind != Kind::Exact;
        let root = self.locations.iter().find(is_root);
        answers(self.directive.inner()) || root.is_some_and(|root| answers(root.levels.own()))
    }

    pub(super) fn is_default(&self) -> bool {
        self.directive.inner().iter().any(|directive| {
            directive.name == "listen"
                && directive.args.iter().any(|arg| arg == "default_server" || arg == "default")
        })
    }
}

/// The locations of a server, those that take precedence first, and one for all other paths.
fn locations(server: Levels<'_>) -> Vec<Location<'_>> {
    let mut locations = Vec::new();
    // Locations within locations; the tree bounds how deep they are.
    let mut open = vec![server.clone()];
    while let Some(levels) = open.pop() {
        for directive in levels.own().iter().filter(|directive| directive.name == "location") {
            let (kind, text) = paths::location(&directive.args);
            let levels = levels.within(directive.inner());
            open.push(levels.clone());
            locations.push(Location { kind, text, levels, directive: Some(directive) });
        }
    }
    let is_root = |location: &Location<'_>| {
        location.text == "/" && matches!(location.kind, Kind::Prefix | Kind::Final)
    };
    if !locations.iter().any(is_root) {
        let (kind, text) = (Kind::Prefix, "/");
        locations.push(Location { kind, text, levels: server, directive: None });
    }
    let finals = locations.iter().filter(|location| location.kind == Kind::Final);
    let finals: Vec<&str> = finals.map(|location| location.text).collect();
    locations.sort_by_cached_key(|location| {
        let is_before_expressions = location.kind == Kind::Final
            || finals.iter().any(|text| location.text.starts_with(text));
        let length = Reverse(location.text.len());
        match location.kind {
            Kind::Exact => (0, length),
            Kind::Regex { .. } => (2, Reverse(0)),
            _ if is_before_expressions => (1, length),
            _ => (3, length),
        }
    });
    locations
}

/// Whether a directive refuses some requests.
fn refuses(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "allow" | "deny" | "internal" | "limit_except")
        || is_guard(directive)
}
