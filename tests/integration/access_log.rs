//! What the access log says of a request: who was denied or exempt and why, what it cost, how all
//! its limits stand, and how large its bodies were.

/// Who decided about charges.
mod deciders;
/// What limits count by.
mod facts;

use serde_json::{Value, json};

use crate::support::{Policy, Proxy, Request, Signal, Upstream, get, post};

const JSON: &str = "workers: 1\naccess_log: { format: json }";

/// The lines of a proxy that was sent these requests one after the other.
fn lines(settings: &str, policy: &Policy, requests: &[Request]) -> Vec<Value> {
    let proxy = Proxy::with_settings(settings, &[policy]);
    for request in requests {
        let _ = proxy.send(request.clone());
    }
    let log = proxy.into_log();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Refuses, exempts and limits.
fn policy(upstream: &Upstream) -> Policy {
    Policy::before(upstream)
        .limits(&[
            "core: { per: caller, rate: 1/hour }",
            "org: { per: jwt.org, on_missing: deny, rate: 9/hour }",
        ])
        .routes(&[
            "{ match: { path: /admin }, auth: required, scopes: [admin], limits: [] }",
            "{ match: { path: /org }, auth: required, limits: [org] }",
            "{ match: { path: /private }, auth: required, limits: [] }",
            "{ match: { path: \"/api/**\" }, auth: optional, limits: [core] }",
        ])
        .section("exempt: [\"user:monitor\", \"user:banned\"]\ndeny: [\"user:banned\"]")
}

fn requests() -> Vec<Request> {
    let good = |path| get(path).by("alice");
    vec![
        good("/api/a"),
        good("/api/b"),
        get("/api/c").by("banned"),
        get("/api/d").by("monitor"),
        get("/private"),
        good("/admin"),
        good("/org"),
        good("/nowhere"),
    ]
}

#[test]
fn denied_and_exempt_requests_say_so_in_json() {
    let lines = lines(JSON, &policy(&Upstream::start()), &requests());
    let logged = lines.iter().map(|line| {
        json!([line["path"], line["status"], line["denied"], line["denied_by"], line["exempt"]])
    });
    let expected = [
        json!(["/api/a", 200, null, null, false]),
        json!(["/api/b", 429, "limit", "core", false]),
        json!(["/api/c", 403, "deny", null, false]),
        json!(["/api/d", 200, null, null, true]),
        json!(["/private", 401, "auth", null, false]),
        json!(["/admin", 403, "scope", null, false]),
        json!(["/org", 403, "missing_key", "org", false]),
        json!(["/nowhere", 404, null, null, false]),
    ];
    assert_eq!(logged.collect::<Vec<_>>(), expected);
}

#[test]
fn denied_and_exempt_requests_say_so_in_text() {
    let upstream = Upstream::start();
    let proxy = Proxy::with_settings("workers: 1", &[&policy(&upstream)]);
    for request in requests() {
        let _ = proxy.send(request);
    }
    let log = proxy.into_log();
    let lines: Vec<&str> = log.lines().collect();
    for (line, expected) in [
        (0, " 200 core=1/1 decided_by=memory upstream="),
        (1, " 429 core=1/1 decided_by=memory denied=limit denied_by=core error="),
        (2, " 403 denied=deny error="),
        (3, " 200 exempt upstream="),
        (4, " 401 denied=auth error="),
        (6, " 403 denied=missing_key denied_by=org error="),
        (7, " 404 error=\"no route\" "),
    ] {
        assert!(lines[line].contains(expected), "{expected} is not in {}", lines[line]);
    }
}

#[test]
fn log_of_denials_has_those_of_the_proxy_and_of_shadow_limits() {
    let upstream = Upstream::as_asked();
    let policy = policy(&upstream).limits(&[
        "core: { per: caller, rate: 1/hour }",
        "org: { per: client.ip, rate: 1/hour, mode: shadow }",
    ]);
    let settings = "workers: 1\naccess_log: { format: json, only: denied }";
    let mut requests = requests();
    // An upstream's own denial is none of the proxy's.
    requests.push(get("/private").by("alice").wants(403));
    // For a limit that only counts, the second is one too many.
    requests.push(get("/org").by("alice"));
    let logged = lines(settings, &policy, &requests)
        .into_iter()
        .map(|line| json!([line["path"], line["status"], line["denied"], line["would_deny"]]));
    let expected = [
        json!(["/api/b", 429, "limit", null]),
        json!(["/api/c", 403, "deny", null]),
        json!(["/private", 401, "auth", null]),
        json!(["/admin", 403, "scope", null]),
        json!(["/org", 200, null, "org"]),
    ];
    assert_eq!(logged.collect::<Vec<_>>(), expected);
}

#[test]
fn all_limits_of_a_request_are_logged_as_they_stand_after_it() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream).on_all_routes(&[
        "core: { per: caller, rate: [5/minute, 9/hour], cost: 2 }",
        "org: { per: client.ip, rate: 1/hour, mode: shadow }",
        "inflight: { per: caller, concurrent: 3 }",
    ]);
    let get = || get("/").by("alice");
    let lines = lines(JSON, &policy, &[get(), get(), get()]);
    let limits_of = |line: &Value| {
        let limits = line["limits"].as_array().unwrap().iter();
        limits
            .map(|limit| {
                json!([
                    limit["name"],
                    limit["mode"],
                    limit["window_seconds"],
                    limit["limit"],
                    limit["used"],
                    limit["remaining"],
                    limit["cost"],
                    limit["decision"],
                ])
            })
            .collect::<Vec<_>>()
    };
    let expected = [
        json!(["core", "enforce", 60, 5, 4, 1, 2, "allow"]),
        json!(["core", "enforce", 3600, 9, 4, 5, 2, "allow"]),
        json!(["org", "shadow", 3600, 1, 1, 0, 0, "would_deny"]),
        json!(["inflight", "enforce", null, 3, 1, 2, 1, "allow"]),
    ];
    assert_eq!(limits_of(&lines[1]), expected, "{}", lines[1]);
    assert_eq!((&lines[1]["limit"], &lines[1]["of"]), (&"core".into(), &9.into()));
    // Denied: nothing is taken, and the limit that denies is logged.
    let decisions: Vec<Value> = limits_of(&lines[2]).iter().map(|limit| limit[7].clone()).collect();
    assert_eq!(decisions, ["deny", "allow", "would_deny", "allow"], "{}", lines[2]);
    assert!(limits_of(&lines[2]).iter().all(|limit| limit[6] == 0), "{}", lines[2]);
    assert_eq!((&lines[2]["limit"], &lines[2]["cost"]), (&"core".into(), &0.into()));
    let reset = lines[0]["limits"][1]["reset"].as_u64().unwrap();
    let core = lines[0]["limits"][0]["reset"].as_u64().unwrap();
    assert_eq!(reset - core, 3600 - 60);
    assert_eq!(lines[0]["limits"][3]["reset"], Value::Null);
}

#[test]
fn cost_is_what_the_request_has_come_to_in_the_end() {
    let upstream = Upstream::as_asked();
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 99/hour, cost: { reserve: 5, from_response_header: x-cost } }",
            "login: { per: caller, rate: 9/hour, cost: 3, count_when: { status: [401] } }",
        ])
        .routes(&[
            "{ match: { path: /login }, limits: [login] }",
            "{ match: { path: /** }, limits: [core] }",
        ]);
    let by = |path| get(path).by("alice");
    let requests = [
        by("/"),
        by("/").costing("2"),
        by("/").costing("8"),
        by("/").wants(304),
        by("/login").wants(401),
        by("/login").wants(200),
    ];
    let lines = lines(JSON, &policy, &requests);
    let costs: Vec<&Value> = lines.iter().map(|line| &line["cost"]).collect();
    assert_eq!(costs, [5, 2, 8, 0, 3, 0]);
    let used: Vec<&Value> = lines.iter().map(|line| &line["used"]).collect();
    assert_eq!(used, [5, 7, 15, 15, 3, 3]);
}

#[test]
fn bodies_are_counted_in_both_directions() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world");
    });
    let policy = Policy::before(&upstream).routes(&["{ match: { path: /known } , limits: [] }"]);
    let requests = [post("/known", vec![b'x'; 100_000]), get("/known"), get("/unknown")];
    let lines = lines(JSON, &policy, &requests);
    let bytes: Vec<Value> =
        lines.iter().map(|line| json!([line["request_bytes"], line["response_bytes"]])).collect();
    assert_eq!(bytes[..2], [json!([100_000, 11]), json!([0, 11])]);
    // The proxy's own answer is counted too.
    assert!(bytes[2][1].as_u64().unwrap() > 10, "{}", lines[2]);
}

#[test]
fn response_that_breaks_off_is_counted_as_far_as_it_went() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::streaming(&begun, &go);
    let proxy = Proxy::with_settings(JSON, &[&Policy::before(&upstream)]);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head();
    begun.wait();
    drop(client);
    proxy.wait_until_logged("\"aborted\":true");
    go.open();
    let log = proxy.into_log();
    let line: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!((&line["status"], &line["response_bytes"]), (&200.into(), &2.into()), "{line}");
}

#[test]
fn user_agent_is_logged_unless_it_holds_credentials() {
    let upstream = Upstream::start();
    let plain = Policy::before(&upstream);
    let keyed = Policy::before(&upstream).identity(&["token: { header: user-agent }"]);
    let request = get("/").field("user-agent", "a\tb \"c\"");
    for (policy, expected) in [(plain, json!("a\tb \"c\"")), (keyed, Value::Null)] {
        let lines = lines(JSON, &policy, std::slice::from_ref(&request));
        assert_eq!(lines[0]["user_agent"], expected, "{}", lines[0]);
    }
}

#[test]
fn lines_of_sampled_denials_say_for_how_many_they_stand() {
    let upstream = Upstream::start();
    let policy = policy(&upstream);
    let alice = |path: &str| get(path).by("alice");
    // One passes, and then 12 are denied; one of another caller passes among them.
    let mut requests = vec![alice("/api/a")];
    requests.extend((0..12).map(|number| alice(&format!("/api/{number}"))));
    requests.insert(7, get("/api/b").by("bob"));
    let settings = "workers: 1\naccess_log: { format: json, denials: 1/5 }";
    let logged = lines(settings, &policy, &requests);
    let told = |line: &Value| json!([line["path"], line["status"], line["denials"]]);
    let expected = [
        json!(["/api/a", 200, null]),
        json!(["/api/0", 429, 1]),
        json!(["/api/5", 429, 5]),
        json!(["/api/b", 200, null]),
        json!(["/api/10", 429, 5]),
    ];
    assert_eq!(logged.iter().map(told).collect::<Vec<_>>(), expected);
    // In text too; and without the setting each has a line.
    let text = |fields: &str| {
        let settings = format!("workers: 1\naccess_log: {{ {fields} }}");
        let proxy = Proxy::with_settings(&settings, &[&policy]);
        requests.iter().for_each(|request| drop(proxy.send(request.clone())));
        proxy.into_log()
    };
    let sampled = text("denials: 1/5");
    assert_eq!(sampled.matches(" denials=5 ").count(), 2, "{sampled}");
    assert_eq!(text("denials: 1/1").lines().count(), 14);
    assert!(!text("").contains("denials="));
}
