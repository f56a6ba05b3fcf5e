//! Envoy Gateway: BackendTrafficPolicies with `rateLimit`, and SecurityPolicies beside them.
//!
//! A rule there has a counter for each listener, match and host of a route, also if its policy is
//! for a Gateway, unless it is `shared`. So it becomes a limit for each match and host here. The
//! nearest policy takes a route whole: that of a Gateway does not hold where a route has its own,
//! unless that says `mergeType`.
//!
//! - `rule`: a rule as a limit, by its `selectors`; `security`: SecurityPolicies as guards;
//!   `clients`: ClientTrafficPolicies.

mod clients;
mod rule;
mod security;
mod selectors;

use self::{
    clients::client_traffic,
    rule::{Rule, Ruled},
    security::{Security, securities},
};
use crate::{
    Finding, Imported, Input, Options, Problems,
    gateway::{
        self, Level, Listener, Path, Target,
        field::Field,
        guard::Guard,
        limit::Limit,
        objects::{Objects, import, name_rest, targets},
        plan::{Plan, Served, concerns, head_note},
    },
    names::Names,
    report::Report,
};

/// The kinds that are read.
const KINDS: &str =
    "Gateway HTTPRoute GRPCRoute BackendTrafficPolicy SecurityPolicy ClientTrafficPolicy";

/// A BackendTrafficPolicy.
struct Traffic<'r> {
    object: Field<'r>,
    name: &'r str,
    targets: Vec<Target<'r>>,
    merge: Option<&'r str>,
    has_limits: bool,
    rules: Vec<Rule<'r>>,
}

/// A limit that a rule became, and for what.
struct Made {
    rule: String,
    part: String,
    limit: usize,
}

/// A rule that is in force, with its policy.
#[derive(Clone, Copy)]
struct Held<'p, 'r> {
    policy: &'p Traffic<'r>,
    rule: &'p Rule<'r>,
    ruled: &'p Ruled,
}

/// What is made of rules on the way.
#[derive(Default)]
struct Work {
    names: Names,
    made: Vec<Made>,
    /// What is different, by the places of rules.
    notes: Vec<(String, String)>,
}

/// The policy for Envoy Gateway's manifests.
///
/// # Errors
/// What is wrong with the files; policies that Envoy Gateway itself refuses, and those of which it
/// is not known which one is in force.
pub fn envoy_gateway(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    import((inputs, options), ("Envoy Gateway", KINDS), "envoy", |paths, objects, plan| {
        let policies = traffics(objects, plan);
        let securities = securities(objects, plan);
        let closed = client_traffic(objects, &paths, plan);
        serve(paths, &policies, (&securities, &closed), plan);
        security::report(securities, plan);
    })
}

/// The policies that are in force.
fn traffics<'r>(objects: &Objects<'r>, plan: &mut Plan<'r>) -> Vec<Traffic<'r>> {
    let mut policies: Vec<Traffic<'r>> = Vec::new();
    let mut found: Vec<Field<'r>> = objects.of_kind("BackendTrafficPolicy").collect();
    // The oldest one holds.
    found.sort_by_key(|object| object.text_at(&["metadata", "creationTimestamp"]));
    for object in found {
        let known = ["targetRef", "targetRefs", "targetSelectors", "mergeType", "rateLimit"];
        name_rest(object, &["spec"], &known, &mut plan.report);
        let (_, name) = object.name();
        let mut targets = targets(object, objects, &mut plan.report);
        targets.retain(|target| is_free(target, &policies, object, &mut plan.report));
        let limits = object.at(&["spec", "rateLimit"]);
        policies.push(Traffic {
            object,
            name,
            targets,
            merge: object.text_at(&["spec", "mergeType"]),
            has_limits: limits.is_some(),
            rules: limits.map(|own| rule::rules(own, &mut plan.report)).unwrap_or_default(),
        });
    }
    policies
}

/// Whether no older policy has the target.
fn is_free(
    target: &Target<'_>,
    policies: &[Traffic<'_>],
    object: Field<'_>,
    report: &mut Report,
) -> bool {
    let same = |own: &Target<'_>| {
        gateway::are_alike(own.namespace, target.namespace)
            && Target { namespace: "", ..*own } == Target { namespace: "", ..*target }
    };
    let Some(older) = policies.iter().find(|own| own.targets.iter().any(same)) else {
        return true;
    };
    let created = |own: Field<'_>| own.text_at(&["metadata", "creationTimestamp"]).is_some();
    let target = target.words();
    if created(object) && created(older.object) {
        let message = format!("refused there: the older policy {} has that target", older.name);
        report.left_out(object.place(), format!("target {target}"), message);
    } else {
        let message =
            format!("the policy {} is for {target}, too: there the older one holds", older.name);
        object.complain(
            message,
            "give only the one that is in force, or both as `kubectl get -o yaml` has them, with \
             creationTimestamp",
        );
    }
    false
}

/// The rules that are in force on a path at a listener.
fn in_force<'p, 'r>(
    path: &Path<'r>,
    listener: &Listener<'r>,
    policies: &'p [Traffic<'r>],
) -> Vec<Held<'p, 'r>> {
    let held = |policy: &'p Traffic<'r>, rule: &'p Rule<'r>| {
        Some(Held { policy, rule, ruled: rule.ruled.as_ref()? })
    };
    let nearest = |most: Level| {
        let level = |own: &'p Traffic<'r>| {
            own.targets
                .iter()
                .filter_map(|own| own.level(path, listener))
                .filter(|own| *own <= most)
                .max()
        };
        let known = policies.iter().filter_map(|own| Some((level(own)?, own)));
        known.max_by_key(|(level, _)| *level)
    };
    let Some((level, own)) = nearest(Level::Rule) else { return Vec::new() };
    let mut rules: Vec<_> = own.rules.iter().filter_map(|rule| held(own, rule)).collect();
    let parent = nearest(Level::Listener).filter(|_| level >= Level::Route);
    if let (Some(merge), Some((_, parent))) = (own.merge, parent) {
        // As JSON, a list of rules takes the place of the other.
        let hides = |rule: &Rule<'_>| {
            merge == "JSONMerge" && own.rules.iter().any(|own| own.is_local == rule.is_local)
        };
        let others = parent.rules.iter().filter(|rule| !hides(rule));
        rules.extend(others.filter_map(|rule| held(parent, rule)));
    }
    rules
}

/// Puts limits and guards on all paths.
fn serve<'r>(
    paths: Vec<Path<'r>>,
    policies: &[Traffic<'r>],
    (securities, closed): (&[Security<'r>], &[Target<'r>]),
    plan: &mut Plan<'r>,
) {
    let mut work = Work::default();
    for path in paths {
        head_note(&path, &mut plan.report);
        let security = security::on(&path, securities, &mut plan.report);
        let is_closed = closed.iter().any(|target| {
            path.listeners.iter().any(|listener| target.level(&path, listener).is_some())
        });
        let guard = match security {
            _ if is_closed => Guard::closed(),
            own => own.map(|own| own.guard.clone()).unwrap_or_default(),
        };
        let mut limits = Vec::new();
        let mut known: Vec<&Rule<'_>> = Vec::new();
        for listener in &path.listeners {
            for held in in_force(&path, listener, policies) {
                let Held { rule, ruled, .. } = held;
                if known.iter().any(|own| std::ptr::eq(*own, rule)) {
                    continue;
                }
                known.push(rule);
                let at = work.limit(&path, held, security, plan);
                if rule.is_local || !rule.is_shared {
                    work.notes.extend(listener_note(&path, rule, ruled));
                }
                if concerns(&path, &ruled.scope.methods, ruled.scope.pattern.as_ref()) {
                    limits.push(at);
                }
            }
        }
        if !plan.serve(Served { path, limits, guard }) {
            break;
        }
    }
    policies.iter().for_each(|policy| work.report(policy, plan));
}

/// What is different where a path is at several listeners.
fn listener_note(path: &Path<'_>, rule: &Rule<'_>, ruled: &Ruled) -> Option<(String, String)> {
    let count = path.listeners.len();
    let requests = ruled.rates.first().map_or(0, |rate| rate.requests);
    (count > 1).then(|| {
        let most = requests.saturating_mul(count as u64);
        let note = format!(
            "its {count} listeners have a counter each there, {most} in all, and share one here"
        );
        (rule.place.clone(), note)
    })
}

impl Work {
    /// The limit of a rule on a path, which is made if it is not there.
    fn limit<'r>(
        &mut self,
        path: &Path<'r>,
        Held { policy, rule, ruled }: Held<'_, 'r>,
        security: Option<&Security<'r>>,
        plan: &mut Plan<'r>,
    ) -> usize {
        let is_shared = rule.is_shared && !rule.is_local;
        let host = path.host.as_deref().unwrap_or_default();
        let part = match is_shared {
            true => String::new(),
            false => format!(
                "{} {} {:?} {:?} {host}",
                path.rule.place(),
                path.route,
                path.pattern,
                path.method
            ),
        };
        let claims = security.map(|own| own.claims.as_slice()).unwrap_or_default();
        let scope = rule::with_claims(&ruled.scope, claims);
        if let Some(known) = self.made.iter().find(|own| own.rule == rule.place && own.part == part)
        {
            let same = plan.limits.get(known.limit).is_some_and(|own| own.scope == scope);
            if !same {
                let message = "this shared rule counts by a claim on some routes, and on others \
                               not: it is not in force on these";
                plan.report.left_out(&rule.place, &rule.words, message);
            }
            return known.limit;
        }
        let own =
            format!("{}-{}{}", policy.name, if rule.is_local { "local-" } else { "" }, rule.at);
        let name = if is_shared { own } else { format!("{own}-{}", path.route) };
        let issuers = security.map(|own| own.guard.issuers.as_slice()).unwrap_or_default();
        plan.limits.push(Limit {
            name: self.names.take(&name),
            origin: rule.place.clone(),
            place: rule.place.clone(),
            scope,
            rates: ruled.rates.clone(),
            counting: ruled.counting,
            cost: ruled.cost,
            is_shadow: ruled.is_shadow,
            issuers: issuers.iter().map(|(name, _)| name.clone()).collect(),
        });
        let limit = plan.limits.len() - 1;
        self.made.push(Made { rule: rule.place.clone(), part, limit });
        limit
    }

    /// What became of the rules of a policy.
    fn report(&self, policy: &Traffic<'_>, plan: &mut Plan<'_>) {
        let targets: Vec<String> = policy.targets.iter().map(Target::words).collect();
        let targets = targets.join("; ");
        if !policy.has_limits {
            let message = "it takes its routes from policies for their Gateways: no limits of \
                           those hold there, nor here";
            let there = format!("policy {} without rateLimit", policy.name);
            plan.report.same(policy.object.place(), there, message);
        }
        for rule in &policy.rules {
            let Some(ruled) = &rule.ruled else { continue };
            let own: Vec<usize> = self
                .made
                .iter()
                .filter(|own| own.rule == rule.place)
                .map(|own| own.limit)
                .collect();
            let Some(limit) = own.first().and_then(|at| plan.limits.get(*at)) else {
                let message = format!(
                    "not in force on any route in the files; it is for {targets}: give these, too, \
                     if they are missing"
                );
                plan.report.left_out(&rule.place, &rule.words, message);
                continue;
            };
            let rate = limit.rate();
            let here = match own.len() {
                1 => format!("limit {}, {rate}", limit.name),
                count => format!(
                    "{count} limits, one for each match and host: {} and others, {rate}",
                    limit.name
                ),
            };
            let mut all = ruled.notes.clone();
            for (_, note) in self.notes.iter().filter(|(place, _)| *place == rule.place) {
                if !all.contains(note) {
                    all.push(note.clone());
                }
            }
            plan.report.add(Finding::but_for(&all, &rule.place, &rule.words, here));
        }
    }
}

#[cfg(test)]
mod tests;
