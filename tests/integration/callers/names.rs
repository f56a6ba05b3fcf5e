//! The name of a caller, and of a counter, is the same wherever it is printed, and is what a look and
//! a reset take as it is.

use serde_json::json;
use tollgate::callers::{CallerQuery, CallerReport, top::RankBy};

use crate::support::{Policy, Proxy, Upstream, get, token_with};

const JSON: &str = "workers: 1\naccess_log: { format: json }";

const TENANTS: &str = "{ name: id, issuer: \"https://id.example.com/{tid}/\", tenants: [acme], \
                       audience: [api], algorithms: [HS256], secret_env: TEST_SECRET }";

/// A policy of one issuer, `policy-0`, and one of two, `policy-1`.
fn policies(upstream: &Upstream) -> [Policy; 2] {
    let one = Policy::before(upstream).hosts("[one.test]").core("rate: 2/hour");
    let two = Policy::before(upstream).hosts("[two.test]").core("rate: 2/hour");
    [one, two.and_issuer("other", "https://other.example.com/")]
}

fn look_of(proxy: &Proxy, caller: &str) -> Result<CallerReport, String> {
    let query = CallerQuery { caller: caller.into(), ..CallerQuery::default() };
    proxy.look_whole(&query).map_err(|error| error.to_string())
}

#[test]
fn every_printed_name_of_a_caller_is_one_that_a_look_and_a_reset_take() {
    let upstream = Upstream::start();
    let [one, two] = policies(&upstream);
    let tenants = Policy::before(&upstream).hosts("[many.test]").core("rate: 2/hour");
    let tenants = tenants.issuers(&[TENANTS]).identity(&["shared_subjects: true"]);
    let proxy = Proxy::with_settings(JSON, &[&one, &two, &tenants]);
    let of_tenant = token_with(&json!({
        "sub": "42", "plan": "free", "iss": "https://id.example.com/acme/", "tid": "acme"
    }));
    let expected = ["user:42", "main/user:42", "acme/user:42"];
    for host in ["one.test", "two.test"] {
        for _ in 0..3 {
            proxy.send(get("/").host(host).by("42"));
        }
    }
    for _ in 0..3 {
        proxy.send(get("/").host("many.test").token(&of_tenant));
    }
    let ranked = proxy.top(RankBy::Denials, 1).callers.into_iter().map(|own| own.name);
    assert_eq!(sorted(ranked), sorted(expected));
    let denied = proxy.denials().into_iter().map(|own| own.caller.unwrap());
    assert_eq!(sorted(denied), sorted(expected));
    for (name, at) in expected.iter().zip(["policy-0", "policy-1", "policy-2"]) {
        let used = || {
            let found = look_of(&proxy, name).unwrap().policies.into_iter();
            let own = found.filter(|own| own.policy == at && own.caller == *name);
            own.map(|own| own.limits[0].windows[0].used).collect::<Vec<_>>()
        };
        assert_eq!(used(), [2], "{name}");
        proxy.reset(name);
        assert_eq!(used(), [0], "{name}");
    }
    let log = proxy.into_log();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut logged: Vec<String> =
        lines.map(|line| line["caller"].as_str().unwrap().to_owned()).collect();
    logged.dedup();
    assert_eq!(logged, expected);
}

fn sorted<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
    names.sort_unstable();
    names
}

#[test]
fn policies_that_want_more_of_a_name_are_told_beside_the_one_that_takes_it() {
    let upstream = Upstream::start();
    let [one, two] = policies(&upstream);
    let proxy = Proxy::with_settings("workers: 1", &[&one, &two]);
    let report = json!(look_of(&proxy, "user:42").unwrap());
    let why = "`user:42` may be a caller of any issuer: write whose, one of main/user:42, \
               other/user:42";
    assert_eq!(report["skipped"], json!([{ "policy": "policy-1", "why": why }]));

    let [third, fourth] = policies(&upstream);
    let third = third.and_issuer("third", "https://third.example.com/");
    let proxy = Proxy::with_settings("workers: 1", &[&third, &fourth]);
    let error = look_of(&proxy, "user:42").unwrap_err();
    let expected = "no policy takes this name as it is: in policy-0, `user:42` may be a caller of \
                    any issuer: write whose, one of main/user:42, third/user:42; in policy-1, \
                    `user:42` may be a caller of any issuer: write whose, one of main/user:42, \
                    other/user:42: write which policy with `--policy`";
    assert_eq!(error, expected);
}

#[test]
fn reset_of_one_name_that_two_policies_give_to_two_callers_asks_which() {
    let upstream = Upstream::start();
    let [one, _] = policies(&upstream);
    let second = "{ name: other, issuer: https://other.example.com/, audience: [api], \
                  algorithms: [HS256], secret_env: TEST_SECRET }";
    let other = one.clone().hosts("[two.test]").issuers(&[second]);
    let proxy = Proxy::with_settings("workers: 1", &[&one, &other]);
    assert_eq!(look_of(&proxy, "user:42").unwrap().policies.len(), 2);
    let error = proxy.try_reset("user:42").unwrap_err().to_string();
    let expected = "`user:42` is a caller of main in policy policy-0, of other in policy policy-1: \
                    write which with `--policy`";
    assert_eq!(error, expected);
    let same = one.clone().hosts("[three.test]");
    Proxy::with_settings("workers: 1", &[&one, &same]).reset("user:42");
}

#[test]
fn name_of_a_descriptor_of_several_entries_is_found_beside_other_policies() {
    let upstream = Upstream::start();
    let rls = Policy::before(&upstream)
        .hosts("[two.test]")
        .limits(&["pairs: { per: [descriptor.user, descriptor.path], rate: 3/minute }"])
        .section("rls: [{ domain: edge, when: { key: [user, path] }, limits: [pairs] }]");
    let one = Policy::before(&upstream).hosts("[one.test]").core("rate: 2/hour");
    let proxy = Proxy::with_settings("workers: 1", &[&one, &rls]);
    let name = "descriptor.user=7,descriptor.path=/a";
    let report = look_of(&proxy, name).unwrap();
    assert_eq!(report.policies[0].caller, name);
    proxy.reset(name);
}

/// Callers have room, their organisation has not.
fn of_organisations(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 9/hour }",
            "org: { per: jwt.org, rate: 1/hour }",
            "secret: { per: header.x-key, rate: 1/hour, mode: shadow }",
            "idle: { per: host, rate: 1/hour }",
        ])
        .routes(&[
            "{ match: { path: /open }, auth: none, limits: [idle] }",
            "{ match: { path: /** }, auth: required, limits: [core, org, secret] }",
        ])
}

#[test]
fn denial_names_the_counter_that_had_no_room_as_a_look_takes_it() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&of_organisations(&upstream));
    let token = |org: &str| token_with(&json!({ "sub": "43", "plan": "free", "org": org }));
    for org in ["acme", "acme", "other", "other"] {
        proxy.send(get("/").token(&token(org)).field("x-key", "s3cret"));
    }
    let denials = proxy.denials();
    let told: Vec<_> = denials.iter().map(|own| json!(own)).collect();
    let seen = |own: &serde_json::Value| json!([own["caller"], own["limit"], own["counters"][0]]);
    let hash = told[1]["counters"][0].as_str().unwrap().to_owned();
    assert!(hash.starts_with("header.x-key:(hash "), "{hash}");
    let expected = json!([
        ["user:43", "org", "jwt.org:acme"],
        ["user:43", "secret", hash],
        ["user:43", "org", "jwt.org:other"]
    ]);
    assert_eq!(json!(told.iter().map(seen).collect::<Vec<_>>()), expected);
    assert_eq!(proxy.look("jwt.org:acme").unwrap().limits[0].windows[0].used, 1);
    // So the look at the caller names them as well, and that at another one does not.
    let beside = |name: &str| {
        let beside = proxy.look(name).unwrap().beside.into_iter();
        beside.map(|own| (own.limit, own.seen)).collect::<Vec<_>>()
    };
    let orgs = ["jwt.org:other", "jwt.org:acme"].map(str::to_owned).to_vec();
    let expected = [("org".to_owned(), orgs), ("secret".to_owned(), vec![hash])];
    assert_eq!(beside("user:43"), expected);
    assert!(beside("user:44").iter().all(|(_, seen)| seen.is_empty()));
}

#[test]
fn look_at_a_caller_names_the_limits_of_its_routes_that_count_by_something_else() {
    let upstream = Upstream::start();
    let beside = |policy: &Policy, name: &str| {
        let report = json!(Proxy::start(policy).look(name).unwrap());
        report["beside"].clone()
    };
    let one = of_organisations(&upstream);
    let expected = json!([
        { "limit": "org", "per": "jwt.org", "name": "jwt.org:VALUE", "seen": [] },
        { "limit": "secret", "per": "header.x-key", "name": "header.x-key:VALUE", "seen": [] }
    ]);
    assert_eq!(beside(&one, "user:43"), expected);
    let idle = json!([
        { "limit": "idle", "per": "host", "name": "host:VALUE", "seen": [] }
    ]);
    assert_eq!(beside(&one, "anonymous:192.0.2.1"), idle);
    assert_eq!(beside(&one, "jwt.org:acme"), json!([]));
    let two = one.and_issuer("other", "https://other.example.com/");
    assert_eq!(beside(&two, "main/user:43")[0]["name"], "main/jwt.org:VALUE");
}

#[test]
fn value_alone_is_told_what_it_may_be_a_part_of() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&of_organisations(&upstream));
    let error = look_of(&proxy, "acme").unwrap_err();
    let expected = "`acme` does not say what it is: write one of user:acme, anonymous:acme, \
                    jwt.org:acme, header.x-key:acme, host:acme";
    assert_eq!(error, expected);
    let error = look_of(&proxy, "jwt.tid:acme").unwrap_err();
    let expected = "`jwt.tid` is no entry of `callers`, and no limit counts by it: ask for one of \
                    user:VALUE, anonymous:192.0.2.1, jwt.org:VALUE, header.x-key:VALUE, host:VALUE";
    assert_eq!(error, expected);
}

#[test]
fn limit_is_asked_for_as_it_is_printed_with_its_policy() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&of_organisations(&upstream));
    let limit = Some("policy-0/core".to_owned());
    let query = CallerQuery { caller: "user:42".into(), limit, policy: None };
    let report = proxy.look_whole(&query).unwrap();
    assert_eq!(report.policies[0].limits[0].limit, "core");
}
