//! Servers that are known by name.

use super::before_urls;
use crate::support::{Policy, Proxy, Upstream};

/// A policy that calls the server by a name.
fn named(host: &str, upstream: &Upstream, fields: &str) -> Policy {
    before_urls(&[&upstream.url().replace("127.0.0.1", host)], fields)
}

#[test]
fn first_request_waits_until_the_name_is_resolved() {
    let upstream = Upstream::start();
    // A name that stands for addresses of both kinds, of which one is listened at.
    let proxy = Proxy::start(&named("localhost", &upstream, "retries: off"));
    for _ in 0..20 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(upstream.last().fields.one("host"), Some("api.example.com"));
}

#[test]
fn name_that_means_nothing_is_an_upstream_that_is_not_there() {
    let upstream = Upstream::start();
    let fields = "connect_timeout: 10s";
    let proxy = Proxy::start(&named("unknown.invalid", &upstream, fields));
    let response = proxy.get("/");
    assert!(matches!(response.status, 502..=504), "{response:?}");
}

#[test]
fn names_stay_resolved_across_a_reload() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&named("localhost", &upstream, "retries: off"));
    proxy.get("/").assert_status(200);
    proxy.install(&[&named("localhost", &upstream, "retries: off, resolve_every: 10ms")]);
    for _ in 0..20 {
        proxy.get("/").assert_status(200);
    }
    proxy.install(&[&Policy::before(&upstream)]);
    proxy.get("/").assert_status(200);
}
