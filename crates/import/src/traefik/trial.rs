//! The policy's tests: a burst of each limit, what comes back, and whose counter it is.

use std::time::Duration;

use super::{
    matching::Matching,
    route::{Charged, Route},
    source::Key,
};
use crate::flow::Flow;

/// The largest burst that a test sends, and the most routes that are tried.
const MAX_BURST: u64 = 1000;
const MAX_TRIALS: usize = 100;
/// Addresses of documentation.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// A request that takes a route, and what becomes of it.
pub(super) struct Trial {
    router: String,
    /// None: no request is sure to take the route.
    request: Option<Vec<(&'static str, Flow)>>,
    is_closed: bool,
    has_address: bool,
    charged: Vec<Charged>,
}

impl Trial {
    pub(super) fn of<'m>(
        own: &Route<'_>,
        is_closed: bool,
        above: impl Iterator<Item = &'m Matching> + Clone,
    ) -> Trial {
        let matching = &own.matching;
        let host = matching.sample_host();
        let is_taken =
            |path: &String| above.clone().any(|above| above.may_take(host.as_deref(), path));
        let path = matching.samples().into_iter().find(|path| !is_taken(path));
        let allowed = own.effects.allow.first();
        let address = matching.from.as_ref().or(allowed).map(|network| first_of(network));
        // Of two lists the same address may not be in both.
        let is_sure = matching.from.is_none() || allowed.is_none();
        let request = path.filter(|_| is_sure).map(|path| {
            let mut request = vec![("path", Flow::Text(path))];
            request.extend(host.map(|host| ("host", Flow::Text(host))));
            request.extend(matching.method.clone().map(|method| ("method", Flow::Text(method))));
            request.extend(address.clone().map(|address| ("address", Flow::Text(address))));
            request
        });
        Trial {
            router: own.router.name.clone(),
            request,
            is_closed,
            has_address: address.is_some(),
            charged: own.charged.to_vec(),
        }
    }

    /// The smallest burst of its limits, with its limit, and the longest time until one more comes.
    fn burst(&self) -> Option<(&Charged, u64, Duration)> {
        let bursts = |own: &Charged| own.limit.burst.map(|(burst, _)| burst);
        let first = self
            .charged
            .iter()
            .filter(|own| bursts(own).is_some())
            .min_by_key(|own| bursts(own))?;
        let all = self.charged.iter().filter_map(|own| own.limit.burst);
        let interval = all.map(|(_, interval)| interval).max()?;
        Some((first, bursts(first)?, interval))
    }

    fn given(&self, more: &[(&str, Flow)]) -> Option<Flow> {
        let request = self.request.clone()?;
        let others =
            request.into_iter().filter(|(name, _)| !more.iter().any(|(own, _)| own == name));
        let fields = others.map(|(name, value)| (name.to_owned(), value));
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Some(Flow::Fields(fields.chain(more).collect()))
    }
}

/// Tests of these routes.
pub(super) fn tests(trials: &[Trial]) -> Vec<Flow> {
    let mut found = Vec::new();
    let mut tried: Vec<&str> = Vec::new();
    let mut closed: Vec<&str> = Vec::new();
    for (at, trial) in trials.iter().enumerate() {
        if tried.len() + closed.len() >= MAX_TRIALS {
            break;
        }
        if trial.is_closed {
            let is_new = !closed.contains(&trial.router.as_str());
            if let Some(given) = trial.given(&[]).filter(|_| is_new) {
                closed.push(&trial.router);
                let name = format!("{}: closed", trial.router);
                found.push(test(name, given, ("status", 403.into())));
            }
            continue;
        }
        let Some((charged, burst, interval)) = trial.burst() else { continue };
        let Some(given) = trial.given(&[]) else { continue };
        if burst > MAX_BURST || tried.contains(&charged.name.as_str()) {
            continue;
        }
        tried.push(&charged.name);
        let name = &charged.name;
        let expected = ("admitted", burst.into());
        found.push(
            test(format!("{name}: a burst of {burst}"), given.clone(), expected)
                .with("repeat", 2 * burst),
        );
        found.extend(scope(trial, charged));
        found.extend(others(trial, charged, trials.get(at + 1..).unwrap_or_default()));
        let pause = interval.as_nanos().div_ceil(1_000_000);
        found.push(
            test(format!("{name}: one more after {pause} ms"), given, ("status", 200.into()))
                .with("after", format!("{pause}ms")),
        );
    }
    found
}

/// Whether another client has a counter of its own.
fn scope(trial: &Trial, charged: &Charged) -> Option<Flow> {
    // Other limits of the route may deny it.
    let keys = trial.charged.iter().filter(|own| own.limit.burst.is_some());
    if keys.into_iter().any(|own| own.limit.key != charged.limit.key) {
        return None;
    }
    let other = [("address", ADDRESSES[1].into())];
    let (what, more, admitted) = match &charged.limit.key {
        Key::Address if trial.has_address => return None,
        Key::Address => ("another address", other.to_vec(), 1),
        Key::Everyone if trial.has_address => return None,
        Key::Everyone => ("another address shares it", other.to_vec(), 0),
        Key::Header(name) => {
            let value = Flow::fields([(name.as_str(), "other".into())]);
            ("a request with the header", vec![("headers", value)], 1)
        }
        Key::Host => return None,
    };
    let given = trial.given(&more)?;
    let test = test(format!("{}: {what}", charged.name), given, ("admitted", admitted.into()));
    Some(test.with("after", "0s"))
}

/// Whether another router with the same middleware has a counter of its own.
fn others(trial: &Trial, charged: &Charged, behind: &[Trial]) -> Option<Flow> {
    let is_alike = |own: &&Trial| {
        let limits = own.charged.iter().filter(|own| own.limit.burst.is_some());
        let names: Vec<&str> = limits.map(|own| own.limit.name.as_str()).collect();
        let has_own = own.charged.iter().all(|own| own.name != charged.name);
        !own.is_closed
            && own.router != trial.router
            && names == [charged.limit.name.as_str()]
            && own.request.is_some()
            && !own.has_address
            && (charged.limit.is_shared || has_own)
            // By host, another router has most often another counter anyway.
            && charged.limit.key != Key::Host
    };
    let other = behind.iter().find(is_alike)?;
    let (what, admitted) = match charged.limit.is_shared {
        true => ("shares it", 0),
        false => ("has its own", 1),
    };
    let name = format!("{}: router {} {what}", charged.name, other.router);
    let test = test(name, other.given(&[])?, ("admitted", admitted.into()));
    Some(test.with("after", "0s"))
}

fn test(name: String, given: Flow, (field, value): (&str, Flow)) -> Flow {
    Flow::fields([
        ("name", name.into()),
        ("given", given),
        ("expect", Flow::fields([(field, value)])),
    ])
}

/// An address of a network.
fn first_of(network: &str) -> String {
    network.split('/').next().unwrap_or_default().to_owned()
}
