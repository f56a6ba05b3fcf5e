//! The callers that use limits most, with a clock that the test moves: which units and denials
//! count, when they are forgotten, and that each caller is named as a look finds it.

use tollgate::callers::top::RankBy;

use super::policy;
use crate::support::{MINUTE, Policy, Proxy, Request, Upstream, get};

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
