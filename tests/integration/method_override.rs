//! Fields by which servers take a POST for another method: dropped, judged, or ignored.

use crate::support::{Policy, Proxy, Request, Upstream, get, http2, post};

/// DELETE needs a token, all else does not.
fn guarded(upstream: &Upstream, mode: &str) -> Policy {
    Policy::before(upstream)
        .limits(&["by_method: { per: method, rate: 1/hour }"])
        .routes(&[
            "{ match: { path: /counted }, limits: [by_method] }",
            "{ match: { path: /**, methods: [DELETE] }, auth: required, limits: [] }",
            "{ match: { path: /** }, limits: [] }",
        ])
        .section(mode)
}

fn overridden(name: &str, method: &str) -> Request {
    post("/users/42", "").field(name, method)
}

const NAMES: [&str; 6] = [
    "X-HTTP-Method-Override",
    "x-http-method",
    "X-Method-Override",
    "X_HTTP_Method_Override",
    "X.HTTP.Method",
    "x-method_override",
];

#[test]
fn no_server_gets_a_method_override_unless_the_policy_says_so() {
    let upstream = Upstream::start();
    for mode in ["method_override: drop", "private: []"] {
        let proxy = Proxy::start(&guarded(&upstream, mode));
        for name in NAMES {
            proxy.send(overridden(name, "DELETE")).assert_status(200);
            assert_eq!(upstream.last().method, "POST");
            assert_no_override(&upstream, name);
            let over_http2 = http::Request::post("http://api.example.com/users/42")
                .header(name, "DELETE")
                .body(String::new())
                .unwrap();
            let answers = http2(proxy.address(), vec![over_http2]);
            assert_eq!(answers[0].status(), 200);
            assert_no_override(&upstream, name);
        }
        let mut client = proxy.connect();
        client.write(
            "POST /users/42 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
             1\r\nx\r\n0\r\nX-HTTP-Method-Override: DELETE\r\nx_method_override: DELETE\r\n\
             x-sum: 1\r\n\r\n",
        );
        client.read().assert_status(200);
        let trailers = upstream.last().trailers;
        assert_eq!(trailers.one("x-sum"), Some("1"));
        assert_eq!(trailers.one("x-http-method-override"), None);
        assert_eq!(trailers.one("x_method_override"), None);
    }
}

fn assert_no_override(upstream: &Upstream, name: &str) {
    assert_eq!(upstream.last().fields.one(&name.to_ascii_lowercase()), None, "{name}");
}

#[test]
fn request_is_judged_by_the_method_that_overrides_its_own() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream, "method_override: match"));
    for name in &NAMES[..3] {
        for method in ["DELETE", "delete", "Delete"] {
            proxy.send(overridden(name, method)).assert_status(401);
            proxy.send(overridden(name, method).by("42")).assert_status(200);
            let seen = upstream.last();
            assert_eq!(seen.method, "POST");
            // Whichever of them the server reads, it reads the method that was judged.
            for name in &NAMES[..3] {
                assert_eq!(seen.fields.one(&name.to_ascii_lowercase()), Some("DELETE"), "{name}");
            }
        }
        proxy.send(overridden(name, "POST")).assert_status(200);
    }
    for name in &NAMES[3..] {
        proxy.send(overridden(name, "DELETE")).assert_status(200);
        assert_no_override(&upstream, name);
    }
    for (method, status) in [("PUT", 200), ("put", 429), ("PATCH", 200), ("TRACE", 400)] {
        let counted = post("/counted", "").field("x-http-method", method);
        proxy.send(counted).assert_status(status);
    }
}

#[test]
fn override_that_servers_may_read_differently_is_refused() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream, "method_override: match"));
    let twice = overridden("x-http-method", "DELETE").field("x-method-override", "PUT");
    let with_get = get("/users/42").field("x-http-method", "DELETE");
    let with_unknown = overridden("x-http-method", "FOO");
    let with_delete = Request::new("DELETE", "/users/42").field("x-http-method", "GET");
    for request in [
        twice,
        overridden("x-http-method", ""),
        overridden("x-http-method", "DELETE, PUT"),
        with_get,
        with_unknown,
        with_delete,
    ] {
        proxy.send(request).assert_status(400);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn ignored_override_goes_on() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream, "method_override: ignore"));
    proxy.send(overridden("x-http-method-override", "DELETE")).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-http-method-override"), Some("DELETE"));
}

/// In front of servers of this framework, or of those that nothing is said of.
fn guarded_before(upstream: &Upstream, paths: &str, mode: &str) -> Policy {
    let servers = format!("servers: [\"{}\"]{paths}", upstream.url());
    Policy::before_servers(&servers)
        .routes(&[
            "{ match: { path: /**, methods: [DELETE] }, auth: required, limits: [] }",
            "{ match: { path: /** }, limits: [] }",
        ])
        .section(mode)
}

const QUERIES: [&str; 6] = [
    "a=b&_method=DELETE",
    "_method=delete&a=b",
    "a=b&%5Fmethod=DELETE",
    "a=b&.method=DELETE",
    "a=b&[_method]=DELETE",
    "a=b&%5B_method%5D=DELETE",
];

#[test]
fn server_that_reads_a_method_in_the_query_gets_none() {
    let upstream = Upstream::start();
    for framework in ["express", "koa", "hono", "spring", "php", "go", "aspnet"] {
        let paths = format!(", paths: {framework}");
        let proxy = Proxy::start(&guarded_before(&upstream, &paths, "method_override: drop"));
        for query in QUERIES {
            proxy.send(post(&format!("/users/42?{query}"), "")).assert_status(200);
            assert_eq!(upstream.last().target, "/users/42?a=b", "{framework} {query}");
            let uri = format!("http://api.example.com/users/42?{query}");
            let over_http2 = http::Request::post(uri).body(String::new()).unwrap();
            assert_eq!(http2(proxy.address(), vec![over_http2])[0].status(), 200);
            assert_eq!(upstream.last().target, "/users/42?a=b", "{framework} {query}");
        }
        proxy.send(post("/users/42?_method=DELETE", "")).assert_status(200);
        assert_eq!(upstream.last().target, "/users/42");
    }
}

#[test]
fn query_is_left_alone_where_no_server_reads_a_method_in_it() {
    let upstream = Upstream::start();
    for (paths, mode) in [
        ("", "method_override: drop"),
        (", paths: rails", "method_override: drop"),
        (", paths: django", "method_override: match"),
        (", paths: express", "method_override: ignore"),
    ] {
        let proxy = Proxy::start(&guarded_before(&upstream, paths, mode));
        proxy.send(post("/users/42?_method=DELETE", "")).assert_status(200);
        assert_eq!(upstream.last().target, "/users/42?_method=DELETE", "{paths} {mode}");
    }
}

#[test]
fn request_is_judged_by_the_method_in_its_query() {
    let upstream = Upstream::start();
    let policy = guarded_before(&upstream, ", paths: express", "method_override: match");
    let proxy = Proxy::start(&policy);
    for query in QUERIES {
        let target = format!("/users/42?{query}");
        proxy.send(post(&target, "")).assert_status(401);
        proxy.send(post(&target, "").by("42")).assert_status(200);
        let seen = upstream.last();
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", target.as_str()));
    }
    let seen = upstream.count();
    for request in [
        post("/users/42?_method=DELETE&_method=PUT", ""),
        post("/users/42?_method=DELETE", "").field("x-http-method", "PUT"),
        get("/users/42?_method=DELETE"),
        post("/users/42?_method=", ""),
    ] {
        proxy.send(request).assert_status(400);
    }
    assert_eq!(upstream.count(), seen);
}

#[test]
fn method_in_what_servers_take_for_the_query_is_refused() {
    let upstream = Upstream::start();
    let paths = ", paths: { framework: express, matrix_params: query }";
    for (mode, status) in [("drop", 400), ("match", 400), ("ignore", 200)] {
        let policy = guarded_before(&upstream, paths, &format!("method_override: {mode}"));
        let proxy = Proxy::start(&policy);
        proxy.send(post("/users/42;_method=DELETE", "")).assert_status(status);
        proxy.send(post("/users/42;a=b", "")).assert_status(200);
    }
}

#[test]
fn preflight_is_no_post_that_says_it_is_one() {
    let upstream = Upstream::start();
    let policy = guarded(&upstream, "method_override: match")
        .routes(&["{ match: { path: /** }, auth: required, limits: [] }"])
        .section("cors: { origins: [\"https://app.example.com\"], preflight: pass }");
    let proxy = Proxy::start(&policy);
    let posing = overridden("x-http-method", "OPTIONS")
        .field("origin", "https://app.example.com")
        .field("access-control-request-method", "GET");
    proxy.send(posing).assert_status(400);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn asker_that_would_forward_an_override_is_told_to_refuse_it() {
    let upstream = Upstream::start();
    let settings = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";
    let ask_with = |name: &str, query: &str| {
        let target = format!("/users/42{query}");
        [
            get("/decide/forward")
                .field("x-forwarded-method", "POST")
                .field("x-forwarded-host", "api.example.com")
                .field("x-forwarded-uri", &target)
                .field(name, "DELETE"),
            get("/decide/nginx")
                .host("api.example.com")
                .field("x-original-method", "POST")
                .field("x-original-uri", &target)
                .field(name, "DELETE"),
        ]
    };
    let ask = |name: &str| ask_with(name, "");
    let status = |response: crate::support::Response| match response.field("x-tollgate-status") {
        Some(status) => status.parse().unwrap(),
        None => response.status,
    };
    for (mode, exact, alike) in
        [("drop", 400, [400; 2]), ("match", 401, [400; 2]), ("ignore", 200, [200, 204])]
    {
        let policy = guarded(&upstream, &format!("method_override: {mode}"));
        let proxy = Proxy::with_settings(settings, &[&policy]);
        for name in &NAMES[..3] {
            let [forward, nginx] = ask(name).map(|question| status(proxy.ask(question)));
            assert_eq!(forward, exact, "{mode} {name}");
            assert_eq!(nginx, if exact == 200 { 204 } else { exact }, "{mode} {name}");
        }
        for name in &NAMES[3..] {
            assert_eq!(
                ask(name).map(|question| status(proxy.ask(question))),
                alike,
                "{mode} {name}"
            );
        }
        let policy =
            guarded_before(&upstream, ", paths: express", &format!("method_override: {mode}"));
        let before_express = Proxy::with_settings(settings, &[&policy]);
        let in_query = ask_with("x-plain", "?_method=DELETE");
        let in_query = in_query.map(|question| status(before_express.ask(question)));
        assert_eq!(in_query, [exact, if exact == 200 { 204 } else { exact }], "{mode}");
        let plain = ask("x-plain").map(|question| status(proxy.ask(question)));
        assert_eq!(plain, [200, 204], "{mode}");
    }
}

#[test]
fn route_of_get_takes_head_too() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: /a, methods: [GET] }, auth: required, limits: [] }",
        "{ match: { path: /b, methods: [HEAD] }, auth: required, limits: [] }",
        "{ match: { path: /** }, limits: [] }",
    ]);
    let proxy = Proxy::start(&policy);
    for (method, path, status) in [
        ("GET", "/a", 401),
        ("HEAD", "/a", 401),
        ("POST", "/a", 200),
        ("HEAD", "/b", 401),
        ("GET", "/b", 200),
    ] {
        proxy.send(Request::new(method, path)).assert_status(status);
    }
}
