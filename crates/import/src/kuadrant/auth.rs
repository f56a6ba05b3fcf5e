//! AuthPolicies: who may pass, and what `auth.identity` is. What has no counterpart closes routes.

use super::merge::{Policy, effective};
use crate::{
    flow::Flow,
    gateway::{Path, field::Field, guard::Guard, plan::Plan},
    report::Report,
};

/// What an AuthPolicy says.
#[derive(Clone, Default)]
pub(super) struct Auth {
    pub(super) guard: Guard,
    /// Properties of `auth.identity`, and the claims that they are; none: something else.
    identity: Option<Vec<(String, Option<String>)>>,
    report: Report,
}

impl Auth {
    /// The claim that a property of `auth.identity` is.
    pub(super) fn claim(&self, property: &str) -> Option<String> {
        let is_claim = |name: &str| !name.contains('.') && !self.guard.issuers.is_empty();
        match &self.identity {
            Some(known) => {
                let (_, claim) = known.iter().find(|(own, _)| own == property)?;
                claim.clone().filter(|claim| is_claim(claim))
            }
            None => is_claim(property).then(|| property.to_owned()),
        }
    }
}

/// What all AuthPolicies say, in their order.
pub(super) fn auths<'r>(policies: &[Policy<'r>], plan: &mut Plan<'r>) -> Vec<Auth> {
    policies.iter().map(|policy| auth(policy, plan)).collect()
}

/// What holds on a path. `used`: those that hold on any.
pub(super) fn on<'r>(
    path: &Path<'r>,
    policies: &[Policy<'r>],
    auths: &[Auth],
    used: &mut Vec<usize>,
    report: &mut Report,
) -> Auth {
    let mut known: Vec<usize> = Vec::new();
    for listener in &path.listeners {
        let rules = effective(path, listener, policies).rules;
        known.extend(rules.into_iter().map(|(_, at)| at));
    }
    known.sort_unstable();
    known.dedup();
    used.extend(known.iter().copied());
    match known.as_slice() {
        [] => Auth::default(),
        [one] => auths.get(*one).cloned().unwrap_or_default(),
        [one, ..] => {
            if let Some(policy) = policies.get(*one) {
                let message = "several AuthPolicies are merged on a route: it is closed, write \
                               what they say together as `identity` and `auth`";
                let there = format!("AuthPolicy {}", policy.name);
                report.left_out(policy.object.place(), there, message);
            }
            Auth { guard: Guard::closed(), ..Auth::default() }
        }
    }
}

/// Names what AuthPolicies became, and those that hold nowhere.
pub(super) fn report(
    policies: &[Policy<'_>],
    auths: Vec<Auth>,
    used: &[usize],
    plan: &mut Plan<'_>,
) {
    for (at, (policy, auth)) in policies.iter().zip(auths).enumerate() {
        if used.contains(&at) {
            plan.report.absorb(auth.report);
        } else {
            let there = format!("AuthPolicy {}", policy.name);
            plan.report.left_out(policy.object.place(), there, policy.nowhere());
        }
    }
}

fn auth<'r>(policy: &Policy<'r>, plan: &mut Plan<'r>) -> Auth {
    let mut own = Auth::default();
    let words = format!("AuthPolicy {}", policy.name);
    let block = policy.block;
    if block.at(&["when"]).is_some() {
        let message = "its predicates are not read: it holds for all requests here";
        own.report.nearly(block.place(), format!("{words}: when"), message);
    }
    let mut closed = Vec::new();
    let ways = block.entries(&["rules", "authentication"]);
    let mut others = Vec::new();
    for (name, way) in &ways {
        match issuer(*way) {
            Some((url, fields)) => {
                let known = plan.issuers.name(name, fields);
                own.guard.issuers.push((known.clone(), url.to_owned()));
                let here = format!("issuer {known} of identity.jwt");
                own.report.same(way.place(), format!("{words}: jwt {name}"), here);
                if !way.others(&["jwt"]).is_empty() {
                    let there = format!("{words}: {name}: {}", way.others(&["jwt"]).join(", "));
                    let message =
                        "not read: a good token from `Authorization: Bearer` passes always";
                    own.report.left_out(way.place(), there, message);
                }
            }
            None if way.at(&["anonymous"]).is_some() => own.guard.is_optional = true,
            None => others.push((*name, *way)),
        }
    }
    for (name, way) in &others {
        let kind = way.others(&["credentials", "overrides", "defaults", "when", "priority"]);
        let there = format!("{words}: {} {name}", kind.first().unwrap_or(&"authentication"));
        let message = match own.guard.issuers.is_empty() {
            true => "no counterpart without its secrets or services: the routes are closed",
            false => "no counterpart: only the other ways to authenticate pass here",
        };
        own.report.left_out(way.place(), there, message);
    }
    if own.guard.issuers.is_empty() && !others.is_empty() {
        closed.push("authentication by other means than JWT");
    }
    if !block.entries(&["rules", "authorization"]).is_empty() {
        closed.push("authorization");
    }
    if !closed.is_empty() {
        let why = closed.join(" and ");
        let message =
            format!("{why} has no counterpart: the routes of {} are closed", policy.target.words());
        own.report.left_out(policy.object.place(), &words, message);
        own.report.ask(format!(
            "the routes of {words} are closed by `deny`, as its\n{why} has no counterpart.\nWrite \
             `identity` (issuers, API keys), `scopes` or `required_claims` that say the same, \
             then\nremove `deny` from these routes."
        ));
        own.guard = Guard { issuers: own.guard.issuers, ..Guard::closed() };
    }
    own.identity = identity(policy, &words, &mut own.report);
    own
}

/// The issuer of a way to authenticate, with the fields that it has here.
fn issuer<'r>(way: Field<'r>) -> Option<(&'r str, Flow)> {
    let url = way.text_at(&["jwt", "issuerUrl"])?;
    let fields = Flow::fields([("issuer", url.into()), ("discover", true.into())])
        .with_some("allow_http", url.starts_with("http://").then_some(true));
    Some((url, fields))
}

/// What the policy makes of `auth.identity` for limits; none: it stays what was authenticated.
fn identity<'r>(
    policy: &Policy<'r>,
    words: &str,
    report: &mut Report,
) -> Option<Vec<(String, Option<String>)>> {
    let mut identity = None;
    for (part, field) in policy.block.entries(&["rules"]) {
        let message = match part {
            "authentication" | "authorization" => continue,
            "response" => {
                "bodies and headers of responses, and what the upstream gets: see `responses` and \
                 `forward_claims`"
            }
            _ => "not read: requests go on without it",
        };
        let filter = field.at(&["success", "filters", "identity"]);
        if let Some(filter) = filter.filter(|_| part == "response") {
            let property = |(name, own): (&str, Field<'_>)| {
                let from = own.text_at(&["selector"]).or_else(|| own.text_at(&["expression"]));
                let claim = from.and_then(|from| from.trim().strip_prefix("auth.identity."));
                (name.to_owned(), claim.map(str::to_owned))
            };
            let properties = filter.entries(&["json", "properties"]).into_iter();
            identity = Some(properties.map(property).collect());
        }
        let is_only =
            |path: &[&str], name| field.at(path).is_none_or(|own| own.others(&[name]).is_empty());
        let is_read = is_only(&[], "success")
            && is_only(&["success"], "filters")
            && is_only(&["success", "filters"], "identity");
        if part != "response" || !is_read {
            report.left_out(field.place(), format!("{words}: {part}"), message);
        }
    }
    identity
}
