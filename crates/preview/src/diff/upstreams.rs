//! Differences of upstreams: where requests go, and how they are sent there.

use std::time::Duration;

use tollgate_keyword::Keyword;
use tollgate_policy::{
    Bounds, Ejection, HealthCheck, Policy, Retries, Server, Transport, Upstream, UpstreamTls,
};

use super::{change::Change, words};

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
    // Named one by one, so that a new field cannot be forgotten here.
    let Upstream {
        name: _,        // the same: upstreams are found by their names
        own_headers: _, // identity: claims for the upstream, and where tokens come from
        position: _,    // given when all policies are put together
        servers: _,
        transport: own_transport,
        protocol,
        balance,
        health_check: own_check,
        ejection: own_ejection,
        bounds: Bounds { max_connections, queue, queue_timeout, shares },
        retries: own_retries,
        connect_timeout,
        response_timeout,
        idle_timeout,
        keep_alive,
        resolve_every,
    } = own;
    let time = |time: &Duration| format!("{time:?}");
    let none = || "none".to_owned();
    [
        ("servers", servers(own)),
        ("transport", transport(own_transport)),
        ("protocol", protocol.keyword().to_owned()),
        ("balance", balance.keyword().to_owned()),
        ("health check", own_check.as_ref().map_or_else(none, health_check)),
        ("ejection", own_ejection.as_ref().map_or_else(none, ejection)),
        ("connections to a server", max_connections.to_string()),
        ("queue", queue.to_string()),
        ("queue timeout", time(queue_timeout)),
        ("shares", shares.keyword().to_owned()),
        ("retries", retries(own_retries)),
        ("connect timeout", time(connect_timeout)),
        ("response timeout", time(response_timeout)),
        ("idle timeout", time(idle_timeout)),
        ("keep alive", time(keep_alive)),
        ("resolved every", time(resolve_every)),
    ]
}

/// With weights, unless all are alike.
fn servers(own: &Upstream) -> String {
    let first = own.servers.first().map(|server| server.weight);
    let are_alike = own.servers.iter().all(|server| Some(server.weight) == first);
    let server = |server: &Server| {
        // The authority follows from host and port, which `Display` shows.
        let Server { host: _, port: _, weight, authority: _ } = server;
        match are_alike {
            true => server.to_string(),
            false => format!("{server} (weight {weight})"),
        }
    };
    words::list(own.servers.iter().map(server))
}

fn transport(transport: &Transport) -> String {
    let tls = match transport {
        Transport::Plain => return "plain".into(),
        Transport::Tls(tls) => tls,
    };
    // The fingerprint stands for all of it, and is compared where these texts are equal.
    let UpstreamTls { config: _, server_name, fingerprint: _ } = tls;
    match server_name {
        None => "TLS".into(),
        Some(name) => format!("TLS as {}", name.to_str()),
    }
}

fn health_check(check: &HealthCheck) -> String {
    let HealthCheck { path, host, interval, timeout, healthy_after, unhealthy_after, statuses } =
        check;
    let host = host.as_ref().and_then(|host| host.to_str().ok());
    let host = host.map(|host| format!(" at {host}")).unwrap_or_default();
    let statuses = words::statuses(statuses);
    format!(
        "{path}{host} every {interval:?} within {timeout:?}, {statuses} is good, \
         back after {healthy_after}, out after {unhealthy_after}"
    )
}

fn ejection(ejection: &Ejection) -> String {
    let Ejection { failures, statuses, time } = ejection;
    let statuses = words::statuses(statuses);
    let range = format!("{:?} to {:?}", time.start(), time.end());
    format!("after {failures} failures (statuses {statuses}), for {range}")
}

fn retries(retries: &Retries) -> String {
    let Retries { attempts, budget_percent, statuses } = retries;
    if *attempts == 0 {
        return "none".into();
    }
    let statuses = words::statuses(statuses);
    format!("{attempts}, at most {budget_percent} % (statuses {statuses})")
}
