//! Whole configurations, and what their policies have.

use super::*;
use crate::Verdict;

mod rows;

/// The policy of what stands in `http`, where `P` is a `proxy_pass`.
fn import(http: &str) -> Imported {
    let text = format!("http {{ {http} }}")
        .replace("P;", "proxy_pass http://app:3000; proxy_set_header Host $host;");
    nginx(&[Input { name: "f".into(), text }], &Options::default()).unwrap()
}

const ZONES: &str = "limit_req_zone $binary_remote_addr zone=a:1m rate=5r/m;
    limit_req_zone $binary_remote_addr zone=b:1m rate=2r/s; limit_conn_zone $binary_remote_addr zone=c:1m;";

#[test]
fn limits_are_those_of_the_zones_and_their_places() {
    for (http, wanted) in [
        (
            "server { location / { limit_req zone=a burst=20 nodelay; P; } }",
            &["a: { per: client.ip, rate: 83/1000s, algorithm: gcra, burst: 21, ipv6_prefix: 128 }", "denied_status: 503"][..],
        ),
        ("server { location / { limit_req zone=b; P; } }", &["rate: 2/second, algorithm: gcra, burst: 1"]),
        ("limit_req_status 429; server { location / { limit_conn c 3; limit_req zone=b; P; } }", &["concurrent: 3", "denied_status: 429", "limits: [b, c]"]),
        // A place replaces the limits above it of its own kind alone.
        ("server { limit_req zone=a; limit_conn c 3; location / { P; } location /l { limit_req zone=b; P; } }",
         &["path: /l*/** }, auth: none, limits: [b, c]", "path: /** }, auth: none, limits: [a, c]"]),
        // One counter with two rooms: the smaller one charges both.
        ("server { location / { limit_req zone=a burst=9; P; } location /l { limit_req zone=a burst=2; P; } }",
         &["a-2: {", "burst: 3", "a-9: {", "burst: 10", "limits: [a-2, a-9]", "/** }, auth: none, limits: [a-9]"]),
        // One counter for all servers.
        ("limit_req zone=a; server { server_name x.test; location / { P; } } server { server_name y.test; location / { P; } }",
         &["host: y.test }, auth: none, limits: [a]", "path: /** }, auth: none, limits: [a]"]),
        ("limit_req zone=a; limit_req_dry_run on; server { location / { P; } location /x/ { limit_req_dry_run off; P; } }",
         &["a-dry-run: {", "mode: shadow", "/x/** }, auth: none, limits: [a]", "/** }, auth: none, limits: [a-dry-run]"]),
        ("limit_req_zone $server_name zone=s:1m rate=1r/s; server { server_name x.test; location / { limit_req zone=s; P; } }", &["s: { per: all"]),
        ("geo $g { default 1; 10.0.0.0/8 0; } map $g $k { 0 ''; 1 $binary_remote_addr; } limit_req_zone $k zone=g:1m rate=1r/s;
          server { location / { limit_req zone=g; P; } }",
         &["{ limit: g, client.ip: 10.0.0.0/8, rate: unlimited", "address: 10.0.0.0 }, repeat: 10, expect: { admitted: 10 }"]),
        ("map $request_method $k { POST $binary_remote_addr; } limit_req_zone $k zone=g:1m rate=1r/s; server { location / { limit_req zone=g; P; } }",
         &["methods: [POST] }, auth: none, limits: [g]", "{ match: { path: /** }, auth: none, upgrades"]),
        // What answers a redirect within nginx is limited as its target, if it has no limits
        // itself.
        ("server { location / { try_files $uri @app; } location @app { limit_req zone=b; P; } }", &["path: /** }, auth: none, limits: [b]"]),
        ("server { location / { P; client_max_body_size 10m; proxy_read_timeout 5m; } }", &["max_body: 10MiB", "response_timeout: 300s"]),
        ("server { location /api/ { proxy_pass http://app/v2/; } location / { P; } }", &["request_headers: { set: { host: app } }", "strip_prefix: /api, add_prefix: /v2"]),
    ] {
        let policy = import(&format!("{ZONES} {http}")).policy;
        for wanted in wanted {
            assert!(policy.contains(wanted), "{http}\n{wanted}\n{policy}");
        }
    }
}

#[test]
fn what_refuses_and_has_no_counterpart_closes_its_routes() {
    for guard in [
        "auth_basic x;",
        "auth_request /auth;",
        "auth_jwt x;",
        "access_by_lua_block { x }",
        "if ($http_x = y) { return 403; }",
        "deny all;",
        "internal;",
        "return 404;",
        "modsecurity on;",
        "auth_unknown x;",
        "allow what; deny all;",
        "deny what;",
        "rewrite ^/(.*)$ /index.php last;",
        "satisfy all; allow 10.0.0.0/8; deny all; auth_basic x;",
    ] {
        let policy =
            import(&format!("server {{ location / {{ P; }} location /x/ {{ {guard} P; }} }}"))
                .policy;
        let line = policy.lines().find(|line| line.contains("path: /x/**")).unwrap();
        assert!(line.contains("deny: [0.0.0.0/0, \"::/0\"]"), "{guard}\n{policy}");
    }
    // Off where it is off.
    let policy = import("server { auth_basic x; location / { auth_basic off; P; } }").policy;
    assert!(!policy.contains("deny"), "{policy}");
    // An expression that cannot be said closes all: any path might be one that it refuses.
    let policy = import("server { location / { P; } location ~ (?i)x { deny all; } }").policy;
    assert!(policy.contains("path: /** }") && policy.contains("deny: [0.0.0.0/0"), "{policy}");
    // Any of both is enough: the networks alone are.
    let policy = import(
        "server { location / { satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; P; } }",
    )
    .policy;
    assert!(policy.contains("allow: [10.0.0.0/8]") && !policy.contains("deny: ["), "{policy}");
}

#[test]
fn tokens_are_checked_where_their_issuer_is_known() {
    let jwt = "map $jwt_claim_iss $i { https://id.test 1; } server { location / { auth_jwt x token=$cookie_t; auth_jwt_key_file k.json; REQUIRE P; } }";
    let policy = import(&jwt.replace("REQUIRE", "auth_jwt_require $i;")).policy;
    for wanted in [
        "issuer: \"https://id.test\"",
        "jwks_file: k.json",
        "leeway: 0s",
        "cookie: t",
        "auth: required",
    ] {
        assert!(policy.contains(wanted), "{wanted}\n{policy}");
    }
    assert!(import(&jwt.replace("REQUIRE", "")).policy.contains("deny"));
}

#[test]
fn nothing_is_dropped_without_a_row_and_no_secret_is_printed() {
    let imported = import(
        "unknown_module s; limit_rate 5k; server { location / { P; proxy_set_header Authorization 's3cret'; proxy_set_header X-Real-IP $remote_addr;
         if ($arg_key = s3cret) { return 403; } } listen 80; server_name x; }
         server { listen 443; server_name x; location / { limit_req zone=z; P; } } limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;",
    );
    let left_out: Vec<&str> = imported
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::LeftOut)
        .map(|finding| finding.there.as_str())
        .collect();
    for wanted in [
        "unknown_module s",
        "limit_rate 5k",
        "proxy_set_header X-Real-IP $remote_addr",
        "server_name x",
        "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s",
    ] {
        assert!(left_out.contains(&wanted), "{wanted}: {left_out:?}");
    }
    let shown = format!("{:?}", imported.findings);
    assert!(!shown.contains("s3cret") && !imported.policy.contains("s3cret"), "{shown}");
}

#[test]
fn problems_name_the_place_and_what_to_write() {
    for (text, place) in [
        ("server { limit_req zone=a; location / { proxy_pass http://x; } }", "f:1:10"),
        (
            "limit_req_zone $a zone=a:1m rate=5r/h; server { location / { proxy_pass http://x; } }",
            "f:1:1",
        ),
        ("limit_req_zone $remote_addr zone=a:1m;", "f"),
        ("server { location / { root /x; } }", "f"),
    ] {
        let problems = nginx(&[Input { name: "f".into(), text: text.into() }], &Options::default())
            .unwrap_err();
        assert_eq!(problems[0].file(), place, "{text}: {problems:?}");
        assert!(!problems[0].help().is_empty());
    }
}

#[test]
fn location_with_more_limits_than_a_route_may_have_is_a_problem() {
    let with = |count: usize| {
        let zones: String = (0..count)
            .map(|at| format!("limit_req_zone $remote_addr zone=z{at}:1m rate=1r/s; "))
            .collect();
        let uses: String = (0..count).map(|at| format!("limit_req zone=z{at}; ")).collect();
        let text = format!("{zones}\nserver {{ location / {{ {uses} proxy_pass http://x; }} }}");
        nginx(&[Input { name: "f".into(), text }], &Options::default())
    };
    assert!(with(8).is_ok());
    let problems = with(9).unwrap_err();
    assert_eq!((problems.len(), problems[0].file()), (1, "f:2:10"), "{problems:?}");
    assert!(problems[0].message().contains("9 limits"), "{problems:?}");
}

#[test]
fn limit_of_methods_that_are_refused_is_none() {
    let http = |methods: &str| {
        format!(
            "map $request_method $k {{ POST $binary_remote_addr; }}
             limit_req_zone $k zone=g:1m rate=1r/s;
             server {{ location / {{ limit_req zone=g; limit_except {methods} {{ deny all; }} P; }} }}"
        )
    };
    let refused = import(&http("GET"));
    assert!(!refused.policy.contains("limits:"), "{}", refused.policy);
    let row = refused.findings.iter().find(|own| own.there == "limit_req zone=g").unwrap();
    assert_eq!(row.verdict, Verdict::Nearly);
    assert!(import(&http("GET POST")).policy.contains("limits: [g]"));
}

/// The lines of the routes of a policy.
fn routes(policy: &str) -> impl Iterator<Item = &str> {
    policy.lines().filter(|line| line.contains("{ match: {"))
}

#[test]
fn what_lies_deeper_than_the_patterns_of_an_expression_is_closed() {
    let deepest = format!("path: {}/** }}", "/*".repeat(14));
    let closed = |policy: &str, path: &str| {
        let line = routes(policy).find(|line| line.contains(path));
        line.unwrap_or_else(|| panic!("{path}\n{policy}")).contains("deny: [0.0.0.0/0, \"::/0\"]")
    };
    for location in [
        "~ /\\. { deny all; }",
        "~* \\.(env|bak|sql)$ { deny all; }",
        "~ \\.json$ { limit_req zone=a; P; }",
        "~ \\.json$ { allow 10.0.0.0/8; deny all; P; }",
        "~ \\.json$ { limit_except GET { deny all; } P; }",
        "~ \\.json$ { limit_req zone=b burst=2; P; }",
    ] {
        let imported = import(&format!(
            "{ZONES} server {{ location {location} location / {{ limit_req zone=b burst=3; P; }} }}"
        ));
        assert!(closed(&imported.policy, &deepest), "{}", imported.policy);
        let row = imported.findings.iter().find(|own| own.here.starts_with("deeper than 12"));
        assert_eq!(row.unwrap().verdict, Verdict::Nearly, "{location}");
    }
    let policy = import(&format!(
        "{ZONES} server {{ location ~ ^/api/.*/export$ {{ limit_req zone=a; P; }} location / {{ P; }} }}"
    ))
    .policy;
    assert!(closed(&policy, &format!("path: /api{}/** }}", "/*".repeat(13))), "{policy}");
    // The routes behind it are as strict.
    for (location, other) in [
        ("P;", "limit_req zone=a; P;"),
        ("limit_req zone=a burst=5; P;", "limit_req zone=a burst=2; limit_conn c 2; P;"),
        ("limit_req zone=a; P;", "deny all;"),
    ] {
        let policy = import(&format!(
            "{ZONES} server {{ location ~ \\.json$ {{ {location} }} location / {{ {other} }} }}"
        ))
        .policy;
        assert!(!policy.contains(&deepest), "{policy}");
    }
}
