//! What `diff` says that a change does to windows, and what it then does: each claim is put to a
//! proxy with counters in it, before and after.

use std::fs;

use serde_json::json;
use tempfile::TempDir;
use tollgate_identity::NewKey;
use tollgate_preview::diff::{Difference, WindowChange, WindowOutcome, diff};

use crate::support::{
    Authority, INTROSPECTION, ISSUER, Policy, Proxy, Request, Response, Upstream, compile, get,
    token_with,
};

/// Requests that are charged before the change.
const BEFORE: u64 = 3;

const SETTINGS: &str = "workers: 1\ntrusted_proxies: [127.0.0.1]";

/// A caller of the free tier with a claim for each of the caller rules.
fn alice() -> Request {
    get("/a").token(&token_with(&json!({ "sub": "alice", "uid": "a-1", "plan": "free" })))
}

/// What the difference of a policy with one limit, `core`, reports for the caller.
fn window_change(difference: &Difference, to: &str) -> WindowChange {
    let of_policies = difference.policies.iter().flat_map(|policy| &policy.windows);
    let windows: Vec<&WindowChange> = of_policies.filter(|own| !own.is_candidate).collect();
    let is_for = |to: &str| windows.iter().any(|change| change.to.contains(&to.to_owned()));
    let to = if is_for(to) { to } else { "everybody" };
    let found: Vec<_> =
        windows.iter().filter(|change| change.to.contains(&to.to_owned())).collect();
    match found.as_slice() {
        [change] => (**change).clone(),
        other => panic!("{other:?} for {to} in\n{difference}"),
    }
}

/// Counts before the change, changes, and looks at what is counted then.
fn assert_outcome(
    old: &Policy,
    new: &Policy,
    (request, to): (&Request, &str),
    outcome: WindowOutcome,
) {
    let difference = diff(&compile(&[old]), &compile(&[new]));
    let change = window_change(&difference, to);
    assert_eq!(change.outcome, outcome, "\n{difference}\n{old}\n{new}");

    let proxy = Proxy::with_settings(SETTINGS, &[old]);
    let mut last = None;
    for _ in 0..BEFORE {
        last = Some(proxy.send(request.clone()));
    }
    let used = |response: &Response| response.field("x-ratelimit-used").map(str::to_owned);
    let before = last.as_ref().and_then(used);
    assert_eq!(before.is_some(), change.before.is_some(), "{last:?}");
    proxy.install(&[new]);
    let response = proxy.send(request.clone());
    let expected = match outcome {
        WindowOutcome::Kept | WindowOutcome::Rescaled => Some(BEFORE + 1),
        WindowOutcome::Fresh | WindowOutcome::New => Some(1),
        WindowOutcome::Gone => None,
    };
    assert_eq!(used(&response), expected.map(|used| used.to_string()), "\n{difference}");
}

#[test]
fn change_of_how_much_keeps_what_was_used() {
    let upstream = Upstream::start();
    let policy = |fields: &str| Policy::before(&upstream).core(fields);
    for (before, after) in [
        ("rate: 5000/hour", "rate: 6000/hour"),
        ("rate: 5000/hour", "rate: 10/hour"),
        ("rate: 50/hour, algorithm: sliding_window", "rate: 90/hour, algorithm: sliding_window"),
        ("rate: 50/hour, algorithm: sliding_log", "rate: 90/hour, algorithm: sliding_log"),
        ("rate: 50/hour, algorithm: gcra", "rate: 10/hour, algorithm: gcra"),
        ("rate: 50/hour, algorithm: gcra, burst: 9", "rate: 50/hour, algorithm: gcra, burst: 8"),
        (
            "rate: 50/hour, algorithm: token_bucket, capacity: 9",
            "rate: 40/hour, algorithm: token_bucket, capacity: 8",
        ),
        ("rate: 50/day, align: epoch", "rate: 60/day, align: epoch"),
        (
            "rate: 50/month, align: calendar, timezone: Europe/Berlin",
            "rate: 60/month, align: calendar, timezone: Europe/Berlin",
        ),
        ("rate: { free: 50/hour, default: 7/hour }", "rate: 60/hour"),
    ] {
        assert_outcome(
            &policy(before),
            &policy(after),
            (&alice(), "free"),
            WindowOutcome::Rescaled,
        );
        assert_outcome(&policy(before), &policy(before), (&alice(), "free"), WindowOutcome::Kept);
    }
}

#[test]
fn change_of_how_it_is_counted_begins_anew() {
    let upstream = Upstream::start();
    let policy = |fields: &str| Policy::before(&upstream).core(fields);
    for (before, after, because) in [
        ("rate: 50/hour", "rate: 50/minute", "window hour -> minute"),
        ("rate: 50/hour", "rate: 50/hour, algorithm: gcra", "algorithm fixed_window -> gcra"),
        ("rate: 50/day", "rate: 50/day, align: epoch", "align first request -> epoch"),
        (
            "rate: 50/day, align: calendar",
            "rate: 50/day, align: calendar, timezone: Europe/Berlin",
            "align calendar UTC -> calendar Europe/Berlin",
        ),
        (
            "rate: 50/month, align: calendar",
            "rate: 50/year, align: calendar",
            "window month -> year",
        ),
    ] {
        let old = policy(before);
        let new = policy(after);
        assert_outcome(&old, &new, (&alice(), "free"), WindowOutcome::Fresh);
        let change = window_change(&diff(&compile(&[&old]), &compile(&[&new])), "free");
        assert_eq!(change.because, [because]);
    }
}

#[test]
fn change_of_what_it_is_counted_per_begins_anew() {
    let upstream = Upstream::start();
    let policy = |per: &str| {
        Policy::before(&upstream)
            .on_all_routes(&[&format!("core: {{ per: {per}, rate: 50/hour }}")])
    };
    for (before, after) in [
        ("caller", "[caller, path]"),
        ("[caller, path]", "[path, caller]"),
        ("jwt.sub", "jwt.uid"),
        ("client.ip, ipv4_prefix: 32", "client.ip, ipv4_prefix: 24"),
    ] {
        let old = policy(before);
        let new = policy(after);
        let from = alice().from("192.0.2.7");
        let to = if before.contains("client") { "everybody over IPv4" } else { "free" };
        assert_outcome(&old, &new, (&from, to), WindowOutcome::Fresh);
    }
}

#[test]
fn other_prefix_of_ipv6_leaves_ipv4_alone() {
    let upstream = Upstream::start();
    let policy = |prefix: u8| {
        let limit = format!("core: {{ per: client.ip, ipv6_prefix: {prefix}, rate: 50/hour }}");
        Policy::before(&upstream).on_all_routes(&[&limit])
    };
    let [old, new] = [policy(64), policy(56)];
    let v4 = get("/").from("192.0.2.7");
    let v6 = get("/").from("2001:db8::7");
    assert_outcome(&old, &new, (&v4, "everybody over IPv4"), WindowOutcome::Kept);
    assert_outcome(&old, &new, (&v6, "everybody over IPv6"), WindowOutcome::Fresh);

    let policy = |prefix: u8| {
        let anonymous = format!(
            "{{ name: anonymous, key: client.ip, tier: anonymous, ipv6_prefix: {prefix} }}"
        );
        let user = "{ name: user, key: jwt.sub, tier: jwt.plan }";
        Policy::before(&upstream).rate("50/hour").callers(&[user, &anonymous])
    };
    let [old, new] = [policy(64), policy(56)];
    assert_outcome(&old, &new, (&v4, "anonymous (anonymous) over IPv4"), WindowOutcome::Kept);
    assert_outcome(&old, &new, (&v6, "anonymous (anonymous) over IPv6"), WindowOutcome::Fresh);
    assert_outcome(&old, &new, (&alice(), "free"), WindowOutcome::Kept);
}

#[test]
fn other_claim_that_names_callers_begins_anew_for_them_only() {
    let upstream = Upstream::start();
    let policy = |user: &str| {
        let anonymous = "{ name: anonymous, key: client.ip, tier: anonymous }";
        Policy::before(&upstream).rate("50/hour").callers(&[user, anonymous])
    };
    let old = policy("{ name: user, key: jwt.sub, tier: jwt.plan }");
    let new = policy("{ name: user, key: jwt.uid, tier: jwt.plan }");
    assert_outcome(&old, &new, (&alice(), "free"), WindowOutcome::Fresh);
    assert_outcome(&old, &new, (&get("/"), "anonymous (anonymous)"), WindowOutcome::Kept);

    let renamed = policy("{ name: member, key: jwt.sub, tier: jwt.plan }");
    assert_outcome(&old, &renamed, (&alice(), "everybody"), WindowOutcome::Kept);
}

#[test]
fn api_keys_of_another_name_begin_anew() {
    let upstream = Upstream::start();
    let folder = TempDir::new().unwrap();
    let key = NewKey { id: "a".into(), ..NewKey::default() }.mint().unwrap();
    let file = folder.path().join("keys.yaml");
    fs::write(&file, format!("keys:\n{}\n", key.line)).unwrap();
    let policy = |name: &str| {
        let keys = format!("api_keys: {{ name: {name}, file: \"{}\" }}", file.display());
        let user = "{ name: user, key: jwt.sub, tier: jwt.plan }";
        let machine = "{ name: machine, key: api_key.id }";
        Policy::before(&upstream).rate("50/hour").identity(&[&keys]).callers(&[user, machine])
    };
    let [old, new] = [policy("machines"), policy("robots")]
        .map(|own| own.routes(&["{ match: { path: /** }, auth: required, limits: [core] }"]));
    let machine = get("/").field("x-api-key", &key.key);
    assert_outcome(&old, &new, (&machine, "free (machine)"), WindowOutcome::Fresh);
    assert_outcome(&old, &new, (&alice(), "free (user)"), WindowOutcome::Kept);
    let difference = diff(&compile(&[&old]), &compile(&[&new])).to_string();
    let expected = "caller machine: api_key.id of api_keys:machines -> api_key.id of \
                    api_keys:robots: limits per caller start from zero\n";
    assert!(difference.contains(expected), "{difference}");
}

#[test]
fn opaque_tokens_vouched_for_under_another_name_begin_anew() {
    let authority = Authority::start();
    let upstream = Upstream::start();
    authority.know_token("opaque", json!({ "active": true, "sub": "7", "plan": "free" }));
    let policy = |per: &str, fields: &str, query: &str| {
        let introspection = format!(
            "introspection: {{ {fields}, url: \"{}{query}\", client_id: tollgate, \
             client_secret_env: TEST_SECRET }}",
            authority.url(INTROSPECTION)
        );
        Policy::before(&upstream)
            .on_all_routes(&[&format!("core: {{ per: {per}, rate: 50/hour }}")])
            .identity(&[&introspection])
    };
    let opaque = get("/").token("opaque");
    let mine = format!("free (user with tokens of {ISSUER})");
    for per in ["caller", "jwt.sub"] {
        let [old, new] = ["name: one", "name: other"].map(|name| policy(per, name, ""));
        assert_outcome(
            &old,
            &new,
            (&opaque, "free (user with opaque tokens)"),
            WindowOutcome::Fresh,
        );
        assert_outcome(&old, &new, (&alice(), &mine), WindowOutcome::Kept);
    }
    // Asked otherwise: whose word it is stays the same.
    let [old, new] = ["cache: 10s", "cache: 20s"].map(|cache| policy("caller", cache, ""));
    assert_outcome(&old, &new, (&opaque, "everybody"), WindowOutcome::Kept);
    // Another introspection address: the text of its query string must not be printed.
    for elsewhere in ["?key=hidden", "/there?key=hidden"] {
        let [old, new] = ["", elsewhere].map(|rest| policy("caller", "cache: 10s", rest));
        let difference = diff(&compile(&[&old]), &compile(&[&new]));
        assert!(
            !difference.is_empty() && !format!("{difference}{difference:?}").contains("hidden"),
            "{difference}"
        );
    }
}

#[test]
fn earlier_rule_takes_over_those_who_have_its_claim() {
    let upstream = Upstream::start();
    let policy = |callers: &[&str]| Policy::before(&upstream).rate("50/hour").callers(callers);
    let user = "{ name: user, key: jwt.sub }";
    let old = policy(&[user]).routes(&["{ match: { path: /** }, auth: required, limits: [core] }"]);
    let new = policy(&["{ name: account, key: jwt.uid }", user])
        .routes(&["{ match: { path: /** }, auth: required, limits: [core] }"]);
    assert_outcome(&old, &new, (&alice(), "free (user, now account)"), WindowOutcome::Fresh);
    let without = get("/a").token(&token_with(&json!({ "sub": "bob" })));
    assert_outcome(&old, &new, (&without, "free (user)"), WindowOutcome::Kept);
}

#[test]
fn limit_that_ends_or_begins_is_reported_as_gone_or_new() {
    let upstream = Upstream::start();
    let limited = Policy::before(&upstream).rate("50/hour");
    let unlimited = Policy::before(&upstream).rate("{ free: unlimited, default: 50/hour }");
    assert_outcome(&limited, &unlimited, (&alice(), "free"), WindowOutcome::Gone);
    assert_outcome(&unlimited, &limited, (&alice(), "free"), WindowOutcome::New);
    assert_outcome(&limited, &Policy::before(&upstream), (&alice(), "free"), WindowOutcome::Gone);
}

#[test]
fn tier_that_ends_leaves_its_callers_to_the_default() {
    let upstream = Upstream::start();
    let old = Policy::before(&upstream).rate("{ pro: 90/hour, default: 50/minute }");
    let new = Policy::before(&upstream).rate("50/minute").tiers("[anonymous, free, internal]");
    let pro = get("/").token(&token_with(&json!({ "sub": "alice", "plan": "pro" })));
    assert_outcome(&old, &new, (&pro, "pro, now free"), WindowOutcome::Fresh);
}

#[test]
fn override_is_compared_with_what_the_caller_has_without_it() {
    let upstream = Upstream::start();
    let old = Policy::before(&upstream).rate("50/hour");
    let with = |rate: &str| {
        old.clone().section(&format!(
            "overrides: [{{ caller: \"user:alice\", limit: core, rate: {rate}, \
             until: 2030-12-31, why: a test }}]"
        ))
    };
    assert_outcome(&old, &with("90/hour"), (&alice(), "user:alice"), WindowOutcome::Rescaled);
    assert_outcome(&with("90/hour"), &old, (&alice(), "user:alice"), WindowOutcome::Rescaled);
    assert_outcome(&old, &with("90/minute"), (&alice(), "user:alice"), WindowOutcome::Fresh);
    assert_outcome(
        &with("90/minute"),
        &with("50/minute"),
        (&alice(), "user:alice"),
        WindowOutcome::Rescaled,
    );
}

#[test]
fn override_of_a_claim_is_compared_with_what_its_counter_has_without_it() {
    let upstream = Upstream::start();
    let old = Policy::before(&upstream).on_all_routes(&["org: { per: jwt.org, rate: 50/hour }"]);
    let with = |rate: &str| {
        old.clone().section(&format!(
            "overrides: [{{ jwt.org: bigcorp, limit: org, rate: {rate}, why: a contract }}]"
        ))
    };
    let request = get("/").token(&token_with(&json!({ "sub": "alice", "org": "bigcorp" })));
    assert_outcome(&old, &with("90/hour"), (&request, "jwt.org bigcorp"), WindowOutcome::Rescaled);
    assert_outcome(&with("90/hour"), &old, (&request, "jwt.org bigcorp"), WindowOutcome::Rescaled);
    assert_outcome(&old, &with("90/minute"), (&request, "jwt.org bigcorp"), WindowOutcome::Fresh);
    assert_outcome(&old, &with("unlimited"), (&request, "jwt.org bigcorp"), WindowOutcome::Gone);
}

#[test]
fn one_window_of_several_can_change_alone() {
    let upstream = Upstream::start();
    let policy = |rates: &str| Policy::before(&upstream).rate(rates);
    let old = policy("[30/minute, 50/hour]");
    let new = policy("[30/second, 50/hour]");
    let difference = diff(&compile(&[&old]), &compile(&[&new]));
    let outcomes: Vec<_> = difference.policies[0].windows.iter().map(|own| own.outcome).collect();
    assert_eq!(outcomes, [WindowOutcome::Fresh, WindowOutcome::Kept], "\n{difference}");
    let proxy = Proxy::start(&old);
    for _ in 0..BEFORE {
        proxy.send(alice());
    }
    proxy.install(&[&new]);
    let standing = proxy.send(get("/rate_limit").token(&token_with(&json!({ "sub": "alice" }))));
    standing.assert_status(200);
    proxy.send(alice()).assert_field("x-ratelimit-used", "4");
}

#[test]
fn renamed_policy_begins_anew() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("50/hour");
    let other = Policy::before(&upstream).hosts("[other.example.com]");
    // The name is the file's, which is its place among these.
    let old = compile(&[&policy]);
    let new = compile(&[&other, &policy]);
    let difference = diff(&old, &new);
    let proxy = Proxy::start(&policy);
    for _ in 0..BEFORE {
        proxy.send(alice()).assert_status(200);
    }
    proxy.install(&[&other, &policy]);
    proxy.send(alice()).assert_field("x-ratelimit-used", "1");
    assert!(difference.to_string().contains("policy policy-1"), "{difference}");
    assert!(!difference.hosts.is_empty(), "{difference}");
}
