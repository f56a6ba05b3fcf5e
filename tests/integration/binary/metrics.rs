//! What `/metrics` counts, beside what clients have sent and got.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{admin::serve_policy, assert_exit, callers, send, text};
use crate::support::{Client, Redis, Request, Upstream, eventually, get, post};

/// Limits of each kind: enforced with a refund, in shadow mode, with a candidate, by a header that
/// most requests lack, and a daily window beside a short one.
const POLICY: &str = r#"
version: 1
upstreams: { api: { servers: ["UPSTREAM"] } }
identity:
  jwt:
    - issuer: https://id.example.com/
      audience: [api]
      algorithms: [HS256]
      secret_file: ../secret
  callers:
    - { name: user, key: jwt.sub, tier: jwt.plan }
    - { name: anonymous, key: client.ip, tier: free }
tiers: { default: free, names: [free, pro] }
limits:
  core: { per: caller, rate: { free: [5/hour, 100/day], pro: 20/hour }, refund: { status: [404] } }
  trial: { per: caller, rate: 2/hour, mode: shadow }
  tenant: { per: header.x-tenant, rate: 10/hour }
  later: { per: caller, rate: 100/hour, candidate: { rate: 1/hour } }
routes:
  - { name: search, match: { path: /search/** }, auth: optional, limits: [core, trial, tenant] }
  - { match: { path: /later, methods: [POST] }, limits: [later] }
  - { match: { path: /** }, auth: required, limits: [core] }
"#;

/// The value of a series; none: it is not there.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics
        .lines()
        .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    Some(line.rsplit_once(' ')?.1.parse().unwrap())
}

#[track_caller]
fn assert_values(admin: SocketAddr, expected: &[(&str, f64)]) {
    let metrics = send(admin, get("/metrics").host("localhost")).text();
    for (series, expected) in expected {
        let family = series.split('{').next().unwrap();
        let others: Vec<&str> = metrics.lines().filter(|line| line.starts_with(family)).collect();
        assert_eq!(value(&metrics, series), Some(*expected), "{series}\n{others:#?}");
    }
}

/// Sends a request on a connection of its own and closes it, so that it has ended.
fn status(address: SocketAddr, request: Request) -> u16 {
    let response = send(address, request);
    response.status
}

#[test]
fn requests_and_decisions_are_those_that_clients_saw() {
    let upstream = Upstream::start();
    let (folder, _running, address, admin) = serve_policy(&upstream, POLICY);
    assert_values(
        admin,
        &[
            (
                r#"tollgate_http_requests_total{policy="api",route="search",method="GET",code="200"}"#,
                0.0,
            ),
            (
                r#"tollgate_http_requests_total{policy="api",route="search",method="GET",code="429"}"#,
                0.0,
            ),
            (
                r#"tollgate_http_requests_total{policy="api",route="/later",method="POST",code="200"}"#,
                0.0,
            ),
            (
                r#"tollgate_limit_decisions_total{policy="api",limit="core",tier="pro",decision="deny"}"#,
                0.0,
            ),
            (r#"tollgate_limit_units{policy="api",limit="core",tier="free",window="1h"}"#, 5.0),
            (
                r#"tollgate_limit_window_seconds{policy="api",limit="core",tier="free",window="1d"}"#,
                86_400.0,
            ),
            (r#"tollgate_auth_total{policy="api",result="expired"}"#, 0.0),
        ],
    );
    let token = folder.token(&["--sub", "7", "--claim", "plan=pro"]);
    let statuses: Vec<u16> = (0..7).map(|_| status(address, get("/search/a"))).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    let with_token = |request: Request| request.field("authorization", &format!("Bearer {token}"));
    assert_eq!(status(address, with_token(get("/search/b")).field("x-tenant", "t")), 200);
    assert_eq!(status(address, get("/private")), 401);
    assert_eq!(status(address, get("/private").field("authorization", "Bearer x.y.z")), 401);
    assert_eq!(status(address, post("/later", "twelve bytes")), 200);
    assert_eq!(status(address, post("/later", "")), 200);
    assert_eq!(status(address, with_token(Request::new("BREW", "/x"))), 200);

    let decisions = |limit: &str, tier: &str, decision: &str| {
        format!(
            r#"tollgate_limit_decisions_total{{policy="api",limit="{limit}",tier="{tier}",decision="{decision}"}}"#
        )
    };
    let units = |limit: &str, tier: &str, kind: &str| {
        format!(
            r#"tollgate_limit_units_total{{policy="api",limit="{limit}",tier="{tier}",kind="{kind}"}}"#
        )
    };
    let requests = |route: &str, method: &str, code: u16| {
        format!(
            r#"tollgate_http_requests_total{{policy="api",route="{route}",method="{method}",code="{code}"}}"#
        )
    };
    let expected = [
        (requests("search", "GET", 200), 6.0),
        (requests("search", "GET", 429), 2.0),
        (requests("/**", "GET", 401), 2.0),
        (requests("/**", "_OTHER", 200), 1.0),
        (requests("/later", "POST", 200), 2.0),
        (
            r#"tollgate_http_request_duration_seconds_count{policy="api",route="search"}"#.into(),
            8.0,
        ),
        (r#"tollgate_added_duration_seconds_count{policy="api"}"#.into(), 13.0),
        (r#"tollgate_http_requests_in_flight{policy="api"}"#.into(), 0.0),
        (r#"tollgate_http_request_body_bytes_total{policy="api"}"#.into(), 12.0),
        // 5 of 5 are used: the last one is near.
        (decisions("core", "free", "allow"), 4.0),
        (decisions("core", "free", "near"), 1.0),
        (decisions("core", "free", "deny"), 2.0),
        (decisions("core", "pro", "allow"), 2.0),
        // A limit in shadow mode denies nothing, and what another limit denies takes nothing of it.
        (decisions("trial", "free", "allow"), 1.0),
        (decisions("trial", "free", "near"), 1.0),
        (decisions("trial", "free", "would_deny"), 5.0),
        (decisions("tenant", "free", "skip"), 7.0),
        (decisions("tenant", "pro", "allow"), 1.0),
        (decisions("later", "free", "allow"), 2.0),
        (decisions("later;candidate", "free", "near"), 1.0),
        (decisions("later;candidate", "free", "would_deny"), 1.0),
        (units("core", "free", "charged"), 5.0),
        (units("core", "pro", "charged"), 2.0),
        (units("trial", "free", "charged"), 2.0),
        (units("later", "free", "charged"), 2.0),
        (r#"tollgate_store_decisions_total{by="memory"}"#.into(), 11.0),
        ("tollgate_access_log_dropped_total".into(), 0.0),
        (r#"tollgate_auth_total{policy="api",result="none"}"#.into(), 9.0),
        (r#"tollgate_auth_total{policy="api",result="jwt"}"#.into(), 2.0),
        (r#"tollgate_auth_total{policy="api",result="missing"}"#.into(), 1.0),
        (r#"tollgate_auth_total{policy="api",result="malformed"}"#.into(), 1.0),
    ];
    let expected: Vec<(&str, f64)> =
        expected.iter().map(|(series, value)| (series.as_str(), *value)).collect();
    assert_values(admin, &expected);
}

#[test]
fn refunds_and_named_costs_are_counted_as_units() {
    let upstream =
        Upstream::answering("HTTP/1.1 404 Not Found\r\nx-cost: 7\r\ncontent-length: 0\r\n\r\n");
    let policy = POLICY.replace(", candidate: { rate: 1/hour }", "").replace(
        "limits: [later] }",
        "limits: [later], cost: { reserve: 10, from_response_header: x-cost } }",
    );
    let (_folder, _running, address, admin) = serve_policy(&upstream, &policy);
    assert_eq!(status(address, get("/search/a")), 404);
    assert_eq!(status(address, post("/later", "")), 404);
    let units = |limit: &str, kind: &str| {
        format!(
            r#"tollgate_limit_units_total{{policy="api",limit="{limit}",tier="free",kind="{kind}"}}"#
        )
    };
    assert_values(
        admin,
        &[
            (&units("core", "charged"), 1.0),
            (&units("core", "refunded"), 1.0),
            (&units("later", "charged"), 10.0),
            (&units("later", "refunded"), 3.0),
        ],
    );
}

#[test]
fn refunds_of_each_counter_of_a_batch_are_counted_as_units() {
    let upstream =
        Upstream::answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let policy = "version: 1\n\
        upstreams: { api: { servers: [\"UPSTREAM\"] } }\n\
        identity: { callers: [{ name: anonymous, key: client.ip }] }\n\
        limits: { calls: { per: [client.ip, mcp.tool], rate: [9/hour, 90/day], refund: { status: [5xx] } } }\n\
        routes: [{ match: { path: /** }, limits: [calls] }]\n";
    let (_folder, _running, address, admin) = serve_policy(&upstream, policy);
    let calls: Vec<Value> = ["a", "b", "a", "c"]
        .map(|tool| {
            let params = json!({ "name": tool, "arguments": {} });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
        })
        .into();
    let batch = post("/", json!(calls).to_string()).field("content-type", "application/json");
    assert_eq!(status(address, batch), 503);
    let units = |kind: &str| {
        format!(
            r#"tollgate_limit_units_total{{policy="api",limit="calls",tier="default",kind="{kind}"}}"#
        )
    };
    assert_values(admin, &[(&units("charged"), 4.0), (&units("refunded"), 4.0)]);
}

#[test]
fn answers_retries_and_ejections_of_servers_are_counted() {
    let upstream = Upstream::answering("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n");
    let other = Upstream::start();
    let servers = "api: { servers: [\"UPSTREAM\", \"OTHER\"], retries: { attempts: 1, status: [503] }, \
                   ejection: { failures: 1, status: [503] } }";
    let policy = POLICY
        .replace("api: { servers: [\"UPSTREAM\"] }", servers)
        .replace("OTHER", &other.url())
        .replace("5/hour", "50/hour");
    let (_folder, _running, address, admin) = serve_policy(&upstream, &policy);
    let statuses: Vec<u16> = (0..10).map(|_| status(address, get("/search/a"))).collect();
    assert_eq!(statuses, [200; 10]);
    let series = |family: &str, server: &Upstream, label: &str| {
        let url = server.url();
        let server = url.trim_start_matches("http://");
        format!(r#"{family}{{policy="api",upstream="api",server="{server}"{label}}}"#)
    };
    let requests = "tollgate_upstream_requests_total";
    let ejections = "tollgate_upstream_ejections_total";
    let upstream_only = r#"{policy="api",upstream="api"}"#;
    assert_values(
        admin,
        &[
            (&series(requests, &upstream, ",code=\"5xx\""), 1.0),
            (&series(requests, &upstream, ",code=\"2xx\""), 0.0),
            (&series(requests, &other, ",code=\"2xx\""), 10.0),
            (&series(requests, &other, ",code=\"error\""), 0.0),
            (&series(ejections, &upstream, ""), 1.0),
            (&series(ejections, &other, ""), 0.0),
            (&format!("tollgate_upstream_retries_total{upstream_only}"), 1.0),
            (&format!("tollgate_upstream_request_duration_seconds_count{upstream_only}"), 11.0),
        ],
    );
}

#[test]
fn what_never_was_a_request_of_a_policy_is_counted_too() {
    let upstream = Upstream::start();
    let (_folder, _running, address, admin) = serve_policy(&upstream, POLICY);
    let mut client = Client::connect(address);
    client.write("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_eq!(client.read().status, 400);
    assert_values(
        admin,
        &[(
            r#"tollgate_http_requests_total{policy="_none",route="_none",method="GET",code="400"}"#,
            1.0,
        )],
    );
}

/// Who decided is counted by word, and how long Redis took by server.
#[test]
fn decisions_and_calls_of_redis_are_counted() {
    let upstream = Upstream::start();
    let redis = Redis::start();
    let settings = format!("store: {{ redis: {{ {} }}, deadline: 10s }}", redis.settings());
    let folder = callers::folder(&upstream, &settings);
    let (_running, address, admin) = callers::serve(&folder);
    let admin: SocketAddr = admin.parse().unwrap();
    let metric = |series: &str| {
        let metrics = send(admin, get("/metrics").host("localhost")).text();
        value(&metrics, series).unwrap_or_else(|| panic!("{series} is not there: {metrics}"))
    };
    let decisions = |by: &str| metric(&format!(r#"tollgate_store_decisions_total{{by="{by}"}}"#));
    let server = format!(r#"{{store="current",server="127.0.0.1:{}"}}"#, redis.port());
    let calls = || metric(&format!("tollgate_store_call_duration_seconds_count{server}"));
    for subject in ["1", "2", "3"] {
        let token = folder.token(&["--sub", subject]);
        send(address, get("/").token(&token)).assert_status(200);
    }
    assert_eq!((decisions("redis"), decisions("memory"), decisions("local")), (3.0, 0.0, 0.0));
    // Each decision was a call, and there are others: of the fleet and of announcements.
    assert!(calls() >= 3.0, "{}", calls());

    redis.kill();
    let token = folder.token(&["--sub", "4"]);
    eventually("the process decides alone", || {
        send(address, get("/").token(&token));
        (decisions("local") > 0.0).then_some(())
    });
    assert_eq!(decisions("redis"), 3.0);
}

#[test]
fn names_that_a_reload_removes_keep_their_numbers() {
    let upstream = Upstream::start();
    let (folder, _running, address, admin) = serve_policy(&upstream, POLICY);
    assert_eq!(status(address, get("/search/a")), 200);
    let series = send(admin, get("/status").host("localhost")).json()["metric_series"].clone();
    let without = POLICY.replace("name: search, ", "").replace("UPSTREAM", &upstream.url());
    folder.write("policies/api.yaml", &without);
    let output = folder.run(&["reload", "--admin", &admin.to_string()]);
    assert_exit(&output, 0);
    assert_eq!(status(address, get("/search/a")), 200);
    assert_values(
        admin,
        &[
            (
                r#"tollgate_http_requests_total{policy="api",route="search",method="GET",code="200"}"#,
                1.0,
            ),
            (
                r#"tollgate_http_requests_total{policy="api",route="/search/**",method="GET",code="200"}"#,
                1.0,
            ),
        ],
    );
    let more = send(admin, get("/status").host("localhost")).json()["metric_series"].clone();
    assert!(more.as_u64() > series.as_u64(), "{series} {more}");
    let output = folder.run(&["status", "--admin", &admin.to_string()]);
    let line = format!("\nmetrics: {more} series\n");
    assert!(text(&output.stdout).contains(&line), "{}", text(&output.stdout));
}

#[test]
fn callers_add_no_series() {
    let upstream = Upstream::start();
    let (_folder, _running, address, admin) = serve_policy(&upstream, POLICY);
    let series = || send(admin, get("/status").host("localhost")).json()["metric_series"].as_u64();
    assert_eq!(status(address, get("/search/a")), 200);
    let before = series();
    let mut client = Client::connect(address);
    for tenant in 0..200 {
        let path = format!("/search/{tenant}?a={tenant}");
        let request = get(&path).field("x-tenant", &tenant.to_string());
        client.send(&request.host(&format!("h{tenant}.example")));
    }
    // The anonymous caller has used up its hour, so that it is denied: a known code.
    assert_eq!(series(), before);
}
