//! What requests cost: at first, and by what the response says.

use std::time::Duration;

use serde_json::json;

use super::reset_after;
use crate::support::{
    HOUR, Policy, Proxy, Request, SECOND, START, Signal, Upstream, delete, get, post, token_with,
};

/// Ten in each way.
const TEN: [&str; 6] = [
    "rate: 10/hour",
    "rate: 10/hour, align: epoch",
    "rate: 10/hour, algorithm: sliding_window",
    "rate: 10/hour, algorithm: sliding_log",
    "rate: 10/hour, algorithm: token_bucket",
    "rate: 10/hour, algorithm: gcra",
];

const COST_BY_RESPONSE: &str = "cost: { reserve: 4, from_response_header: X-Cost }";

fn proxy(upstream: &Upstream, fields: &str) -> Proxy {
    Proxy::start(&Policy::before(upstream).core(fields))
}

#[test]
fn cost_may_be_a_number_or_depend_on_the_method() {
    let upstream = Upstream::start();
    for measure in TEN {
        let proxy = self::proxy(&upstream, &format!("{measure}, cost: 3"));
        for used in ["3", "6", "9"] {
            proxy.get_as("alice").assert_status(200).assert_field("x-ratelimit-used", used);
        }
        // One is left, which is not enough: clients know that by none being left.
        let denied = proxy.get_as("alice");
        denied.assert_status(429).assert_field("x-ratelimit-remaining", "0");
        denied.assert_field("x-ratelimit-used", "9");
        let wait = denied.number("retry-after");
        let reset = denied.number("x-ratelimit-reset");
        let back = START.as_micros() / 1_000_000 + wait;
        assert!(back.abs_diff(reset) <= 1, "{measure}: back at {back}, reset at {reset}");
        proxy.advance(Duration::from_secs(wait));
        proxy.get_as("alice").assert_status(200);
    }
    let proxy = proxy(&upstream, "rate: 10/hour, cost: { GET: 1, HEAD: 0, DELETE: 4, default: 5 }");
    for (request, used) in [
        (get("/"), "1"),
        (Request::new("HEAD", "/"), "1"),
        (post("/", ""), "6"),
        (delete("/"), "10"),
        (Request::new("head", "/"), "10"),
    ] {
        let mut client = proxy.connect();
        client.send(&request).assert_status(200).assert_field("x-ratelimit-used", used);
    }
    proxy.get("/").assert_status(429);
}

#[test]
fn route_may_say_what_its_requests_cost() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 20/hour, cost: 2 }",
            "place: { per: client.ip, rate: 30/hour }",
        ])
        .routes(&[
            "{ match: { path: /dear }, limits: [core, place], cost: 10 }",
            "{ match: { path: /free }, limits: [core, place], cost: 0 }",
            "{ match: { path: /by-method }, limits: [core, place], cost: { POST: 3 } }",
            "{ match: { path: /** }, limits: [core, place] }",
        ]);
    let proxy = Proxy::start(&policy);
    for (request, core, place) in [
        (get("/dear"), 10, 10),
        (get("/free"), 10, 10),
        (get("/by-method"), 11, 11),
        (post("/by-method", ""), 14, 14),
        (get("/x"), 16, 15),
    ] {
        proxy.send(request).assert_status(200);
        let standings = proxy.standings(get("/rate_limit"));
        assert_eq!(standings["core"]["used"], core, "{standings}");
        assert_eq!(standings["place"]["used"], place, "{standings}");
    }
}

#[test]
fn cost_of_zero_opens_no_window_and_passes_when_nothing_is_left() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).limits(&["core: { per: caller, rate: 1/hour }"]).routes(&[
            "{ match: { path: /free }, limits: [core], cost: 0 }",
            "{ match: { path: /** }, limits: [core] }",
        ]);
    let proxy = Proxy::start(&policy);
    for seconds in [0, 10, 20] {
        let reset = reset_after(3600 + seconds);
        proxy.get("/free").assert_status(200).assert_limit(["1", "1", "0", &reset, "core"]);
        proxy.advance(10 * SECOND);
    }
    let reset = reset_after(3630);
    proxy.get("/").assert_status(200).assert_limit(["1", "0", "1", &reset, "core"]);
    proxy.get("/").assert_status(429);
    proxy.get("/free").assert_status(200).assert_limit(["1", "0", "1", &reset, "core"]);
}

#[test]
fn what_is_free_needs_no_room_in_a_full_store() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).limits(&["core: { per: caller, rate: 9/hour }"]).routes(&[
            "{ match: { path: /free }, limits: [core], cost: 0 }",
            "{ match: { path: /** }, limits: [core] }",
        ]);
    let settings = "workers: 1\nstore: { memory: { max_keys: 1 } }";
    let proxy = Proxy::with_settings(settings, &[&policy]);
    proxy.get_as("alice").assert_status(200);
    proxy.get_as("bob").assert_status(503);
    proxy.send(get("/free").by("bob")).assert_status(200).assert_field("x-ratelimit-used", "0");
}

#[test]
fn what_was_reserved_and_not_spent_is_given_back_before_the_head_leaves() {
    for measure in TEN {
        let upstream = Upstream::as_asked();
        let proxy = proxy(&upstream, &format!("{measure}, {COST_BY_RESPONSE}"));
        for (cost, used) in [("1", "1"), ("0", "1"), ("4", "5")] {
            let response = proxy.send(get("/").costing(cost));
            response.assert_status(200).assert_field("x-ratelimit-used", used);
            response.assert_no_field("x-cost");
        }
        proxy.get("/").assert_status(200).assert_field("x-ratelimit-used", "9");
        proxy.get("/").assert_status(429).assert_field("x-ratelimit-used", "9");
    }
}

#[test]
fn what_it_cost_beyond_the_reserve_is_charged_and_does_not_deny_the_response() {
    for measure in TEN {
        let upstream = Upstream::as_asked();
        let proxy = proxy(&upstream, &format!("{measure}, {COST_BY_RESPONSE}"));
        let response = proxy.send(get("/").costing("7"));
        response.assert_status(200).assert_no_field("x-cost");
        assert_eq!(response.number("x-ratelimit-used"), 7, "{measure}");
        proxy.get("/").assert_status(429).assert_field("x-ratelimit-used", "7");

        let proxy = self::proxy(&upstream, &format!("{measure}, {COST_BY_RESPONSE}"));
        let response = proxy.send(get("/").costing("25"));
        response.assert_status(200).assert_field("x-ratelimit-remaining", "0");
        assert_eq!(response.number("x-ratelimit-used"), 25, "{measure}");
        let denied = proxy.get("/");
        denied.assert_status(429).assert_field("x-ratelimit-remaining", "0");
        let wait = denied.number("retry-after");
        proxy.advance(Duration::from_secs(wait));
        assert_eq!(proxy.get("/").status, 200, "{measure} after {wait} s");
    }
}

#[test]
fn reserve_has_to_fit() {
    let upstream = Upstream::as_asked();
    let proxy = proxy(&upstream, &format!("rate: 10/hour, {COST_BY_RESPONSE}"));
    proxy.send(get("/").costing("8")).assert_status(200);
    proxy.send(get("/").costing("0")).assert_status(429);
    assert_eq!(upstream.count(), 1);
}

#[test]
fn cost_that_cannot_be_read_leaves_the_reserve() {
    for costs in [&[][..], &[""], &["-1"], &["+1"], &["1.5"], &["two"], &["1, 2"], &["1", "2"]] {
        let upstream = Upstream::as_asked();
        let proxy = proxy(&upstream, &format!("rate: 10/hour, {COST_BY_RESPONSE}"));
        let request = costs.iter().fold(get("/"), |request, cost| request.costing(cost));
        let response = proxy.send(request);
        response.assert_status(200).assert_no_field("x-cost");
        assert_eq!(response.number("x-ratelimit-used"), 4, "{costs:?}");
    }
}

#[test]
fn cost_beyond_all_numbers_is_more_than_any_limit() {
    let upstream = Upstream::as_asked();
    for measure in TEN {
        let proxy = proxy(&upstream, &format!("{measure}, {COST_BY_RESPONSE}"));
        for cost in ["2147483648", "4294967296", "99999999999999999999999999"] {
            let response = proxy.send(get("/").by(cost).costing(cost));
            response.assert_status(200).assert_field("x-ratelimit-remaining", "0");
            proxy.get_as(cost).assert_status(429);
        }
    }
}

#[test]
fn header_with_the_cost_is_for_no_client() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream)
        .core(&format!("rate: {{ internal: unlimited, default: 10/hour }}, {COST_BY_RESPONSE}"))
        .section("exempt: [\"user:monitor\"]");
    let proxy = Proxy::start(&policy);
    let internal = token_with(&json!({ "sub": "root", "plan": "internal" }));
    for request in [
        get("/").by("alice").costing("2"),
        get("/").by("monitor").costing("2"),
        get("/").token(&internal).costing("2"),
        get("/").by("bob").wants(500).costing("2"),
    ] {
        proxy.send(request).assert_no_field("x-cost");
    }
}

#[test]
fn route_may_take_the_cost_from_the_response_for_all_its_limits() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 100/hour }",
            "place: { per: client.ip, rate: 50/minute, algorithm: gcra }",
            "inflight: { per: caller, concurrent: 2 }",
        ])
        .routes(&[&format!(
            "{{ match: {{ path: /** }}, limits: [core, place, inflight], {COST_BY_RESPONSE} }}"
        )]);
    let proxy = Proxy::start(&policy);
    for (cost, used) in [("7", 7), ("1", 8), ("20", 28)] {
        proxy.send(get("/").costing(cost)).assert_status(200).assert_no_field("x-cost");
        let standings = proxy.standings(get("/rate_limit"));
        assert_eq!(standings["core"]["used"], used, "{standings}");
        assert_eq!(standings["place"]["used"], used, "{standings}");
    }
}

#[test]
fn limits_may_read_costs_of_their_own() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nx-calls: 2\r\nx-bytes: 70\r\ncontent-length: 0\r\n\r\n",
    );
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 100/hour, cost: { from_response_header: x-calls } }",
        "bytes: { per: caller, rate: 1000/hour, \
         cost: { reserve: 0, from_response_header: x-bytes } }",
    ]);
    let proxy = Proxy::start(&policy);
    let response = proxy.get_as("alice");
    response.assert_status(200).assert_no_field("x-calls").assert_no_field("x-bytes");
    assert_eq!((proxy.used("alice", "core"), proxy.used("alice", "bytes")), (2, 70));
}

#[test]
fn what_is_settled_goes_to_the_window_that_was_charged() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = {
        let asked = asked.clone();
        let go = go.clone();
        Upstream::scripted(move |exchange| {
            if exchange.request.target == "/held" {
                asked.open();
                go.wait();
            }
            exchange.write("HTTP/1.1 200 OK\r\nx-cost: 1\r\ncontent-length: 0\r\n\r\n");
        })
    };
    let proxy = proxy(&upstream, &format!("rate: 10/hour, {COST_BY_RESPONSE}"));
    let mut held = proxy.connect();
    held.write(get("/held").revalidating().by("alice").to_bytes());
    asked.wait();
    proxy.advance(HOUR);
    proxy.get_as("alice").assert_field("x-ratelimit-used", "1");
    go.open();
    held.read().assert_status(200);
    // Three were not spent, all of them in a window that is over.
    assert_eq!(proxy.used("alice", "core"), 1);
}

#[test]
fn cost_in_a_trailer_stays_here_too() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, x-query-cost\r\n\
         \r\n2\r\nhi\r\n0\r\nx-sum: 7\r\nx-query-cost: 3\r\n\r\n",
    );
    let cost = "cost: { reserve: 10, from_response_header: x-query-cost }";
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: caller, rate: 100/hour }"])
        .routes(&[&format!("{{ match: {{ path: /** }}, limits: [core], {cost} }}")]);
    let proxy = Proxy::start(&policy);
    let response = proxy.send(get("/").by("alice").field("te", "trailers"));
    assert_eq!(response.trailers.names(), ["x-sum"]);
    // It comes when the head has gone: the reserve stands.
    response.assert_field("x-ratelimit-used", "10");
}
