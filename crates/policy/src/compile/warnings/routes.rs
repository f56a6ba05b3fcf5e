//! Routes that no request takes, since earlier ones take them all.

use tollgate_yaml::{Check, warning::Rule};

use crate::{HostPattern, Matcher, Policy, compile::Compiler, file::RawPolicy};

impl Compiler<'_> {
    pub(super) fn warn_of_shadowed_routes(&mut self, raw: &RawPolicy, policy: &Policy) {
        let matchers = policy.router.matchers();
        for (at, (matcher, route)) in matchers.iter().zip(&raw.routes.value).enumerate() {
            let earlier = matchers.get(..at).unwrap_or_default();
            let shadows = shadows_of(matcher, earlier, &policy.hosts);
            let named: Vec<String> = shadows
                .iter()
                .filter_map(|at| raw.routes.value.get(*at))
                .map(|earlier| {
                    let path = &earlier.value.matcher.path;
                    let line = self.inspection.document.problem(path.span, "", "").line();
                    format!("`{}` on line {line}", path.value)
                })
                .collect();
            let (takes, whose) = match named.as_slice() {
                [] => continue,
                [_] => ("takes", "that route"),
                _ => ("take", "those routes"),
            };
            let message =
                format!("no request gets to this route: {} {takes} them all", named.join(" and "));
            let help = format!("move it above {whose}, or remove it");
            self.warn(Rule::ShadowedRoute, route.value.matcher.path.span, message, help);
        }
    }
}

/// Positions of the routes in `earlier` that leave nothing to `matcher`: one, or several with a
/// part of its methods each. Empty: they leave something.
fn shadows_of(matcher: &Matcher, earlier: &[Matcher], policy_hosts: &[HostPattern]) -> Vec<usize> {
    let Matcher { hosts, path, methods, from: _, reading: _ } = matcher;
    let covering: Vec<(usize, &Matcher)> = earlier
        .iter()
        .enumerate()
        .filter(|(_, own)| {
            own.path.covers(path)
                && cover(&own.hosts, hosts, policy_hosts)
                && own.covers_addresses_of(matcher)
        })
        .collect();
    let takes_all_methods = |own: &Matcher| {
        own.methods.is_empty()
            || (!methods.is_empty() && methods.iter().all(|method| own.takes_method(method)))
    };
    if let Some((at, _)) = covering.iter().find(|(_, own)| takes_all_methods(own)) {
        return vec![*at];
    }
    // The first that takes each method, if each is taken.
    let takers = methods.iter().map(|method| {
        let taker = covering.iter().find(|(_, own)| own.takes_method(method));
        taker.map(|(at, _)| *at)
    });
    let mut takers: Vec<usize> = takers.collect::<Option<_>>().unwrap_or_default();
    takers.sort_unstable();
    takers.dedup();
    takers
}

/// Whether every host of a route with `hosts` is one of a route with `earlier`. Without hosts, a
/// route is for all of its policy.
fn cover(earlier: &[HostPattern], hosts: &[HostPattern], policy_hosts: &[HostPattern]) -> bool {
    let hosts = if hosts.is_empty() { policy_hosts } else { hosts };
    let is_covered = |host: &HostPattern| earlier.iter().any(|own| own.covers(host));
    earlier.is_empty() || (!hosts.is_empty() && hosts.iter().all(is_covered))
}
