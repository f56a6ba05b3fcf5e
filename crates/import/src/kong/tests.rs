use super::*;
use crate::{
    Verdict,
    inspection::{is_closed, rows, section},
};

fn input(text: &str) -> Input {
    Input { name: "kong.yml".to_owned(), text: text.to_owned() }
}

fn import(text: &str) -> Imported {
    kong(&[input(text)], &Options::default()).unwrap()
}

/// One service with one route, with these plugins, and what else is in the file.
fn file(route: &str, plugins: &str, more: &str) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- {{ name: shop, url: \"http://10.0.0.1:80\", \
         routes: [{{ name: r, {route} }}], plugins: [{plugins}] }}\n{more}\n"
    )
}

const PEOPLE: &str = "consumers:\n\
    - { username: alice, keyauth_credentials: [{ key: hunter2 }], acls: [{ group: staff }], \
        jwt_secrets: [{ key: alice-iss, secret: hunter2 }] }\n\
    - { username: bob, jwt_secrets: [{ key: bob-iss, secret: hunter2 }] }\n\
    - { username: nobody }\n";

#[test]
fn example_of_the_page_leaves_nothing_out() {
    let imported = import(include_str!("../../examples/kong.yml"));
    assert_eq!(rows(&imported, Verdict::LeftOut), "");
    let page = include_str!("../../../../docs/from-kong.md");
    for line in section(&imported, "limits").iter().chain(&section(&imported, "routes")) {
        assert!(page.contains(line.as_str()), "{line}");
    }
}

#[test]
fn limits_say_what_plugins_count() {
    for (plugin, expected) in [
        (
            "{ name: rate-limiting, config: { second: 5, hour: 10000, limit_by: ip } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: [5/second, 10000/hour], align: epoch }",
        ),
        // Nobody is known.
        (
            "{ name: rate-limiting, config: { minute: 2.5 } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: 3/minute, align: epoch }",
        ),
        (
            "{ name: rate-limiting, config: { day: 7, limit_by: service } }",
            "{ per: all, rate: 7/day, align: epoch }",
        ),
        (
            "{ name: rate-limiting, config: { year: 7, limit_by: service, policy: redis, \
             redis: { password: hunter2 } } }",
            "{ per: all, rate: 7/year, align: calendar, on_store_error: open }",
        ),
        (
            "{ name: rate-limiting, config: { day: 7, limit_by: header } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: 7/day, align: epoch }",
        ),
        (
            "{ name: rate-limiting-advanced, config: { limit: [5, 9], window_size: [60, 90], \
             identifier: ip } }",
            "{ per: client.ip, ipv6_prefix: 128, rate: [5/minute, 9/90s], algorithm: \
             sliding_window }",
        ),
        (
            "{ name: rate-limiting-advanced, config: { limit: 5, window_size: 30, \
             window_type: fixed, identifier: service } }",
            "{ per: all, rate: 5/30s, align: epoch }",
        ),
    ] {
        let imported = import(&file("paths: [/a]", plugin, ""));
        let limits = section(&imported, "limits");
        assert!(limits.len() == 1 && limits[0].ends_with(expected), "{plugin}: {limits:?}");
        assert!(!is_closed(&imported) && !format!("{imported:?}").contains("hunter2"));
    }
}

#[test]
fn header_falls_back_to_the_address() {
    let plugin =
        "{ name: rate-limiting, config: { minute: 5, limit_by: header, header_name: X-T } }";
    let imported = import(&file("paths: [/a]", plugin, ""));
    let expected = [
        "shop: { per: header.x-t, on_missing: skip, rate: 5/minute, align: epoch }",
        "shop-address: { per: client.ip, ipv6_prefix: 128, rate: 5/minute, align: epoch }",
    ];
    assert_eq!(section(&imported, "limits"), expected);
    assert!(section(&imported, "routes")[0].contains("limits: [shop, shop-address]"));
}

#[test]
fn what_refuses_and_has_no_counterpart_closes_its_routes() {
    for (plugin, why) in [
        ("{ name: basic-auth }", "nothing here knows these credentials"),
        ("{ name: openid-connect, config: { client_secret: [hunter2] } }", "identity.jwt"),
        ("{ name: my-guard, config: { token: hunter2 } }", "not known"),
        ("{ name: request-termination, config: { status_code: 200 } }", "answers all requests"),
        ("{ name: request-termination, config: { trigger: x-a } }", "some requests"),
        ("{ name: acl, config: { allow: [staff] } }", "nobody is known"),
        ("{ name: jwt, config: { key_claim_name: kid } }", "`kid`"),
        ("{ name: jwt, config: { maximum_expiration: \"${{ x }}\" } }", "maximum_expiration"),
        ("{ name: jwt }, { name: acl, config: { deny: [\"${{ x }}\"] } }", "filled in"),
        ("{ name: jwt, config: { keys: x } }", "`keys` is no option"),
        ("{ name: jwt }, { name: key-auth }", "both"),
        ("{ name: key-auth }, { name: acl, config: { allow: [nobody] } }", "only some holders"),
        ("{ name: jwt }, { name: acl, config: { allow: [nobody] } }", "no consumer"),
        ("{ name: ip-restriction, config: { allow: [10.0.0.0/40] } }", "networks"),
        ("{ name: ip-restriction }", "no network"),
        ("{ name: rate-limiting, config: { minute: 0 } }", "limit of 0"),
        ("{ name: rate-limiting, config: {} }", "no limit"),
        ("{ name: rate-limiting, config: { minute: \"${{ env \\\"DECK_RATE\\\" }}\" } }", "number"),
        ("{ name: rate-limiting, config: { minute: 5, limit_by: path, path: /a } }", "counterpart"),
        ("{ name: rate-limiting, config: { minute: 5, weight: 2 } }", "`weight` is no option"),
        (
            "{ name: rate-limiting-advanced, config: { limit: [1, 2], window_size: [60] } }",
            "windows",
        ),
        ("{ name: rate-limiting, _config: missing }", "not known"),
        ("{ name: request-transformer, config: { replace: { uri: /b } } }", "other paths"),
    ] {
        let imported = import(&file("paths: [/a]", plugin, PEOPLE));
        assert!(is_closed(&imported), "{plugin}");
        let left_out = rows(&imported, Verdict::LeftOut);
        assert!(
            left_out.contains(why) && left_out.contains("closed (deny)"),
            "{plugin}: {left_out}"
        );
        assert!(imported.policy.contains("# To do: routes are closed"), "{}", imported.policy);
        assert!(imported.policy.contains("status: 403"));
        assert!(!format!("{imported:?}").contains("hunter2"), "{plugin}");
    }
    for route in
        ["routes:\n- { name: a, paths: [/a], service: missing }\n", "routes:\n- { paths: [/a] }\n"]
    {
        assert!(is_closed(&import(route)), "{route}");
    }
}

#[test]
fn most_specific_plugin_is_in_force() {
    let text = "\
services:
- name: shop
  url: http://10.0.0.1
  plugins: [{ name: jwt }, { name: rate-limiting, config: { minute: 10 } }]
  routes:
  - { name: a, paths: [/a] }
  - { name: b, paths: [/b], plugins: [{ name: rate-limiting, config: { minute: 20 } }] }
  - { name: c, paths: [/c], plugins: [{ name: rate-limiting, enabled: false, config: { minute: 1 \
} }] }
plugins:
- { name: rate-limiting, config: { minute: 30 } }
- { name: rate-limiting, route: b, consumer: bob, config: { minute: 40 } }
consumers:
- username: alice
  jwt_secrets: [{ key: alice-iss }]
  plugins: [{ name: rate-limiting, config: { minute: 50 } }]
- { username: bob, jwt_secrets: [{ key: bob-iss }] }
- { username: carol, jwt_secrets: [{ key: carol-iss }], groups: [{ name: gold }] }
consumer_groups:
- { name: gold, plugins: [{ name: rate-limiting, config: { minute: 60 } }] }
";
    let imported = import(text);
    let limits = section(&imported, "limits");
    let expected = [
        "{ alice: unlimited, gold: unlimited, default: 10/minute }",
        "{ alice: 50/minute, gold: 60/minute, default: unlimited }",
        "{ alice: unlimited, bob: unlimited, gold: unlimited, default: 20/minute }",
        "{ bob: 40/minute, default: unlimited }",
    ];
    assert_eq!(limits.len(), 4, "{limits:?}");
    for rate in expected {
        assert!(limits.iter().any(|own| own.contains(rate)), "{rate}: {limits:?}");
    }
    let routes = section(&imported, "routes");
    for limits in ["limits: [shop, consumers]", "limits: [b, consumers, b-consumers]"] {
        assert!(routes.iter().any(|route| route.contains(limits)), "{limits}: {routes:?}");
    }
    assert!(imported.policy.contains("map: { alice-iss: alice, bob-iss: bob, carol-iss: gold }"));
    assert!(rows(&imported, Verdict::LeftOut).contains("rate-limiting: in force on no route"));
    assert!(rows(&imported, Verdict::Same).contains("enabled: false"));
}

#[test]
fn credentials_are_issuers_and_keys_that_are_not_shown() {
    let jwt = import(&file(
        "paths: [/a]",
        "{ name: jwt }, { name: acl, config: { allow: [staff] } }",
        PEOPLE,
    ));
    assert!(section(&jwt, "routes")[0].contains("auth: { required: [alice] }"));
    for secret in ["secret_env: KONG_JWT_ALICE, algorithms: [HS256]", "query: jwt"] {
        assert!(jwt.policy.contains(secret), "{}", jwt.policy);
    }
    let deny = "{ name: key-auth }, { name: acl, config: { deny: [thieves] } }";
    let keys = import(&file("paths: [/a]", deny, PEOPLE));
    assert!(section(&keys, "routes")[0].contains("auth: { required: [api_keys] }"));
    assert!(keys.policy.contains("remove: [x-consumer-id, "));
    assert!(
        keys.policy.contains("tollgate key --id alice --owner 'alice' --append kong-keys.yaml")
    );
    assert!(!format!("{jwt:?}{keys:?}").contains("hunter2"));
}

#[test]
fn anonymous_consumer_may_pass_unless_kong_answers_it() {
    let plugin = "{ name: key-auth, config: { anonymous: nobody } }, \
                  { name: rate-limiting, config: { minute: 5 } }";
    let imported = import(&file("paths: [/a]", plugin, PEOPLE));
    assert!(section(&imported, "routes")[0].contains("auth: { optional: [api_keys] }"));
    assert!(section(&imported, "limits")[0].contains("per: caller, on_missing: share"));
    let refused = "plugins:\n- { name: request-termination, consumer: nobody }\n";
    let both = "{ name: key-auth, config: { anonymous: nobody } }, \
                { name: jwt, config: { anonymous: nobody } }";
    let imported = import(&file("paths: [/a]", both, &format!("{PEOPLE}{refused}")));
    let route = &section(&imported, "routes")[0];
    assert!(route.contains("auth: { required: [alice, bob, api_keys] }"), "{route}");
    assert!(!is_closed(&imported));
    let missing = "{ name: key-auth, config: { anonymous: missing } }";
    let imported = import(&file("paths: [/a]", missing, PEOPLE));
    assert!(section(&imported, "routes")[0].contains("required"));
}

#[test]
fn routes_are_tried_in_the_order_of_the_router() {
    let routes = "services:\n- name: s\n  url: http://a\n  routes:\n\
        \x20 - { name: short, paths: [/a] }\n\
        \x20 - { name: long, paths: [/a/b] }\n\
        \x20 - { name: expression, paths: [\"~/z$\"] }\n\
        \x20 - { name: star, hosts: [\"*.a\"], paths: [/] }\n\
        \x20 - { name: host, hosts: [b.a], paths: [/] }\n\
        \x20 - { name: two, hosts: [b.a], methods: [GET], paths: [/] }\n";
    let names: Vec<String> = section(&import(routes), "routes")
        .iter()
        .map(|line| line.split([',', ':']).nth(1).unwrap().trim().to_owned())
        .collect();
    let tie = "services: [{ url: 'http://a', routes: [{ paths: [/a] }, { paths: [/a] }] }]";
    assert!(rows(&import(tie), Verdict::Nearly).contains("which one is first"));
    assert_eq!(names, ["two", "host", "star", "expression", "long", "short"]);
}

#[test]
fn conditions_without_a_counterpart_never_open_more() {
    let limit = "{ name: rate-limiting, config: { minute: 5 } }";
    for (route, plugins, expected) in [
        ("paths: [/a], headers: { x-v: [\"2\"] }", "", ""),
        (
            "paths: [/a], headers: { x-v: [\"2\"] }",
            "{ name: basic-auth }",
            "path: /a*/** }, auth: none, deny",
        ),
        (
            "paths: [\"~/users/\\\\d+$\"]",
            "{ name: basic-auth }",
            "path: /users/** }, auth: none, deny",
        ),
        // The routes behind have the same limits: of the service.
        ("paths: [/a], headers: { x-v: [\"2\"] }", limit, ""),
        (
            "expression: 'http.path == \"/x\"'",
            "{ name: basic-auth }",
            "path: /x }, auth: none, deny",
        ),
    ] {
        let open = format!("paths: [/low], strip_path: false }}, {{ name: own, {route}");
        let imported = import(&file(&open, plugins, ""));
        let own = section(&imported, "routes");
        let own = own.iter().find(|route| route.starts_with("{ name: own"));
        match expected {
            "" => assert_eq!(own, None, "{route}"),
            _ => assert!(own.is_some_and(|own| own.contains(expected)), "{route}: {own:?}"),
        }
    }
}

#[test]
fn services_are_upstreams_with_their_targets() {
    let text = "services:\n\
        - { name: a, host: pool, protocol: https, path: /v1, connect_timeout: 1500, routes: [{ \
        paths: [/a] }] }\n\
        - { name: b, url: \"grpc://10.0.0.1:9\", routes: [{ paths: [/b], preserve_host: true }] }\n\
        - { name: c, url: \"http://u:hunter2@c\", routes: [{ paths: [/c] }] }\n\
        - { name: d, url: \"http://d\", enabled: false, routes: [{ paths: [/d] }] }\n\
        upstreams:\n- { name: pool, host_header: pool.example, targets: [{ target: \
        \"10.0.0.2:80\", weight: 2 }, { target: \"10.0.0.3:80\", weight: 1 }, { target: \
        \"10.0.0.4:80\", weight: 0 }] }\n";
    let imported = import(text);
    let expected = [
        "a: { servers: [{ url: \"https://10.0.0.2:80\", weight: 2 }, { url: \
         \"https://10.0.0.3:80\", weight: 1 }], balance: round_robin, connect_timeout: 1500ms, \
         paths: {} }",
        "b: { servers: [\"http://10.0.0.1:9\"], protocol: h2, paths: {} }",
        "c: { servers: [\"http://127.0.0.1:9\"], paths: {} }",
    ];
    assert_eq!(section(&imported, "upstreams"), expected);
    let routes = section(&imported, "routes");
    assert!(
        routes[0].contains("add_prefix: /v1, request_headers: { set: { host: pool.example } }")
    );
    assert!(
        !routes[1].contains("host") && routes.len() == 3 && !imported.policy.contains("hunter2")
    );
}

#[test]
fn files_are_yaml_or_json() {
    let json = r#"{ "services": [{ "url": "http://a", "routes": [{ "paths": ["/a"] }] }] }"#;
    assert_eq!(section(&import(json), "routes").len(), 1);
    let secret = "consumers: [{ username: a, keyauth_credentials: [{ key: hunter2 }}\n";
    let problems = kong(&[input(secret)], &Options::default()).unwrap_err();
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(shown[0].starts_with("kong.yml:1") && !shown.concat().contains("hunter2"), "{shown:?}");
    for (text, message) in [
        ("a: b\n", "no configuration of Kong"),
        ("kind: KongPlugin\nplugins: []\n", "no configuration of Kong"),
        ("_format_version: \"3.0\"\n", "no route"),
        ("routes: [\n", ""),
        ("routes: [{ name: a, protocols: [tcp] }]\n", "route a"),
    ] {
        let problems = kong(&[input(text)], &Options::default()).unwrap_err();
        assert!(problems.iter().any(|own| own.message().contains(message)), "{text}: {problems:?}");
    }
}

#[test]
fn names_that_are_doubled_or_lost_are_said() {
    let imported = import(&file(
        "paths: [/a]",
        "",
        "routes:\n- { name: r, service: shop, paths: [/b] }\nplugins:\n- { name: acl, route: \
         missing }\n\
         vaults:\n- { name: env }\nacls:\n- { consumer: missing, group: a }\n",
    ));
    let left_out = rows(&imported, Verdict::LeftOut);
    for row in ["r: another of this name", "plugin of something", "vaults", "acls of something"] {
        assert!(left_out.contains(row), "{row}: {left_out}");
    }
}

mod deciding;
mod reading;
