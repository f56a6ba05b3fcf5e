//! The callers that use limits most, with a clock that the test moves: which units and denials
//! count, when they are forgotten, and that each caller is named as a look finds it.

use tollgate::callers::top::RankBy;

use serde_json::json;

use super::{policy, values};
use crate::support::{MINUTE, Policy, Proxy, Request, Upstream, get, token_with};

/// Name, count and error of each caller of a limit.
fn top(proxy: &Proxy, by: RankBy, limit: &str, minutes: u64) -> Vec<(String, u64, u64)> {
    let report = proxy.top(by, minutes);
    let of_limit = report.callers.into_iter().filter(|caller| caller.limit == limit);
    of_limit.map(|caller| (caller.name, caller.count, caller.error)).collect()
}

fn counted(name: &str, count: u64) -> (String, u64, u64) {
    (name.into(), count, 0)
}

#[test]
fn units_are_those_of_the_request_and_what_its_response_costs_more() {
    let upstream = Upstream::as_asked();
    let fields = "rate: 1000/hour, cost: { reserve: 4, from_response_header: x-cost }";
    let proxy = Proxy::start(&Policy::before(&upstream).core(fields));
    let send = |request: Request| drop(proxy.send(request));
    send(get("/").by("alice").costing("20"));
    assert_eq!(top(&proxy, RankBy::Units, "core", 1), [counted("user:alice", 20)]);
    // What is given back stays counted.
    send(get("/").by("bob").costing("1"));
    let expected = [counted("user:alice", 20), counted("user:bob", 4)];
    assert_eq!(top(&proxy, RankBy::Units, "core", 1), expected);

    proxy.advance(MINUTE);
    send(get("/").by("bob").costing("30"));
    assert_eq!(top(&proxy, RankBy::Units, "core", 1), [counted("user:bob", 30)]);
    let expected = [counted("user:bob", 34), counted("user:alice", 20)];
    assert_eq!(top(&proxy, RankBy::Units, "core", 2), expected);
    proxy.advance(59 * MINUTE);
    assert_eq!(top(&proxy, RankBy::Units, "core", 60), [counted("user:bob", 30)]);
    proxy.advance(MINUTE);
    assert_eq!(top(&proxy, RankBy::Units, "core", 60), []);
}

#[test]
fn every_name_is_one_that_a_look_finds() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    proxy.get_as("42").assert_status(200);
    proxy.get("/").assert_status(200);
    for limit in ["core", "burst", "paths", "hosts"] {
        let callers = top(&proxy, RankBy::Units, limit, 1);
        assert!(!callers.is_empty(), "{limit}");
        for (name, _, _) in callers {
            let found = proxy.look(&name).unwrap();
            assert_eq!(found.caller, name, "{limit}");
        }
    }
    let by_address = top(&proxy, RankBy::Units, "hosts", 1);
    assert_eq!(by_address, [counted("client.ip:127.0.0.1", 2)]);
}

#[test]
fn keys_of_every_kind_are_ranked_by_their_values() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&values::policy(&upstream));
    for owner in ["one", "one", "two"] {
        proxy.send(values::full(owner)).assert_status(200);
    }
    for (limit, expected) in [
        ("org", &[("jwt.org:acme", 3)][..]),
        ("level", &[("jwt.level:5", 3)]),
        ("owner", &[("path.owner:one", 2), ("path.owner:two", 1)]),
        ("host", &[("host:api.example.com", 3)]),
        (
            "mixed",
            &[
                ("path.owner=one,caller=user:42,jwt.org=acme", 2),
                ("path.owner=two,caller=user:42,jwt.org=acme", 1),
            ],
        ),
        ("paths", &[("method=GET,path=/repos/one/x", 2), ("method=GET,path=/repos/two/x", 1)]),
    ] {
        let expected: Vec<_> = expected.iter().map(|(name, units)| counted(name, *units)).collect();
        assert_eq!(top(&proxy, RankBy::Units, limit, 1), expected, "{limit}");
        for (name, units, _) in expected {
            let report = proxy.look(&name).unwrap();
            assert_eq!(report.caller, name, "{limit}");
            assert_eq!(u64::from(super::windows(&report, limit)[0].0), units, "{limit}");
        }
    }
}

#[test]
fn values_that_may_be_secret_are_ranked_by_a_hash() {
    let upstream = Upstream::start();
    let policy = values::policy(&upstream).section("private: [jwt.org]");
    let proxy = Proxy::start(&policy);
    for login in ["bob", "bob", "eve"] {
        let request = get("/repos/one/x").token(&token_with(&json!({
            "sub": "42", "plan": "free", "org": "acme", "level": 5
        })));
        let request = request.field("x-login", login).field("cookie", "tenant=s3cret");
        proxy.send(request).assert_status(200);
    }
    let names = |limit| {
        let all = top(&proxy, RankBy::Units, limit, 1).into_iter();
        all.map(|(name, units, _)| (name, units)).collect::<Vec<_>>()
    };
    for (limit, begins, units) in [
        ("org", "jwt.org:(hash ", &[3][..]),
        ("cookie", "cookie.tenant:(hash ", &[3]),
        ("login", "client.ip=127.0.0.1,header.x-login=(hash ", &[2, 1]),
        ("mixed", "path.owner=one,caller=user:42,jwt.org=(hash ", &[3]),
    ] {
        let found = names(limit);
        assert_eq!(found.iter().map(|(_, units)| *units).collect::<Vec<_>>(), units, "{limit}");
        for (name, _) in found {
            let hash = name.strip_prefix(begins).unwrap_or_else(|| panic!("{name}"));
            let digits = hash.strip_suffix(')').unwrap();
            assert!(digits.len() == 12 && digits.bytes().all(|own| own.is_ascii_hexdigit()));
            let error = proxy.look(&name).unwrap_err().to_string();
            assert!(error.contains("a hash stands for "), "{error}");
        }
    }
}

#[test]
fn claims_are_ranked_with_their_issuer_where_there_are_several() {
    let upstream = Upstream::start();
    let policy = values::policy(&upstream).and_issuer("other", "https://other.example.com/");
    let proxy = Proxy::start(&policy);
    proxy.send(values::full("one")).assert_status(200);
    for (limit, name) in [
        ("org", "main/jwt.org:acme"),
        ("mixed", "path.owner=one,caller=main/user:42,main/jwt.org=acme"),
    ] {
        assert_eq!(top(&proxy, RankBy::Units, limit, 1), [counted(name, 1)]);
        let report = proxy.look(name).unwrap();
        assert_eq!(report.issuer.as_deref(), Some("main"));
        assert_eq!(super::windows(&report, limit)[0].0, 1, "{name}");
    }
}

#[test]
fn key_that_is_not_the_callers_is_ranked_with_what_its_response_costs_more() {
    let upstream = Upstream::as_asked();
    let cost = "cost: { reserve: 4, from_response_header: x-cost }";
    let limit = format!("org: {{ per: jwt.org, rate: 20/hour, mode: shadow, {cost} }}");
    let proxy = Proxy::start(&Policy::before(&upstream).on_all_routes(&[&limit]));
    let token = token_with(&json!({ "sub": "42", "plan": "free", "org": "acme" }));
    for _ in 0..2 {
        proxy.send(get("/").token(&token).costing("20")).assert_status(200);
    }
    assert_eq!(top(&proxy, RankBy::Units, "org", 1), [counted("jwt.org:acme", 20)]);
    assert_eq!(top(&proxy, RankBy::WouldBeDenials, "org", 1), [counted("jwt.org:acme", 1)]);
}

#[test]
fn bad_tokens_are_ranked_by_the_keys_that_they_are_charged_to() {
    let upstream = Upstream::start();
    let limits = ["tries: { per: [client.ip, path], rate: 2/hour }"];
    let proxy = Proxy::start(&Policy::before(&upstream).on_all_routes(&limits));
    for status in [401, 401, 429] {
        proxy.send(get("/login").token("nonsense")).assert_status(status);
    }
    let name = "client.ip=127.0.0.1,path=/login";
    assert_eq!(top(&proxy, RankBy::Units, "tries", 1), [counted(name, 2)]);
    assert_eq!(top(&proxy, RankBy::Denials, "tries", 1), [counted(name, 1)]);
}

#[test]
fn limit_in_shadow_ranks_whom_it_would_deny() {
    let upstream = Upstream::start();
    let limits = ["core: { per: caller, rate: 2/hour, mode: shadow }"];
    let proxy = Proxy::start(&Policy::before(&upstream).on_all_routes(&limits));
    for _ in 0..5 {
        proxy.get_as("42").assert_status(200);
    }
    assert_eq!(top(&proxy, RankBy::WouldBeDenials, "core", 1), [counted("user:42", 3)]);
    assert_eq!(top(&proxy, RankBy::Denials, "core", 1), [], "none was denied");
    let found = proxy.denials();
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&*only.decision, only.status, only.count), ("would_deny", None, 3));
    assert_eq!(only.limit.as_deref(), Some("core"));
}

#[test]
fn reload_keeps_the_callers_of_limits_that_stay() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream));
    proxy.get_as("42").assert_status(200);
    proxy.install(&[&Policy::before(&upstream).core("rate: 7/hour")]);
    proxy.get_as("42").assert_status(200);
    assert_eq!(top(&proxy, RankBy::Units, "core", 1), [counted("user:42", 2)]);
    assert_eq!(top(&proxy, RankBy::Units, "hosts", 1), []);
}
