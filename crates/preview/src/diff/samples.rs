//! Sample requests: one for each group of hosts, methods and client addresses that no route
//! distinguishes.

use std::collections::BTreeSet;

use http::Method;
use tollgate_policy::{HostPattern, Matcher, Policy, Request, RequestPath};

use super::{
    address_groups::{AddressGroup, address_groups},
    labels::unique,
    words,
};

/// The parts of samples, without paths.
pub(super) struct Samples {
    /// The methods that routes name, and last one that no route names.
    methods: Vec<Method>,
    hosts: Vec<HostGroup>,
    addresses: Vec<AddressGroup>,
}

/// The positions of a sample's parts.
pub(super) struct Sample {
    pub(super) method: usize,
    pub(super) host: usize,
    pub(super) address: usize,
}

impl Samples {
    /// Samples that cover all differences between two versions of a policy.
    pub(super) fn of(old: &Policy, new: &Policy) -> Samples {
        Samples {
            methods: methods(matchers(old, new)),
            hosts: hosts(old, new),
            addresses: address_groups(matchers(old, new)),
        }
    }

    /// How many samples each path makes.
    pub(super) fn count(&self) -> usize {
        self.methods.len() * self.hosts.len() * self.addresses.len()
    }

    /// All requests for a path.
    pub(super) fn requests<'r>(
        &'r self,
        path: &'r str,
    ) -> impl Iterator<Item = (Sample, Request<'r>)> {
        let path = RequestPath::new(path, path);
        let addresses = self.addresses.iter().enumerate();
        let pairs =
            addresses.flat_map(|from| self.hosts.iter().enumerate().map(move |host| (from, host)));
        pairs.flat_map(move |((address, addresses), (host, hosts))| {
            self.methods.iter().enumerate().map(move |(method_at, method)| {
                let sample = Sample { method: method_at, host, address };
                let host = hosts.sample.as_deref();
                (sample, Request { host, path, method, address: addresses.sample })
            })
        })
    }

    pub(super) fn method_names(&self, chosen: &BTreeSet<usize>) -> Vec<String> {
        some_of(chosen, self.methods.len(), |at| match self.methods.get(*at) {
            Some(method) if *at + 1 < self.methods.len() => vec![method.to_string()],
            _ => vec!["*".to_owned()],
        })
    }

    pub(super) fn host_names(&self, chosen: &BTreeSet<usize>) -> Vec<String> {
        some_of(chosen, self.hosts.len(), |at| {
            self.hosts.get(*at).map(|hosts| hosts.names.clone()).unwrap_or_default()
        })
    }

    pub(super) fn address_names(&self, chosen: &BTreeSet<usize>) -> Vec<String> {
        some_of(chosen, self.addresses.len(), |at| {
            self.addresses.get(*at).map(|addresses| addresses.names.clone()).unwrap_or_default()
        })
    }
}

/// Names of what was chosen of `all`; empty: all of it.
fn some_of(
    chosen: &BTreeSet<usize>,
    all: usize,
    names: impl Fn(&usize) -> Vec<String>,
) -> Vec<String> {
    match chosen.len() == all {
        true => Vec::new(),
        false => chosen.iter().flat_map(names).collect(),
    }
}

/// Hosts that no route distinguishes.
struct HostGroup {
    /// One of them. None: a request without a host.
    sample: Option<String>,
    /// As policies write them.
    names: Vec<String>,
}

/// The matchers of both policies' routes.
pub(super) fn matchers<'p>(old: &'p Policy, new: &'p Policy) -> impl Iterator<Item = &'p Matcher> {
    old.router.matchers().iter().chain(new.router.matchers())
}

/// The methods that routes name, and last one that no route names.
fn methods<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Vec<Method> {
    let mut methods = unique(matchers.flat_map(|matcher| matcher.methods.iter().cloned()));
    let other = (0..)
        .filter_map(|number| Method::from_bytes(format!("OTHER{number}").as_bytes()).ok())
        .find(|method| !methods.contains(method));
    methods.extend(other);
    methods
}

/// Hosts that routes name, grouped by which routes are for them, and the policies' own.
fn hosts(old: &Policy, new: &Policy) -> Vec<HostGroup> {
    let of_routes: Vec<&HostPattern> =
        matchers(old, new).flat_map(|matcher| &matcher.hosts).collect();
    let of_policies = old.hosts.iter().chain(&new.hosts);
    let patterns = unique(of_policies.chain(of_routes.iter().copied()));
    let is_fallback = old.hosts.is_empty() || new.hosts.is_empty();
    let named = patterns.into_iter().map(|own| (Some(host_sample(own)), words::host(own)));
    let others = is_fallback.then(|| (None, "other hosts".to_owned()));
    let mut groups: Vec<(Vec<bool>, HostGroup)> = Vec::new();
    for (sample, name) in named.chain(others) {
        let takes = |own: &&HostPattern| sample.as_deref().is_some_and(|host| own.matches(host));
        let taken_by: Vec<bool> = of_routes.iter().map(takes).collect();
        match groups.iter_mut().find(|(other, _)| *other == taken_by) {
            Some((_, hosts)) => hosts.names.push(name),
            None => groups.push((taken_by, HostGroup { sample, names: vec![name] })),
        }
    }
    groups.into_iter().map(|(_, hosts)| hosts).collect()
}

/// A host that matches, and no other pattern but those that match all its like.
pub(super) fn host_sample(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Exact(name) => name.to_string(),
        // No host has a space, so no pattern spells this out.
        HostPattern::Below(suffix) => format!(" {suffix}"),
    }
}
