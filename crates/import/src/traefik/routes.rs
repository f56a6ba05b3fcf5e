//! Routers as routes, with their limits and upstreams.

use super::{
    files::{Configuration, Router},
    limit::Limit,
    matching::Matching,
    middleware::{Effects, Listener},
    route::{Charged, Route},
    rule::{self, Alternative, Condition},
    services,
    trial::{Trial, tests},
};
use crate::{
    draft::{Draft, EVERYBODY, MAX_LIMITS},
    flow::Flow,
    names::Names,
    report::Report,
};

/// How much of a rule a row shows.
const SHOWN: usize = 160;

/// The routes of a policy, in their order.
pub(super) struct Routes<'c> {
    configuration: &'c Configuration<'c>,
    entry_point: &'c str,
    instead: Option<&'c str>,
    routes: Vec<Flow>,
    /// What all routers take, by their names.
    all: Vec<(String, Matching)>,
    /// What each route takes, with its priority.
    matchings: Vec<(Matching, i64)>,
    limits: Vec<(String, Flow)>,
    limit_names: Names,
    route_names: Names,
    /// Limits that all routers share, by their middlewares.
    shared: Vec<(String, String)>,
    upstreams: Vec<(String, services::Upstream)>,
    upstream_names: Names,
    trials: Vec<Trial>,
    report: Report,
}

impl<'c> Routes<'c> {
    pub(super) fn new(
        configuration: &'c Configuration<'c>,
        entry_point: &'c str,
        instead: Option<&'c str>,
        report: Report,
    ) -> Self {
        Routes {
            configuration,
            entry_point,
            instead,
            routes: Vec::new(),
            all: Vec::new(),
            matchings: Vec::new(),
            limits: Vec::new(),
            limit_names: Names::default(),
            route_names: Names::default(),
            shared: Vec::new(),
            upstreams: Vec::new(),
            upstream_names: Names::default(),
            trials: Vec::new(),
            report,
        }
    }

    /// Notes what these routers take, before any of them has routes.
    pub(super) fn look_at(&mut self, routers: &[&Router<'_>]) {
        for router in routers {
            let is_old = router.is_old || rule::is_old(&router.rule);
            for alternative in rule::alternatives(&router.rule, is_old).unwrap_or_default() {
                self.all.push((router.name.clone(), Matching::of(&alternative, is_old)));
            }
        }
    }

    /// Adds the routes of a router, behind those that are there.
    pub(super) fn take(&mut self, router: &Router<'_>) {
        let there = format!("router {}: {}", router.name, shown(&router.rule));
        let is_old = router.is_old || rule::is_old(&router.rule);
        let alternatives = match rule::alternatives(&router.rule, is_old) {
            Ok(alternatives) => alternatives,
            Err(why) => {
                let here =
                    format!("{why}: no route, so its requests go to those below it or get 404");
                return self.report.left_out(&router.place, there, here);
            }
        };
        let trust = self.configuration.trust_of(self.entry_point);
        let known = Listener { trust: &trust, has_tls: router.tls_options.is_some() };
        let mut names = self.configuration.middlewares_of(self.entry_point);
        names.extend(router.middlewares.iter().cloned());
        let mut effects =
            Effects::of(&names, &router.place, &known, self.configuration, &mut self.report);
        self.close(router, &mut effects);
        if effects.is_redirect && effects.limits.is_empty() {
            return;
        }
        self.tell_of_limits(router, &effects);
        let upstream =
            services::upstream(self.configuration, &router.target, self.instead, &mut self.report);
        effects.closed.extend(upstream.closed.clone());
        let upstream = self.upstream(upstream);
        let charged = self.charge(router, &effects.limits);
        for alternative in alternatives {
            let matching = Matching::of(&alternative, is_old);
            if matching.is_never {
                self.report.nearly(&router.place, &there, "no request is all of this");
                continue;
            }
            let mut own = Route { router, matching, effects: &effects, charged: &charged };
            let guards = self.guards(&mut own, (&alternative, is_old));
            if !self.is_whole(&mut own, &there) {
                continue;
            }
            for matching in guards {
                let guard = Route { matching, ..own };
                self.push(&guard, &upstream, &there);
            }
            self.push(&own, &upstream, &there);
        }
    }

    /// Reasons to close a router that are not in its middlewares.
    fn close(&mut self, router: &Router<'_>, effects: &mut Effects) {
        let mut closed = router.closed.clone();
        if self.configuration.asks_for_certificates(router) {
            let why = "its TLS options ask for client certificates: write `client_ca_file` at the \
                       listener of the settings";
            closed.push(why.to_owned());
        }
        if effects.limits.len() > MAX_LIMITS {
            closed.push(format!("a route has at most {MAX_LIMITS} limits"));
            effects.limits.truncate(MAX_LIMITS);
        }
        for why in closed {
            let there = format!("router {}", router.name);
            self.report.left_out(
                &router.place,
                &there,
                format!("{why}: its routes are closed (deny)"),
            );
            effects.closed.push(format!("{there}: {why}"));
        }
    }

    fn tell_of_limits(&mut self, router: &Router<'_>, effects: &Effects) {
        let names: Vec<&str> = effects.limits.iter().map(|limit| limit.name.as_str()).collect();
        let there = |what: &str| format!("router {}: {what}", router.name);
        if let [first, .., _] = names.as_slice() {
            self.report.nearly(
                &router.place,
                there(&format!("{} are asked one after another", names.join(", "))),
                format!(
                    "all of them are charged, or none: looser for {first} by the requests that a \
                     later one denies"
                ),
            );
        }
        let is_apart = effects.limits.iter().any(|limit| !limit.is_shared);
        if is_apart && router.entry_points.len() > 1 {
            self.report.nearly(
                &router.place,
                there(&format!("entry points {}", router.entry_points.join(", "))),
                format!(
                    "one counter. Traefik has one for each of the {} entry points, if they have \
                     `http` options: stricter",
                    router.entry_points.len()
                ),
            );
        }
    }

    /// The limits of a router: its own, or those that all routers share.
    fn charge(&mut self, router: &Router<'_>, limits: &[Limit]) -> Vec<Charged> {
        let mut charged = Vec::new();
        for limit in limits {
            let plain = limit.name.split('@').next().unwrap_or_default();
            let shared = self.shared.iter().find(|(middleware, _)| *middleware == limit.name);
            let name = match (limit.is_shared, shared) {
                (true, Some((_, name))) => name.clone(),
                (is_shared, _) => {
                    let written = if is_shared {
                        plain.to_owned()
                    } else {
                        format!("{plain}-{}", router.name)
                    };
                    let name = self.limit_names.take(&written);
                    self.limits.push((name.clone(), limit.flow.clone()));
                    if is_shared {
                        self.shared.push((limit.name.clone(), name.clone()));
                    }
                    name
                }
            };
            charged.push(Charged { name, limit: limit.clone() });
        }
        charged
    }

    fn upstream(&mut self, upstream: services::Upstream) -> String {
        let is_it = |(_, own): &&(String, services::Upstream)| {
            own.name == upstream.name && own.flow == upstream.flow
        };
        if let Some((name, _)) = self.upstreams.iter().find(is_it) {
            return name.clone();
        }
        let plain = upstream.name.split('@').next().unwrap_or_default();
        let name = self.upstream_names.take(if plain.is_empty() { "app" } else { plain });
        self.upstreams.push((name.clone(), upstream));
        name
    }

    /// What keeps the requests of negated conditions from a route: routes above it that take them,
    /// or closed ones, if no other router takes them. Conditions without either are unwritten.
    fn guards(
        &mut self,
        own: &mut Route<'_>,
        (alternative, is_old): (&Alternative, bool),
    ) -> Vec<Matching> {
        let Route { matching, router, .. } = own;
        let mut guards = Vec::new();
        for condition in std::mem::take(&mut matching.negated) {
            let there = format!("router {}: {condition}", router.name);
            if self.matchings.iter().any(|(above, _)| above.takes_all_of(&condition, matching)) {
                self.report.same(&router.place, there, "a route above takes these requests");
                continue;
            }
            let others = alternative.iter().filter(|other| !other.is_negated).cloned();
            let positive = Condition { is_negated: false, ..condition.clone() };
            let mut guard = Matching::of(&others.chain([positive]).collect(), is_old);
            let is_other = |(name, other): &(String, Matching)| {
                *name != router.name && (other.may_share(&guard) || guard.may_share(other))
            };
            if guard.is_never {
                continue;
            }
            if !guard.unwritten.is_empty() || self.all.iter().any(is_other) {
                matching.unwritten.push(condition.to_string());
                continue;
            }
            let here = "a closed route above it: 403, there 404";
            self.report.nearly(&router.place, there, here);
            guard.is_guard = true;
            guards.push(guard);
        }
        guards
    }

    /// Whether the match of a route may be written: it says all of its conditions, or is closed.
    fn is_whole(&mut self, own: &mut Route<'_>, there: &str) -> bool {
        let Route { matching, router, effects, .. } = own;
        if matching.unwritten.is_empty() {
            return true;
        }
        let conditions = matching.unwritten.join(" && ");
        let flow = matching.flow();
        if !effects.refuses() {
            self.report.left_out(
                &router.place,
                there,
                format!(
                    "no route, as {conditions} has no counterpart: its requests go to the routes \
                     below it, or get 404. For more requests it would be `match: {flow}`"
                ),
            );
            return false;
        }
        self.report.left_out(
            &router.place,
            there,
            format!(
                "{conditions} has no counterpart: the route is for all of `{flow}`, and closed \
                 (deny), as the routes below may have neither its limits nor what refuses"
            ),
        );
        matching.differences.push("closed".to_owned());
        true
    }

    fn push(&mut self, own: &Route<'_>, upstream: &str, there: &str) {
        let Route { router, matching, effects, charged } = own;
        let name = self.route_names.take(&router.name);
        let mut flow = Flow::fields([
            ("name", name.into()),
            ("match", matching.flow()),
            ("auth", "none".into()),
        ]);
        let is_closed =
            !effects.closed.is_empty() || !matching.unwritten.is_empty() || matching.is_guard;
        flow = flow
            .with_some("deny", is_closed.then(|| Flow::list(EVERYBODY)))
            .with_list("allow", effects.allow.iter().cloned())
            .with("limits", Flow::list(charged.iter().map(|own| own.name.clone())));
        for (field, value) in effects.route_fields(&matching.path) {
            flow = flow.with(field, value);
        }
        self.routes.push(flow.with("upstream", upstream));
        if matching.is_guard {
            return self.matchings.push((matching.clone(), router.priority));
        }
        self.tell_of_ties(own, there);
        for why in &effects.closed {
            self.report.ask(format!(
                "routes are closed with `deny`, because of {why}. Write what lets the right \
                 requests through, and remove `deny`."
            ));
        }
        match matching.differences.is_empty() {
            true => self.report.same(&router.place, there, format!("match: {}", matching.flow())),
            false if matching.unwritten.is_empty() => self.report.nearly(
                &router.place,
                there,
                format!("match: {}: {}", matching.flow(), matching.differences.join("; ")),
            ),
            false => {}
        }
        self.trials.push(Trial::of(own, is_closed, self.matchings.iter().map(|(above, _)| above)));
        self.matchings.push((matching.clone(), router.priority));
    }

    /// Of two routers of one priority that may take the same requests, any may be first in Traefik.
    fn tell_of_ties(&mut self, own: &Route<'_>, there: &str) {
        let host = own.matching.sample_host();
        let is_tie = self.matchings.iter().any(|(above, priority)| {
            *priority == own.router.priority
                && own.matching.samples().iter().any(|path| above.may_take(host.as_deref(), path))
                && above.path != own.matching.path
        });
        if is_tie {
            let here = "behind another router of the same priority; which is first there is not \
                        certain: write `priority`";
            self.report.nearly(&own.router.place, there, here);
        }
    }

    /// The sections of a policy, and what was found.
    pub(super) fn finish(self) -> (Draft, Report) {
        let draft = Draft {
            upstreams: self.upstreams.into_iter().map(|(name, own)| (name, own.flow)).collect(),
            limits: self.limits,
            routes: self.routes,
            tests: tests(&self.trials),
            ..Draft::default()
        };
        (draft, self.report)
    }
}

/// A rule in one line, shortened if it is long.
fn shown(rule: &str) -> String {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let rule = words.join(" ");
    match rule.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", rule.get(..end).unwrap_or_default()),
        None => rule,
    }
}
