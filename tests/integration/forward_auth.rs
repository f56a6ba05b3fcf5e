//! Other proxies that ask whether they may forward a request, and forward it themselves.

use serde_json::json;

use crate::support::{Policy, Proxy, Request, Response, Upstream, get, token_with};

/// Where proxies ask, beside clients.
const ASKABLE: &str = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";

fn proxy(policy: &Policy) -> Proxy {
    Proxy::with_settings(ASKABLE, &[policy])
}

/// A question as Traefik and Caddy ask it.
fn forward(method: &str, target: &str) -> Request {
    get("/decide/forward")
        .field("x-forwarded-method", method)
        .field("x-forwarded-proto", "https")
        .field("x-forwarded-host", "api.example.com")
        .field("x-forwarded-uri", target)
}

/// A question as nginx asks it.
fn nginx(method: &str, target: &str) -> Request {
    get("/decide/nginx")
        .host("api.example.com")
        .field("x-original-method", method)
        .field("x-original-uri", target)
}

fn status(response: &Response) -> u16 {
    response.status
}

#[test]
fn question_is_charged_like_the_request_itself() {
    let upstream = Upstream::start();
    let proxy = proxy(&Policy::before(&upstream).rate("3/hour").hosts("[api.example.com]"));
    let first = proxy.ask(forward("GET", "/a?b=c").by("42"));
    first.assert_status(200).assert_limit(["3", "2", "1", "1790003601", "core"]);
    first.assert_field("x-tollgate-subject", "42").assert_field("x-tollgate-tier", "free");
    assert!(first.field("x-request-id").is_some() && first.text().is_empty());
    proxy
        .ask(nginx("POST", "/a").by("42"))
        .assert_status(204)
        .assert_field("x-ratelimit-used", "2");
    proxy.send(get("/").host("api.example.com").by("42")).assert_status(200);
    assert_eq!(upstream.count(), 1, "only what came in here was forwarded");

    let denied = proxy.ask(forward("GET", "/a").by("42"));
    denied.assert_status(429).assert_field("x-ratelimit-remaining", "0");
    assert!(denied.text().contains("API rate limit exceeded for user 42."), "{}", denied.text());
    assert!(denied.field("retry-after").is_some());
    let denied = proxy.ask(nginx("GET", "/a").by("42"));
    denied.assert_status(403).assert_field("x-tollgate-status", "429");
    assert!(denied.field("retry-after").is_some());
    // nginx drops the body.
    assert_eq!(denied.field("x-tollgate-body"), Some(denied.text().trim_end()));
    let unauthorized = proxy.ask(nginx("GET", "/a").token("none"));
    unauthorized.assert_status(401).assert_field("x-tollgate-status", "401");
    assert_eq!(unauthorized.field("x-tollgate-body"), Some(unauthorized.text().trim_end()));
    proxy.ask(forward("GET", "/a").by("43")).assert_status(200);
}

#[test]
fn caller_is_who_the_token_says_and_nobody_else() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .rate("9/hour")
        .identity(&["forward_claims: { headers: { x-caller-email: jwt.email } }"])
        .routes(&[
            "{ match: { path: /open/** }, auth: optional, limits: [core] }",
            "{ match: { path: /** }, auth: required, limits: [core] }",
        ]);
    let proxy = proxy(&policy);
    let forged = |request: Request| {
        request.field("x-tollgate-subject", "admin").field("x-caller-email", "root@example.com")
    };
    let anonymous = proxy.ask(forged(forward("GET", "/open/a")));
    anonymous.assert_status(200).assert_no_field("x-tollgate-subject");
    anonymous.assert_no_field("x-caller-email");
    let token = token_with(&json!({ "sub": "42", "email": "a@example.com" }));
    let known = proxy.ask(forged(forward("GET", "/a")).token(&token));
    known.assert_status(200).assert_field("x-tollgate-subject", "42");
    known.assert_field("x-caller-email", "a@example.com");
    for (asked, expected) in [(forward("GET", "/a"), 401), (nginx("GET", "/a"), 401)] {
        let unknown = proxy.ask(forged(asked));
        assert_eq!(status(&unknown), expected);
        assert!(unknown.field("www-authenticate").is_some());
    }
}

#[test]
fn address_is_the_one_that_the_asker_adds() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .limits(&["core: { per: client.ip, rate: 1/hour }"])
        .routes(&["{ match: { path: /** }, auth: none, limits: [core] }"]);
    let proxy = proxy(&policy);
    for (chain, expected) in [
        ("203.0.113.1", 200),
        ("203.0.113.1", 429),
        ("203.0.113.9, 203.0.113.1", 429),
        ("203.0.113.1, 203.0.113.2", 200),
    ] {
        proxy.ask(forward("GET", "/").from(chain)).assert_status(expected);
    }
    // None: the asker itself.
    proxy.ask(nginx("GET", "/")).assert_status(204);
    proxy.ask(nginx("GET", "/").from("127.0.0.1")).assert_status(403);
}

#[test]
fn what_is_asked_about_is_never_guessed() {
    let upstream = Upstream::start();
    let routes = "{ match: { path: /** }, auth: none, limits: [core] }";
    let proxy = proxy(&Policy::before(&upstream).rate("9/hour").routes(&[routes]));
    let whole = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-host", "api.example.com"),
        ("x-forwarded-uri", "/"),
    ];
    let ask = |fields: &[(&str, &str)]| {
        let question = get("/decide/forward");
        proxy.ask(fields.iter().fold(question, |asked, (name, value)| asked.field(name, value)))
    };
    ask(&whole).assert_status(200);
    for field in whole {
        let others: Vec<_> = whole.into_iter().filter(|other| *other != field).collect();
        let missing = ask(&others);
        missing.assert_status(400).assert_no_limit();
        assert!(missing.text().contains(field.0), "{}", missing.text());
        ask(&[&whole[..], &[field]].concat()).assert_status(400).assert_no_limit();
    }
    for target in ["*", "a", "http://evil.example/a", "/a#b", "/%00", "/a/%2e%2e%2f", "/\\a"] {
        proxy.ask(forward("GET", target)).assert_status(400).assert_no_limit();
    }
    proxy.ask(forward("CONNECT", "/")).assert_status(405);
    for path in ["/", "/decide", "/decide/forward/x", "/a"] {
        proxy.ask(get(path)).assert_status(404).assert_no_limit();
    }
    // What nginx's own client has sent malformed is a denial; what nginx left out is not.
    for target in ["/%00", "/a#b", "/<script>", "a"] {
        let malformed = proxy.ask(nginx("GET", target));
        malformed.assert_status(403).assert_field("x-tollgate-status", "400").assert_no_limit();
        assert_eq!(malformed.field("x-tollgate-body"), Some(malformed.text().trim_end()));
    }
    proxy.ask(nginx("GE(T", "/")).assert_status(403).assert_field("x-tollgate-status", "400");
    proxy.ask(get("/decide/nginx").field("x-original-method", "GET")).assert_status(400);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn only_askers_may_ask() {
    let upstream = Upstream::start();
    let settings = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http, askers: \
                    [10.0.0.0/8] }]";
    let proxy = Proxy::with_settings(settings, &[&Policy::before(&upstream).rate("9/hour")]);
    // A question may not be smuggled in by a field either.
    let refused = proxy.ask(forward("GET", "/").by("42").from("10.0.0.1"));
    refused.assert_status(403).assert_no_limit();
    assert!(refused.text().contains("this address may not ask"), "{}", refused.text());
    // Where clients come in, the paths mean nothing.
    proxy.send(forward("GET", "/").by("42")).assert_status(200);
    assert_eq!(upstream.last().target, "/decide/forward");
}

#[test]
fn limits_that_need_the_response_do_not_count_and_still_deny() {
    let upstream = Upstream::answering("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n");
    let policy = Policy::before(&upstream)
        .limits(&[
            "core: { per: caller, rate: 9/hour }",
            "failed: { per: caller, rate: 2/hour, count_when: { status: [401] } }",
            "inflight: { per: caller, concurrent: 1 }",
        ])
        .routes(&["{ match: { path: /** }, limits: [core, failed, inflight] }"]);
    let proxy = proxy(&policy);
    for used in 1..=4 {
        let admitted = proxy.ask(forward("GET", "/").by("42"));
        admitted.assert_status(200).assert_field("x-ratelimit-used", &used.to_string());
    }
    (0..2).for_each(|_| drop(proxy.get_as("42")));
    let denied = proxy.ask(forward("GET", "/").by("42"));
    denied.assert_status(429).assert_field("x-tollgate-denied-by", "failed");
}

#[test]
fn own_responses_are_never_leave_to_forward() {
    let upstream = Upstream::start();
    let policy =
        Policy::before(&upstream).rate("9/hour").responses(&["rate_limit_path: /standing"]);
    let proxy = proxy(&policy);
    proxy.send(get("/standing").by("42")).assert_status(200);
    proxy.ask(forward("GET", "/standing").by("42")).assert_status(404);
    let denied = proxy.ask(nginx("GET", "/standing").by("42"));
    denied.assert_status(403).assert_field("x-tollgate-status", "404");
}

#[test]
fn lines_say_who_has_asked() {
    let upstream = Upstream::start();
    let settings = format!("{ASKABLE}\naccess_log: {{ format: json }}");
    let proxy = Proxy::with_settings(&settings, &[&Policy::before(&upstream).rate("1/hour")]);
    proxy.ask(forward("PUT", "/a").by("42").from("203.0.113.1"));
    proxy.ask(nginx("GET", "/b").by("42").from("203.0.113.2"));
    proxy.send(get("/c").by("43"));
    let log = proxy.into_log();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &serde_json::Value| {
        ["asked_by", "method", "path", "client", "status"].map(|name| line[name].clone())
    };
    assert_eq!(
        told(&lines[0]).to_vec(),
        [json!("forward"), json!("PUT"), json!("/a"), json!("203.0.113.1"), json!(200)]
    );
    assert_eq!(
        told(&lines[1]).to_vec(),
        [json!("nginx"), json!("GET"), json!("/b"), json!("203.0.113.2"), json!(429)]
    );
    assert_eq!(told(&lines[2])[0], serde_json::Value::Null);
}
