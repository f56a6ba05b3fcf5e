//! Where requests go, and what becomes of them there.

use std::time::Duration;

use super::{sections::Change, words};
use crate::policy::{
    Balance, Ejection, HealthCheck, Policy, Protocol, Retries, Server, Sharing, Transport,
    Upstream, UpstreamTls,
};

/// Upstreams that are otherwise, that are there only before, and only after.
pub(super) fn upstreams(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Vec::new();
    for own in &old.upstreams {
        let what = format!("upstream {}", own.name);
        match find(new, &own.name) {
            Some(other) => changes.extend(between(&what, own, other)),
            None => changes.push(Change::removed(&what, servers(own))),
        }
    }
    for own in new.upstreams.iter().filter(|own| find(old, &own.name).is_none()) {
        changes.push(Change::added(&format!("upstream {}", own.name), servers(own)));
    }
    changes
}

fn find<'p>(policy: &'p Policy, name: &str) -> Option<&'p Upstream> {
    policy.upstreams.iter().find(|own| *own.name == *name)
}

fn between(upstream: &str, old: &Upstream, new: &Upstream) -> Vec<Change> {
    let what = |field: &str| match field {
        // What an upstream is, before all.
        "servers" => upstream.to_owned(),
        field => format!("{upstream}: {field}"),
    };
    let mut changes = Change::between_fields(fields(old), fields(new), what);
    let have_same_words = transport(&old.transport) == transport(&new.transport);
    if have_same_words && old.transport != new.transport {
        let what = format!("{upstream}: authorities or certificates are others");
        changes.push(Change { what, before: None, after: None, effect: None });
    }
    changes
}

fn fields(own: &Upstream) -> [(&'static str, String); 16] {
    let time = |time: Duration| format!("{time:?}");
    let none = || "none".to_owned();
    [
        ("servers", servers(own)),
        ("transport", transport(&own.transport)),
        ("protocol", protocol(own.protocol).into()),
        ("balance", balance(own.balance).into()),
        ("health check", own.health_check.as_ref().map_or_else(none, health_check)),
        ("ejection", own.ejection.as_ref().map_or_else(none, ejection)),
        ("connections to a server", own.bounds.max_connections.to_string()),
        ("queue", own.bounds.queue.to_string()),
        ("queue timeout", time(own.bounds.queue_timeout)),
        ("shares", shares(own.bounds.shares).into()),
        ("retries", retries(&own.retries)),
        ("connect timeout", time(own.connect_timeout)),
        ("response timeout", time(own.response_timeout)),
        ("idle timeout", time(own.idle_timeout)),
        ("keep alive", time(own.keep_alive)),
        ("resolved every", time(own.resolve_every)),
    ]
}

fn shares(shares: Sharing) -> &'static str {
    match shares {
        Sharing::Address => "address",
        Sharing::Off => "off",
    }
}

/// With weights, unless all are alike.
fn servers(own: &Upstream) -> String {
    let first = own.servers.first().map(|server| server.weight);
    let are_alike = own.servers.iter().all(|server| Some(server.weight) == first);
    let server = |server: &Server| match are_alike {
        true => server.to_string(),
        false => format!("{server} (weight {})", server.weight),
    };
    words::list(own.servers.iter().map(server))
}

fn transport(transport: &Transport) -> String {
    match transport {
        Transport::Plain => "plain".into(),
        Transport::Tls(UpstreamTls { server_name: None, .. }) => "TLS".into(),
        Transport::Tls(UpstreamTls { server_name: Some(name), .. }) => {
            format!("TLS as {}", name.to_str())
        }
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http1 => "http1",
        Protocol::Http2 => "h2",
    }
}

fn balance(balance: Balance) -> &'static str {
    match balance {
        Balance::LeastLoaded => "least_loaded",
        Balance::RoundRobin => "round_robin",
        Balance::Caller => "caller",
    }
}

fn health_check(check: &HealthCheck) -> String {
    let host = check.host.as_ref().and_then(|host| host.to_str().ok());
    let host = host.map(|host| format!(" at {host}")).unwrap_or_default();
    format!(
        "{}{host} every {:?} within {:?}, {} is good, back after {}, out after {}",
        check.path,
        check.interval,
        check.timeout,
        words::statuses(&check.statuses),
        check.healthy_after,
        check.unhealthy_after
    )
}

fn ejection(ejection: &Ejection) -> String {
    format!(
        "after {} failures (statuses {}), for {:?} to {:?}",
        ejection.failures,
        words::statuses(&ejection.statuses),
        ejection.time.start(),
        ejection.time.end()
    )
}

fn retries(retries: &Retries) -> String {
    match retries.attempts {
        0 => "none".into(),
        attempts => format!(
            "{attempts}, at most {} % (statuses {})",
            retries.budget_percent,
            words::statuses(&retries.statuses)
        ),
    }
}
