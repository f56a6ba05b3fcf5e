//! `RateLimit` and `RateLimit-Policy`, as a parser that is not ours reads them.

use std::{collections::BTreeMap, time::Duration};

use sfv::{BareItem, List, ListEntry, Parser};

use crate::support::{HOUR, Policy, Proxy, Response, SECOND, Signal, Upstream, get};

/// The items of a field: names, and what is said of each.
fn items(response: &Response, field: &str) -> Vec<(String, BTreeMap<String, BareItem>)> {
    let value = response.field(field).unwrap_or_else(|| panic!("no {field}\n{response:?}"));
    let list: List = Parser::new(value).parse().unwrap_or_else(|error| panic!("{value}: {error}"));
    let read = |entry| {
        let ListEntry::Item(item) = entry else { panic!("a list in {value}") };
        let BareItem::String(name) = item.bare_item else { panic!("no name in {value}") };
        let parameters = item.params.into_iter().map(|(key, value)| (key.into(), value));
        (name.into(), parameters.collect())
    };
    list.into_iter().map(read).collect()
}

/// Name and whole numbers of each item.
fn numbers<const N: usize>(
    response: &Response,
    field: &str,
    keys: [&str; N],
) -> Vec<(String, [Option<i64>; N])> {
    let number = |value: &BareItem| match value {
        BareItem::Integer(number) => i64::from(*number),
        other => panic!("{other:?} is no number"),
    };
    let items = items(response, field).into_iter();
    items.map(|(name, all)| (name, keys.map(|key| all.get(key).map(number)))).collect()
}

fn partitions(response: &Response, field: &str) -> Vec<Vec<u8>> {
    let partition = |(_, all): (String, BTreeMap<String, BareItem>)| match &all["pk"] {
        BareItem::ByteSequence(bytes) => bytes.clone(),
        other => panic!("{other:?} is no byte sequence"),
    };
    items(response, field).into_iter().map(partition).collect()
}

fn ietf(upstream: &Upstream, limits: &[&str]) -> Proxy {
    Proxy::start(&Policy::before(upstream).on_all_routes(limits).responses(&["headers: ietf"]))
}

#[test]
fn profile_says_which_fields_there_are() {
    let upstream = Upstream::start();
    for (profile, github, ietf) in [
        ("github", true, false),
        ("ietf", false, true),
        ("both", true, true),
        ("none", false, false),
    ] {
        let headers = format!("headers: {profile}");
        let policy = Policy::before(&upstream).rate("1/hour").responses(&[&headers]);
        let proxy = Proxy::start(&policy);
        for status in [200, 429] {
            let response = proxy.get_as("alice");
            response.assert_status(status);
            for name in ["limit", "remaining", "used", "reset", "resource"] {
                let field = format!("x-ratelimit-{name}");
                assert_eq!(response.field(&field).is_some(), github, "{profile}: {field}");
            }
            for field in ["ratelimit", "ratelimit-policy"] {
                assert_eq!(response.field(field).is_some(), ietf, "{profile}: {field}");
            }
            assert_eq!(response.field("retry-after").is_some(), status == 429, "{profile}");
        }
    }
}

#[test]
fn every_window_of_every_limit_has_an_item() {
    let upstream = Upstream::start();
    let proxy = ietf(
        &upstream,
        &[
            "core: { per: caller, rate: [10/second, 5000/hour] }",
            "place: { per: client.ip, rate: 30/minute, algorithm: gcra, burst: 5 }",
            "pages: { per: path, rate: 100/month, align: calendar }",
            "inflight: { per: caller, concurrent: 20 }",
            "trial: { per: caller, rate: 1/hour, mode: shadow }",
        ],
    );
    proxy.get_as("alice");
    let response = proxy.get_as("alice");
    let named = |rows: &[(&str, [Option<i64>; 2])]| {
        rows.iter().map(|(name, numbers)| ((*name).to_owned(), *numbers)).collect::<Vec<_>>()
    };
    assert_eq!(
        numbers(&response, "ratelimit-policy", ["q", "w"]),
        named(&[
            ("core-1s", [Some(10), Some(1)]),
            ("core", [Some(5000), Some(3600)]),
            // So many come back in that time.
            ("place", [Some(5), Some(10)]),
            ("pages", [Some(100), Some(31 * 86_400)]),
            ("inflight", [Some(20), None]),
        ])
    );
    // The month ends nine days, nine hours and some minutes later.
    let month = 9 * 86_400 + 9 * 3600 + 46 * 60 + 40;
    assert_eq!(
        numbers(&response, "ratelimit", ["r", "t"]),
        named(&[
            ("core-1s", [Some(8), Some(1)]),
            ("core", [Some(4998), Some(3600)]),
            ("place", [Some(3), Some(4)]),
            ("pages", [Some(98), Some(month)]),
            ("inflight", [Some(19), None]),
        ])
    );
    let policy = items(&response, "ratelimit-policy");
    let unit = |at: usize| match policy[at].1.get("qu") {
        Some(BareItem::String(unit)) => Some(unit.to_string()),
        Some(other) => panic!("{other:?} is no unit"),
        None => None,
    };
    assert_eq!((unit(0), unit(4).as_deref()), (None, Some("concurrent-requests")));
}

#[test]
fn policy_field_stays_as_it_is_and_the_other_counts_down() {
    let upstream = Upstream::start();
    let proxy = ietf(&upstream, &["core: { per: caller, rate: 3/hour }"]);
    let mut policies = Vec::new();
    for remaining in [2, 1, 0, 0] {
        let response = proxy.get_as("alice");
        let shown = numbers(&response, "ratelimit", ["r"]);
        assert_eq!(shown, [("core".to_owned(), [Some(remaining)])]);
        policies.push(response.field("ratelimit-policy").unwrap().to_owned());
        proxy.advance(SECOND);
    }
    policies.dedup();
    assert_eq!(policies.len(), 1, "{policies:?}");
}

#[test]
fn partition_names_the_counter_and_no_caller() {
    let upstream = Upstream::start();
    let limits = ["core: { per: caller, rate: 9/hour }", "place: { per: client.ip, rate: 9/hour }"];
    let proxy = ietf(&upstream, &limits);
    let asked = |sub: &str| {
        let response = proxy.get_as(sub);
        let found = partitions(&response, "ratelimit");
        assert_eq!(found, partitions(&response, "ratelimit-policy"));
        assert!(found.iter().all(|bytes| bytes.len() == 8), "{found:?}");
        (found[0].clone(), found[1].clone())
    };
    let (alice, place) = asked("alice");
    assert_eq!(asked("alice"), (alice.clone(), place.clone()));
    let (bob, same_place) = asked("bob");
    assert_ne!(alice, bob);
    assert_eq!(place, same_place);
    assert_ne!(alice, place);
    // Keyed: no client can make a table of names and hashes.
    let again = ietf(&upstream, &limits);
    assert_ne!(partitions(&again.get_as("alice"), "ratelimit")[0], alice);
}

#[test]
fn every_window_of_a_denial_has_its_own_reset() {
    const DAY: i64 = 86_400;
    let upstream = Upstream::start();
    for (limits, wait, expected) in [
        (&["core: { per: caller, rate: 1/hour }"][..], 3600, &[("core", 0, 3600)][..]),
        (
            &["core: { per: caller, rate: [1/second, 5/hour] }"],
            1,
            &[("core-1s", 0, 1), ("core", 4, 3600)],
        ),
        (
            &["short: { per: caller, rate: 1/minute }", "long: { per: caller, rate: 9/day }"],
            60,
            &[("short", 0, 60), ("long", 8, DAY)],
        ),
        (
            &["short: { per: caller, rate: 9/minute }", "long: { per: client.ip, rate: 1/day }"],
            DAY,
            &[("short", 8, 60), ("long", 0, DAY)],
        ),
        (
            &["short: { per: caller, rate: 1/minute }", "long: { per: caller, rate: 1/day }"],
            DAY,
            &[("short", 0, 60), ("long", 0, DAY)],
        ),
        (&["core: { per: caller, rate: 1/minute, algorithm: gcra }"], 60, &[("core", 0, 60)]),
        // Waiting for four units is over before the window is whole again.
        (
            &["core: { per: caller, rate: 5/minute, algorithm: gcra, cost: 4 }"],
            36,
            &[("core", 1, 36)],
        ),
    ] {
        let proxy = ietf(&upstream, limits);
        proxy.get_as("alice").assert_status(200);
        let denied = proxy.get_as("alice");
        assert_eq!(denied.assert_status(429).number("retry-after") as i64, wait, "{limits:?}");
        let shown = numbers(&denied, "ratelimit", ["r", "t"]);
        let expected = expected
            .iter()
            .map(|(name, left, reset)| ((*name).to_owned(), [Some(*left), Some(*reset)]));
        assert_eq!(shown, expected.collect::<Vec<_>>(), "{limits:?}");
        proxy.advance(Duration::from_secs(wait as u64));
        proxy.get_as("alice").assert_status(200);
    }
}

#[test]
fn t_is_when_there_is_more() {
    let upstream = Upstream::start();
    let proxy = ietf(&upstream, &["core: { per: caller, rate: 2/hour }"]);
    let shown = || numbers(&proxy.get_as("alice"), "ratelimit", ["r", "t"])[0].1;
    assert_eq!(shown(), [Some(1), Some(3600)]);
    proxy.advance(HOUR / 2);
    assert_eq!(shown(), [Some(0), Some(1800)]);
    proxy.advance(HOUR / 2 - Duration::from_micros(1));
    assert_eq!(shown(), [Some(0), Some(1)]);
    proxy.advance(Duration::from_micros(1));
    assert_eq!(shown(), [Some(1), Some(3600)]);
}

#[test]
fn denial_by_requests_at_once_has_items_too() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let proxy = ietf(
        &upstream,
        &["core: { per: caller, rate: 9/hour }", "inflight: { per: caller, concurrent: 1 }"],
    );
    let mut held = proxy.connect();
    held.write(get("/").by("alice").to_bytes());
    asked.wait();
    let denied = proxy.get_as("alice");
    denied.assert_status(429).assert_field("retry-after", "1");
    let shown = numbers(&denied, "ratelimit", ["r", "t"]);
    let named = |name: &str, numbers| (name.to_owned(), numbers);
    let expected = [named("core", [Some(8), Some(3600)]), named("inflight", [Some(0), None])];
    assert_eq!(shown, expected);
    go.open();
    held.read().assert_status(200);
}

#[test]
fn without_a_limit_there_are_no_items() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("{ internal: unlimited, anonymous: unlimited, default: 1/hour }")
        .responses(&["headers: both"]);
    Proxy::start(&policy).get("/").assert_status(200).assert_no_limit();
}
