//! Limits that are tried out: they count and report, and deny no caller, or only some.

use std::collections::BTreeSet;

use super::reset_after;
use crate::support::{HOUR, MINUTE, Policy, Proxy, SECOND, Signal, Upstream, algorithms, get};

const SHOWN: &[&str] = &["shadow_header: true"];

/// A key secret, under which it is always the same callers that a percentage takes.
const SECRET: &str = "key_secret_env: TEST_SECRET";

/// With these limits on all routes, and what would deny in a response header.
fn proxy(upstream: &Upstream, limits: &[&str]) -> Proxy {
    Proxy::start(&Policy::before(upstream).on_all_routes(limits).responses(SHOWN))
}

/// What the next so many responses to alice say would have denied; all of them pass.
fn would_deny<const N: usize>(proxy: &Proxy) -> [String; N] {
    [(); N].map(|()| {
        let response = proxy.get_as("alice");
        response.assert_status(200).assert_no_field("x-tollgate-denied-by");
        response.field("x-tollgate-shadow").unwrap_or_default().to_owned()
    })
}

#[test]
fn shadow_limit_marks_what_it_would_deny_and_denies_nothing() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let limit =
            format!("core: {{ per: caller, rate: 2/hour, algorithm: {algorithm}, mode: shadow }}");
        let proxy = proxy(&upstream, &[&limit]);
        assert_eq!(would_deny(&proxy), ["", "", "core", "core", "core"], "{algorithm}");
        // Others have counters of their own, and time passes as it would.
        proxy.get_as("bob").assert_status(200).assert_no_field("x-tollgate-shadow");
        proxy.advance(2 * HOUR);
        assert_eq!(would_deny(&proxy), ["", "", "core"], "{algorithm}");
    }
}

#[test]
fn log_tells_what_would_have_been_denied() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 1/hour, mode: shadow }",
        "search: { per: client.ip, rate: 9/hour, candidate: { rate: 1/hour } }",
    ]);
    let proxy = Proxy::start(&policy);
    for _ in 0..2 {
        proxy.get_as("alice").assert_status(200).assert_no_field("x-tollgate-shadow");
    }
    let log = proxy.into_log();
    let lines: Vec<&str> = log.lines().collect();
    assert!(!lines[0].contains("would_deny"), "{log}");
    assert!(lines[1].contains(" would_deny=\"core, search;candidate\""), "{log}");
}

#[test]
fn shadow_limits_are_shown_in_no_other_header() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .on_all_routes(&[
            "trial: { per: caller, rate: 1/hour, mode: shadow }",
            "core: { per: caller, rate: 9/hour }",
            "place: { per: client.ip, rate: 1/hour, mode: shadow }",
        ])
        .responses(&["shadow_header: true", "headers: both"]);
    let proxy = Proxy::start(&policy);
    proxy.get_as("alice").assert_status(200);
    let response = proxy.get_as("alice");
    response.assert_status(200).assert_field("x-tollgate-shadow", "trial, place");
    let github = ["limit", "remaining", "used", "resource"]
        .map(|name| response.field(&format!("x-ratelimit-{name}")).unwrap().to_owned());
    assert_eq!(github, ["9", "7", "2", "core"]);
    for name in ["ratelimit", "ratelimit-policy"] {
        let value = response.field(name).unwrap();
        assert!(value.starts_with("\"core\";") && !value.contains(','), "{name}: {value}");
    }
    let standings = proxy.standings(get("/rate_limit").by("alice"));
    assert_eq!(standings.as_object().unwrap().keys().collect::<Vec<_>>(), ["core"]);

    let proxy = self::proxy(&upstream, &["core: { per: caller, rate: 1/hour, mode: shadow }"]);
    proxy.get_as("alice").assert_status(200).assert_no_limit();
    let standings = proxy.standings(get("/rate_limit").by("alice"));
    assert_eq!(standings, serde_json::json!({}));
}

#[test]
fn first_limit_that_is_enforced_is_the_primary_one() {
    let upstream = Upstream::start();
    let proxy = proxy(
        &upstream,
        &[
            "trial: { per: caller, rate: 1/hour, mode: shadow }",
            "core: { per: caller, rate: 2/hour }",
        ],
    );
    assert_eq!(would_deny(&proxy), ["", "trial"]);
    let denied = proxy.get_as("alice");
    denied.assert_status(429).assert_limit(["2", "0", "2", &reset_after(3600), "core"]);
    let message = "API rate limit exceeded for user alice.";
    assert_eq!(denied.json()["message"], message);
}

#[test]
fn what_is_denied_is_charged_to_no_shadow_limit() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 1/minute }",
            "trial: { per: caller, rate: 3/hour, mode: shadow }",
        ])
        .routes(&[
            "{ match: { path: /both }, limits: [trial, core] }",
            "{ match: { path: /** }, limits: [trial] }",
        ])
        .responses(SHOWN);
    let proxy = Proxy::start(&policy);
    for status in [200, 429, 429, 429] {
        proxy.send(get("/both").by("alice")).assert_status(status);
    }
    assert_eq!(would_deny(&proxy), ["", "", "trial"]);
}

#[test]
fn shadow_limit_takes_part_in_nothing_but_its_own_count() {
    let upstream = Upstream::as_asked();
    let proxy = proxy(
        &upstream,
        &[
            "trial: { per: caller, rate: 5/hour, mode: shadow, \
             cost: { reserve: 1, from_response_header: x-cost } }",
            "core: { per: caller, rate: 9/hour }",
        ],
    );
    // What is free is free there too, and what costs more counts for more.
    for _ in 0..6 {
        let request = get("/").by("alice").wants(304);
        proxy.send(request).assert_status(304).assert_no_field("x-tollgate-shadow");
    }
    let response = proxy.send(get("/").by("alice").costing("5"));
    response.assert_no_field("x-tollgate-shadow").assert_no_field("x-cost");
    assert_eq!(would_deny(&proxy), ["trial", "trial"]);
    assert_eq!(proxy.used("alice", "core"), 3);
}

#[test]
fn requests_at_once_may_be_counted_in_the_shadow() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxy = proxy(&upstream, &["inflight: { per: caller, concurrent: 1, mode: shadow }"]);
    let begin = || {
        let mut client = proxy.connect();
        client.write(get("/").by("alice").to_bytes());
        let head = client.read_head();
        head.assert_status(200).assert_no_limit();
        let shadow = head.field("x-tollgate-shadow").unwrap_or_default().to_owned();
        (client, shadow)
    };
    let (mut first, mark) = begin();
    assert_eq!(mark, "");
    let (mut second, mark) = begin();
    assert_eq!(mark, "inflight");
    go.open();
    for client in [&mut first, &mut second] {
        while client.read_chunk().is_some() {}
    }
    assert_eq!(begin().1, "");
}

#[test]
fn candidate_counts_beside_the_rate_in_force() {
    let upstream = Upstream::start();
    let proxy =
        proxy(&upstream, &["core: { per: caller, rate: 5/hour, candidate: { rate: 3/hour } }"]);
    let mark = "core;candidate";
    assert_eq!(would_deny(&proxy), ["", "", "", mark, mark]);
    let denied = proxy.get_as("alice");
    denied.assert_status(429).assert_limit(["5", "0", "5", &reset_after(3600), "core"]);
    let standings = proxy.standings(get("/rate_limit").by("alice"));
    assert_eq!(standings["core"]["limit"], 5);
    assert_eq!(standings.as_object().unwrap().len(), 1);
}

#[test]
fn candidate_may_be_more_generous_or_of_another_kind() {
    let upstream = Upstream::start();
    let limit = "core: { per: caller, rate: 2/minute, candidate: { rate: 3/hour } }";
    let proxy = proxy(&upstream, &[limit]);
    assert_eq!(would_deny(&proxy), ["", ""]);
    // What is denied does not count there either.
    proxy.get_as("alice").assert_status(429);
    proxy.advance(MINUTE);
    assert_eq!(would_deny(&proxy), ["", "core;candidate"]);

    let limit = "core: { per: caller, rate: 9/minute, \
                 candidate: { rate: 30/minute, algorithm: gcra, burst: 2 } }";
    let proxy = self::proxy(&upstream, &[limit]);
    assert_eq!(would_deny(&proxy), ["", "", "core;candidate"]);
    proxy.advance(2 * SECOND);
    assert_eq!(would_deny(&proxy), ["", "core;candidate"]);
}

#[test]
fn candidate_may_depend_on_the_tier() {
    let upstream = Upstream::start();
    let limit = "core: { per: caller, rate: 9/hour, \
                 candidate: { rate: { anonymous: 1/hour, default: unlimited } } }";
    let proxy = proxy(&upstream, &[limit]);
    assert_eq!(would_deny(&proxy), ["", "", ""]);
    proxy.get("/").assert_no_field("x-tollgate-shadow");
    proxy.get("/").assert_status(200).assert_field("x-tollgate-shadow", "core;candidate");
}

#[test]
fn candidate_is_not_for_callers_with_a_rate_of_their_own() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .core("rate: 9/hour, candidate: { rate: 1/hour }")
        .section(
            "overrides: [{ caller: \"user:alice\", limit: core, rate: 20/hour, \
             until: 2026-12-31, why: a move }]",
        )
        .responses(SHOWN);
    let proxy = Proxy::start(&policy);
    assert_eq!(would_deny(&proxy), ["", "", ""]);
    proxy.get_as("bob").assert_no_field("x-tollgate-shadow");
    proxy.get_as("bob").assert_field("x-tollgate-shadow", "core;candidate");
}

#[test]
fn candidate_is_given_back_what_the_rate_in_force_is() {
    let upstream = Upstream::as_asked();
    let limit = "core: { per: caller, rate: 9/hour, candidate: { rate: 2/hour } }";
    let proxy = proxy(&upstream, &[limit]);
    for _ in 0..5 {
        let request = get("/").by("alice").wants(304);
        proxy.send(request).assert_status(304).assert_no_field("x-tollgate-shadow");
    }
    assert_eq!(would_deny(&proxy), ["", "", "core;candidate"]);
}

#[test]
fn candidate_may_be_of_requests_at_once() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let limit = "inflight: { per: caller, concurrent: 2, candidate: { concurrent: 1 } }";
    let proxy = proxy(&upstream, &[limit]);
    let mut clients = [(); 3].map(|()| {
        let mut client = proxy.connect();
        client.write(get("/").by("alice").to_bytes());
        let head = client.read_head();
        (client, head.status, head.field("x-tollgate-shadow").map(str::to_owned))
    });
    let mark = Some("inflight;candidate".to_owned());
    let found = [0, 1].map(|at| (clients[at].1, clients[at].2.clone()));
    assert_eq!(found, [(200, None), (200, mark)]);
    assert_eq!(clients[2].1, 429);
    go.open();
    for (client, ..) in &mut clients[..2] {
        while client.read_chunk().is_some() {}
    }
    assert_eq!(would_deny(&proxy), [""]);
}

#[test]
fn limits_that_deny_no_request_do_not_do_so_for_want_of_room() {
    let upstream = Upstream::start();
    for limits in [
        &["trial: { per: caller, rate: 9/hour, mode: shadow }"][..],
        &[
            "place: { per: client.ip, rate: 9/hour }",
            "trial: { per: caller, rate: 9/hour, mode: shadow }",
        ],
        &["place: { per: client.ip, rate: 9/hour, candidate: { rate: 5/minute } }"],
    ] {
        let policy = Policy::before(&upstream).on_all_routes(limits);
        let settings = "workers: 1\nstore: { memory: { max_keys: 1 } }";
        let proxy = Proxy::with_settings(settings, &[&policy]);
        for caller in ["alice", "bob", "carol"] {
            let response = proxy.get_as(caller);
            assert_eq!(response.status, 200, "{limits:?}\n{response:?}");
        }
    }
}

#[test]
fn several_limits_are_named_in_order() {
    let upstream = Upstream::start();
    let proxy = proxy(
        &upstream,
        &[
            "core: { per: caller, rate: [1/minute, 1/hour], mode: shadow }",
            "search: { per: caller, rate: 9/hour, candidate: { rate: [1/minute, 2/hour] } }",
        ],
    );
    assert_eq!(would_deny(&proxy), ["", "core, search;candidate"]);
}

#[test]
fn mark_of_an_upstream_is_not_believed() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nx-tollgate-shadow: forged\r\nx-tollgate-denied-by: forged\r\n\
         content-length: 0\r\n\r\n",
    );
    let proxy = proxy(&upstream, &["core: { per: caller, rate: 1/hour, mode: shadow }"]);
    assert_eq!(would_deny(&proxy), ["", "core"]);
}

/// Those of four hundred users who are denied by a rate of which so many percent are enforced,
/// where the store has these settings.
fn denied(upstream: &Upstream, store: &str, name: &str, percent: u8) -> BTreeSet<u32> {
    let limit = format!(
        "{name}: {{ per: caller, rate: 0/hour, enforce_percent: {percent}, mode: enforce }}"
    );
    let policy = Policy::before(upstream).on_all_routes(&[&limit]).responses(SHOWN);
    let proxy = Proxy::with_settings(&format!("workers: 1\nstore: {{ {store} }}"), &[&policy]);
    let mut client = proxy.connect();
    let mut is_denied = |user: &u32| {
        let response = client.send(&get("/").by(&user.to_string()));
        // Who is not denied is counted in the shadow.
        match response.field("x-tollgate-shadow") {
            Some(mark) => assert_eq!((mark, response.status), (name, 200)),
            None => assert_eq!(response.field("x-tollgate-denied-by"), Some(name)),
        }
        assert!([200, 429].contains(&response.status), "{response:?}");
        response.status == 429
    };
    (0..400).filter(&mut is_denied).collect()
}

#[test]
fn addresses_of_one_prefix_are_enforced_alike() {
    let upstream = Upstream::start();
    let limit = "core: { per: caller, rate: 0/hour, enforce_percent: 50 }";
    let policy = Policy::before(&upstream).on_all_routes(&[limit]);
    let settings = format!("workers: 1\ntrusted_proxies: [127.0.0.1]\nstore: {{ {SECRET} }}");
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let mut of_networks = BTreeSet::new();
    for network in 0..20 {
        let status = |host| {
            let address = format!("2001:db8:0:{network:x}::{host:x}");
            proxy.send(get("/").from(&address)).status
        };
        let of_hosts: BTreeSet<u16> = (1..8).map(status).collect();
        assert_eq!(of_hosts.len(), 1, "network {network}: {of_hosts:?}");
        of_networks.extend(of_hosts);
    }
    assert_eq!(of_networks, BTreeSet::from([200, 429]));
}

/// A caller that is not known by name is known by its address, as the limit counts it.
#[test]
fn addresses_of_one_prefix_are_enforced_alike_with_a_bad_token() {
    let upstream = Upstream::start();
    let limit = "core: { per: client.ip, ipv6_prefix: 56, rate: 0/hour, enforce_percent: 50 }";
    let policy = Policy::before(&upstream).on_all_routes(&[limit]);
    let settings = format!("workers: 1\ntrusted_proxies: [127.0.0.1]\nstore: {{ {SECRET} }}");
    let proxy = Proxy::with_settings(&settings, &[&policy]);
    let mut of_networks = BTreeSet::new();
    for network in 0..20 {
        let status = |subnet| {
            let address = format!("2001:db8:{network:x}:{subnet:x}::1");
            let request = get("/").from(&address).field("authorization", "Bearer bad");
            proxy.send(request).status
        };
        let of_subnets: BTreeSet<u16> = (1..8).map(status).collect();
        assert_eq!(of_subnets.len(), 1, "network {network}: {of_subnets:?}");
        of_networks.extend(of_subnets);
    }
    assert_eq!(of_networks, BTreeSet::from([401, 429]));
}

#[test]
fn percentage_of_callers_is_the_same_under_one_secret_and_grows_by_more() {
    let upstream = Upstream::start();
    let denied = |name, percent| denied(&upstream, SECRET, name, percent);
    let quarter = denied("core", 25);
    assert!((60..=140).contains(&quarter.len()), "{} of 400", quarter.len());
    // After a restart too, and in another proxy of the fleet.
    assert_eq!(denied("core", 25), quarter);
    let half = denied("core", 50);
    assert!(half.is_superset(&quarter) && half.len() > quarter.len());
    assert_eq!(denied("core", 0).len(), 0);
    assert_eq!(denied("core", 100).len(), 400);
    // Another limit takes others, lest the same callers meet every trial.
    assert_ne!(denied("other", 25), quarter);
}

#[test]
fn no_client_can_work_out_which_callers_a_percentage_spares() {
    let upstream = Upstream::start();
    let known = denied(&upstream, SECRET, "core", 50);
    let [one, other] =
        [(); 2].map(|()| denied(&upstream, "memory: { max_keys: 10000 }", "core", 50));
    assert!(one != other && one != known && other != known);
}
