//! Tests of the policy: how many pass at once, which places share a counter, and what is closed.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Importer, hosts::HostRoutes, keys::Condition, maps::network, route::Route, uses::Use};
use crate::{flow::Flow, paths::takes};

/// The most requests of a test, and tests of one kind.
const MAX_REPEAT: u64 = 20_000;
const MAX_TESTS: usize = 20;
/// Methods of requests, the ones to try first.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"];
/// A client whom nothing exempts, mostly.
const CLIENT: &str = "192.0.2.1";

/// A request that takes a route.
struct Sample<'r> {
    route: &'r Route,
    given: Flow,
    path: String,
    method: String,
    /// Those that count it.
    limits: Vec<String>,
}

impl Importer<'_> {
    /// The tests.
    pub(super) fn trials(&self, groups: &[HostRoutes], status: u64) -> Vec<Flow> {
        let samples = self.samples(groups);
        let mut tests = Vec::new();
        let mut tried = BTreeSet::new();
        let limited =
            samples.iter().filter(|sample| !sample.route.is_closed && !sample.limits.is_empty());
        for sample in limited {
            if tests.len() > 3 * MAX_TESTS || !tried.insert(sample.limits.clone()) {
                continue;
            }
            for address in self.addresses(sample) {
                let (admitted, shared) = match self.admitted(sample, address) {
                    Some((admitted, used)) => (admitted, Some(used)),
                    None => (self.beyond_bursts(sample), None),
                };
                let repeat = if shared.is_some() { 2 * admitted } else { admitted };
                if repeat > MAX_REPEAT {
                    continue;
                }
                let who =
                    if shared.is_some() { "at once" } else { "of a network that is not counted" };
                tests.push(Flow::fields([
                    ("name", format!("{} {who}: {admitted} pass", sample.path).into()),
                    ("given", given(sample, address)),
                    ("repeat", repeat.into()),
                    ("expect", Flow::fields([("admitted", admitted.into())])),
                ]));
                // Another place with the same counter has nothing left.
                let other = shared.and_then(|used| {
                    samples.iter().find(|other| {
                        other.path != sample.path && self.shares(other, used, address)
                    })
                });
                if let Some(other) = other {
                    tests.push(Flow::fields([
                        ("name", format!("{} shares its counter", other.path).into()),
                        ("after", "1ms".into()),
                        ("given", given(other, address)),
                        ("expect", Flow::fields([("status", status.into())])),
                    ]));
                }
            }
        }
        let closed = samples.iter().filter(|sample| sample.route.is_closed).take(MAX_TESTS);
        tests.extend(closed.map(|sample| {
            Flow::fields([
                ("name", format!("{} is closed", sample.path).into()),
                ("given", sample.given.clone()),
                ("expect", Flow::fields([("status", 403.into())])),
            ])
        }));
        tests
    }

    /// A request for each route that no earlier one takes.
    fn samples<'r>(&self, groups: &'r [HostRoutes]) -> Vec<Sample<'r>> {
        let mut samples = Vec::new();
        let has_hosts = groups.iter().any(|group| group.host.is_some());
        for group in groups {
            let mut earlier: Vec<&str> = Vec::new();
            for route in &group.routes {
                let path = route
                    .patterns
                    .iter()
                    .flat_map(|pattern| candidates(pattern))
                    .find(|path| !earlier.iter().any(|pattern| self.takes(pattern, path)));
                earlier.extend(route.patterns.iter().map(String::as_str));
                let Some(path) = path.filter(|_| !route.wants_token()) else { continue };
                let host = match &group.host {
                    Some(host) => Some(host.replace('*', "tollgate-test")),
                    None => has_hosts.then(|| "tollgate-test.invalid".to_owned()),
                };
                let method = self.method(route);
                let given = Flow::fields([("path", path.clone().into())])
                    .with_some("host", host)
                    .with_some("method", (method != "GET").then_some(method))
                    .with_fields("headers", self.fields(&route.uses));
                let method = method.to_owned();
                let counted = self.counted(route, &method);
                let limits = counted.flat_map(|(used, _)| self.zones.limits(used)).collect();
                samples.push(Sample { route, given, path, method, limits });
            }
        }
        samples
    }

    fn takes(&self, pattern: &str, path: &str) -> bool {
        match self.ignores_case {
            true => takes(&pattern.to_ascii_lowercase(), &path.to_ascii_lowercase()),
            false => takes(pattern, path),
        }
    }

    fn conditions<'u>(&'u self, uses: &'u [Use]) -> impl Iterator<Item = (&'u Use, &'u Condition)> {
        uses.iter().filter_map(|used| Some((used, &self.zones.key(used)?.condition)))
    }

    /// What counts requests with this method.
    fn counted<'u>(
        &'u self,
        route: &'u Route,
        method: &str,
    ) -> impl Iterator<Item = (&'u Use, &'u Condition)> {
        self.conditions(&route.uses).filter(move |(_, condition)| condition.counts(method))
    }

    /// The method that most of its limits count.
    fn method<'u>(&'u self, route: &'u Route) -> &'u str {
        let of_limits = self.conditions(&route.uses).flat_map(|(_, condition)| match condition {
            Condition::Methods(methods) => &methods[..],
            _ => &[],
        });
        let open = route.open_methods.as_deref();
        let all = METHODS
            .into_iter()
            .chain(of_limits.chain(open.unwrap_or_default()).map(String::as_str))
            .filter(|method| open.is_none_or(|open| open.iter().any(|own| own == method)));
        let all: Vec<&str> = all.collect();
        let most = all.into_iter().rev().max_by_key(|method| self.counted(route, method).count());
        most.unwrap_or("GET")
    }

    /// Header fields with the keys of the limits.
    fn fields(&self, uses: &[Use]) -> Vec<(String, Flow)> {
        let keys = uses.iter().filter_map(|used| self.zones.key(used));
        let mut fields: Vec<(String, Flow)> = Vec::new();
        for part in keys.flat_map(|key| &key.per).flat_map(|per| &per.parts) {
            let field = match (part.strip_prefix("header."), part.strip_prefix("cookie.")) {
                (Some(name), _) => (name.to_owned(), Flow::from("a")),
                (_, Some(name)) => ("cookie".to_owned(), Flow::from(format!("{name}=a"))),
                _ => continue,
            };
            if !fields.iter().any(|(name, _)| *name == field.0) {
                fields.push(field);
            }
        }
        fields
    }

    /// Addresses that may use the route: one that is counted, and one that is not.
    fn addresses(&self, sample: &Sample<'_>) -> Vec<IpAddr> {
        let Sample { route, method, .. } = sample;
        let exempt = self.counted(route, method).flat_map(|(_, condition)| match condition {
            Condition::Networks { networks, .. } => {
                networks.iter().map(|(network, _)| network.addr()).collect()
            }
            _ => Vec::new(),
        });
        let allowed = route.list("allow").filter_map(network).map(|network| network.addr());
        let all = CLIENT
            .parse()
            .into_iter()
            .chain(allowed)
            .chain(exempt)
            .filter(|address| may_use(route, address));
        let mut chosen: Vec<(IpAddr, bool)> = Vec::new();
        for address in all {
            let is_counted = self.admitted(sample, address).is_some();
            if !chosen.iter().any(|(_, known)| *known == is_counted) {
                chosen.push((address, is_counted));
            }
        }
        // Routes whose limits are all dry runs or for requests in flight have nothing to show.
        let has_rates = chosen.iter().any(|(_, is_counted)| *is_counted);
        chosen.into_iter().filter(|_| has_rates).map(|(address, _)| address).collect()
    }

    /// How many requests of this address pass at once, and what holds the next one back.
    fn admitted<'u>(&'u self, sample: &'u Sample<'_>, address: IpAddr) -> Option<(u64, &'u Use)> {
        let all = self.counted(sample.route, &sample.method);
        let counted = all.filter(|(_, condition)| match condition {
            Condition::Networks { networks, others } => networks
                .iter()
                .find(|(network, _)| network.contains(&address))
                .map_or(*others, |(_, is_counted)| *is_counted),
            _ => true,
        });
        counted
            .filter_map(|(used, _)| Some((self.zones.at_once(used)?.0, used)))
            .min_by_key(|(admitted, _)| *admitted)
    }

    /// More requests than any of its limits would admit at once.
    fn beyond_bursts(&self, sample: &Sample<'_>) -> u64 {
        let all = self.counted(sample.route, &sample.method);
        let bursts = all.filter_map(|(used, _)| self.zones.at_once(used));
        bursts.map(|(admitted, _)| admitted + 1).max().unwrap_or_default().max(10)
    }

    /// Whether a request has the counter of this limit, which has no room.
    fn shares(&self, other: &Sample<'_>, used: &Use, address: IpAddr) -> bool {
        let is_slow = self.zones.at_once(used).is_some_and(|(_, rate)| rate <= 100_000);
        let key = self.zones.key(used);
        let is_shared = key.is_some_and(|key| {
            key.per
                .iter()
                .flat_map(|per| &per.parts)
                .all(|part| !matches!(part.as_str(), "path" | "host" | "method"))
        });
        is_slow
            && is_shared
            && self.counted(other.route, &other.method).any(|(own, _)| own == used)
            && !other.route.is_closed
            && may_use(other.route, &address)
    }
}

fn given(sample: &Sample<'_>, address: IpAddr) -> Flow {
    let address = address.to_string();
    if address == CLIENT {
        sample.given.clone()
    } else {
        sample.given.clone().with("address", address)
    }
}

/// Whether the networks of the route let this address in.
fn may_use(route: &Route, address: &IpAddr) -> bool {
    let is_in = |name: &str| {
        route.list(name).any(|text| network(text).is_some_and(|network| network.contains(address)))
    };
    (route.list("allow").next().is_none() || is_in("allow")) && !is_in("deny")
}

/// Paths of a pattern.
fn candidates(pattern: &str) -> Vec<String> {
    let fill = |text: &str, with: &str| text.replace('*', with);
    match pattern.strip_suffix("/**") {
        Some(base) => {
            let plain = fill(base, "");
            let mut all = vec![
                format!("{}/tollgate-test", fill(base, "x")),
                format!("{plain}/tollgate-test"),
                fill(base, "x"),
                plain,
            ];
            all.retain(|path| !path.is_empty() && !path.contains("//"));
            all
        }
        None => vec![fill(pattern, "x")],
    }
}
