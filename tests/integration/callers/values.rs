//! Counters of limits that count by anything else than callers and addresses: each is found by its
//! values, and reset alone.

use serde_json::json;
use tollgate::callers::PolicyReport;

use super::windows;
use crate::support::{HOUR, Policy, Proxy, Redis, Request, Upstream, get, token_with};

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
    with_login(owner, "bob, path=1/jwt.org=x")
}

fn with_login(owner: &str, login: &str) -> Request {
    let token = token_with(&json!({ "sub": "42", "plan": "free", "org": "acme", "level": 5 }));
    get(&format!("/repos/{owner}/x/"))
        .host("API.Example.com:8080")
        .token(&token)
        .field("x-login", login)
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
fn counters_that_requests_share_are_found_and_reset_alone() {
    let limits = [
        "everybody: { per: all, rate: 90/hour }",
        "keyed: { per: header.x-key, rate: 90/hour, on_missing: share }",
        "org: { per: jwt.org, rate: 90/hour, on_missing: share }",
        "user: { per: caller, rate: 90/hour, on_missing: share }",
        "login: { per: [client.ip, header.x-key], rate: 90/hour, on_missing: share }",
    ];
    let names =
        ["all", "header.x-key:", "jwt.org:", "caller:", "client.ip=127.0.0.1,header.x-key="];
    let all: Vec<&str> = limits.iter().map(|limit| limit.split_once(':').unwrap().0).collect();
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).callers(&["{ name: user, key: jwt.sub }"]).on_all_routes(&limits);
    let proxy = Proxy::start(&policy);
    for _ in 0..3 {
        proxy.get("/").assert_status(200);
    }
    for (limit, name) in all.iter().zip(names) {
        assert_eq!(used(&proxy, limit, name), 3, "{limit}");
        proxy.reset(name);
        assert_eq!(used(&proxy, limit, name), 0, "{limit}");
    }
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
                    client.ip=127.0.0.1,header.x-login=VALUE; this proxy has seen none of \
                    `client.ip:127.0.0.1` lately";
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

/// The names that a look offers of a limit that counts by more than `name`, each of which it takes.
fn offered(proxy: &Proxy, limit: &str, name: &str) -> Vec<String> {
    let report = proxy.look(name).unwrap();
    let shared = report.shared.into_iter().find(|own| own.limit == limit);
    let seen = shared.unwrap_or_else(|| panic!("{limit} {name}")).seen;
    for whole in seen.iter().filter(|whole| !whole.contains("(hash ")) {
        assert_eq!(used(proxy, limit, whole), 1, "{whole}");
    }
    seen
}

#[test]
fn name_without_all_values_is_told_the_whole_names_that_were_seen() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    assert_eq!(offered(&proxy, "mixed", "path.owner:one"), [""; 0]);
    for owner in ["one", "two"] {
        proxy.send(full(owner)).assert_status(200);
    }
    let [one, two] =
        ["one", "two"].map(|own| format!("path.owner={own},caller=user:42,jwt.org=acme"));
    assert_eq!(offered(&proxy, "mixed", "jwt.org:acme"), [one.as_str(), two.as_str()]);
    assert_eq!(offered(&proxy, "mixed", "user:42"), [one.as_str(), two.as_str()]);
    for partial in ["path.owner:one", "path.owner=one,caller=user:42"] {
        assert_eq!(offered(&proxy, "mixed", partial), [one.as_str()], "{partial}");
    }
    for other in ["path.owner:on", "jwt.org:\"5\"", "user:4", "path.owner=one,caller=user:43"] {
        assert_eq!(offered(&proxy, "mixed", other), [""; 0], "{other}");
    }
    // The client's own text does not count as another value.
    assert_eq!(offered(&proxy, "paths", "path:1/jwt.org=x"), [""; 0]);
    assert_eq!(offered(&proxy, "paths", "path:/repos/one/x/"), ["method=GET,path=/repos/one/x/"]);
    let error = proxy.try_reset("client.ip:127.0.0.1").unwrap_err().to_string();
    assert!(error.contains("\n  tollgate reset 'client.ip=127.0.0.1,header.x-login=(hash "));
    assert!(error.ends_with(")' --why TEXT"), "{error}");
}

#[test]
fn value_that_may_be_secret_finds_its_whole_name_and_is_in_it_as_it_was_given() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream).section("private: [jwt.org]"));
    for login in ["bob", "eve"] {
        proxy.send(with_login("one", login)).assert_status(200);
    }
    let whole = "client.ip=127.0.0.1,header.x-login=bob";
    assert_eq!(offered(&proxy, "login", "header.x-login:bob"), [whole]);
    assert_eq!(offered(&proxy, "login", "header.x-login:mallory"), [""; 0]);
    assert_eq!(offered(&proxy, "login", "client.ip:127.0.0.1").len(), 2);
    assert_eq!(offered(&proxy, "login", "client.ip:127.0.0.2").len(), 0);
    let found = proxy.look("jwt.org:acme").unwrap();
    let seen = &found.shared.iter().find(|own| own.limit == "mixed").unwrap().seen;
    assert_eq!(*seen, ["path.owner=one,caller=user:42,jwt.org=acme"]);
}

#[test]
fn ten_names_are_offered_and_those_that_were_denied_most_come_first() {
    let upstream = Upstream::start();
    let limits = ["pairs: { per: [client.ip, path], rate: 1/hour }"];
    let proxy = Proxy::start(&Policy::before(&upstream).on_all_routes(&limits));
    for number in 0..12 {
        proxy.get(&format!("/{number:02}")).assert_status(200);
    }
    for (path, denied) in [("/07", 1), ("/11", 3)] {
        for _ in 0..denied {
            proxy.get(path).assert_status(429);
        }
    }
    let seen = offered(&proxy, "pairs", "client.ip:127.0.0.1");
    assert_eq!(seen.len(), 10);
    let name = |path| format!("client.ip=127.0.0.1,path={path}");
    assert_eq!(seen[..3], [name("/11"), name("/07"), name("/00")]);
    // What the last hour has forgotten, the latest denials have still.
    proxy.advance(2 * HOUR);
    let report = proxy.look("client.ip:127.0.0.1").unwrap();
    assert_eq!(report.shared[0].seen, [name("/11"), name("/07")]);
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
    assert_eq!(offered(&proxy, "mixed", "main/jwt.org:acme"), [whole]);
    assert_eq!(offered(&proxy, "mixed", "main/user:42"), [whole]);
    assert_eq!(offered(&proxy, "mixed", "other/jwt.org:acme"), [""; 0]);
    assert_eq!(proxy.look(whole).unwrap().issuer.as_deref(), Some("main"));
}
