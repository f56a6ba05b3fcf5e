//! Kuadrant: RateLimitPolicies, and AuthPolicies beside them.
//!
//! Nothing is in force but what the policies of a path are together: those of its Gateway, of the
//! listener, of the route and of the rule, merged as they say. A limit has a counter for each
//! HTTPRoute, whatever its rules and hosts, also if its policy is for a Gateway.
//! TokenRateLimitPolicies count tokens of responses: they are left out, and never taken for
//! requests.
//!
//! - `merge`: what holds on a path; `counted`: what a limit counts, by `cel`: its predicates.
//! - `auth`: AuthPolicies as guards, and what `auth.identity` is.

mod auth;
mod cel;
mod counted;
mod merge;

use self::{
    auth::Auth,
    counted::{Absent, Counted, counted, rates},
    merge::{Effective, Policy, effective},
};
use crate::{
    Finding, Imported, Input, Options, Problems,
    gateway::{
        Path,
        field::Field,
        limit::{Counting, Limit, Rate},
        objects::{Objects, import, name_rest},
        plan::{Plan, Served, concerns, head_note},
    },
    names::Names,
};

/// The kinds that are read, or say nothing of requests.
const KINDS: &str = "\
    AuthPolicy Gateway GRPCRoute HTTPRoute Kuadrant Limitador RateLimitPolicy TokenRateLimitPolicy";

/// The rates of a limit here.
const MAX_RATES: usize = 4;

/// Limits that were made: of which route, policy and rule, with their places among all.
struct Made {
    route: String,
    policy: usize,
    rule: String,
    limits: Vec<usize>,
    notes: Vec<String>,
}

/// What is made of policies on the way.
#[derive(Default)]
struct Work {
    names: Names,
    made: Vec<Made>,
}

/// The policy for Kuadrant's manifests.
///
/// # Errors
/// What is wrong with the files, and policies of which it is not known which one is in force.
pub fn kuadrant(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    import((inputs, options), ("Kuadrant", KINDS), "none", |paths, objects, plan| {
        limitador(objects, plan);
        tokens(objects, plan);
        let policies = Policy::all(objects, "RateLimitPolicy", "limits");
        for policy in &policies {
            let known = ["targetRef", "limits", "when", "defaults", "overrides", "strategy"];
            name_rest(policy.object, &["spec"], &known, &mut plan.report);
        }
        serve(paths, &policies, objects, plan);
    })
}

/// Where counters are, and whether responses have headers.
fn limitador(objects: &Objects<'_>, plan: &mut Plan<'_>) {
    for object in objects.of_kind("Limitador") {
        if let Some(own) = object.at(&["spec", "rateLimitHeaders"]) {
            let is_on = own.text() == Some("DRAFT_VERSION_03");
            plan.headers = if is_on { "envoy" } else { "none" };
            let here = format!("responses: {{ headers: {} }}", plan.headers);
            plan.report.same(own.place(), "rateLimitHeaders", here);
        }
        name_rest(object, &["spec"], &["rateLimitHeaders"], &mut plan.report);
    }
}

/// Limits by tokens of responses are left out.
fn tokens<'r>(objects: &Objects<'r>, plan: &mut Plan<'r>) {
    for policy in Policy::all(objects, "TokenRateLimitPolicy", "limits") {
        for (name, limit) in &policy.rules {
            // Says what is wrong with its rates.
            let _ = rates(*limit, &mut Vec::new());
            let there = format!("limit {name} of TokenRateLimitPolicy {}", policy.name);
            let message = "it counts tokens that responses name: no counterpart, and not imported \
                           as requests, so nothing bounds them";
            plan.report.left_out(limit.place(), there, message);
        }
    }
}

/// Puts limits and guards on all paths.
fn serve<'r>(
    paths: Vec<Path<'r>>,
    policies: &[Policy<'r>],
    objects: &Objects<'r>,
    plan: &mut Plan<'r>,
) {
    let auth_policies = Policy::all(objects, "AuthPolicy", "rules");
    let auths = auth::auths(&auth_policies, plan);
    let (mut work, mut used) = (Work::default(), Vec::new());
    for path in paths {
        head_note(&path, &mut plan.report);
        let auth = auth::on(&path, &auth_policies, &auths, &mut used, &mut plan.report);
        let mut limits = Vec::new();
        let mut known: Vec<(String, usize)> = Vec::new();
        for listener in &path.listeners {
            let own = effective(&path, listener, policies);
            for rule in own.rules.iter().filter(|rule| !known.contains(rule)) {
                limits.extend(work.limits(rule, &own, (&path, &auth), policies, plan));
            }
            if !known.is_empty() && own.rules.iter().any(|rule| !known.contains(rule)) {
                let message = "its Gateways or listeners have other limits each, and here all of \
                               them hold together";
                let there = format!("{} {}", path.kind, path.route);
                plan.report.nearly(path.rule.place(), there, message);
            }
            known.extend(own.rules);
        }
        if !plan.serve(Served { path, limits, guard: auth.guard }) {
            break;
        }
    }
    work.report(policies, plan);
    auth::report(&auth_policies, auths, &used, plan);
}

/// Whether limits of a path are counted after authentication: any of them looks at who it is.
fn reads_identity(effective: &Effective, policies: &[Policy<'_>]) -> bool {
    let reads = |field: Field<'_>, list: &str, name: &str| {
        let texts = field.items(&[list]).into_iter();
        texts.filter_map(|own| own.text_at(&[name])).any(|text| text.contains("auth."))
    };
    let above = effective.when.and_then(|at| policies.get(at));
    above.is_some_and(|own| reads(own.block, "when", "predicate"))
        || effective.rules.iter().any(|(rule, at)| {
            let rules = policies.get(*at).map(|own| own.rules.as_slice()).unwrap_or_default();
            rules.iter().filter(|(name, _)| name == rule).any(|(_, field)| {
                reads(*field, "when", "predicate") || reads(*field, "counters", "expression")
            })
        })
}

/// A limit of a policy.
struct Source<'p, 'r> {
    policy: &'p Policy<'r>,
    /// Where the policy is among all.
    at: usize,
    rule: &'r str,
    field: Field<'r>,
}

impl Work {
    /// The limits of a rule on a path, with a row if it is left out.
    fn limits<'r>(
        &mut self,
        (rule, at): &(String, usize),
        effective: &Effective,
        (path, auth): (&Path<'r>, &Auth),
        policies: &[Policy<'r>],
        plan: &mut Plan<'r>,
    ) -> Vec<usize> {
        let Some(policy) = policies.get(*at) else { return Vec::new() };
        let Some((rule, field)) = policy.rules.iter().find(|(name, _)| name == rule) else {
            return Vec::new();
        };
        let source = Source { policy, at: *at, rule, field: *field };
        let mut predicates = field.items(&["when"]);
        let above = effective.when.and_then(|at| policies.get(at));
        predicates.extend(above.map(|own| own.block.items(&["when"])).unwrap_or_default());
        let needs_token = !auth.guard.issuers.is_empty() && !auth.guard.is_optional;
        let limits = counted(*field, &predicates, path, auth).and_then(|mut own| {
            let rates = rates(*field, &mut own.notes).map_err(Absent::LeftOut)?;
            if needs_token && !reads_identity(effective, policies) {
                let note = "a request without a good token, 401, is counted there, and here by \
                            limits by address alone";
                own.notes.push(note.to_owned());
            }
            self.make(&source, own, &rates, (path, auth), plan)
        });
        limits.unwrap_or_else(|absent| {
            if let Absent::LeftOut(why) = absent {
                let there = format!("limit {rule} of RateLimitPolicy {}", policy.name);
                let here =
                    format!("{why}: this limit is not in force on {} {}", path.kind, path.route);
                plan.report.left_out(field.place(), there, here);
            }
            Vec::new()
        })
    }

    /// The limits of a rule for a route, which are made once.
    fn make<'r>(
        &mut self,
        Source { policy, at, rule, field }: &Source<'_, 'r>,
        Counted { scope, notes }: Counted,
        rates: &[Rate],
        (path, auth): (&Path<'r>, &Auth),
        plan: &mut Plan<'r>,
    ) -> Result<Vec<usize>, Absent> {
        if !concerns(path, &scope.methods, scope.pattern.as_ref()) {
            return Err(Absent::Elsewhere);
        }
        let route = format!("{} {}/{}", path.kind, path.namespace, path.route).replace(" /", " ");
        let is_it = |own: &&Made| own.route == route && own.policy == *at && own.rule == *rule;
        if let Some(known) = self.made.iter().find(is_it) {
            let first = known.limits.first().and_then(|at| plan.limits.get(*at));
            let why = "it counts by something else on another rule of the route";
            return match first.is_some_and(|own| own.scope == scope) {
                true => Ok(known.limits.clone()),
                false => Err(Absent::LeftOut(why.to_owned())),
            };
        }
        let first = plan.limits.len();
        plan.limits.extend(rates.chunks(MAX_RATES).map(|part| Limit {
            name: self.names.take(&format!("{}-{rule}", path.route)),
            origin: format!("{} {rule}", policy.object.place()),
            place: field.place(),
            scope: scope.clone(),
            rates: part.to_vec(),
            counting: Counting::FirstRequest,
            cost: 1,
            is_shadow: false,
            issuers: auth.guard.issuers.iter().map(|(name, _)| name.clone()).collect(),
        }));
        let limits: Vec<usize> = (first..plan.limits.len()).collect();
        let (policy, rule) = (*at, (*rule).to_owned());
        self.made.push(Made { route, policy, rule, limits: limits.clone(), notes });
        Ok(limits)
    }

    /// What became of the limits of all policies.
    fn report(&self, policies: &[Policy<'_>], plan: &mut Plan<'_>) {
        for (at, policy) in policies.iter().enumerate() {
            for (rule, field) in &policy.rules {
                let there = format!("limit {rule} of RateLimitPolicy {}", policy.name);
                let own: Vec<&Made> =
                    self.made.iter().filter(|own| own.policy == at && own.rule == *rule).collect();
                for made in &own {
                    let Some(limit) = made.limits.first().and_then(|at| plan.limits.get(*at))
                    else {
                        continue;
                    };
                    let here =
                        format!("limit {}, {}, for {}", limit.name, limit.rate(), made.route);
                    plan.report.add(Finding::but_for(&made.notes, field.place(), &there, here));
                }
                let is_named = plan.report.findings.iter().any(|own| own.place == field.place());
                if own.is_empty() && !is_named {
                    plan.report.left_out(field.place(), there, policy.nowhere());
                }
            }
            if policy.rules.is_empty() {
                let there = format!("RateLimitPolicy {} without limits", policy.name);
                plan.report.same(policy.object.place(), there, "nothing");
            }
        }
    }
}

#[cfg(test)]
mod tests;
