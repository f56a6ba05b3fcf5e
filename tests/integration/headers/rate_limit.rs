//! `GET /rate_limit`: callers query their standings at no cost.

use serde_json::json;

use super::reset;
use crate::support::{
    HOUR, Policy, Proxy, Request, SECOND, START, Signal, Upstream, algorithms, get, http2, post,
    token_signed_by, token_with,
};

fn ask() -> Request {
    get("/rate_limit").by("alice")
}

/// The second that lies so far ahead of the start, rounded up.
fn second(ahead: u64) -> u64 {
    START.as_micros().div_ceil(1_000_000) + ahead
}

#[test]
fn standings_are_reported_as_github_reports_them() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "search: { per: caller, rate: 30/minute }",
        "core: { per: caller, rate: 5000/hour }",
    ]);
    let proxy = Proxy::start(&policy);
    for _ in 0..3 {
        proxy.get_as("alice").assert_status(200);
    }
    let response = proxy.send(ask());
    response
        .assert_status(200)
        .assert_field("content-type", "application/json; charset=utf-8")
        .assert_field("cache-control", "no-cache")
        .assert_no_field("retry-after")
        .assert_limit(["5000", "4997", "3", &reset(), "core"]);
    let hour = second(3600);
    let minute = second(60);
    // In this order: people read it.
    let core = format!(r#"{{"limit":5000,"used":3,"remaining":4997,"reset":{hour}}}"#);
    let search = format!(r#"{{"limit":30,"used":3,"remaining":27,"reset":{minute}}}"#);
    let resources = format!(r#""resources":{{"core":{core},"search":{search}}}"#);
    assert_eq!(response.text(), format!("{{{resources},\"rate\":{core}}}\n"));
    assert_eq!(upstream.count(), 3, "it is answered here");
}

#[test]
fn asking_is_free_and_opens_no_window() {
    let upstream = Upstream::start();
    for algorithm in algorithms() {
        let fields = format!("rate: 2/hour, algorithm: {algorithm}");
        let proxy = Proxy::start(&Policy::before(&upstream).core(&fields));
        for _ in 0..5 {
            let core = &proxy.standings(ask())["core"];
            let used = (&core["used"], &core["remaining"]);
            assert_eq!(used, (&json!(0), &json!(2)), "{algorithm}");
            proxy.advance(SECOND);
        }
        proxy.get_as("alice").assert_field("x-ratelimit-used", "1");
        let before = proxy.standings(ask());
        assert_eq!(proxy.standings(ask()), before, "{algorithm}");
        assert_eq!(before["core"]["used"], 1, "{algorithm}");
    }
}

#[test]
fn window_that_is_not_open_ends_a_window_from_now() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("2/hour"));
    for seconds in 0..3 {
        assert_eq!(proxy.standings(ask())["core"]["reset"], second(3600 + seconds));
        proxy.advance(SECOND);
    }
    proxy.get_as("alice").assert_status(200);
    proxy.advance(HOUR / 2);
    assert_eq!(proxy.standings(ask())["core"]["reset"], second(3603));
    proxy.advance(HOUR / 2);
    assert_eq!(proxy.standings(ask())["core"]["reset"], second(7203));
}

#[test]
fn who_has_used_all_may_still_ask() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    proxy.get_as("alice").assert_status(200);
    proxy.get_as("alice").assert_status(429);
    for _ in 0..3 {
        let response = proxy.send(ask());
        response.assert_status(200).assert_limit(["1", "0", "1", &reset(), "core"]);
        assert_eq!(response.json()["rate"]["remaining"], 0);
    }
}

#[test]
fn callers_see_their_own_standing_only() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("{ anonymous: 5/hour, default: 9/hour }");
    let proxy = Proxy::start(&policy);
    proxy.get_as("alice").assert_status(200);
    for (request, limit, used) in
        [(ask(), 9, 1), (get("/rate_limit").by("bob"), 9, 0), (get("/rate_limit"), 5, 0)]
    {
        let core = &proxy.standings(request)["core"];
        assert_eq!((&core["limit"], &core["used"]), (&json!(limit), &json!(used)));
    }
}

#[test]
fn limits_that_do_not_apply_are_not_reported() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&[
            "pages: { per: [caller, path], rate: 9/hour }",
            "repos: { per: path.owner, rate: 9/hour }",
            "writes: { per: [caller, method], rate: 9/hour }",
            "org: { per: jwt.org, rate: 9/hour }",
            "keys: { per: header.x-key, rate: 9/hour, on_missing: deny }",
            "trial: { per: caller, rate: 9/hour, mode: shadow }",
            "core: { per: caller, rate: { internal: unlimited, default: 9/hour } }",
            "unused: { per: caller, rate: [3/minute, 7/day] }",
        ])
        .routes(&[
            "{ match: { path: \"/repos/{owner}\" }, limits: [repos, pages, trial, core] }",
            "{ match: { path: /** }, limits: [core, org, keys, writes] }",
        ])
        .section("exempt: [\"user:monitor\"]");
    let proxy = Proxy::start(&policy);
    let names = |request: Request| {
        let standings = proxy.standings(request);
        standings.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let claims = |claims| token_with(&claims);
    assert_eq!(names(ask()), ["core", "unused"]);
    assert_eq!(names(ask().field("x-key", "k")), ["core", "keys", "unused"]);
    let of_octo = claims(json!({ "sub": "alice", "org": "octo" }));
    assert_eq!(names(get("/rate_limit").token(&of_octo)), ["core", "org", "unused"]);
    let internal = claims(json!({ "sub": "root", "plan": "internal" }));
    assert_eq!(names(get("/rate_limit").token(&internal)), ["unused"]);
    assert_eq!(names(get("/rate_limit").by("monitor")), [""; 0]);
    // Of several windows, the longest.
    assert_eq!(proxy.standings(ask())["unused"]["limit"], 7);
}

#[test]
fn without_a_limit_called_core_the_first_of_the_first_route_stands_for_all() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["other: { per: caller, rate: 2/hour }", "api: { per: caller, rate: 7/hour }"])
        .routes(&[
            "{ match: { path: /health }, limits: [] }",
            "{ match: { path: /** }, limits: [api, other] }",
        ]);
    let response = Proxy::start(&policy).send(ask());
    response.assert_field("x-ratelimit-resource", "api");
    assert_eq!(response.json()["rate"]["limit"], 7);
    let response = Proxy::start(&Policy::before(&upstream)).send(ask());
    response.assert_status(200).assert_no_limit();
    assert_eq!(response.json(), json!({ "resources": {} }));
}

#[test]
fn concurrent_requests_are_reported_as_they_are() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 9/hour }",
        "inflight: { per: caller, concurrent: 2 }",
    ]);
    let proxy = Proxy::start(&policy);
    let mut held = proxy.connect();
    held.write(get("/").by("alice").to_bytes());
    asked.wait();
    // Asking is nothing that is in flight.
    for _ in 0..3 {
        let inflight = &proxy.standings(ask())["inflight"];
        assert_eq!((&inflight["used"], &inflight["remaining"]), (&json!(1), &json!(1)));
    }
    go.open();
    held.read().assert_status(200);
    assert_eq!(proxy.used("alice", "inflight"), 0);
}

#[test]
fn only_those_who_ask_are_answered_here() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("9/hour"));
    let mut client = proxy.connect();
    let head = client.send(&Request::new("HEAD", "/rate_limit").by("alice"));
    head.assert_status(200).assert_limit(["9", "9", "0", &reset(), "core"]);
    client.send(&get("/rate_limit?per_page=1").by("alice")).assert_status(200);
    client.send(&get("//rate_limit").by("alice")).assert_status(200);
    client.send(&get("/rate_limit/").by("alice")).assert_status(200);
    assert_eq!(upstream.count(), 0);
    for other in [
        post("/rate_limit", "").by("alice"),
        Request::new("OPTIONS", "/rate_limit").by("alice"),
        get("/rate_limit/x").by("alice"),
        get("/Rate_limit").by("alice"),
    ] {
        proxy.send(other).assert_status(200);
    }
    assert_eq!(upstream.count(), 4);
    assert_eq!(proxy.used("alice", "core"), 4);
}

#[test]
fn path_may_be_another_one_or_none() {
    let upstream = Upstream::start();
    let limited = || Policy::before(&upstream).rate("9/hour");
    let proxy = Proxy::start(&limited().responses(&["rate_limit_path: /v1/limits"]));
    proxy.get("/v1/limits").assert_status(200).assert_field("x-ratelimit-used", "0");
    assert_eq!(upstream.count(), 0);
    proxy.get("/rate_limit").assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(upstream.count(), 1);
    let proxy = Proxy::start(&limited().responses(&["rate_limit_path: \"off\""]));
    proxy.get("/rate_limit").assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(upstream.count(), 2);
}

#[test]
fn bad_token_has_no_standing_and_costs_its_address() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: 9/hour }",
        "place: { per: client.ip, rate: 2/hour }",
    ]);
    let proxy = Proxy::start(&policy);
    let forged =
        token_signed_by("not the secret of this issuer, at all", &json!({ "sub": "alice" }));
    assert_eq!(proxy.used("alice", "core"), 0);
    // Guessing is not free here either.
    for status in [401, 401, 429, 429] {
        let refused = proxy.send(get("/rate_limit").token(&forged));
        refused.assert_status(status).assert_field("x-ratelimit-resource", "place");
    }
    // Who has shown a good one before can still ask.
    let used = ["core", "place"].map(|limit| proxy.used("alice", limit));
    assert_eq!(used, [0, 2]);
}

#[test]
fn profile_of_headers_holds_for_it_too() {
    let upstream = Upstream::start();
    let limited = || Policy::before(&upstream).rate("9/hour");
    let proxy = Proxy::start(&limited().responses(&["headers: none"]));
    let response = proxy.send(ask());
    response.assert_status(200).assert_no_limit();
    assert_eq!(response.json()["rate"]["limit"], 9);
    let proxy = Proxy::start(&limited().responses(&["headers: ietf"]));
    let response = proxy.send(ask());
    assert!(response.field("ratelimit").unwrap().starts_with("\"core\";r=9;t=3600"));
}

#[test]
fn http_2_is_answered_alike() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("9/hour"));
    let request =
        http::Request::get("http://api.example.com/rate_limit").body(String::new()).unwrap();
    let responses = http2(proxy.address(), vec![request.clone(), request]);
    for response in responses {
        assert_eq!(response.headers()["x-ratelimit-used"], "0");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["rate"]["used"], 0);
    }
}
