//! Tests of the policy: how much passes of each limit, and which routes share its counter.

use std::net::IpAddr;

use super::Route;
use crate::{
    flow::Flow,
    gateway::{
        limit::{Limit, Methods},
        pattern::{Pattern, host_contains},
    },
    network::{network, network_has},
};

/// Above this number no test counts what passes.
const MAX_COUNTED: u64 = 2_000;
/// The most tests, so that a policy of very many limits is checked in no time.
const MAX_CASES: usize = 100;

/// The routes of a limit among which a request is looked for.
const MAX_TRIED: usize = 8;

/// A request.
struct Request {
    path: String,
    host: Option<String>,
    method: String,
    /// Keys, such as `header.x` and `jwt.sub`, with their values.
    values: Vec<(String, String)>,
    address: IpAddr,
}

/// The tests.
pub(crate) fn cases(routes: &[Route], limits: &[Limit]) -> Vec<Flow> {
    let mut cases = Vec::new();
    for (at, limit) in limits.iter().enumerate() {
        let mut requests: Vec<(&Route, Request)> = routes
            .iter()
            .filter(|route| route.limits.contains(&at))
            .take(MAX_TRIED)
            .filter_map(|route| Some((route, request(route, limit, routes)?)))
            .collect();
        // First a route on which no other limit is lower.
        let is_lowest =
            |(route, own): &(&Route, Request)| capacity(limit, own) == admitted(own, route, limits);
        requests.sort_by_key(|own| !is_lowest(own));
        let mut requests = requests.into_iter();
        let Some((first, own)) = requests.next() else { continue };
        if cases.len() >= MAX_CASES {
            break;
        }
        let Some(number) = admitted(&own, first, limits).filter(|own| *own <= MAX_COUNTED) else {
            continue;
        };
        let mut case = test(format!("{}: {number} at once", limit.name), &own, first);
        case = case.with("repeat", 2 * (number + 1));
        if limit.is_shadow {
            let least = capacity(limit, &own).unwrap_or(0);
            case = test(format!("{} would deny", limit.name), &own, first);
            case = case.with("repeat", least + 1);
            let expect = [("status", 200.into()), ("would_deny", limit.name.clone().into())];
            let is_plain = first.limits.len() == 1 && least > 0 && least <= MAX_COUNTED;
            cases.extend(is_plain.then(|| case.with("expect", Flow::fields(expect))));
            continue;
        }
        cases.push(case.with("expect", Flow::fields([("admitted", number.into())])));
        if capacity(limit, &own) != Some(number) {
            continue;
        }
        // Another path, host or method may have a counter of its own.
        let is_one =
            !limit.scope.per.iter().any(|key| ["path", "host", "method"].contains(&&**key));
        if let Some((other, same)) = requests.next().filter(|_| is_one) {
            let name = format!("{}: one counter for {}", limit.name, route_words(other));
            let expect = Flow::fields([("admitted", 0.into())]);
            cases.push(test(name, &same, other).with("after", "0s").with("expect", expect));
        }
        cases.extend(apart(at, limit, routes, limits));
    }
    cases
}

/// A test that another limit of the same rule has a counter of its own.
fn apart(at: usize, limit: &Limit, routes: &[Route], limits: &[Limit]) -> Option<Flow> {
    let twins = limits.iter().enumerate().skip(at + 1);
    let (twin_at, twin) = twins.into_iter().find(|(_, own)| own.origin == limit.origin)?;
    let has_both = |route: &&Route| route.limits.contains(&twin_at) && !route.limits.contains(&at);
    let other = routes.iter().find(has_both)?;
    let shared = |own: &usize| {
        routes.iter().any(|route| route.limits.contains(&at) && route.limits.contains(own))
    };
    let own = request(other, twin, routes)?;
    let number = admitted(&own, other, limits).filter(|own| *own <= MAX_COUNTED)?;
    if other.limits.iter().any(shared) {
        return None;
    }
    let name = format!("{}: another counter for {}", limit.name, route_words(other));
    let expect = Flow::fields([("admitted", number.into())]);
    Some(
        test(name, &own, other)
            .with("after", "0s")
            .with("repeat", number + 1)
            .with("expect", expect),
    )
}

fn route_words(route: &Route) -> String {
    format!("{}{}", route.host.as_deref().unwrap_or_default(), route.pattern.path())
}

/// How many of a request pass at once; none: all.
fn admitted(request: &Request, route: &Route, limits: &[Limit]) -> Option<u64> {
    let own = route.limits.iter().filter_map(|at| limits.get(*at));
    let all: Vec<u64> =
        own.clone().filter(|own| !own.is_shadow).filter_map(|own| capacity(own, request)).collect();
    match all.iter().min() {
        Some(least) => Some(*least),
        // A shadow denies nothing.
        None => own.filter_map(|own| capacity(own, request)).min(),
    }
}

/// How many of a request pass this limit at once; none: it does not count them.
fn capacity(limit: &Limit, request: &Request) -> Option<u64> {
    let scope = &limit.scope;
    let value =
        |key: &String| request.values.iter().find(|(own, _)| own == key).map(|(_, own)| own);
    let is_known = |key: &String| value(key).is_some() || !key.contains('.') || key == "client.ip";
    let has = |(key, own): &(String, String)| match key.as_str() {
        "client.ip" => network_has(own, request.address),
        _ => value(key) == Some(own),
    };
    let counts = scope.keys().iter().all(is_known)
        && scope.is.iter().all(has)
        && !scope.not.iter().any(has)
        && scope.methods.count(&request.method)
        && limit.cost > 0;
    let least = limit.rates.iter().map(|rate| rate.requests).min()?;
    counts.then(|| least / limit.cost)
}

/// A request that takes a route and is counted by a limit.
fn request(route: &Route, limit: &Limit, routes: &[Route]) -> Option<Request> {
    if route.guard.is_closed() {
        return None;
    }
    let scope = &limit.scope;
    let methods = route.method.as_deref().into_iter().chain(["GET", "POST"]);
    let listed = match &scope.methods {
        Methods::Only(methods) => methods.as_slice(),
        _ => &[],
    };
    let takes = |method: &&str| {
        scope.methods.count(method) && route.method.as_deref().is_none_or(|own| own == *method)
    };
    let method = methods.chain(listed.iter().map(String::as_str)).find(takes)?;
    let mut values = scope.is.clone();
    for key in scope.per.iter().filter(|key| key.contains('.') && *key != "client.ip") {
        let is_free =
            |own: &String| !scope.not.iter().any(|(not, value)| not == key && value == own);
        let mut own = (1..=20).map(|number| format!("sample-{number}"));
        if !values.iter().any(|(own, _)| own == key) {
            values.push((key.clone(), own.find(is_free)?));
        }
    }
    if !route.guard.issuers.is_empty() && !values.iter().any(|(key, _)| key == "jwt.sub") {
        values.push(("jwt.sub".to_owned(), "sample".to_owned()));
    }
    let address = address(route, limit)?;
    let host = route.host.as_ref().map(|host| host.replace('*', "sample"));
    let hosted = |path: String| Request {
        path,
        host: host.clone(),
        method: method.to_owned(),
        values: values.clone(),
        address,
    };
    let requests = route.pattern.samples().into_iter().map(hosted);
    let is_taken = |request: &Request| {
        let first = routes.iter().find(|other| takes_request(other, request));
        first.is_some_and(|first| std::ptr::eq(first, route))
    };
    requests.into_iter().find(is_taken)
}

fn takes_request(route: &Route, request: &Request) -> bool {
    let path = Pattern::exact(&request.path);
    let host = request.host.as_deref();
    route.pattern.contains(&path)
        && (route.host.is_none() || host_contains(route.host.as_deref(), host))
        && route.method.as_deref().is_none_or(|own| own == request.method)
        && route.from.as_ref().is_none_or(|from| network_has(from, request.address))
}

/// An address that a route lets pass and a limit counts.
fn address(route: &Route, limit: &Limit) -> Option<IpAddr> {
    let scope = &limit.scope;
    let has = |networks: &[String], address| networks.iter().any(|own| network_has(own, address));
    let by_address = |values: &[(String, String)]| -> Vec<String> {
        let own = values.iter().filter(|(key, _)| key == "client.ip");
        own.map(|(_, network)| network.clone()).collect()
    };
    let (is, not) = (by_address(&scope.is), by_address(&scope.not));
    let networks = is.iter().chain(&route.from).chain(&route.guard.allow);
    let mut candidates: Vec<IpAddr> =
        vec![[192, 0, 2, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()];
    candidates.extend(networks.filter_map(|own| network(own)).map(|network| network.addr()));
    candidates.into_iter().find(|address| {
        is.iter().all(|own| network_has(own, *address))
            && !has(&not, *address)
            && route.from.as_ref().is_none_or(|own| network_has(own, *address))
            && scope.from.as_ref().is_none_or(|(own, inside)| network_has(own, *address) == *inside)
            && (route.guard.allow.is_empty() || has(&route.guard.allow, *address))
            && !has(&route.guard.deny, *address)
    })
}

/// A test without what is expected.
fn test(name: String, request: &Request, route: &Route) -> Flow {
    let of = |kind: &str| -> Vec<(String, Flow)> {
        let own = |(key, value): &(String, String)| {
            Some((key.strip_prefix(kind)?.to_owned(), value.clone().into()))
        };
        request.values.iter().filter_map(own).collect()
    };
    let claims = route.guard.issuers.first().map(|(_, issuer)| {
        let iss = ("iss".to_owned(), issuer.clone().into());
        Flow::Fields([iss].into_iter().chain(of("jwt.")).collect())
    });
    let address = Some(request.address).filter(|own| *own != IpAddr::from([192, 0, 2, 1]));
    let given = Flow::fields([("path", request.path.clone().into())])
        .with_some("host", request.host.clone())
        .with_some("method", Some(request.method.clone()).filter(|method| method != "GET"))
        .with_fields("headers", of("header."))
        .with_some("jwt", claims)
        .with_some("address", address.map(|address| address.to_string()));
    Flow::fields([("name", name.into()), ("given", given)])
}
