//! Ingresses of Kubernetes as ingress-nginx reads them: annotations, which its controller turns
//! into lines of nginx.
//!
//! - `ingress`: an Ingress, its annotations and paths; `controller`: the controller's ConfigMap.
//! - `limits`: annotations that limit; `annotations`: the others.
//! - `snippet`: lines of nginx in annotations; `paths`: paths as patterns.
//! - `backend`: where requests go; `site`: routes, in the order in which nginx looks for them,
//!   and `notes` on them; `trial`: tests of the policy.

mod annotations;
mod backend;
mod controller;
mod ingress;
mod limits;
mod notes;
mod paths;
mod site;
mod snippet;
mod trial;

use std::collections::BTreeMap;

use self::{
    controller::Controller,
    ingress::{Entry, Ingress},
};
use crate::{
    Finding, Imported, Input, Options, Problems,
    draft::Draft,
    flow::Flow,
    manifest::{self, Resource},
    names::Names,
    problem_of_all,
    upstreams::Upstreams,
};

/// The class of ingress-nginx, unless an option names another one.
const CLASS: &str = "nginx";
/// What denies there, unless something else is said.
const STATUS: u16 = 503;

/// An import on its way.
struct Import<'r> {
    resources: &'r [Resource],
    options: &'r Options,
    controller: Controller,
    draft: Draft,
    findings: Vec<Finding>,
    problems: Problems,
    names: Names,
    upstreams: Upstreams,
    /// The statuses that snippets of Ingresses say.
    statuses: BTreeMap<String, u16>,
    redirects_to_tls: bool,
    /// Hosts and paths that an Ingress with guards has as well, and that may be its own.
    contested: Vec<(String, String)>,
}

/// The policy for Ingresses as ingress-nginx serves them, with the ConfigMap of its controller, and
/// Services for the numbers of named ports.
///
/// # Errors
/// What is wrong with the files, and with values that the controller refuses.
pub fn ingress_nginx(inputs: &[Input], options: &Options) -> Result<Imported, Problems> {
    let resources = manifest::resources(inputs)?;
    let mut import = Import {
        resources: &resources,
        options,
        controller: Controller::new(),
        draft: Draft::default(),
        findings: Vec::new(),
        problems: Vec::new(),
        names: Names::default(),
        upstreams: Upstreams::default(),
        statuses: BTreeMap::new(),
        redirects_to_tls: false,
        contested: Vec::new(),
    };
    for resource in resources.iter().filter(|own| Controller::is_of(own)) {
        import.read_controller(resource);
    }
    // Others have kinds of that name, too.
    let groups = ["", "networking.k8s.io", "extensions"];
    let group = |own: &Resource| own.api_version.split('/').next().unwrap_or_default().to_owned();
    let is_ingress =
        |own: &&Resource| own.kind == "Ingress" && groups.contains(&group(own).as_str());
    let all = resources.iter().filter(is_ingress).map(Ingress::new).collect();
    let ingresses = import.of_class(all, inputs)?;
    import.site(&ingresses);
    if !import.problems.is_empty() {
        import.problems.sort();
        return Err(import.problems);
    }
    import.draft.title = "Limits and routes of ingress-nginx, from Ingresses.".to_owned();
    import.responses();
    import.say_what_is_to_do();
    import.draft.upstreams = import.upstreams.section();
    Ok(import.draft.finish(import.findings))
}

impl<'r> Import<'r> {
    /// The Ingresses of the class, the oldest first, as the controller has them.
    fn of_class(
        &mut self,
        all: Vec<Ingress<'r>>,
        inputs: &[Input],
    ) -> Result<Vec<Ingress<'r>>, Problems> {
        let wanted = self.options.class.as_deref();
        let is_of_class = |own: &Ingress<'_>| match (own.class(), wanted) {
            (Some(class), _) => class == wanted.unwrap_or(CLASS),
            (None, wanted) => wanted.is_none(),
        };
        let (mut own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_of_class);
        let mut classes: Vec<&str> = others.iter().filter_map(|own| own.class()).collect();
        classes.sort_unstable();
        classes.dedup();
        if !own.iter().any(|own| !own.is_on("canary")) {
            let message = match classes.is_empty() {
                true if !own.is_empty() => "it holds canaries alone".to_owned(),
                true => "it holds no Ingress".to_owned(),
                false => format!(
                    "it holds no Ingress of class {}, but of {}",
                    wanted.unwrap_or(CLASS),
                    classes.join(", ")
                ),
            };
            let help = match classes.is_empty() {
                true => "give what `kubectl get ingress -A -o yaml` prints",
                false => "name the class: --class NAME",
            };
            return Err(vec![problem_of_all(inputs, message, help)]);
        }
        for other in &others {
            let class = other.class().unwrap_or("none");
            let there = format!("{}: class {class}", other.id());
            let here = "of another class: it has no route. For its policy, import with --class";
            self.findings.push(Finding::left_out(
                other.place(other.resource.node.span),
                there,
                here,
            ));
        }
        own.sort_by(|one, another| {
            let by_name = || another.id().cmp(&one.id());
            one.created().cmp(another.created()).then_with(by_name)
        });
        Ok(own)
    }

    fn problem(
        &mut self,
        ingress: &Ingress<'_>,
        entry: &Entry,
        message: impl Into<String>,
        help: &str,
    ) {
        self.problems.push(ingress.resource.document.problem(entry.span, message, help));
    }

    /// The form of denials: there, they have a status, and no fields that tell of limits.
    fn responses(&mut self) {
        if self.draft.limits.is_empty() {
            return;
        }
        let general = self.controller.status.unwrap_or(STATUS);
        let mut statuses: Vec<u16> = self.statuses.values().copied().collect();
        statuses.sort_unstable();
        statuses.dedup();
        let status = match statuses.as_slice() {
            [] => general,
            [one] => *one,
            [_, ..] => {
                let there = format!("statuses {statuses:?} of denials, in snippets");
                let here = format!("`denied_status: {general}` for all");
                self.findings.push(Finding::nearly("", there, here));
                general
            }
        };
        let is_known = (400..500).contains(&status) || status == STATUS;
        let status = if is_known { status } else { STATUS };
        let responses = Flow::fields([("denied_status", u64::from(status).into())]);
        let responses = responses.with("headers", "none").with("rate_limit_path", "off");
        self.draft.responses = Some(responses);
    }

    fn say_what_is_to_do(&mut self) {
        let mut to_do = Vec::new();
        let is_behind_proxy = self.controller.is_behind_proxy;
        to_do.push(format!(
            "whose address is counted? {} Write the addresses of the\nload balancer that is in \
             front of Tollgate into the settings: `trusted_proxies: [10.0.0.0/8]`, never \
             0.0.0.0/0.\nWithout it, its address is the client's, and all clients share their \
             limits.",
            match is_behind_proxy {
                true => "The controller takes the client's address from another proxy.",
                false => "The controller takes that of the connection.",
            }
        ));
        to_do.push(
            "the controller counts in each of its pods: with R replicas, a client gets up to R \
             times each limit there.\nHere a limit is what is written, for each Tollgate, or for \
             all of them with a store in Redis."
                .to_owned(),
        );
        if !self.controller.is_given {
            to_do.push(
                "no ConfigMap of the controller was given. Its defaults were taken: limits by \
                 address, status 503,\nbodies up to 1 MiB. Give it as well if you have one: \
                 kubectl get configmap -n ingress-nginx -o yaml"
                    .to_owned(),
            );
        }
        if self.redirects_to_tls {
            to_do.push(
                "plain HTTP is redirected to HTTPS there. In the settings: a listener with \
                 `redirect: https`, and one\nwith `tls`."
                    .to_owned(),
            );
        }
        let left = std::mem::take(&mut self.draft.to_do);
        self.draft.to_do = left.into_iter().chain(to_do).collect();
    }
}

#[cfg(test)]
mod tests;
