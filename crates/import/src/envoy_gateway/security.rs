//! SecurityPolicies: who may pass. What has no counterpart closes the routes.

use std::cell::Cell;

use crate::{
    Finding,
    flow::Flow,
    gateway::{
        Path, Target,
        field::Field,
        guard::Guard,
        objects::{Objects, targets},
        plan::Plan,
    },
    network::network,
    report::Report,
};

/// A SecurityPolicy.
pub(super) struct Security<'r> {
    place: String,
    name: &'r str,
    targets: Vec<Target<'r>>,
    pub(super) guard: Guard,
    /// Headers that are made from claims: `header.x` and `jwt.x`.
    pub(super) claims: Vec<(String, String)>,
    report: Report,
    /// Whether it holds on a path.
    is_used: Cell<bool>,
}

/// All of them.
pub(super) fn securities<'r>(objects: &Objects<'r>, plan: &mut Plan<'r>) -> Vec<Security<'r>> {
    let mut all = Vec::new();
    for object in objects.of_kind("SecurityPolicy") {
        let (_, name) = object.name();
        let targets = targets(object, objects, &mut plan.report);
        let mut own = Security {
            place: object.place(),
            name,
            targets,
            guard: Guard::default(),
            claims: Vec::new(),
            report: Report::default(),
            is_used: Cell::new(false),
        };
        let mut closed = Vec::new();
        for (part, field) in object.entries(&["spec"]) {
            match part {
                "targetRef" | "targetRefs" | "targetSelectors" => {}
                "jwt" => closed.extend(jwt(field, &mut own, plan)),
                "cors" => own.guard.cors = cors(field, &mut own.report),
                "authorization" => closed.extend(authorization(field, &mut own)),
                other => closed.push(format!("{other} has no counterpart here")),
            }
        }
        if !closed.is_empty() {
            let why = closed.join("; ");
            let words: Vec<String> = own.targets.iter().map(Target::words).collect();
            let message = format!("{why}: the routes of {} are closed", words.join("; "));
            own.report.left_out(&own.place, policy(name), message);
            own.report.ask(format!(
                "the routes of SecurityPolicy {name} are closed by `deny`:\n{why}.\nWrite \
                 `identity` and `auth`, or `allow`, that say the same, then remove `deny` from \
                 these routes."
            ));
            own.guard = Guard::closed();
        }
        all.push(own);
    }
    all
}

fn policy(name: &str) -> String {
    format!("SecurityPolicy {name}")
}

/// Names what they became, and those that hold nowhere.
pub(super) fn report(securities: Vec<Security<'_>>, plan: &mut Plan<'_>) {
    for own in securities {
        if own.is_used.get() {
            plan.report.absorb(own.report);
        } else {
            let words: Vec<String> = own.targets.iter().map(Target::words).collect();
            let message = format!(
                "not in force on any route in the files: it is for {}; give that, too, if it is \
                 missing",
                words.join("; ")
            );
            plan.report.left_out(own.place, policy(own.name), message);
        }
    }
}

/// The one that holds on a path: the nearest.
pub(super) fn on<'s, 'r>(
    path: &Path<'r>,
    securities: &'s [Security<'r>],
    report: &mut Report,
) -> Option<&'s Security<'r>> {
    let level = |own: &Security<'r>| {
        let levels = own.targets.iter().flat_map(|target| {
            path.listeners.iter().filter_map(|listener| target.level(path, listener))
        });
        levels.max()
    };
    let mut known: Vec<_> = securities.iter().filter_map(|own| Some((level(own)?, own))).collect();
    known.sort_by_key(|(level, own)| (*level, own.guard.is_closed()));
    let (nearest, own) = known.pop()?;
    let rival = known.last().filter(|(level, other)| *level == nearest && other.guard != own.guard);
    if let Some((_, other)) = rival {
        let message = format!("{} is for the same: see which is in force", policy(other.name));
        report.left_out(&other.place, policy(other.name), message);
    }
    own.is_used.set(true);
    Some(own)
}

/// Tokens. Returns why the routes must be closed, if they must.
fn jwt<'r>(field: Field<'r>, own: &mut Security<'r>, plan: &mut Plan<'r>) -> Option<String> {
    own.guard.is_optional = field.is_true(&["optional"]);
    if !field.others(&["optional", "providers"]).is_empty() {
        return Some("jwt with fields that this import does not know".to_owned());
    }
    let providers = field.items(&["providers"]);
    for provider in &providers {
        let name = provider.text_at(&["name"]).unwrap_or("issuer");
        let Some(url) = provider.text_at(&["remoteJWKS", "uri"]) else {
            return Some(format!(
                "the keys of jwt provider {name} are no URL: write them into a `jwks_file`"
            ));
        };
        let issuer = provider.text_at(&["issuer"]);
        let fields = issuer_fields(issuer, url, &provider.texts(&["audiences"]));
        let known = plan.issuers.name(name, fields);
        let words = format!("jwt provider {name}");
        own.report.add(match issuer {
            Some(_) => {
                Finding::same(provider.place(), words, format!("issuer {known} of identity.jwt"))
            }
            None => Finding::nearly(
                provider.place(),
                format!("{words} without `issuer`"),
                "takes tokens of any `iss` there, and here only those without one: write its \
                 `issuer`",
            ),
        });
        own.guard.issuers.push((known.clone(), issuer.map_or(known, str::to_owned)));
        for entry in provider.items(&["claimToHeaders"]) {
            let (claim, header) = (entry.text_at(&["claim"]), entry.text_at(&["header"]));
            let (Some(claim), Some(header)) = (claim, header) else { continue };
            let key = format!("header.{}", header.to_ascii_lowercase());
            own.claims.push((key, format!("jwt.{claim}")));
            let message = format!(
                "limits by it count by jwt.{claim}; the upstream gets it by `forward_claims`"
            );
            own.report.left_out(entry.place(), format!("claimToHeaders {header}"), message);
        }
        let known = ["name", "issuer", "audiences", "remoteJWKS", "claimToHeaders"];
        let others = provider.others(&known);
        if !others.is_empty() {
            let message = "no counterpart: tokens come from `Authorization: Bearer`, and are \
                           verified as `identity.jwt` says";
            own.report.left_out(provider.place(), others.join(", "), message);
        }
    }
    providers.is_empty().then(|| "jwt without providers".to_owned())
}

/// An issuer as `identity.jwt` has it, without its name.
fn issuer_fields(issuer: Option<&str>, url: &str, audiences: &[&str]) -> Flow {
    Flow::fields([("issuer", issuer.unwrap_or("none").into()), ("jwks_url", url.into())])
        .with_some("allow_http", url.starts_with("http://").then_some(true))
        .with_list("audience", audiences.iter().copied())
}

/// Client addresses that may pass. Returns why the routes must be closed, if they must.
fn authorization(field: Field<'_>, own: &mut Security<'_>) -> Option<String> {
    let unknown = || Some("authorization by more than client addresses".to_owned());
    let is_open = field.text_at(&["defaultAction"]) == Some("Allow");
    if !field.others(&["defaultAction", "rules"]).is_empty() {
        return unknown();
    }
    let rules = field.items(&["rules"]);
    for rule in &rules {
        let networks = rule.texts(&["principal", "clientCIDRs"]);
        let is_plain = rule.others(&["name", "action", "principal"]).is_empty()
            && rule.at(&["principal"]).is_some_and(|own| own.others(&["clientCIDRs"]).is_empty())
            && networks.iter().all(|own| network(own).is_some());
        let action = rule.text_at(&["action"]);
        let list = match (action, is_open) {
            (Some("Allow"), false) => &mut own.guard.allow,
            (Some("Deny"), true) => &mut own.guard.deny,
            _ => return unknown(),
        };
        if !is_plain || networks.is_empty() {
            return unknown();
        }
        list.extend(networks.into_iter().map(str::to_owned));
    }
    if !is_open && rules.is_empty() {
        return Some("authorization that lets nobody pass".to_owned());
    }
    let here = match rules.is_empty() {
        true => "nobody is refused",
        false => "allow or deny of the routes, before tokens are looked at",
    };
    own.report.same(field.place(), "authorization", here);
    None
}

/// Whose pages may read responses.
fn cors(field: Field<'_>, report: &mut Report) -> Option<Flow> {
    let origins = field.texts(&["allowOrigins"]);
    let known = ["allowOrigins", "allowMethods", "allowHeaders", "allowCredentials", "maxAge"];
    let others = field.others(&known);
    let is_origin = |own: &&str| {
        let host = own.split_once("://").map_or("", |(_, host)| host);
        !host.is_empty() && !host.trim_start_matches("*.").contains('*')
    };
    let is_any = origins == ["*"];
    let credentials = field.is_true(&["allowCredentials"]);
    if origins.is_empty() || !(is_any || origins.iter().all(is_origin)) || (is_any && credentials) {
        let message =
            "its origins have no counterpart: the upstream decides who may read responses";
        report.left_out(field.place(), "cors", message);
        return None;
    }
    let some = |name: &str| Some(field.texts(&[name])).filter(|list| !list.contains(&"*"));
    let cors = Flow::fields([("origins", Flow::list(origins)), ("preflight", "answer".into())])
        .with_some("credentials", credentials.then_some(true))
        .with_list("methods", some("allowMethods").into_iter().flatten())
        .with_list("headers", some("allowHeaders").into_iter().flatten())
        .with_some("max_age", field.text_at(&["maxAge"]));
    report.add(match others.is_empty() {
        true => Finding::same(field.place(), "cors", "cors of the routes"),
        false => Finding::left_out(
            field.place(),
            format!("cors: {}", others.join(", ")),
            "not in `cors` of the routes, which has the rest",
        ),
    });
    Some(cors)
}
