//! Counters of limits that count by anything else than callers and addresses: each is found by its
//! values, and reset alone.

use serde_json::json;
use tollgate::callers::PolicyReport;

use super::windows;
use crate::support::{Policy, Proxy, Redis, Request, Upstream, get, token_with};

const LIMITS: [&str; 8] = [
    "org: { per: jwt.org, rate: 90/hour }",
    "level: { per: jwt.level, rate: 90/hour }",
    "owner: { per: path.owner, rate: 90/hour }",
    "host: { per: host, rate: 90/hour }",
    "cookie: { per: cookie.tenant, rate: 90/hour }",
    "login: { per: [client.ip, header.x-login], rate: 90/hour }",
    "mixed: { per: [path.owner, caller, jwt.org], rate: 90/hour }",
    "paths: { per: [method, path], rate: 90/hour }",
];

pub(super) fn policy(upstream: &Upstream) -> Policy {
    let names: Vec<&str> = LIMITS.iter().map(|limit| limit.split_once(':').unwrap().0).collect();
    let limits = names.join(", ");
    let route = format!(
        "{{ match: {{ path: \"/repos/{{owner}}/**\" }}, auth: required, limits: [{limits}] }}"
    );
    Policy::before(upstream).limits(&LIMITS).routes(&[&route])
}

/// A request that has a value of everything.
pub(super) fn full(owner: &str) -> Request {
    let token = token_with(&json!({ "sub": "42", "plan": "free", "org": "acme", "level": 5 }));
    get(&format!("/repos/{owner}/x/"))
        .host("API.Example.com:8080")
        .token(&token)
        .field("x-login", "bob, path=1/jwt.org=x")
        .field("cookie", "tenant=%41b")
}

/// Each limit with the name of the counter that [`full`] is charged to.
const NAMES: [(&str, &str); 8] = [
    ("org", "jwt.org:acme"),
    ("level", "jwt.level:5"),
    ("owner", "path.owner:one"),
    ("host", "host:api.example.com"),
    ("cookie", "cookie.tenant:Ab"),
    ("login", "client.ip=127.0.0.1,header.x-login=bob, path=1/jwt.org=x"),
    ("mixed", "path.owner=one,caller=user:42,jwt.org=acme"),
    ("paths", "path=/repos/one/x,method=GET"),
];

fn used(proxy: &Proxy, limit: &str, name: &str) -> u32 {
    let report: PolicyReport = proxy.look(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    windows(&report, limit)[0].0
}

fn assert_all_are_found(proxy: &Proxy) {
    for (limit, name) in NAMES {
        assert_eq!(used(proxy, limit, name), 0, "{limit}");
    }
    for _ in 0..3 {
        proxy.send(full("one")).assert_status(200);
    }
    for (limit, name) in NAMES {
        assert_eq!(used(proxy, limit, name), 3, "{limit}");
        proxy.reset(name);
        assert_eq!(used(proxy, limit, name), 0, "{limit}");
        proxy.send(full("one")).assert_status(200);
        assert_eq!(used(proxy, limit, name), 1, "{limit}");
        // The next one begins with as many as this one did.
        proxy.reset(name);
        for _ in 0..2 {
            proxy.send(full("one")).assert_status(200);
        }
        NAMES.iter().filter(|(other, _)| *other != limit).for_each(|(other, name)| {
            assert!(used(proxy, other, name) >= 2, "{limit} took {other} along");
        });
        NAMES.iter().for_each(|(_, name)| proxy.reset(name));
        for _ in 0..3 {
            proxy.send(full("one")).assert_status(200);
        }
    }
}

#[test]
fn every_counter_is_found_by_its_values_and_reset_alone() {
    let upstream = Upstream::start();
    assert_all_are_found(&Proxy::start(&policy(&upstream)));
    let redis = Redis::start();
    assert_all_are_found(&Proxy::with_redis(&redis.settings(), &policy(&upstream)));
}

#[test]
fn other_values_have_other_counters() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    proxy.send(full("one")).assert_status(200);
    for (limit, name) in [
        ("org", "jwt.org:Acme"),
        ("level", "jwt.level:\"5\""),
        ("level", "jwt.level:6"),
        ("owner", "path.owner:two"),
        ("host", "host:"),
        ("login", "header.x-login=bob,client.ip=127.0.0.1"),
        ("mixed", "caller=user:43,jwt.org=acme,path.owner=one"),
    ] {
        assert_eq!(used(&proxy, limit, name), 0, "{name}");
    }
}

#[test]
fn name_without_all_values_is_told_how_to_ask() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    let report = proxy.look("jwt.org:acme").unwrap();
    let shared: Vec<_> = report.shared.iter().map(|own| (&*own.limit, &*own.name)).collect();
    assert_eq!(shared, [("mixed", "path.owner=VALUE,caller=user:VALUE,jwt.org=acme")]);
    let error = proxy.try_reset("client.ip:127.0.0.1").unwrap_err().to_string();
    let expected = "limit `login` counts by client.ip and header.x-login: name all values, as in \
                    client.ip=127.0.0.1,header.x-login=VALUE";
    assert_eq!(error, expected);
    for (name, expected) in [
        ("jwt.orgs:1", "`jwt.orgs` is no entry of `callers`, and no limit counts by it"),
        ("client.ip=nowhere,header.x-login=bob", "callers of kind `client.ip` are addresses"),
        ("caller=42,jwt.org=a,path.owner=b", "`42` is not a caller"),
    ] {
        let error = proxy.look(name).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn claims_of_several_issuers_are_told_apart() {
    let upstream = Upstream::start();
    let policy = policy(&upstream).and_issuer("other", "https://other.example.com/");
    let proxy = Proxy::start(&policy);
    proxy.send(full("one")).assert_status(200);
    let error = proxy.look("jwt.org:acme").unwrap_err().to_string();
    assert!(error.contains("one of main/jwt.org:acme, other/jwt.org:acme"), "{error}");
    assert_eq!(used(&proxy, "org", "main/jwt.org:acme"), 1);
    assert_eq!(used(&proxy, "org", "other/jwt.org:acme"), 0);
    let whole = "path.owner=one,caller=main/user:42,main/jwt.org=acme";
    assert_eq!(used(&proxy, "mixed", whole), 1);
    assert_eq!(proxy.look(whole).unwrap().issuer.as_deref(), Some("main"));
}
