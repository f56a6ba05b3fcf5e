//! The policy's tests: how many requests a limit admits, what comes back, and what is refused.

use std::time::Duration;

use super::{
    access::Access,
    auth::Auth,
    identity::Identity,
    limit::{Charged, Key},
    matching::Matching,
    tiers::Tiers,
};
use crate::{flow::Flow, gateway::pattern::host_contains, network::network_has, paths::takes};

/// The largest number of requests of a test, and the most routes that are tried.
const MAX_COUNT: u64 = 1000;
const MAX_TRIALS: usize = 50;
const DAY: Duration = Duration::from_secs(86_400);
/// The address of tests that say none, and those that they may say.
const USUAL: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.2";
const MORE: [&str; 4] = ["198.51.100.1", "203.0.113.1", "10.0.0.1", "2001:db8::1"];

/// A request that takes a route, and what becomes of it.
pub(super) struct Trial {
    name: String,
    matching: Matching,
    /// None: no request is sure to take the route.
    request: Option<Vec<(String, Flow)>>,
    is_closed: bool,
    has_address: bool,
    auth: Auth,
    charged: Vec<Charged>,
}

impl Trial {
    pub(super) fn of(
        name: &str,
        matching: &Matching,
        (access, is_closed): (&Access, bool),
        charged: &[Charged],
        above: &[Trial],
    ) -> Trial {
        let host = matching.host.as_ref().map(|host| host.replace('*', "any"));
        let is_taken =
            |path: &String| above.iter().any(|own| own.matching.may_take(host.as_deref(), path));
        // More are not tried, and each is compared with all above it.
        let is_tried = above.iter().filter(|own| own.request.is_some()).count() < MAX_TRIALS;
        let path = matching.samples().into_iter().find(|path| is_tried && !is_taken(path));
        let found = address(access);
        let address = found.filter(|own| *own != USUAL);
        let request = path.filter(|_| found.is_some() || is_closed).map(|path| {
            let mut request = vec![("path".to_owned(), Flow::Text(path))];
            let host = host.map(Flow::Text);
            let method = matching.methods.first().cloned().map(Flow::Text);
            let address = address.map(Flow::from);
            for (field, value) in [("host", host), ("method", method), ("address", address)] {
                request.extend(value.map(|value| (field.to_owned(), value)));
            }
            request
        });
        Trial {
            name: name.to_owned(),
            matching: matching.clone(),
            request,
            is_closed,
            has_address: address.is_some() || !may(access, OTHER),
            auth: access.auth.clone(),
            charged: charged.to_vec(),
        }
    }

    /// What the route admits at once, by which limit, and when the longest window is over.
    fn admitted(&self) -> Option<(&Charged, u64, Duration)> {
        // Requests without the header charge the one by address.
        let counted = self.charged.iter().filter(|own| !matches!(own.key, Key::Header(_)));
        let rates = counted.flat_map(|own| own.rates.iter().map(move |rate| (own, rate)));
        let (own, (number, _)) = rates.clone().min_by_key(|(_, (number, _))| *number)?;
        // A sliding window still weighs what came in the one before it.
        let over = |own: &Charged, length: Duration| length * if own.is_sliding { 2 } else { 1 };
        let longest = rates.map(|(own, (_, length))| over(own, *length)).max()?;
        (*number <= MAX_COUNT).then_some((own, *number, longest))
    }

    fn given(&self, (identity, tiers): (&Identity, &Tiers), more: &[(&str, Flow)]) -> Option<Flow> {
        let mut request = self.request.clone()?;
        if self.auth.is_some() {
            request.push(("jwt".to_owned(), identity.sample(&self.auth.names, tiers)?));
        }
        request.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Some(Flow::Fields(request))
    }
}

/// Whether requests from an address may use a route.
fn may(access: &Access, address: &str) -> bool {
    let is_in = |list: &[String]| {
        address.parse().is_ok_and(|own| list.iter().any(|network| network_has(network, own)))
    };
    (access.allow.is_empty() || is_in(&access.allow)) && !is_in(&access.deny)
}

/// An address that may use a route.
fn address(access: &Access) -> Option<&str> {
    let allowed = access.allow.iter().map(|own| own.split('/').next().unwrap_or_default());
    [USUAL, OTHER].into_iter().chain(allowed).chain(MORE).find(|own| may(access, own))
}

impl Matching {
    /// Paths that it takes.
    fn samples(&self) -> [String; 3] {
        let (stem, is_open) = match self.path.text.strip_suffix("/**") {
            Some(stem) => (stem, true),
            None => (self.path.text.as_str(), false),
        };
        let stem = stem.replace("/*", "/any");
        let stem = stem.trim_end_matches('*').trim_end_matches('/');
        let path = if stem.is_empty() { "/".to_owned() } else { stem.to_owned() };
        match is_open {
            true => [path, format!("{stem}/sample"), format!("{stem}/other/one")],
            false => [path.clone(), path.clone(), path],
        }
    }

    /// Whether it takes requests with this host and path, or may take some.
    fn may_take(&self, host: Option<&str>, path: &str) -> bool {
        let is_host = host.is_none() || host_contains(self.host.as_deref(), host);
        is_host && takes(&self.path.text, path)
    }
}

/// Tests of these routes.
pub(super) fn tests(trials: &[Trial], known: (&Identity, &Tiers), status: u64) -> Vec<Flow> {
    let mut found = Vec::new();
    let mut tried: Vec<&str> = Vec::new();
    for trial in trials.iter().filter(|trial| trial.request.is_some()).take(MAX_TRIALS) {
        let bare = trial.request.clone().map(Flow::Fields).unwrap_or(Flow::fields([]));
        if trial.is_closed {
            found.push(test(format!("{}: closed", trial.name), bare, ("status", 403.into())));
            continue;
        }
        if trial.auth.is_some() && !trial.auth.is_optional() {
            let name = format!("{}: without credentials", trial.name);
            found.push(test(name, bare, ("status", 401.into())));
        }
        let Some((charged, number, longest)) = trial.admitted() else { continue };
        let Some(given) = trial.given(known, &[]) else { continue };
        if tried.contains(&charged.name.as_str()) {
            continue;
        }
        tried.push(&charged.name);
        let name = &charged.name;
        let admitted = ("admitted", number.into());
        found.push(
            test(format!("{name}: {number} at once"), given.clone(), admitted)
                .with("repeat", number + 1),
        );
        let denied = test(format!("{name}: no more"), given.clone(), ("status", status.into()));
        found.push(denied.with("after", "0s"));
        let is_alone = trial.charged.iter().all(|own| own.key == Key::Address);
        let other = trial.given(known, &[("address", OTHER.into())]);
        if let Some(other) = other.filter(|_| is_alone && !trial.has_address) {
            let own = test(format!("{name}: another address"), other, ("status", 200.into()));
            found.push(own.with("after", "0s"));
        }
        if longest <= DAY {
            let seconds = longest.as_secs();
            let name = format!("{name}: again after {seconds} s");
            found.push(
                test(name, given, ("status", 200.into())).with("after", format!("{seconds}s")),
            );
        }
    }
    found
}

fn test(name: String, given: Flow, (field, value): (&str, Flow)) -> Flow {
    Flow::fields([
        ("name", name.into()),
        ("given", given),
        ("expect", Flow::fields([(field, value)])),
    ])
}
