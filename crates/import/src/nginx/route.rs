//! A location's routes in the policy: one for each pattern and group of methods.

use super::{keys::Condition, lexer::Place, uses::Use, zones::Zones};
use crate::{draft::EVERYBODY, flow::Flow};

/// What a location says, from which its routes are written.
#[derive(Clone)]
pub(super) struct Route {
    /// Where its location is.
    pub(super) place: Place,
    pub(super) patterns: Vec<String>,
    pub(super) uses: Vec<Use>,
    /// Methods that `limit_except` leaves open.
    pub(super) open_methods: Option<Vec<String>>,
    pub(super) is_closed: bool,
    pub(super) needs_token: bool,
    pub(super) fields: Vec<(&'static str, Flow)>,
    /// What its patterns do not reach.
    pub(super) deep: Option<Deep>,
}

/// Paths that lie deeper than the patterns of an expression.
#[derive(Clone)]
pub(super) struct Deep {
    /// The location, as it is written.
    pub(super) there: String,
    pub(super) depth: usize,
    pub(super) paths: Vec<String>,
}

/// Methods that are treated alike.
struct Group<'r> {
    /// None: all that no other group has.
    methods: Vec<&'r str>,
    is_closed: bool,
    limits: Vec<String>,
}

impl Route {
    /// A route that refuses all requests for these paths.
    pub(super) fn closed(place: Place, patterns: Vec<String>) -> Self {
        Route {
            place,
            patterns,
            uses: Vec::new(),
            open_methods: None,
            is_closed: true,
            needs_token: false,
            fields: Vec::new(),
            deep: None,
        }
    }

    /// Whether it refuses or limits requests that the other one does not.
    pub(super) fn is_stricter_than(&self, other: &Route) -> bool {
        if self.is_closed || other.is_closed {
            return !other.is_closed;
        }
        let is_limited_there = |own: &Use| {
            other.uses.iter().any(|used| {
                (used.zone, used.is_dry, &used.server) == (own.zone, own.is_dry, &own.server)
                    && used.room <= own.room
            })
        };
        let lets_in_more = || {
            self.list("allow").next().is_some()
                && (other.list("allow").next().is_none()
                    || other.list("allow").any(|own| self.list("allow").all(|text| text != own)))
        };
        let refuses_less =
            || self.list("deny").any(|own| other.list("deny").all(|text| text != own));
        self.needs_token && !other.needs_token
            || self.open_methods.is_some() && self.open_methods != other.open_methods
            || !self.uses.iter().all(is_limited_there)
            || lets_in_more()
            || refuses_less()
    }

    /// Refuses all its requests from now on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.uses.clear();
    }

    pub(super) fn wants_token(&self) -> bool {
        self.needs_token && !self.is_closed
    }

    /// The texts of `allow` or `deny`.
    pub(super) fn list<'r>(&'r self, name: &'r str) -> impl Iterator<Item = &'r str> {
        let lists = self.fields.iter().filter(move |(field, _)| *field == name);
        let items =
            lists.flat_map(|(_, list)| if let Flow::List(items) = list { &items[..] } else { &[] });
        items
            .filter_map(|item| if let Flow::Text(text) = item { Some(text.as_str()) } else { None })
    }

    /// The most limits that one of its routes charges.
    pub(super) fn most_limits(&self, zones: &Zones<'_>) -> usize {
        self.groups(zones).iter().map(|group| group.limits.len()).max().unwrap_or_default()
    }

    /// The routes of the policy: those without an upstream name `upstream`.
    pub(super) fn written(
        &self,
        zones: &Zones<'_>,
        upstream: &str,
        host: Option<&str>,
    ) -> Vec<Flow> {
        let groups = self.groups(zones);
        let pairs =
            groups.iter().flat_map(|group| self.patterns.iter().map(move |path| (group, path)));
        pairs
            .map(|(group, path)| {
                let matcher = Flow::fields([("path", path.as_str().into())])
                    .with_some("host", host)
                    .with_list("methods", group.methods.iter().copied());
                self.route(group, matcher, upstream)
            })
            .collect()
    }

    fn route(&self, group: &Group<'_>, matcher: Flow, upstream: &str) -> Flow {
        let auth = if self.needs_token { "required" } else { "none" };
        let route = Flow::fields([("match", matcher), ("auth", auth.into())])
            .with_list("limits", group.limits.iter().cloned());
        let fields = self.fields.iter().filter(|(name, _)| !group.is_closed || *name != "deny");
        let route = fields.fold(route, |route, (name, value)| route.with(name, value.clone()));
        let has_upstream = self.fields.iter().any(|(name, _)| *name == "upstream");
        route
            .with_some("deny", group.is_closed.then(|| Flow::list(EVERYBODY)))
            .with_some("upstream", (!has_upstream).then_some(upstream))
    }

    /// The groups of methods, in the order of their routes.
    fn groups<'r>(&'r self, zones: &'r Zones<'_>) -> Vec<Group<'r>> {
        let uses: Vec<(&Use, &Condition)> =
            self.uses.iter().filter_map(|used| Some((used, &zones.key(used)?.condition))).collect();
        let mut methods: Vec<&String> = self.open_methods.iter().flatten().collect();
        for (_, condition) in &uses {
            if let Condition::Methods(own) | Condition::NotMethods(own) = condition {
                methods.extend(own.iter().filter(|own| {
                    self.open_methods.as_ref().is_none_or(|open| open.contains(own))
                }));
            }
        }
        methods.sort();
        methods.dedup();
        let mut groups: Vec<Group<'_>> = Vec::new();
        for method in methods.into_iter().map(Some).chain([None]) {
            let is_other = method.is_none() && self.open_methods.is_some();
            let is_closed = self.is_closed || is_other;
            let is_counted = |condition: &Condition| match condition {
                Condition::Methods(own) => method.is_some_and(|method| own.contains(method)),
                Condition::NotMethods(own) => method.is_none_or(|method| !own.contains(method)),
                _ => true,
            };
            let charged = uses.iter().filter(|(_, condition)| !is_other && is_counted(condition));
            let limits: Vec<String> = charged.flat_map(|(used, _)| zones.limits(used)).collect();
            let is_alike = |group: &&mut Group<'_>| {
                !group.methods.is_empty() && group.is_closed == is_closed && group.limits == limits
            };
            let method = method.map(String::as_str);
            match groups.iter_mut().find(|group| method.is_some() && is_alike(group)) {
                Some(group) => group.methods.extend(method),
                None => {
                    groups.push(Group { methods: method.into_iter().collect(), is_closed, limits });
                }
            }
        }
        // A route for GET is for HEAD as well: one for HEAD alone comes before it.
        groups.sort_by_key(|group| (group.methods.is_empty(), group.methods.contains(&"GET")));
        groups
    }
}
