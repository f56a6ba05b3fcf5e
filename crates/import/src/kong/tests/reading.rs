//! What the files say: words, references, templates, servers.

use super::*;

const LIMIT: &str = "{ name: rate-limiting, config: { minute: 5 } }";

fn left_out(imported: &Imported) -> String {
    rows(imported, Verdict::LeftOut)
}

#[test]
fn name_with_a_new_line_writes_nothing_into_the_policy() {
    let people = "consumers:\n- { username: \"bob\\nexempt: [0.0.0.0/0]\\r#\", \"x\\ny: z\": 1 }\n";
    let imported = import(&file("paths: [/a]", "", people));
    assert!(!imported.policy.contains("\nexempt") && !imported.policy.contains('\r'));
    assert!(imported.policy.contains(r"consumer bob\nexempt: [0.0.0.0/0]\r#"));
    assert!(imported.findings.iter().all(|row| !row.there.contains('\n')));
}

#[test]
fn words_of_yaml_1_1_are_false_and_true() {
    for word in ["False", "FALSE", "no", "No", "off", "OFF", "n"] {
        let plugins = format!("{LIMIT}, {{ name: request-termination, enabled: {word} }}");
        assert!(!is_closed(&import(&file("paths: [/a]", &plugins, ""))), "{word}");
        let route = format!("paths: [/a], strip_path: {word}");
        assert!(!import(&file(&route, "", "")).policy.contains("strip_prefix"), "{word}");
    }
    for word in ["True", "yes", "On", "y"] {
        let plugins = format!("{LIMIT}, {{ name: request-termination, enabled: {word} }}");
        assert!(is_closed(&import(&file("paths: [/a]", &plugins, ""))), "{word}");
        let route = format!("paths: [/a], preserve_host: {word}");
        assert!(!import(&file(&route, "", "")).policy.contains("host: 10.0.0.1"), "{word}");
    }
}

#[test]
fn custom_id_is_no_reference() {
    let people = "consumers:\n- { username: alice, custom_id: bob, jwt_secrets: [{ key: ka }] }\n\
                  - { username: bob, jwt_secrets: [{ key: kb }] }\n\
                  - { custom_id: carol }\n\
                  acls: [{ consumer: bob, group: staff }, { consumer: carol, group: staff }]\n";
    let plugins = "{ name: jwt }, { name: acl, config: { allow: [staff] } }";
    let imported = import(&file("paths: [/a]", plugins, people));
    assert!(section(&imported, "routes")[0].contains("auth: { required: [bob] }"));
    assert!(left_out(&imported).contains("acls of something"));
}

#[test]
fn members_of_groups_are_in_them_once_however_it_is_said() {
    let people = "consumers:\n\
        - { username: a, jwt_secrets: [{ key: ka }], groups: [{ id: \"1-2\" }] }\n\
        - { username: b, jwt_secrets: [{ key: kb }], groups: [{ name: gold }] }\n\
        - { username: c, jwt_secrets: [{ key: kc }], groups: [{ name: missing }] }\n\
        consumer_groups:\n\
        - { name: gold, id: \"1-2\", size: 3, consumers: [{ username: b }, { username: d }], \
        plugins: [{ name: rate-limiting, config: { minute: 9 } }] }\n\
        consumer_group_consumers:\n- { consumer: c, consumer_group: nope }\n";
    let plugins = format!("{{ name: jwt }}, {LIMIT}");
    let imported = import(&file("paths: [/a]", &plugins, people));
    assert!(imported.policy.contains("map: { ka: gold, kb: gold }"), "{}", imported.policy);
    assert!(imported.policy.contains("names: [standard, gold]"));
    let left_out = left_out(&imported);
    assert_eq!(left_out.matches("consumer_group of a consumer of something").count(), 2);
    assert!(left_out.contains("consumer in a group of something"), "{left_out}");
    assert!(left_out.contains("group gold: size"));
}

#[test]
fn plugin_that_may_not_be_enabled_closes_its_routes() {
    let template = "\"${{ env \\\"X\\\" }}\"";
    let plugins = format!(
        "{LIMIT}, {{ name: rate-limiting, route: r, enabled: {template}, config: {{ minute: 100 }} }}"
    );
    let imported = import(&file("paths: [/a]", &plugins, ""));
    assert!(is_closed(&imported));
    assert!(left_out(&imported).contains("(its `enabled` is filled in by a program)"));
    let harmless = format!("{{ name: prometheus, enabled: {template} }}");
    assert!(!is_closed(&import(&file("paths: [/a]", &harmless, ""))));
}

#[test]
fn what_a_program_fills_in_is_said() {
    let route = "paths: [\"~/a/.*\"], regex_priority: \"${X}\", strip_path: \"{vault://a/b}\", \
                 preserve_host: \"${{ x }}\"";
    let more = "- { name: t, host: h, enabled: \"${X}\", connect_timeout: \"${X}\", \
                read_timeout: 5, tls_verify: true }\n";
    let left_out = left_out(&import(&file(route, "", more)));
    for row in [
        "route r: regex_priority: filled in by a program: 0 is taken",
        "route r: strip_path: filled in by a program: true is taken",
        "route r: preserve_host: filled in by a program: false is taken",
        "service t: enabled: filled in by a program",
        "service t: connect_timeout: filled in by a program",
    ] {
        assert!(left_out.contains(row), "{row}: {left_out}");
    }
    assert!(!left_out.contains("read_timeout") && !left_out.contains("tls_verify"));
}

#[test]
fn conditions_that_are_no_text_are_not_any() {
    for route in [
        "paths: [~]",
        "hosts: [~]",
        "paths: [{ a: b }]",
        "paths: { a: b }",
        "methods: [[GET]]",
        "methods: [\"GET POST\"]",
        "paths: [\"\"]",
        "paths: [a]",
    ] {
        let other = format!("paths: [/b] }}, {{ name: own, {route}");
        let closed = import(&file(&other, "{ name: basic-auth }", ""));
        let own = section(&closed, "routes").into_iter().find(|own| own.contains("name: own"));
        assert!(own.is_some_and(|own| own.contains("deny: [")), "{route}: {closed:?}");
        let open = import(&file(&other, "", ""));
        assert!(!open.policy.contains("name: own"), "{route}: {open:?}");
        assert!(left_out(&open).contains("no counterpart"), "{route}");
    }
}

#[test]
fn second_comparison_of_a_field_is_no_part_of_the_match() {
    for (expression, path) in [
        ("http.path ^= \"/admin\" && http.path ^= \"/\"", "path: /admin*/** }"),
        ("http.path == \"/a\" && http.host == \"a\" && http.host == \"b\"", "host: a, path: /a }"),
        ("http.path == \"/a\" && http.method == \"GET\" && http.method == \"PUT\"", "[GET] }"),
    ] {
        let route = format!("paths: [/b] }}, {{ name: own, expression: '{expression}'");
        let imported = import(&file(&route, "{ name: basic-auth }", ""));
        let route = &section(&imported, "routes")[0];
        assert!(route.contains(path) && route.contains("name: own"), "{expression}: {route}");
        assert!(left_out(&imported).contains("`expression` has no counterpart"), "{expression}");
    }
}

#[test]
fn names_are_those_that_a_policy_may_have() {
    let imported = import(
        "services: [{ name: 'null', url: 'http://a', routes: [{ name: _a, paths: [/a] }, { name: \
         '', paths: [/b] }] }]",
    );
    assert!(section(&imported, "upstreams")[0].starts_with("\"null\": {"));
    let routes = section(&imported, "routes");
    assert!(routes[0].starts_with("{ name: a,") && routes[1].starts_with("{ name: route-2,"));
    assert!(routes[0].ends_with("upstream: \"null\" }"));
}

#[test]
fn servers_and_paths_that_no_policy_may_have_are_said() {
    for url in [
        "http://a:b:80",
        "http://::1:80",
        "http://[",
        "http://.",
        "http://a..b",
        "http://a:0",
        "http://[::g]",
    ] {
        let text = format!("services: [{{ url: '{url}', routes: [{{ paths: [/a] }}] }}]");
        assert!(left_out(&import(&text)).contains("no plain host and port"), "{url}");
    }
    for url in ["http://a//b", "http://a/../b", "http://a/b/./c", "http://a/b%20c"] {
        let text = format!("services: [{{ url: '{url}', routes: [{{ paths: [/a] }}] }}]");
        assert!(is_closed(&import(&text)), "{url}");
    }
    let pool = |targets: &str, host: &str| {
        import(&format!(
            "services: [{{ host: pool, routes: [{{ paths: [/a] }}] }}]\nupstreams: [{{ name: pool, \
             host_header: '{host}', targets: [{targets}] }}]"
        ))
    };
    for target in ["::1:80", "a:b:c", "h:0", "]:80", "h:+80", "h:99999"] {
        let imported = pool(&format!("{{ target: '{target}' }}"), "h");
        assert!(left_out(&imported).contains("a target has no plain host"), "{target}");
    }
    for host in ["a b", "*", "a:99999", "é.example", ""] {
        assert!(is_closed(&pool("{ target: 'h:1' }", host)), "{host}");
    }
    for (targets, expected) in [
        ("{ target: 'h:080' }, { target: 'H:80' }", "servers: [\"http://h:80\"]"),
        (
            "{ target: h, weight: 2 }, { target: g, weight: 1 }, { target: h, weight: 3 }",
            "[{ url: \"http://h:8000\", weight: 5 }, { url: \"http://g:8000\", weight: 1 }]",
        ),
        ("{ target: '[::1]:80', weight: 9223372036854775807 }", "servers: [\"http://[::1]:80\"]"),
    ] {
        let upstreams = section(&pool(targets, "x.example:8"), "upstreams");
        assert!(upstreams[0].contains(expected), "{upstreams:?}");
    }
}

#[test]
fn what_nobody_uses_is_said() {
    let more = "- { name: alone, url: \"http://b\" }\nupstreams: [{ name: pool }, { name: 10.0.0.1 \
                }]\n";
    let same = rows(&import(&file("paths: [/a]", "", &format!("{more}{PEOPLE}"))), Verdict::Same);
    for row in [
        "service alone: not written",
        "upstream pool: not written",
        "1 credentials of consumers for key-auth",
        "2 credentials of consumers for jwt",
    ] {
        assert!(same.contains(row), "{row}: {same}");
    }
    assert!(!same.contains("upstream 10.0.0.1"));
}

#[test]
fn routes_of_one_rank_that_may_meet_are_said_and_the_stricter_is_first() {
    for (open, limited, is_tie) in [
        ("hosts: [\"*.a.b\"], paths: [/a]", "hosts: [\"*.c.a.b\"], paths: [/a]", true),
        ("methods: [GET, PUT], paths: [/a]", "methods: [PUT], paths: [/a]", true),
        ("paths: [\"~/api/.*\"], strip_path: false", "paths: [\"~/api/in.*\"]", true),
        ("paths: [/a]", "paths: [/b]", false),
        ("methods: [GET], paths: [/a]", "methods: [PUT], paths: [/a]", false),
        ("hosts: [a.b], paths: [/a]", "hosts: [a.c], paths: [/a]", false),
    ] {
        let routes = format!("{open} }}, {{ name: lim, {limited}, plugins: [{LIMIT}]");
        let imported = import(&file(&routes, "", ""));
        assert!(section(&imported, "routes")[0].starts_with("{ name: lim"), "{open}");
        let nearly = rows(&imported, Verdict::Nearly);
        assert_eq!(nearly.contains("which one is first"), is_tie, "{open}: {nearly}");
    }
}

#[test]
fn star_of_a_path_is_no_pattern_in_tests() {
    for path in ["/*", "/a/**", "/a/*/b", "/*a*"] {
        let imported = import(&file(&format!("paths: [\"{path}\"]"), "{ name: basic-auth }", ""));
        let test = &section(&imported, "tests")[0];
        assert!(test.contains("path: /") && !test.contains("any"), "{path}: {test}");
    }
}

#[test]
fn files_without_a_route_in_force_are_refused_with_the_reason() {
    let text = "services:\n- { name: s, url: \"http://10.0.0.1\", enabled: no, \
                routes: [{ name: r, paths: [/a] }] }\n";
    let problems = kong(&[input(text)], &Options::default()).unwrap_err();
    assert_eq!(problems[0].message(), "route r");
    assert!(problems[0].help().contains("its service is not enabled"), "{problems:?}");
}
