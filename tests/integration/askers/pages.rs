//! Web pages in a browser whose address may ask: they can neither act nor read.

use serde_json::json;

use crate::support::{Client, Door, Policy, Proxy, Request, Response, Upstream, get, http2, post};

fn policy() -> Policy {
    Policy::before(&Upstream::start())
        .limits(&[
            "mail: { per: key, rate: 3/hour }",
            "per-user: { per: descriptor.user, rate: 3/hour }",
        ])
        .section("rls:\n  - { domain: edge, when: { key: [user] }, limits: [per-user] }")
}

fn proxy() -> Proxy {
    Proxy::with_settings(Door::LISTENERS, &[&policy()])
}

/// A charge that a program sends, at each listener by the means that it has.
fn charges() -> [(usize, Request); 2] {
    let charge = json!({ "charges": [{ "limit": "mail", "key": "eu" }] }).to_string();
    let entry = json!({ "key": "user", "value": "eu" });
    let hits = json!({ "domain": "edge", "descriptors": [{ "entries": [entry] }] }).to_string();
    [(0, post("/v1/charge", charge)), (1, post("/json", hits))]
}

fn sent(proxy: &Proxy, listener: usize, request: &Request) -> Response {
    Client::connect(proxy.asked_at(listener)).send(request)
}

fn by_program(request: Request) -> Request {
    request.host("127.0.0.1").field("content-type", "application/json")
}

#[test]
fn program_acts_by_the_listeners_own_name() {
    let proxy = proxy();
    for (listener, charge) in charges() {
        for host in ["127.0.0.1:8090", "localhost", "[::1]:1", "tollgate:8090", "LOCALHOST:8090"] {
            let request = charge.clone().host(host);
            let json = request.clone().field("content-type", "application/json; charset=utf-8");
            // Beyond the limit, which is an answer to who may ask.
            assert!([200, 429].contains(&sent(&proxy, listener, &json).status), "{host}");
            assert!([200, 429].contains(&sent(&proxy, listener, &request).status), "{host}");
            let marked =
                request.field("x-tollgate-action", "1").field("content-type", "text/plain");
            assert!([200, 429].contains(&sent(&proxy, listener, &marked).status), "{host}");
        }
    }
}

#[test]
fn page_of_another_origin_can_not_act() {
    let proxy = proxy();
    for (listener, charge) in charges() {
        let json = || by_program(charge.clone());
        for (what, request) in [
            ("a form", charge.clone().host("127.0.0.1").field("content-type", "text/plain")),
            ("a script without a type", charge.clone().host("127.0.0.1").field("origin", "null")),
            ("a type that is empty", charge.clone().host("127.0.0.1").field("content-type", "")),
            (
                "a form that says JSON, too",
                charge
                    .clone()
                    .host("127.0.0.1")
                    .field("content-type", "text/plain; application/json"),
            ),
            ("a page of another site", json().field("sec-fetch-site", "cross-site")),
            ("a page of a sibling", json().field("sec-fetch-site", "same-site")),
            ("an origin", json().field("origin", "https://evil.example")),
            ("a frame without an origin", json().field("origin", "null")),
            ("a rebound name", json().host("evil.example:8090")),
            ("a rebound name below ours", json().host("127.0.0.1.evil.example")),
            ("a number in disguise", json().host("2130706433")),
        ] {
            let refused = sent(&proxy, listener, &request);
            assert_eq!(refused.status, 403, "{what}\n{refused:?}");
            refused.assert_no_limit();
            refused.assert_no_field("access-control-allow-origin");
        }
        // None of them was charged.
        let answer = sent(&proxy, listener, &json());
        answer.assert_status(200);
        assert!(answer.text().contains("emaining\":2"), "{answer:?}");
        let preflight = Request::new("OPTIONS", "/v1/charge")
            .host("127.0.0.1")
            .field("origin", "https://evil.example")
            .field("access-control-request-method", "POST")
            .field("access-control-request-headers", "content-type");
        let answer = sent(&proxy, listener, &preflight);
        assert!(answer.status >= 400, "{answer:?}");
        answer.assert_no_field("access-control-allow-origin");
    }
}

#[test]
fn page_of_another_origin_can_not_read() {
    let proxy = proxy();
    let standing = || get("/v1/standing?limit=mail&key=eu").host("localhost");
    proxy.ask(standing()).assert_status(200);
    proxy.ask(standing().field("sec-fetch-site", "none")).assert_status(200);
    for refused in [
        standing().field("sec-fetch-site", "cross-site"),
        standing().field("origin", "https://evil.example"),
        standing().host("evil.example"),
    ] {
        proxy.ask(refused).assert_status(403);
    }
}

#[test]
fn hosts_of_the_settings_may_be_asked_for() {
    let settings = Door::LISTENERS.replace("protocol: ", "hosts: [tollgate.internal], protocol: ");
    let proxy = Proxy::with_settings(&settings, &[&policy()]);
    for (listener, charge) in charges() {
        let status = |host| sent(&proxy, listener, &by_program(charge.clone()).host(host)).status;
        assert_eq!(status("tollgate.internal:8090"), 200);
        assert_eq!(status("Tollgate.Internal"), 200);
        assert_eq!(status("evil.internal"), 403);
    }
}

/// Browsers speak no gRPC across origins, and none without TLS. Envoy's authority is any name.
#[test]
fn grpc_call_of_a_page_is_refused() {
    let proxy = proxy();
    let call = |fields: &[(&str, &str)]| {
        let call = http::Request::post("http://cluster.of.envoy/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let call = fields.iter().fold(call, |call, (name, value)| call.header(*name, *value));
        let answers = http2(proxy.asked_at(1), vec![call.body("\0\0\0\0\0".to_owned()).unwrap()]);
        let status = answers[0].headers().get("grpc-status");
        status.map(|status| status.to_str().unwrap().to_owned())
    };
    assert_ne!(call(&[]).as_deref(), Some("7"));
    assert_eq!(call(&[("sec-fetch-site", "cross-site")]).as_deref(), Some("7"));
    assert_eq!(call(&[("origin", "https://evil.example")]).as_deref(), Some("7"));
}

/// What a proxy that asks passes on is the client's: its page, its host.
#[test]
fn fields_of_a_client_are_no_suspicion_against_the_proxy_that_asks() {
    let proxy = proxy();
    let request = get("/")
        .field("origin", "https://app.example.com")
        .field("sec-fetch-site", "cross-site")
        .field("content-type", "text/plain");
    for door in Door::ASKERS {
        assert_eq!(door.judge(&proxy, &request, "203.0.113.9").status, 200, "{door:?}");
    }
    // A page cannot name a request that is to be decided about.
    proxy.ask(get("/decide/forward").field("sec-fetch-site", "cross-site")).assert_status(400);
    proxy.ask(post("/decide/nginx", "a=b").field("origin", "null")).assert_status(400);
}
