use super::*;
use crate::inspection::{is_closed, rows, section};

const STATIC: &str = "entryPoints: { web: { address: \":80\" } }\n";

fn input(text: &str) -> Input {
    Input { name: "t.yaml".to_owned(), text: text.to_owned() }
}

/// What becomes of files, with their static configuration.
fn import(files: &[&str]) -> Imported {
    let inputs: Vec<Input> = files.iter().chain([&STATIC]).map(|text| input(text)).collect();
    traefik(&inputs, &Options::default()).unwrap()
}

/// A configuration of routers and middlewares, with a service `app`.
fn file(routers: &str, middlewares: &str) -> String {
    format!(
        "http:\n  routers: {{ {routers} }}\n  middlewares: {{ {middlewares} }}\n  services: \
         {{ app: {{ loadBalancer: {{ servers: [{{ url: \"http://10.0.0.1:80\" }}] }} }} }}\n"
    )
}

/// One router for everything, with one middleware.
fn guarded(middleware: &str) -> String {
    file(
        "r: { rule: \"PathPrefix(`/`)\", service: app, middlewares: [m] }",
        &format!("m: {middleware}"),
    )
}

#[test]
fn example_of_the_page_leaves_nothing_out() {
    let text = include_str!("../../examples/traefik.yml");
    let imported = traefik(&[input(text)], &Options::default()).unwrap();
    assert_eq!(rows(&imported, Verdict::LeftOut), "");
    let page = include_str!("../../../../docs/from-traefik.md");
    for line in section(&imported, "limits").iter().chain(&section(&imported, "routes")) {
        assert!(page.contains(line.as_str()), "{line}");
    }
}

#[test]
fn limits_say_what_middlewares_count() {
    for (middleware, expected) in [
        (
            "{ rateLimit: { average: 100, period: 1m } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: 100/minute, algorithm: gcra, burst: 1 }",
        ),
        // A number without a unit is seconds, and names are in any case.
        (
            "{ ratelimit: { AVERAGE: \"6\", period: 90, burst: 12 } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: 6/90s, algorithm: gcra, burst: 12 }",
        ),
        (
            "{ rateLimit: { average: 5, burst: -3, sourceCriterion: { requestHeaderName: X-Key } } }",
            "{ per: header.x-key, on_missing: share, rate: 5/second, algorithm: gcra, burst: 1 }",
        ),
        (
            "{ rateLimit: { average: 5, sourceCriterion: { requestHeaderName: CF-Connecting-IP } } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: 5/second, algorithm: gcra, burst: 1 }",
        ),
        (
            "{ rateLimit: { average: 5, sourceCriterion: { ipStrategy: { ipv6Subnet: 56 } } } }",
            "{ per: client.ip, ipv6_prefix: 56, rate: 5/second, algorithm: gcra, burst: 1 }",
        ),
        // The entry point trusts nobody, so all clients are one.
        (
            "{ rateLimit: { average: 5, sourceCriterion: { ipStrategy: { depth: 1 } } } }",
            "{ per: all, rate: 5/second, algorithm: gcra, burst: 1 }",
        ),
        (
            "{ rateLimit: { average: 5, redis: { password: hunter2 } } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: 5/second, algorithm: gcra, burst: 1, \
             on_store_error: closed }",
        ),
        ("{ inFlightReq: { amount: 10 } }", "{ per: host, concurrent: 10 }"),
        (
            "{ inFlightReq: { amount: 10, sourceCriterion: { ipStrategy: { ipv6Subnet: 64 } } } }",
            "{ per: client.ip, ipv6_prefix: 64, concurrent: 10 }",
        ),
    ] {
        let imported = import(&[&guarded(middleware)]);
        let limits = section(&imported, "limits");
        let own = limits[0].split_once(": ").unwrap().1;
        assert_eq!((limits.len(), own), (1, expected), "{middleware}");
        assert!(
            !is_closed(&imported) && rows(&imported, Verdict::LeftOut).is_empty(),
            "{middleware}"
        );
        assert!(!imported.policy.contains("hunter2"));
    }
}

#[test]
fn what_refuses_and_has_no_counterpart_closes_its_routes() {
    for (middleware, why) in [
        ("{ forwardAuth: { address: \"http://a/verify\" } }", "nothing here asks a server"),
        ("{ basicAuth: { users: [\"u:$apr1$hash\"] } }", "passwords"),
        ("{ plugin: { bouncer: { key: secret } } }", "a plugin may refuse"),
        ("{ ipAllowList: { sourceRange: [] } }", "`sourceRange` is empty"),
        ("{ ipAllowList: { sourceRange: [10.0.0.0/40] } }", "no network"),
        (
            "{ ipAllowList: { sourceRange: [10.0.0.0/8], ipStrategy: { depth: 1 } } }",
            "Traefik refuses everybody",
        ),
        ("{ chain: { middlewares: [missing] } }", "`missing` is not in the files"),
        ("{ chain: { middlewares: [m, m] } }", "have no end"),
        ("{ compress: {}, retry: {} }", "exactly one type"),
        ("{ something: {} }", "it is not known"),
        ("{ replacePath: { path: /a } }", "other paths"),
        ("{ headers: { allowedHosts: [a] } }", "`allowedHosts` refuses"),
        ("{ inFlightReq: { amount: 0 } }", "denies everything"),
        ("{ rateLimit: { average: 0, redis: {} } }", ""),
        ("{ rateLimit: { average: 0, redis: { db: 1 } } }", "denies everything"),
        ("{ rateLimit: { average: 1, period: -1s } }", "negative"),
        ("{ rateLimit: { average: 1, period: 1us } }", "whole milliseconds"),
        ("{ rateLimit: { average: 4294967296 } }", "2147483647"),
        ("{ rateLimit: { average: many } }", "no whole number"),
        ("{ rateLimit: { average: 1, avarage: 2 } }", "`avarage` is no option"),
        ("{ rateLimit: { average: 1, sourceCriterion: {} } }", "refuses the whole file"),
        (
            "{ rateLimit: { average: 1, sourceCriterion: { requestHost: true, requestHeaderName: a } } }",
            "more than one criterion",
        ),
        (
            "{ rateLimit: { average: 1, sourceCriterion: { ipStrategy: { ipv6Subnet: 16 } } } }",
            "below 32",
        ),
    ] {
        let imported = import(&[&guarded(middleware)]);
        assert!(is_closed(&imported), "{middleware}");
        let left_out = rows(&imported, Verdict::LeftOut);
        assert!(left_out.contains(why) && left_out.contains("closed (deny)"), "{left_out}");
        assert!(imported.policy.contains("# To do: routes are closed"), "{}", imported.policy);
        assert!(imported.policy.contains("status: 403"));
        let all = format!("{}{:?}", imported.policy, imported.findings);
        assert!(!all.contains("apr1") && !all.contains("secret"), "{all}");
    }
}

#[test]
fn limit_in_memory_is_one_for_each_router_and_with_redis_one_for_all() {
    let routers = "a: { rule: \"Host(`a`) && (Path(`/x`) || Path(`/y`))\", service: app, middlewares: [m] }, \
                   b: { rule: \"Host(`b`)\", service: app, middlewares: [c, m@file] }";
    for (redis, limits, tests) in [
        (
            "",
            &["m-a", "m-b"][..],
            "\"m-a: router b has its own\", given: { path: /, host: b }, \
          expect: { admitted: 1 }, after: 0s",
        ),
        (
            ", redis: { db: 1 }",
            &["m"],
            "\"m: router b shares it\", given: { path: /, host: b }, \
          expect: { admitted: 0 }, after: 0s",
        ),
    ] {
        let m = format!(
            "m: {{ rateLimit: {{ average: 5, burst: 7{redis} }} }}, c: {{ chain: {{ middlewares: [m] }} }}"
        );
        let imported = import(&[&file(routers, &m)]);
        let names: Vec<String> = section(&imported, "limits")
            .iter()
            .map(|line| line.split(':').next().unwrap().to_owned())
            .collect();
        assert_eq!(names, limits);
        assert!(imported.policy.contains(tests), "{}", imported.policy);
        assert!(imported.policy.contains("expect: { admitted: 7 }, repeat: 14"));
        assert_eq!(rows(&imported, Verdict::LeftOut).contains("twice"), !redis.is_empty());
    }
}

#[test]
fn routes_are_in_the_order_of_priorities() {
    let routers = "short: { rule: \"Host(`a`)\", service: app }, \
                   long: { rule: \"Host(`a`) && PathPrefix(`/b`)\", service: app }, \
                   last: { rule: \"Host(`a`) && PathPrefix(`/b/c`)\", service: app, priority: -1 }, \
                   first: { rule: \"Host(`z`)\", service: app, priority: 100 }";
    let imported = import(&[&file(routers, "")]);
    let names: Vec<String> = section(&imported, "routes")
        .iter()
        .map(|line| line.split([',', ':']).nth(1).unwrap().trim().to_owned())
        .collect();
    assert_eq!(names, ["first", "long", "short", "last"]);
}

#[test]
fn conditions_without_a_counterpart_never_open_more() {
    for (rule, middlewares, routes) in [
        // It limits, so the wider route is closed.
        ("Host(`a`) && Header(`k`, `v`)", "[m]", "{ host: a, path: /** }, auth: none, deny"),
        // It does not: there is no route.
        ("Host(`a`) && Header(`k`, `v`)", "[]", ""),
        // A closed route keeps the others away.
        ("Host(`a`) && !Path(`/x`)", "[m]", "{ host: a, path: /x }, auth: none, deny"),
        // Their requests go to another router.
        ("Host(`a`) && !Path(`/y`)", "[m]", "{ host: a, path: /** }, auth: none, deny"),
    ] {
        let routers = format!(
            "own: {{ rule: \"{rule}\", service: app, priority: 9, middlewares: {middlewares} }}, \
             low: {{ rule: \"Host(`a`) && Path(`/y`)\", service: app, priority: 1 }}"
        );
        let imported = import(&[&file(&routers, "m: { rateLimit: { average: 5 } }")]);
        let own = &section(&imported, "routes")[0];
        match routes {
            "" => assert!(own.starts_with("{ name: low"), "{own}"),
            _ => assert!(own.contains(routes), "{rule}: {own}"),
        }
        assert_eq!(rows(&imported, Verdict::LeftOut).is_empty(), rule.contains("/x"), "{rule}");
    }
    let above = "own: { rule: \"Host(`a`) && !Path(`/y`)\", service: app, priority: 1 }, \
                 y: { rule: \"Host(`a`) && Path(`/y`)\", service: app, priority: 9 }";
    let imported = import(&[&file(above, "")]);
    assert!(rows(&imported, Verdict::Same).contains("a route above takes these requests"));
    assert!(!imported.policy.contains("deny"));
}

#[test]
fn header_that_is_written_before_a_limit_is_not_the_clients() {
    let limit = "l: { rateLimit: { average: 5, sourceCriterion: { requestHeaderName: X-User } } }";
    let routers = "r: { rule: \"PathPrefix(`/`)\", service: app, middlewares: [before, l] }";
    for (before, expected) in [
        ("{ headers: { customRequestHeaders: { X-User: all } } }", "per: all"),
        ("{ forwardAuth: { address: a, authResponseHeaders: [X-User] } }", ""),
        ("{ basicAuth: { users: [], headerField: x-user } }", ""),
        ("{ plugin: { jwt: {} } }", ""),
    ] {
        let imported = import(&[&file(routers, &format!("before: {before}, {limit}"))]);
        let limits = section(&imported, "limits").join("");
        assert!(
            limits.contains(expected) && !limits.contains("header.x-user"),
            "{before}: {limits}"
        );
        assert_eq!(is_closed(&imported), expected.is_empty());
    }
}

#[test]
fn entry_points_have_middlewares_and_trust() {
    let entry = "entryPoints:\n  web: { http: { middlewares: [m@file] }, forwardedHeaders: { trustedIPs: [10.0.0.0/8] } }\n";
    let file = file(
        "r: { rule: \"PathPrefix(`/`)\", service: app, entryPoints: [web] }, \
         s: { rule: \"PathPrefix(`/`)\", service: app, entryPoints: [internal] }",
        "m: { rateLimit: { average: 5, sourceCriterion: { ipStrategy: { depth: 1 } } } }",
    );
    let imported = traefik(&[input(&file), input(entry)], &Options::default()).unwrap();
    assert!(section(&imported, "limits")[0].contains("per: client.ip"));
    assert!(imported.policy.contains("trusted_proxies: [10.0.0.0/8]"));
    assert!(rows(&imported, Verdict::LeftOut).contains("router s: entry points internal"));
    let internal = Options { class: Some("internal".to_owned()), ..Options::default() };
    let imported = traefik(&[input(&file)], &internal).unwrap();
    assert!(
        section(&imported, "routes")[0].contains("name: s")
            && section(&imported, "limits").is_empty()
    );
    assert!(rows(&imported, Verdict::LeftOut).contains("if entry points have middlewares"));
}

#[test]
fn objects_of_kubernetes_are_read_with_their_namespaces() {
    let text = "\
apiVersion: v1
kind: List
items:
  - { apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: { name: a-b, namespace: shop },
      spec: { chain: { middlewares: [{ name: limit }, { name: limit, namespace: other }] } } }
  - { apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: { name: limit, namespace: shop },
      spec: { rateLimit: { average: 5, sourceCriterion: {} } } }
---
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: { name: limit, namespace: other }
spec: { inFlightReq: { amount: 3, sourceCriterion: { ipStrategy: {} } } }
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: { name: web, namespace: shop }
spec:
  routes:
    - { kind: Rule, match: \"Host(`a`)\", middlewares: [{ name: a-b }], services: [{ name: api, port: 80 }, { name: old, port: 443, weight: 3 }] }
    - { kind: Rule, match: \"Host(`b`)\", services: [{ name: api, namespace: x, port: 8080, scheme: h2c }] }
---
apiVersion: v1
kind: Secret
data: { password: c2VjcmV0 }
";
    let imported = import(&[text]);
    let limits = section(&imported, "limits");
    assert_eq!(limits.len(), 2, "{limits:?}");
    assert!(
        limits[0]
            .starts_with("shop-limit-web-1: { per: client.ip, ipv6_prefix: 128, rate: 5/second")
    );
    assert!(
        limits[1]
            .starts_with("other-limit-web-1: { per: client.ip, ipv6_prefix: 128, concurrent: 3")
    );
    let upstreams = section(&imported, "upstreams");
    // Not servers of one kind.
    assert_eq!(upstreams[0], "api-old: { servers: [\"http://127.0.0.1:9\"], paths: {} }");
    assert_eq!(
        upstreams[1],
        "api: { servers: [\"http://api.x.svc:8080\"], protocol: h2, paths: {} }"
    );
}

#[test]
fn what_is_no_configuration_says_what_to_write() {
    for (name, text, message) in [
        ("a.toml", "", "TOML"),
        ("-", "[http.routers]\n", "TOML"),
        ("-", "average = 5\n", "TOML"),
        ("a.yml", "services: { app: { labels: [] } }\n", "labels"),
        ("a.yml", "a: b\n", "neither"),
        ("a.yml", "http:\n  a: '{{ env \"X\" }}'\n", "template"),
        ("a.yml", "http: { middlewares: {} }\n", "no router"),
        ("a.yml", "http: { routers: { r: { rule: foobar } } }\n", "router r"),
        ("a.yml", "http: [\n", ""),
    ] {
        let input = Input { name: name.to_owned(), text: text.to_owned() };
        let problems = traefik(&[input], &Options::default()).unwrap_err();
        assert!(problems.iter().any(|own| own.message().contains(message)), "{text}: {problems:?}");
    }
}

#[test]
fn what_passes_on_and_changes_messages_is_carried_over() {
    let middlewares = "list: { ipAllowList: { sourceRange: [10.1.0.0/8, 192.0.2.7] } }, \
        strip: { stripPrefix: { prefixes: [/x, /api] } }, add: { addPrefix: { prefix: /v1 } }, \
        body: { buffering: { maxRequestBodyBytes: 1000 } }, \
        headers: { headers: { frameDeny: true, customRequestHeaders: { A: b, C: \"\", Authorization: hunter2 } } }";
    let routers = "r: { rule: \"PathPrefix(`/api`)\", service: app, middlewares: [list, strip, add, body, headers] }";
    let imported = import(&[&file(routers, middlewares)]);
    let expected = "{ name: r, match: { path: /api*/** }, auth: none, allow: [10.0.0.0/8, 192.0.2.7], \
        limits: [], strip_prefix: /api, add_prefix: /v1, max_body: 1000, \
        request_headers: { set: { a: b }, remove: [c] }, \
        response_headers: { set: { x-frame-options: DENY } }, upstream: app }";
    assert_eq!(section(&imported, "routes"), [expected]);
    assert!(rows(&imported, Verdict::LeftOut).contains("authorization"));
    assert!(!format!("{imported:?}").contains("hunter2"));
}

#[test]
fn prefix_is_taken_off_where_paths_have_it() {
    for (rule, prefix, expected) in [
        ("PathPrefix(`/api`)", "/api", "strip_prefix: /api"),
        ("PathPrefix(`/api/v1`)", "/api", "strip_prefix: /api"),
        ("PathPrefix(`/a`)", "/api", "strip_prefix: /api"),
        ("PathPrefix(`/`)", "/api", "strip_prefix: /api"),
        ("Path(`/api`)", "/api/", "strip_prefix: /api"),
        ("PathPrefix(`/apiary`)", "/api", ""),
        ("Path(`/a`)", "/api", ""),
        ("PathPrefix(`/`)", "/a/../b", ""),
    ] {
        let routers = format!("r: {{ rule: \"{rule}\", service: app, middlewares: [m] }}");
        let middleware = format!("m: {{ stripPrefix: {{ prefixes: [\"{prefix}\"] }} }}");
        let imported = import(&[&file(&routers, &middleware)]);
        let route = &section(&imported, "routes")[0];
        assert_eq!(route.contains("strip_prefix"), !expected.is_empty(), "{route}");
        assert!(route.contains(expected), "{route}");
    }
}
