//! Which route a request takes. Tests distinguish routes by the limit that they charge, and what
//! was matched is what the upstream must see.

use crate::support::{Policy, Proxy, Request, Upstream, delete, get, http2, options, post};

/// `/admin` is for tokens only, the rest is open.
fn guarded(upstream: &Upstream) -> Policy {
    Policy::before(upstream).routes(&[
        "{ match: { path: /admin }, auth: required }",
        "{ match: { path: /admin/** }, auth: required }",
        "{ match: { path: /** }, auth: none }",
    ])
}

/// The limits `a` to `d`, by which tests distinguish routes.
fn marked(upstream: &Upstream) -> Policy {
    Policy::before(upstream).limits(&[
        "a: { per: client.ip, rate: 1000/hour }",
        "b: { per: client.ip, rate: 1000/hour }",
        "c: { per: client.ip, rate: 1000/hour }",
        "d: { per: client.ip, rate: 1000/hour }",
    ])
}

#[test]
fn first_route_that_matches_wins() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&marked(&upstream).routes(&[
        "{ match: { path: /x, methods: [POST] }, limits: [a] }",
        "{ match: { path: \"/x/{id}\" }, limits: [b] }",
        "{ match: { path: /x/7 }, limits: [c] }",
        "{ match: { path: /x/** }, limits: [d] }",
    ]));
    for (request, limit) in [
        (post("/x", ""), "a"),
        (get("/x"), "d"),
        (get("/x/7"), "b"),
        (get("/x/"), "d"),
        (get("/x/7/8"), "d"),
        (delete("/x"), "d"),
    ] {
        proxy.send(request).assert_status(200).assert_field("x-ratelimit-resource", limit);
    }
}

#[test]
fn no_route_is_a_404_in_json_that_is_not_charged() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&marked(&upstream).routes(&["{ match: { path: /x }, limits: [a] }"]));
    for target in ["/", "/y", "/X", "/x/y", "/xx"] {
        let response = proxy.get(target);
        response
            .assert_status(404)
            .assert_field("content-type", "application/json; charset=utf-8")
            .assert_field("cache-control", "no-store")
            .assert_no_limit();
        assert_eq!(response.json()["message"], "Not Found");
    }
    proxy.get("/x").assert_field("x-ratelimit-used", "1");
    assert_eq!(upstream.count(), 1);
}

#[test]
fn no_spelling_of_a_guarded_path_gets_around_its_guard() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for target in [
        "/admin",
        "/admin/",
        "//admin",
        "///admin//",
        "/a/../admin",
        "/a/b/../../admin",
        "/../admin",
        "/./admin",
        "/admin/.",
        "/admin/x/..",
        "/%61dmin",
        "/%61%64%6d%69%6e",
        "/a/%2e%2e/admin",
        "/a/%2E./admin",
        "/a/..;x=1/admin",
        "/%2e/admin",
        "/admin?x=1",
        "/admin/../admin/../admin",
    ] {
        proxy.get(target).assert_status(401);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn ambiguous_path_is_refused() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    for target in [
        "/admin%2f..",
        "/x%2f..%2fadmin",
        "/x%2F",
        "/x%5c..%5cadmin",
        "/x%5Cadmin",
        "/x\\..\\admin",
        "/admin%00",
        "/%00",
        "/x%",
        "/x%4",
        "/x%zz",
        "/x?q=%00",
        "/x?q=%zz",
        "admin",
        "*",
    ] {
        let mut client = proxy.connect();
        let response = client.send(&get(target));
        response.assert_status(400).assert_field("connection", "close");
        client.assert_closed();
    }
    assert_eq!(upstream.count(), 0);
}

/// What a server may cut off from a path, or skip: a pattern of Starlette ends in `$`, which
/// matches before a line feed, too.
const CONTROLS: [&str; 10] = [
    "/admin%0A",
    "/admin%0a",
    "/admin%0D%0A",
    "/%0aadmin",
    "/ad%09min",
    "/admin%7F",
    "/admin%1f",
    "/admin/%0b",
    "/x/..%0A/admin",
    "/%61dmin%00",
];

#[test]
fn control_in_a_path_is_refused_at_every_door() {
    let upstream = Upstream::start();
    let settings = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";
    let proxy = Proxy::with_settings(settings, &[&guarded(&upstream)]);
    for target in CONTROLS {
        proxy.get(target).assert_status(400);
        let forward = get("/decide/forward")
            .field("x-forwarded-method", "GET")
            .field("x-forwarded-host", "api.example.com")
            .field("x-forwarded-uri", target);
        proxy.ask(forward).assert_status(400);
        let nginx = get("/decide/nginx")
            .host("api.example.com")
            .field("x-original-method", "GET")
            .field("x-original-uri", target);
        proxy.ask(nginx).assert_status(403).assert_field("x-tollgate-status", "400");
    }
    for raw in ["/admin\t", "/admin\u{b}", "/admin\u{7f}", "/admin\u{85}"] {
        proxy.get(raw).assert_status(400);
    }
    let requests = CONTROLS.map(|target| {
        let uri = format!("http://api.example.com{target}");
        http::Request::get(uri).body(String::new()).unwrap()
    });
    for (response, target) in http2(proxy.address(), requests.to_vec()).iter().zip(CONTROLS) {
        assert_eq!(response.status().as_u16(), 400, "{target}");
    }
    // A query may hold them: forms do.
    proxy.get("/x?text=a%0D%0Ab%09").assert_status(200);
    assert_eq!(upstream.count(), 1);
}

/// Spellings of `..` that some server behind a proxy accepts, and how the proxy handles each.
const DISGUISED: [(&str, Option<&str>); 31] = [
    // Parameters after dots, whatever stands for the semicolon.
    ("/public/..;/admin", Some("/admin")),
    ("/public/..%3b/admin", Some("/admin")),
    ("/public/..%3B/admin", Some("/admin")),
    ("/public/..%3Ba=b/admin", Some("/admin")),
    ("/public/.%3b/x", Some("/public/x")),
    ("/public/%2e%2e%3b/admin", Some("/admin")),
    ("/public/%2e%2E%3bx;y%3Bz/admin", Some("/admin")),
    ("/public/x/..%3b..;/y", Some("/public/y")),
    ("/public;/../admin", Some("/admin")),
    ("/public%3b/../admin", Some("/admin")),
    ("/public/..?/admin", Some("/?/admin")),
    // Dots for a server that decodes twice, repairs UTF-8 or folds characters.
    ("/public/%252e%252e/admin", None),
    ("/public/%252e./admin", None),
    ("/public/%25%32%65%25%32%65/admin", None),
    ("/public/%25252e%25252e/admin", None),
    ("/public/..%253b/admin", None),
    ("/public/..%252fadmin", None),
    ("/public/x%252f..%252f..%252fadmin", None),
    ("/public/..%255cadmin", None),
    ("/public/%c0%ae%c0%ae/admin", None),
    ("/public/..%c0%afadmin", None),
    ("/public/x%e0%80%afadmin", None),
    ("/public/%ef%bc%8e%ef%bc%8e/admin", None),
    ("/public/..%ef%bc%8fadmin", None),
    ("/public/..%09/admin", None),
    ("/public/.%0d%0a./admin", None),
    ("/public/..%20/admin", None),
    ("/public/..%3f/admin", None),
    ("/public/..%23/admin", None),
    ("/public/x;%2f..%2f..", None),
    ("/public/%u002e%u002e/admin", None),
];

/// `/public` is open, everything else for tokens only, and neither changes where a path leads.
fn half_open(upstream: &Upstream) -> Policy {
    Policy::before(upstream).routes(&[
        "{ match: { path: /public/** }, auth: none }",
        "{ match: { path: /** }, auth: required }",
    ])
}

fn expected_status(seen: Option<&str>) -> u16 {
    match seen {
        None => 400,
        Some(path) if path.starts_with("/public") => 200,
        Some(_) => 401,
    }
}

#[test]
fn no_disguise_of_dots_leads_out_of_an_open_path() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&half_open(&upstream));
    for (target, seen) in DISGUISED {
        let response = proxy.get(target);
        assert_eq!(response.status, expected_status(seen), "{target}");
    }
    for target in ["/public/..%00/admin", "/public/..\\admin", "/public/..%5cadmin", "/public/..#"]
    {
        assert_eq!(proxy.get(target).status, 400, "{target}");
    }
    let open = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&open));
    for (target, seen) in DISGUISED {
        if let Some(seen) = seen {
            proxy.get(target).assert_status(200);
            assert_eq!(open.last().target, seen, "for {target}");
        }
    }
}

#[test]
fn no_disguise_of_dots_leads_out_of_an_open_path_over_http_2() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&half_open(&upstream));
    let requests = DISGUISED.map(|(target, _)| {
        let uri = format!("http://api.example.com{target}");
        http::Request::get(uri).body(String::new()).unwrap()
    });
    let responses = http2(proxy.address(), requests.to_vec());
    for (response, (target, seen)) in responses.iter().zip(DISGUISED) {
        assert_eq!(response.status().as_u16(), expected_status(seen), "{target}");
    }
}

#[test]
fn names_that_only_look_unusual_go_on_as_they_are() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&half_open(&upstream));
    for target in [
        "/public/.../x",
        "/public/a../..b/.%C3%A9t%C3%A9",
        "/public/x%3B..",
        "/public/a%3Bb/%3B/c",
        "/public/group%252Fproject/%252Ehidden",
        "/public/100%25/%20/...%20and%20so%20on",
        "/public/%EF%BC%8Ea",
        "/public/caf%E9",
        "/public/%E3%83%95%E3%82%A1%E3%82%A4%E3%83%AB%EF%BC%8Etxt",
    ] {
        proxy.get(target).assert_status(200);
        assert_eq!(upstream.last().target, target);
    }
}

#[test]
fn upstream_sees_the_path_that_was_matched_and_the_query_as_it_came() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for (target, seen) in [
        ("/", "/"),
        ("/a/../b", "/b"),
        ("//a///b//", "/a/b/"),
        ("/%61%7e%2D", "/a~-"),
        ("/%e2%82%ac", "/%E2%82%AC"),
        ("/a%20b", "/a%20b"),
        ("/%2561", "/%2561"),
        ("/a;x=1/b;y", "/a;x=1/b;y"),
        ("/..;x=1/b", "/b"),
        ("/a/..", "/"),
        ("/a?b=/../c//d&e=%61%2f;..", "/a?b=/../c//d&e=%61%2f;.."),
        ("/x/../a?", "/a?"),
        ("/a?b?c", "/a?b?c"),
    ] {
        proxy.get(target).assert_status(200);
        assert_eq!(upstream.last().target, seen, "for {target}");
    }
}

#[test]
fn parameters_of_a_segment_are_part_of_it() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    proxy.get("/admin;x=1").assert_status(200);
    proxy.get("/admin/x;y=1").assert_status(401);
}

/// `/users/@me` and `/v1/jobs:cancel` are for tokens only, other users and the rest are open.
fn spelled_out(upstream: &Upstream) -> Policy {
    Policy::before(upstream).routes(&[
        "{ match: { path: /users/@me }, auth: required }",
        "{ match: { path: \"/v1/jobs:cancel\" }, auth: required }",
        "{ match: { path: \"/users/{id}\" }, auth: none }",
        "{ match: { path: /** }, auth: none }",
    ])
}

#[test]
fn escape_of_a_reserved_character_is_no_way_around_a_route_that_spells_it_out() {
    let upstream = Upstream::start();
    let settings = "workers: 1\ndecisions: [{ address: 127.0.0.1:0, protocol: http }]";
    let proxy = Proxy::with_settings(settings, &[&spelled_out(&upstream)]);
    for target in [
        "/users/%40me",
        "/users/%40%6de/",
        "/users/x/../%40me",
        "/v1/jobs%3Acancel",
        "/v1/jobs%3acancel",
    ] {
        proxy.get(target).assert_status(401);
        // The server that another proxy forwards to may match what was not decoded.
        let question = get("/decide/forward")
            .field("x-forwarded-method", "GET")
            .field("x-forwarded-host", "api.example.com")
            .field("x-forwarded-uri", target);
        proxy.ask(question).assert_status(400);
    }
    assert_eq!(upstream.count(), 0);
    let question = get("/decide/forward")
        .by("42")
        .field("x-forwarded-method", "GET")
        .field("x-forwarded-host", "api.example.com")
        .field("x-forwarded-uri", "/users/a%40b.example");
    proxy.ask(question).assert_status(200);
}

/// A server that matches before it decodes sees what the route spells out; data stays as it came.
#[test]
fn upstream_sees_what_a_route_spells_out_and_other_escapes_as_they_came() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&spelled_out(&upstream));
    for (target, seen) in [
        ("/users/%40me", "/users/@me"),
        ("/users/@me", "/users/@me"),
        ("/v1/jobs%3acancel?at=%3a", "/v1/jobs:cancel?at=%3a"),
        ("/users/a%40b.example", "/users/a%40b.example"),
        ("/users/a%2bb%3Bc", "/users/a%2Bb%3Bc"),
        ("/files/%3d/%26", "/files/%3D/%26"),
    ] {
        proxy.send(get(target).by("42")).assert_status(200);
        assert_eq!(upstream.last().target, seen, "for {target}");
    }
}

#[test]
fn host_is_matched_without_case_port_and_trailing_dot() {
    let one = Upstream::start();
    let other = Upstream::start();
    let proxy = Proxy::with_settings(
        "workers: 1",
        &[
            &Policy::before(&one).hosts("[api.example.com, \"*.below.example.com\"]"),
            &Policy::before(&other).hosts("[other.example.com]"),
        ],
    );
    for host in [
        "api.example.com",
        "API.Example.COM",
        "api.example.com:8080",
        "api.example.com.",
        "api.example.com.:80",
        "a.below.example.com",
        "a.b.below.example.com",
    ] {
        proxy.send(get("/").host(host)).assert_status(200);
    }
    assert_eq!((one.count(), other.count()), (7, 0));
    proxy.send(get("/").host("other.example.com")).assert_status(200);
    assert_eq!(other.count(), 1);
    for host in ["below.example.com", "example.com", "xapi.example.com", "127.0.0.1", "[::1]:80"] {
        proxy.send(get("/").host(host)).assert_status(404);
    }
}

#[test]
fn policy_without_hosts_takes_what_no_other_is_for() {
    let named = Upstream::start();
    let rest = Upstream::start();
    let proxy = Proxy::with_settings(
        "workers: 1",
        &[&Policy::before(&named).hosts("[api.example.com]"), &Policy::before(&rest)],
    );
    proxy.send(get("/").host("api.example.com")).assert_status(200);
    proxy.send(get("/").host("anything.at.all")).assert_status(200);
    assert_eq!((named.count(), rest.count()), (1, 1));
}

#[test]
fn route_may_be_for_one_host_and_have_its_own_upstream() {
    let api = Upstream::start();
    let files = Upstream::start();
    let policy = Policy::before(&api).and_upstream("files", &files).routes(&[
        "{ match: { host: files.example.com, path: /** }, upstream: files }",
        "{ match: { path: /** }, upstream: api }",
    ]);
    let proxy = Proxy::start(&policy);
    proxy.send(get("/").host("files.example.com")).assert_status(200);
    assert_eq!((api.count(), files.count()), (0, 1));
    proxy.get("/").assert_status(200);
    assert_eq!((api.count(), files.count()), (1, 1));
}

#[test]
fn absolute_target_and_host_have_to_agree() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for (target, forwarded) in [
        ("http://api.example.com/a/../b?c", "/b?c"),
        ("http://API.example.com/b?c", "/b?c"),
        ("http://api.example.com:80/b?c", "/b?c"),
        ("http://api.example.com./b?c", "/b?c"),
        ("http://api.example.com/b?", "/b?"),
        ("http://api.example.com?c", "/?c"),
        ("http://api.example.com", "/"),
    ] {
        proxy.send(get(target).host("api.example.com")).assert_status(200);
        assert_eq!(upstream.last().target, forwarded, "for {target}");
    }
    let forwarded = upstream.count();
    for (target, host) in [
        ("http://other.example.com/", "api.example.com"),
        ("http://api.example.com:81/", "api.example.com"),
        ("http://api.example.com/", "api.example.com:81"),
        ("http://user@api.example.com/", "api.example.com"),
    ] {
        proxy.send(get(target).host(host)).assert_status(400);
    }
    assert_eq!(upstream.count(), forwarded);
}

#[test]
fn host_must_be_there_once_and_be_a_host() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    for fields in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: a, b\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: user@a\r\n",
        "Host: a:port\r\n",
        "Host: a:99999\r\n",
        "Host: [::1\r\n",
        "Host: \r\n",
        "Host: a%2eb\r\n",
    ] {
        let mut client = proxy.connect();
        client.write(format!("GET / HTTP/1.1\r\n{fields}\r\n"));
        client.read().assert_status(400);
        client.assert_closed();
    }
    let mut client = proxy.connect();
    client.write("GET http://api.example.com/ HTTP/1.1\r\n\r\n");
    client.read().assert_status(400);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn http_1_0_needs_no_host() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.write("GET /old HTTP/1.0\r\n\r\n");
    client.read().assert_status(200);
    client.assert_closed();
    assert_eq!(upstream.last().target, "/old");
}

#[test]
fn connect_and_trace_are_not_forwarded() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    let allowed = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    let host = "api.example.com:443";
    proxy
        .send(Request::new("CONNECT", host).host(host))
        .assert_status(405)
        .assert_field("allow", allowed);
    proxy.send(Request::new("TRACE", "/")).assert_status(405).assert_field("allow", allowed);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn options_asterisk_is_about_the_proxy() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    proxy
        .send(options("*"))
        .assert_status(204)
        .assert_field("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn options_of_a_path_is_forwarded() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream));
    proxy.send(options("/x")).assert_status(200);
    assert_eq!(upstream.last().method, "OPTIONS");
}

#[test]
fn http_2_is_routed_by_its_authority() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream).hosts("[api.example.com]"));
    let request = |uri: &str| http::Request::get(uri).body(String::new()).unwrap();
    let disagreeing = http::Request::get("http://api.example.com/")
        .header("host", "other.example.com")
        .body(String::new())
        .unwrap();
    let responses = http2(
        proxy.address(),
        vec![
            request("http://API.example.com:8080/a/../b?c"),
            request("http://other.example.com/"),
            request("http://api.example.com/x/%2e%2e/%61dmin"),
            disagreeing,
            request("http://api.example.com/x%2fadmin"),
        ],
    );
    let statuses: Vec<u16> = responses.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses, [200, 404, 401, 400, 400]);
    let seen = upstream.last();
    assert_eq!(seen.target, "/b?c");
    assert_eq!(seen.fields.one("host"), Some("api.example.com:8080"));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn log_tells_the_path_that_was_matched() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&guarded(&upstream));
    proxy.get("//a/..//%61dmin?query").assert_status(401);
    let log = proxy.into_log();
    assert!(log.contains(" GET /admin route=/admin 401 "), "{log}");
}
