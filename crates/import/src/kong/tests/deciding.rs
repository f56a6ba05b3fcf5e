//! What differs from Kong where a policy cannot say the same: never looser without a row.

use super::*;

const TOKENS: &str = "{ name: jwt }";
const KEYED: &str = "consumers:\n\
    - { username: alice, keyauth_credentials: [{ key: hunter2 }] }\n\
    - { username: anon-a, plugins: [{ name: rate-limiting, config: { minute: 1000 } }] }\n\
    - { username: anon-b, plugins: [{ name: rate-limiting, config: { minute: 5 } }] }\n";

fn all_rows(imported: &Imported) -> String {
    [Verdict::LeftOut, Verdict::Nearly, Verdict::Same].map(|own| rows(imported, own)).concat()
}

/// Imports a file with these plugins and consumers, and expects a row that closes the route.
fn is_closed_for(plugins: &str, more: &str, why: &str) {
    let imported = import(&file("paths: [/a]", plugins, more));
    let left_out = rows(&imported, Verdict::LeftOut);
    assert!(is_closed(&imported) && left_out.contains(why), "{plugins} {more}: {left_out}");
}

#[test]
fn sliding_window_is_over_after_two_of_them() {
    let plugin = "{ name: rate-limiting-advanced, config: { limit: [100], window_size: [60], \
                  identifier: ip } }";
    let tests = section(&import(&file("paths: [/a]", plugin, "")), "tests").concat();
    assert!(tests.contains("again after 120 s") && tests.contains("after: 120s"), "{tests}");
    let fixed = plugin.replace("identifier", "window_type: fixed, identifier");
    let tests = section(&import(&file("paths: [/a]", &fixed, "")), "tests").concat();
    assert!(tests.contains("after: 60s"), "{tests}");
}

#[test]
fn each_anonymous_consumer_has_its_own_limit() {
    let service = |name: &str| {
        format!(
            "- {{ name: {name}, url: \"http://127.0.0.1:9000\", routes: [{{ name: {name}, paths: \
             [/{name}] }}], plugins: [{{ name: key-auth, config: {{ anonymous: anon-{name} }} }}] \
             }}\n"
        )
    };
    let imported = import(&format!("services:\n{}{}{KEYED}", service("a"), service("b")));
    let limits = section(&imported, "limits");
    let expected = [
        "anon-a: { per: caller, on_missing: share, rate: { anonymous: 1000/minute, default: \
         unlimited }, align: epoch }",
        "anon-b: { per: caller, on_missing: share, rate: { anonymous: 5/minute, default: \
         unlimited }, align: epoch }",
    ];
    assert_eq!(limits, expected);
    assert!(imported.policy.contains("default: anonymous }"), "{}", imported.policy);
    let routes = section(&imported, "routes");
    assert!(routes[0].contains("limits: [anon-a]") && routes[1].contains("limits: [anon-b]"));
    assert!(rows(&imported, Verdict::Nearly).contains("several `anonymous` consumers"));
}

#[test]
fn anonymous_consumer_with_credentials_keeps_its_limit() {
    let guest = "services:\n\
        - { name: a, url: \"http://a\", routes: [{ paths: [/a] }], plugins: [{ name: jwt, config: \
        { anonymous: guest } }] }\n\
        - { name: b, url: \"http://b\", routes: [{ paths: [/b] }], plugins: [{ name: jwt }] }\n\
        consumers:\n- { username: guest, jwt_secrets: [{ key: g, secret: hunter2 }], plugins: [{ \
        name: rate-limiting, config: { minute: 5 } }] }\n";
    let imported = import(guest);
    assert!(imported.policy.contains("map: { g: guest }"), "{}", imported.policy);
    let limits = section(&imported, "limits").concat();
    assert!(limits.contains("guest: 5/minute, anonymous: 5/minute"), "{limits}");
    assert!(limits.contains("guest: 5/minute, default: unlimited"), "{limits}");
    assert!(rows(&imported, Verdict::Nearly).contains("has credentials"));
}

#[test]
fn acl_reads_consumer_groups_and_closes_what_it_does_not_know() {
    let people = "consumers:\n\
        - { username: bob, jwt_secrets: [{ key: bob-iss }], groups: [{ name: banned }] }\n\
        - { username: al, jwt_secrets: [{ key: al-iss }] }\n\
        consumer_groups: [{ name: banned }]\n";
    let acl = |config: &str| format!("{TOKENS}, {{ name: acl, config: {{ {config} }} }}");
    let read = acl("deny: [banned], include_consumer_groups: true");
    let routes = section(&import(&file("paths: [/a]", &read, people)), "routes");
    assert!(routes[0].contains("auth: { required: [al] }"), "{routes:?}");
    for (config, why) in [
        ("deny: [[banned]]", "names of groups"),
        ("deny: [x, { a: b }]", "names of groups"),
        ("deny: [x], other: 1", "`other` is no option"),
        ("deny: [x], always_use_authenticated_groups: true", "other plugins find"),
        ("deny: [x], include_consumer_groups: \"${X}\"", "neither true nor false"),
        ("", "no consumer"),
    ] {
        is_closed_for(&acl(config), people, why);
    }
}

#[test]
fn plugins_of_consumers_have_rows() {
    let people = |plugin: &str| {
        format!(
            "consumers:\n- {{ username: bob, jwt_secrets: [{{ key: bob-iss }}], plugins: \
             [{plugin}] }}\n"
        )
    };
    for plugin in [
        "{ name: request-transformer, config: { remove: { headers: [x-secret] } } }",
        "{ name: response-ratelimiting }",
        "{ name: proxy-cache }",
        "{ name: http-log }",
        "{ name: cors, config: { origins: [\"https://a.example\"] } }",
    ] {
        let imported = import(&file("paths: [/a]", TOKENS, &people(plugin)));
        let left_out = rows(&imported, Verdict::LeftOut);
        assert!(left_out.contains("of consumer bob") && !is_closed(&imported), "{left_out}");
    }
    for (plugin, why) in [
        ("{ name: request-transformer, config: { replace: { uri: /b } } }", "other paths"),
        ("{ name: request-size-limiting }", "some consumers only"),
        ("{ name: acl, config: { deny: [x] } }", "some consumers only"),
        ("{ name: request-termination }", "some consumers only"),
    ] {
        is_closed_for(TOKENS, &people(plugin), why);
    }
}

#[test]
fn options_that_a_program_fills_in_have_rows_and_are_strict() {
    let plugin = "{ name: rate-limiting, config: { minute: 5, limit_by: ip, policy: \
                  \"${{ env 'P' }}\", fault_tolerant: \"{vault://env/f}\", error_code: \"${C}\" } \
                  }";
    let imported = import(&file("paths: [/a]", plugin, ""));
    assert!(section(&imported, "limits")[0].contains("on_store_error: closed"));
    let left_out = rows(&imported, Verdict::LeftOut);
    for name in ["policy", "fault_tolerant"] {
        let row = format!("rate-limiting of service shop: {name}: filled in by a program");
        assert!(left_out.contains(&row), "{left_out}");
    }
    assert!(rows(&imported, Verdict::Nearly).contains("error_code"));
    let size = "{ name: request-size-limiting, config: { allowed_payload_size: 7, size_unit: \
                \"${U}\" } }";
    let imported = import(&file("paths: [/a]", size, ""));
    assert!(section(&imported, "routes")[0].contains("max_body: 7,"));
    assert!(rows(&imported, Verdict::LeftOut).contains("size_unit"));
    let advanced = "{ name: rate-limiting-advanced, config: { limit: [1], window_size: [60], \
                    identifier: ip, window_type: \"${W}\" } }";
    assert!(all_rows(&import(&file("paths: [/a]", advanced, ""))).contains("window_type"));
}

#[test]
fn what_kong_demands_beyond_a_policy_is_said() {
    let size = "{ name: request-size-limiting, config: { require_content_length: true } }";
    let nearly = rows(&import(&file("paths: [/a]", size, "")), Verdict::Nearly);
    assert!(nearly.contains("looser: a request without Content-Length"), "{nearly}");
    is_closed_for(&size.replace("require", "other"), "", "no option");
    let jwt = "{ name: jwt, config: { claims_to_verify: [exp, nbf] } }";
    let imported = import(&file("paths: [/a]", jwt, PEOPLE));
    assert!(imported.policy.contains("required_claims: { nbf: null }"), "{}", imported.policy);
    let grpc = import(&file("paths: [/a], protocols: [grpc]", "", ""));
    assert!(rows(&grpc, Verdict::LeftOut).contains("looser: any request"));
}

#[test]
fn strictest_plugin_decides_without_a_store() {
    let limited = |name: &str, config: &str| {
        format!(
            "- {{ username: {name}, jwt_secrets: [{{ key: {name} }}], plugins: [{{ name: \
             rate-limiting, config: {{ minute: 5, policy: redis, fault_tolerant: {config} }} }}] \
             }}\n"
        )
    };
    let people = format!("consumers:\n{}{}", limited("al", "true"), limited("bob", "false"));
    let imported = import(&file("paths: [/a]", TOKENS, &people));
    assert!(section(&imported, "limits")[0].contains("on_store_error: closed"));
    let nearly = rows(&imported, Verdict::Nearly);
    assert!(nearly.contains("of consumer al: fault_tolerant: on_store_error: closed"), "{nearly}");
}

#[test]
fn names_of_tiers_and_owners_are_safe() {
    let people = "consumers:\n- { username: default, jwt_secrets: [{ key: k }], plugins: [{ name: \
                  rate-limiting, config: { minute: 5 } }] }\n";
    let limits = section(&import(&file("paths: [/a]", TOKENS, people)), "limits");
    assert!(limits[0].contains("rate: { default-2: 5/minute, default: unlimited }"), "{limits:?}");
    let people = "consumers:\n\
                  - { username: \"a'; rm -rf /; '\", keyauth_credentials: [{ key: k }] }\n\
                  - { username: \"b\\rroutes: []\", keyauth_credentials: [{ key: k2 }] }\n";
    let imported = import(&file("paths: [/a]", "{ name: key-auth }", people));
    let commands: Vec<&str> =
        imported.policy.lines().filter(|line| line.contains("--owner")).collect();
    assert!(commands[0].contains("--owner 'a'\\''; rm -rf /; '\\''' --append"), "{commands:?}");
    assert!(commands[1].contains("--owner NAME --append"), "{commands:?}");
    let empty = "consumers:\n- { username: \"\", jwt_secrets: [{ key: \"\" }] }\n";
    let imported = import(&file("paths: [/a]", TOKENS, empty));
    assert!(is_closed(&imported) && !imported.policy.contains("issuer:"), "{}", imported.policy);
}

#[test]
fn fields_that_a_policy_refuses_are_not_written() {
    let remove = "{ name: key-auth }, { name: request-transformer, config: { remove: { headers: [\
                  apikey, x-consumer-username, x_a, connection, x-tollgate-caller, \"${X}\", \
                  \"x-a:hunter2\", \"\", x-fine, expect] } } }";
    let imported = import(&file("paths: [/a]", remove, PEOPLE));
    let routes = section(&imported, "routes");
    assert!(routes[0].contains("remove: [x-fine, x-consumer-id,"), "{routes:?}");
    assert_eq!(routes[0].matches("x-consumer-username").count(), 1);
    let left_out = rows(&imported, Verdict::LeftOut);
    assert!(left_out.contains("an entry of remove.headers") && left_out.contains("apikey"));
    assert!(!format!("{imported:?}").contains("hunter2"));
    for name in ["${X}", "Content-Length", "connection", "TE", "x-tollgate-caller", "a b", "host"] {
        let plugin = format!(
            "{{ name: rate-limiting, config: {{ minute: 5, limit_by: header, header_name: \
             \"{name}\" }} }}"
        );
        is_closed_for(&plugin, "", "`header_name` is no header");
    }
    for name in ["cookie", "host", "x-forwarded-for", "x-request-id", "connection"] {
        let plugin = format!("{{ name: key-auth, config: {{ key_names: [{name}] }} }}");
        let imported = import(&file("paths: [/a]", &plugin, PEOPLE));
        assert!(imported.policy.contains("header: apikey"), "{}", imported.policy);
        assert!(rows(&imported, Verdict::Nearly).contains("keys elsewhere are not read"));
    }
    let token = "{ name: jwt, config: { header_names: [host] } }";
    let imported = import(&file("paths: [/a]", token, PEOPLE));
    assert!(!imported.policy.contains("header: host"), "{}", imported.policy);
    assert!(rows(&imported, Verdict::LeftOut).contains("tokens in header host"));
}

#[test]
fn tests_ask_from_an_address_that_is_allowed() {
    let limit = "{ name: rate-limiting, config: { minute: 5, limit_by: ip } }";
    let tests = |config: &str| {
        let plugins = format!("{limit}, {{ name: ip-restriction, config: {{ {config} }} }}");
        section(&import(&file("paths: [/a]", &plugins, "")), "tests")
    };
    let other = tests("deny: [192.0.0.0/8]");
    assert!(other.len() == 3 && other.iter().all(|own| own.contains("address: 198.51.100.1")));
    assert!(tests("deny: [0.0.0.0/0]")[0].contains("address: \"2001:db8::1\""));
    assert_eq!(tests("deny: [0.0.0.0/0, \"::/0\"]").len(), 0);
    assert!(tests("allow: [10.0.0.0/8, 172.16.0.9], deny: [10.0.0.0/8]")[0].contains("172.16.0.9"));
    is_closed_for("{ name: ip-restriction, config: { deny: [[10.0.0.1]] } }", "", "networks");
}

#[test]
fn methods_are_names_and_each_is_there_once() {
    let limit = "{ name: rate-limiting, config: { minute: 5, limit_by: ip } }";
    let imported = import(&file("paths: [/a], methods: [GET, get, GET]", limit, ""));
    assert!(section(&imported, "routes")[0].contains("methods: [GET] }"));
    let route = "paths: [/low] }, { name: own, paths: [/a], methods: [GET, \"${X}\"]";
    let imported = import(&file(route, "{ name: basic-auth }", ""));
    let left_out = rows(&imported, Verdict::LeftOut);
    assert!(
        is_closed(&imported) && left_out.contains("that is no method has no counterpart"),
        "{left_out}"
    );
    let cors = |config: &str| format!("{{ name: cors, config: {{ origins: [\"*\"], {config} }} }}");
    let lists = cors("methods: [get, GET], headers: [X-A, x-a]");
    let routes = section(&import(&file("paths: [/a]", &lists, "")), "routes");
    assert!(routes[0].contains("methods: [GET], headers: [x-a]"), "{routes:?}");
    for config in ["methods: [\"${X}\"]", "headers: [[x]]"] {
        let imported = import(&file("paths: [/a]", &cors(config), ""));
        assert!(!section(&imported, "routes")[0].contains("cors"), "{config}");
        assert!(rows(&imported, Verdict::LeftOut).contains("not all of its methods"), "{config}");
    }
    for origin in ["https://a.", "https://a..b", "https://a:"] {
        let imported = import(&file("paths: [/a]", &cors("").replace('*', origin), ""));
        assert!(!section(&imported, "routes")[0].contains("cors"), "{origin}");
    }
    let unknown = import(&file("paths: [/a]", &cors("other: 1"), ""));
    assert!(rows(&unknown, Verdict::LeftOut).contains("cors of service shop: other"));
}

#[test]
fn numbers_are_those_that_a_policy_takes() {
    let advanced = |config: &str| {
        format!("{{ name: rate-limiting-advanced, config: {{ identifier: ip, {config} }} }}")
    };
    is_closed_for(&advanced("limit: [1], window_size: [31622401]"), "", "366 days");
    is_closed_for(&advanced("limit: [1, [2]], window_size: [1, [2]]"), "", "as many limits");
    let twice = advanced("limit: [9, 5, 7], window_size: [60, 60, 60]");
    let limits = section(&import(&file("paths: [/a]", &twice, "")), "limits");
    assert!(limits[0].contains("rate: 5/minute"), "{limits:?}");
    let size = "{ name: request-size-limiting, config: { allowed_payload_size: 99999999999999 } }";
    let imported = import(&file("paths: [/a]", size, ""));
    assert!(section(&imported, "routes")[0].contains("max_body: 9223372036854775807"));
}

#[test]
fn limits_of_consumers_that_nobody_knows_have_rows() {
    let people = "consumers:\n- { username: bob, jwt_secrets: [{ key: k }], plugins: [{ name: \
                  rate-limiting, config: { minute: 5 } }] }\n";
    let limit = "{ name: rate-limiting, config: { minute: 9, limit_by: ip } }";
    let imported = import(&file("paths: [/a]", limit, people));
    assert!(!imported.policy.contains("tiers:"), "{}", imported.policy);
    assert!(section(&imported, "limits")[0].contains("rate: 9/minute"));
    let left_out = rows(&imported, Verdict::LeftOut);
    assert!(left_out.contains("rate-limiting of consumer bob: in force on no route"), "{left_out}");
}
