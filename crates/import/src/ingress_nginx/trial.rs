//! Tests of the policy: how many requests each Ingress admits at once, that its paths share that,
//! and what is closed.

use std::net::IpAddr;

use super::{
    Import,
    paths::{sample, takes},
    site::{Route, Served},
};
use crate::flow::Flow;

/// The most requests of a test.
const MAX_REPEATED: u64 = 20_000;
/// Addresses of documentation (RFC 5737).
const CLIENTS: [&str; 3] = ["192.0.2.1", "198.51.100.7", "203.0.113.7"];

impl Import<'_> {
    pub(super) fn tests(&mut self, served: &[Served<'_, '_>], routes: &[Route]) {
        for (of, own) in served.iter().enumerate() {
            let id = own.ingress.id();
            let mine = routes.iter().enumerate().filter(|(_, route)| route.of == of);
            let (closed, open): (Vec<_>, Vec<_>) = mine.partition(|(_, route)| route.is_closed);
            let given = |at: &(usize, &Route)| given(routes, at.0, at.1);
            if let Some(given) = closed.iter().find_map(given) {
                let expect = Flow::fields([("status", 403.into())]);
                self.test(format!("{id}: what is closed"), given, None, expect);
            }
            let mut open = open.iter().filter_map(given);
            let (Some(first), Some(room)) = (open.next(), own.limits.room) else { continue };
            let clients: Vec<IpAddr> = match own.guards.allow.is_empty() {
                true => CLIENTS.iter().filter_map(|own| own.parse().ok()).collect(),
                false => own.guards.allow.iter().map(ipnet::IpNet::addr).collect(),
            };
            let is_denied =
                |own_ip: &&IpAddr| own.guards.deny.iter().any(|net| net.contains(*own_ip));
            let is_exempt =
                |own_ip: &IpAddr| own.limits.exempt.iter().any(|net| net.contains(own_ip));
            let mut clients = clients.iter().filter(|own| !is_denied(own) && !is_exempt(own));
            let Some(client) = clients.next() else { continue };
            if room > MAX_REPEATED / 2 {
                continue;
            }
            let from = |given: Flow, address: &IpAddr| given.with("address", address.to_string());
            let admitted = |number: u64| Flow::fields([("admitted", number.into())]);
            let given = from(first.clone(), client);
            self.test(format!("{id}: {room} at once"), given, Some(room * 2), admitted(room));
            if let Some(other) = open.next_back() {
                let test =
                    Flow::fields([("name", format!("{id}: one counter for all its paths").into())])
                        .with("after", "0s")
                        .with("given", from(other, client))
                        .with("expect", admitted(0));
                self.draft.tests.push(test);
            }
            let exempt = own.limits.exempt.iter().map(ipnet::IpNet::addr);
            let is_let_in = |own_ip: &IpAddr| {
                let allow = &own.guards.allow;
                let is_allowed = allow.is_empty() || allow.iter().any(|net| net.contains(own_ip));
                is_allowed && !is_denied(&own_ip)
            };
            if let Some(address) = exempt.clone().find(is_let_in) {
                let name = format!("{id}: no limit for {address}");
                self.test(name, from(first, &address), Some(room * 2), admitted(room * 2));
            }
        }
    }

    fn test(&mut self, name: String, given: Flow, repeat: Option<u64>, expect: Flow) {
        let test = Flow::fields([("name", name.into()), ("given", given)]);
        self.draft.tests.push(test.with_some("repeat", repeat).with("expect", expect));
    }
}

/// A request that takes this route and none before it.
fn given(routes: &[Route], at: usize, route: &Route) -> Option<Flow> {
    let is_of = |host: &str| {
        let is_below = host.strip_prefix('*').is_some_and(|end| route.host.ends_with(end));
        host.is_empty() || host == route.host || is_below
    };
    let before = || routes.iter().take(at).filter(|own| is_of(&own.host));
    let is_free = |path: &String| !before().any(|own| takes(&own.pattern, path));
    let path = sample(&route.pattern).into_iter().find(is_free)?;
    let host = Some(route.host.replace('*', "a")).filter(|host| !host.is_empty());
    Some(Flow::fields([("path", path.into())]).with_some("host", host))
}
