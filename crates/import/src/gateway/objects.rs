//! The objects in the files: from manifests to a policy, and what of them is for whom.

use std::cell::RefCell;

use super::{Path, Target, are_alike, field::Field, labels, paths, plan::Plan};
use crate::{
    Imported, Input, Options, Problems,
    manifest::{self, Resource},
    problem_of_all,
    report::Report,
    words,
};

/// The objects in the files, each with its kind.
pub(crate) struct Objects<'r>(Vec<(&'r str, Field<'r>)>);

impl<'r> Objects<'r> {
    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = Field<'r>> {
        self.0.iter().filter(move |(own, _)| *own == kind).map(|(_, object)| *object)
    }
}

/// A policy of the objects in the files. `kinds`: those that are read; `fill`: puts limits and
/// guards on the paths.
///
/// # Errors
/// What is wrong with the files.
pub(crate) fn import(
    (inputs, options): (&[Input], &Options),
    (program, kinds): (&str, &str),
    headers: &'static str,
    fill: impl for<'r> FnOnce(Vec<Path<'r>>, &Objects<'r>, &mut Plan<'r>),
) -> Result<Imported, Problems> {
    let resources = manifest::resources(inputs)?;
    let problems = RefCell::default();
    // Others have a kind `Gateway`, too, such as Istio.
    let is_foreign = |own: &Resource| {
        let group = own.api_version.split('/').next().unwrap_or_default();
        own.kind == "Gateway" && !["", "gateway.networking.k8s.io"].contains(&group)
    };
    let object = |own| {
        let kind = if is_foreign(own) { "another Gateway" } else { own.kind.as_str() };
        (kind, Field::whole(own, &problems))
    };
    let objects = Objects(resources.iter().map(object).collect());
    let mut plan = Plan::new(headers);
    let paths = paths(&objects, options.class.as_deref(), &mut plan.report);
    if paths.is_empty() {
        let message =
            "no HTTPRoute or GRPCRoute in these files has a path that a route here can have";
        let help = "give the routes that the policies are for, and their Gateways, too";
        problems.borrow_mut().push(problem_of_all(inputs, message, help));
    }
    name_others(&objects, kinds, &mut plan.report);
    fill(paths, &objects, &mut plan);
    let found = problems.take();
    if !found.is_empty() {
        return Err(found);
    }
    let names: Vec<&str> = inputs.iter().map(|input| &*input.name).collect();
    Ok(plan.finish(format!("From {program}: {}", names.join(", ")), options))
}

/// What a policy is for: its references, and what of the files has the labels that it selects.
pub(crate) fn targets<'r>(
    policy: Field<'r>,
    objects: &Objects<'r>,
    report: &mut Report,
) -> Vec<Target<'r>> {
    let (namespace, _) = policy.name();
    let mut references = policy.items(&["spec", "targetRefs"]);
    references.extend(policy.at(&["spec", "targetRef"]));
    let mut targets: Vec<Target<'r>> =
        references.into_iter().map(|own| Target::of(own, namespace)).collect();
    for selector in policy.items(&["spec", "targetSelectors"]) {
        let others = selector.others(&["group", "kind", "matchLabels"]);
        if !others.is_empty() {
            let there = format!("a selector of targets with {}", others.join(", "));
            let message = "only `matchLabels` in the namespace of the policy are read: name what \
                           it selects in `targetRefs`";
            report.left_out(selector.place(), there, message);
            continue;
        }
        let kind = selector.text_at(&["kind"]).unwrap_or_default();
        let wanted = selector.entries(&["matchLabels"]);
        for object in objects.of_kind(kind) {
            let (own, name) = object.name();
            let labels = labels(object);
            let has = |(name, value): &(&str, Field<'_>)| {
                labels.iter().any(|(own, text)| own == name && value.text() == Some(*text))
            };
            if are_alike(own, namespace) && wanted.iter().all(has) {
                targets.push(Target { kind, namespace, name, section: None });
            }
        }
    }
    targets
}

/// Kinds of objects that say nothing of requests.
const SILENT: &str = "\
    Certificate ClusterIssuer ClusterRole ClusterRoleBinding ConfigMap CustomResourceDefinition \
    Deployment GatewayClass HorizontalPodAutoscaler Issuer Job Namespace Pod PodDisruptionBudget \
    ReferenceGrant Role RoleBinding Secret Service ServiceAccount StatefulSet";

/// Names the objects of kinds that nothing reads.
fn name_others(objects: &Objects<'_>, known: &str, report: &mut Report) {
    for (kind, object) in &objects.0 {
        if !kind.is_empty() && !words::has(known, kind) && !words::has(SILENT, kind) {
            let there = format!("{kind} {}", object.name().1);
            let message = "objects of this kind are not read: what it does to requests is not here";
            report.left_out(object.place(), there, message);
        }
    }
}

/// Names what of a policy is not about limits.
pub(crate) fn name_rest(policy: Field<'_>, path: &[&str], known: &[&str], report: &mut Report) {
    let Some(field) = policy.at(path) else { return };
    let others = field.others(known);
    if !others.is_empty() {
        let message = "not read: see the settings of upstreams and the proxy";
        report.left_out(field.place(), others.join(", "), message);
    }
}
