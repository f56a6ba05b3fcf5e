//! What an upstream's framework takes for the path of a route takes that route, and its counters.

use crate::support::{Policy, Proxy, Upstream, get, http2};

/// `/admin/**`, `/login` and parts of segments are for tokens only, `/health` and the rest are
/// open, before servers that read paths so.
fn policy(upstream: &Upstream, paths: &str) -> Policy {
    Policy::before(upstream).upstream(upstream, &format!("paths: {paths}")).routes(&[
        "{ match: { path: /admin/** }, auth: required }",
        "{ match: { path: /login }, auth: required }",
        "{ match: { path: /health }, auth: none }",
        "{ match: { path: /health.json }, auth: required }",
        "{ match: { path: \"/report-*\" }, auth: required }",
        "{ match: { path: \"/files/*.php\" }, auth: required }",
        "{ match: { path: /** }, auth: none }",
    ])
}

/// How paths are read, a spelling of a path for tokens to servers that read them so, and what they
/// get.
const SPELLINGS: [(&str, &str, &str); 19] = [
    ("express", "/ADMIN/users", "/ADMIN/users"),
    ("express", "/%41dmin/users/", "/Admin/users/"),
    ("koa", "/LOGIN", "/LOGIN"),
    ("aspnet", "/Login/", "/Login/"),
    ("{ case: ignore }", "/loGin", "/loGin"),
    ("fastify", "/login;x/y", "/login?x/y"),
    ("spring", "/admin;a=b/users;c", "/admin;a=b/users;c"),
    ("{ matrix_params: strip }", "/login%3bx", "/login;x"),
    ("rails", "/login.json", "/login.json"),
    ("{ framework: express, suffix: ignore }", "/LOGIN.xml", "/LOGIN.xml"),
    ("php", "/index.php/admin/users", "/index.php/admin/users"),
    ("{ path_info: strip }", "/admin/index.php/x", "/admin/index.php/x"),
    ("express", "/REPORT-x", "/REPORT-x"),
    ("aspnet", "/Files/X.PHP", "/Files/X.PHP"),
    ("fastify", "/report-7;x/y", "/report-7?x/y"),
    ("spring", "/report-;a=b", "/report-;a=b"),
    ("rails", "/report-7.json", "/report-7.json"),
    ("php", "/files/x.php/y", "/files/x.php/y"),
    ("php", "/index.php/report-7", "/index.php/report-7"),
];

#[test]
fn spelling_that_a_framework_takes_for_a_path_is_no_way_around_its_route() {
    let settings = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";
    for (paths, target, seen) in SPELLINGS {
        let upstream = Upstream::start();
        let proxy = Proxy::with_settings(settings, &[&policy(&upstream, paths)]);
        assert_eq!(proxy.get(target).status, 401, "{paths} {target}");
        let uri = format!("http://api.example.com{target}");
        let request = http::Request::get(uri).body(String::new()).unwrap();
        let status = http2(proxy.address(), vec![request])[0].status();
        assert_eq!(status.as_u16(), 401, "{paths} {target}");
        let question = get("/decide/forward")
            .field("x-forwarded-method", "GET")
            .field("x-forwarded-host", "api.example.com")
            .field("x-forwarded-uri", target);
        let status = proxy.ask(question).status;
        assert!(matches!(status, 400 | 401), "{paths} {target}: {status}");
        assert_eq!(upstream.count(), 0);
        proxy.send(get(target).by("42")).assert_status(200);
        assert_eq!(upstream.last().target, seen, "{paths} {target}");
        proxy.get("/health").assert_status(200);
        proxy.get("/other/Path;x.json").assert_status(200);
    }
}

/// Nothing that was not said is read into a path.
#[test]
fn path_is_taken_literally_where_nobody_says_how_it_is_read() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream, "fastapi"));
    for target in ["/ADMIN/users", "/login;x", "/login.json", "/index.php/login", "/login.php/x"] {
        proxy.get(target).assert_status(200);
    }
}

#[test]
fn route_that_spells_a_path_out_is_not_passed_by_an_earlier_one_that_reads_it_so() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&policy(&upstream, "rails"));
    proxy.get("/health").assert_status(200);
    proxy.get("/health.xml").assert_status(200);
    proxy.get("/health.json").assert_status(401);
    proxy.get("/health.json?x").assert_status(401);
}

#[test]
fn spellings_of_one_path_share_a_counter() {
    for (paths, keys, targets) in [
        ("express", "path", &["/users/bob", "/USERS/bob", "/users/Bob/", "/Users/%42ob"][..]),
        ("express", "path.id", &["/users/bob", "/USERS/bob", "/users/BOB"]),
        ("rails", "path", &["/users/7", "/users/7.json", "/users/7.xml"]),
        ("rails", "path.id", &["/users/7", "/users/7.json", "/users/7.html/"]),
        ("spring", "path.id", &["/users/7", "/users;x/7", "/users/7;jsessionid=1"]),
        ("fastify", "path", &["/users/7", "/users/7;x", "/users/7;y/z"]),
        ("php", "path", &["/users/a.php", "/users/a.php/x", "/index.php/users/a.php/y"]),
    ] {
        let upstream = Upstream::start();
        let policy = Policy::before(&upstream)
            .upstream(&upstream, &format!("paths: {paths}"))
            .limits(&[&format!("one: {{ per: {keys}, rate: 1/hour }}")])
            .routes(&["{ match: { path: \"/users/{id}\" }, limits: [one] }"]);
        let proxy = Proxy::start(&policy);
        for (at, target) in targets.iter().enumerate() {
            let expected = if at == 0 { 200 } else { 429 };
            assert_eq!(proxy.get(target).status, expected, "{paths} {keys} {target}");
        }
        proxy.get("/users/other").assert_status(200);
    }
}

#[test]
fn override_for_a_path_is_for_all_its_spellings() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .upstream(&upstream, "paths: express")
        .limits(&["all: { per: [client.ip, path], rate: 9/hour }"])
        .section("overrides:\n  - { path: /login, limit: all, rate: 1/hour, why: x }")
        .routes(&["{ match: { path: /** }, limits: [all] }"]);
    let proxy = Proxy::start(&policy);
    proxy.get("/Login").assert_status(200);
    proxy.get("/LOGIN").assert_status(429);
    proxy.get("/login").assert_status(429);
}

#[test]
fn prefix_is_taken_off_all_spellings() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream)
        .upstream(&upstream, "paths: express")
        .routes(&["{ match: { path: /v1/** }, limits: [], strip_prefix: /v1, add_prefix: /api }"]);
    let proxy = Proxy::start(&policy);
    for (target, seen) in
        [("/v1/Users", "/api/Users"), ("/V1/Users", "/api/Users"), ("/V1", "/api/")]
    {
        proxy.get(target).assert_status(200);
        assert_eq!(upstream.last().target, seen, "{target}");
    }
}
