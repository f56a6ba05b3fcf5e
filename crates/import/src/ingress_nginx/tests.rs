use super::*;
use crate::Verdict;

fn imported(texts: &[&str]) -> Result<Imported, Problems> {
    let input =
        |(at, text): (usize, &&str)| Input { name: format!("{at}.yaml"), text: (*text).to_owned() };
    let inputs: Vec<Input> = texts.iter().enumerate().map(input).collect();
    ingress_nginx(&inputs, &Options::default())
}

/// An Ingress shop/api of shop.example with these annotations and paths.
fn ingress(annotations: &[(&str, &str)], paths: &[(&str, &str)]) -> String {
    named("api", "shop.example", annotations, paths)
}

fn named(name: &str, host: &str, annotations: &[(&str, &str)], paths: &[(&str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: \
         shop\n  annotations:\n    a.example/b: c\n"
    );
    for (name, value) in annotations {
        text += &format!("    nginx.ingress.kubernetes.io/{name}: {value:?}\n");
    }
    text += &format!("spec:\n  rules:\n  - host: {host:?}\n    http:\n      paths:\n");
    for (path, path_type) in paths {
        text += &format!(
            "      - path: {path:?}\n        pathType: {path_type}\n        backend: {{ service: \
             {{ name: web, port: {{ number: 80 }} }} }}\n"
        );
    }
    text
}

const ROOT: &[(&str, &str)] = &[("/", "Prefix")];

fn lines(imported: &Imported, section: &str) -> Vec<String> {
    let lines = imported.policy.lines().skip_while(|line| *line != format!("{section}:"));
    let lines = lines.skip(1).take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().to_owned()).collect()
}

fn left_out(imported: &Imported) -> Vec<String> {
    let left_out = imported.findings.iter().filter(|own| own.verdict == Verdict::LeftOut);
    left_out.map(|own| format!("{}: {}", own.there, own.here)).collect()
}

/// Patterns of routes, with `!` before those that are closed.
fn patterns(imported: &Imported) -> Vec<String> {
    let path = |line: &String| {
        let (_, path) = line.split_once("path: ")?;
        let mark = if line.contains("deny: [0.0.0.0/0") { "!" } else { "" };
        Some(format!("{mark}{}", path.split([' ', ',']).next()?))
    };
    lines(imported, "routes").iter().filter_map(path).collect()
}

#[test]
fn limits_of_an_ingress_are_those_of_its_zones() {
    let text = ingress(
        &[
            ("limit-rps", "5"),
            ("limit-rpm", "100"),
            ("limit-connections", "10"),
            ("limit-whitelist", "192.168.11.20/24, 10.0.0.1"),
        ],
        &[("/a", "Prefix"), ("/", "Prefix")],
    );
    let imported = imported(&[&text]).unwrap();
    let per = "per: client.ip, ipv6_prefix: 128";
    let expected = [
        format!("shop-api-rps: {{ {per}, rate: 5/second, algorithm: gcra, burst: 26 }}"),
        format!("shop-api-rpm: {{ {per}, rate: 1666/1000s, algorithm: gcra, burst: 501 }}"),
        format!("shop-api-connections: {{ {per}, concurrent: 10 }}"),
    ];
    assert_eq!(lines(&imported, "limits"), expected);
    let overrides = lines(&imported, "overrides");
    assert_eq!(overrides.len(), 6);
    assert!(
        overrides[0].contains("client.ip: \"192.168.11.0/24\", rate: unlimited")
            || overrides[0].contains("client.ip: 192.168.11.0/24, rate: unlimited"),
        "{}",
        overrides[0]
    );
    assert!(overrides[5].contains("10.0.0.1/32, concurrent: unlimited"), "{}", overrides[5]);
    let routes = lines(&imported, "routes");
    assert!(
        routes.iter().all(|own| own.contains("[shop-api-rps, shop-api-rpm, shop-api-connections]"))
    );
    assert!(routes.iter().all(|own| own.contains("max_body: 1MiB")));
    assert!(imported.policy.contains("denied_status: 503"));
    let tests = lines(&imported, "tests");
    assert!(tests[0].contains("repeat: 52, expect: { admitted: 26 }"), "{}", tests[0]);
    assert_eq!(left_out(&imported), [""; 0]);
}

#[test]
fn bursts_are_multiples_and_what_the_controller_refuses_is_a_problem() {
    let all = |own: &[(&str, &str)]| imported(&[&ingress(own, ROOT)]);
    for (multiplier, expected) in [("2", "burst: 11 "), ("x", "burst: 26 "), ("", "burst: 26 ")] {
        let own = all(&[("limit-rps", "5"), ("limit-burst-multiplier", multiplier)]).unwrap();
        assert!(own.policy.contains(expected), "{multiplier}");
    }
    for annotations in [
        &[("limit-rps", "5"), ("limit-burst-multiplier", "0")][..],
        &[("limit-rps", "5r/s")],
        &[("limit-rpm", "1.5")],
        &[("limit-connections", " 5")],
        &[("limit-rps", "5"), ("limit-allowlist", "all")],
        &[("whitelist-source-range", "10.0.0.0/8 10.1.0.0/16")],
    ] {
        let problems = all(annotations).unwrap_err();
        assert!(problems[0].place().starts_with("0.yaml:"), "{annotations:?}");
        assert!(!problems[0].help().is_empty());
    }
    for none in ["0", "-1", ""] {
        let own = all(&[("limit-rps", none)]).unwrap();
        assert!(lines(&own, "limits").is_empty() && left_out(&own).is_empty(), "{none}");
    }
}

#[test]
fn what_refuses_requests_there_closes_the_routes() {
    for annotations in [
        &[("auth-url", "https://auth.example/check")][..],
        &[("auth-type", "basic"), ("auth-secret", "users")],
        &[("auth-tls-secret", "shop/ca")],
        &[("satisfy", "any")],
        &[("enable-modsecurity", "true"), ("modsecurity-snippet", "SecRuleEngine On")],
        &[("configuration-snippet", "deny all;")],
        &[("server-snippet", "location ~* \\.env$ { return 404; }")],
        &[("configuration-snippet", "access_by_lua_block { x }")],
        &[("permanent-redirect", "https://other.example")],
        &[("ssl-passthrough", "true")],
        &[("backend-protocol", "FCGI")],
    ] {
        let own = imported(&[&ingress(annotations, ROOT)]).unwrap();
        assert_eq!(patterns(&own), ["!/**"], "{annotations:?}");
        assert!(!left_out(&own).is_empty(), "{annotations:?}");
        assert!(lines(&own, "tests")[0].contains("status: 403"));
    }
    for annotations in [
        &[("satisfy", "all")][..],
        &[("enable-modsecurity", "true"), ("modsecurity-snippet", "SecRuleEngine DetectionOnly")],
        &[("configuration-snippet", "more_set_headers \"X: y\";")],
    ] {
        let own = imported(&[&ingress(annotations, ROOT)]).unwrap();
        assert_eq!(patterns(&own), ["/**"], "{annotations:?}");
    }
    let text = ingress(
        &[("auth-url", "https://auth.example")],
        &[("/", "Prefix"), ("/.well-known/acme-challenge", "Prefix")],
    );
    assert_eq!(patterns(&imported(&[&text]).unwrap()), ["/.well-known/acme-challenge/**", "!/**"]);
}

#[test]
fn locations_of_snippets_are_closed_before_all_routes() {
    let snippet = "location ~ ^/(ping|ready) { deny all; return 404; }";
    let own = imported(&[&ingress(&[("server-snippet", snippet)], ROOT)]).unwrap();
    assert_eq!(patterns(&own), ["!/ping*/**", "!/ready*/**", "/**"]);
}

#[test]
fn access_lists_are_those_of_routes() {
    let annotations =
        [("allowlist-source-range", "10.0.0.0/8"), ("denylist-source-range", "10.1.0.0/16")];
    let own = imported(&[&ingress(&annotations, ROOT)]).unwrap();
    let route = &lines(&own, "routes")[0];
    assert!(route.contains("allow: [10.0.0.0/8], deny: [10.1.0.0/16]"), "{route}");
}

#[test]
fn one_regular_expression_makes_all_paths_of_a_host_some() {
    let plain = ingress(&[], &[("/admin", "Exact"), ("/", "Prefix"), ("/longer/x", "Prefix")]);
    let own = imported(&[&plain]).unwrap();
    assert_eq!(patterns(&own), ["/admin", "/longer/x/**", "/**"]);
    let regex = named("b", "shop.example", &[("use-regex", "true")], &[("/r(/|$)(.*)", "Prefix")]);
    let own = imported(&[&plain, &regex]).unwrap();
    assert_eq!(patterns(&own), ["/r/**", "/longer/x*/**", "/admin*/**", "/**"]);
    assert!(own.policy.contains("paths: { case: ignore }"));
}

#[test]
fn regular_expressions_beyond_patterns_are_closed() {
    let paths = [("/v[0-9]+/x", "ImplementationSpecific"), ("/", "Prefix")];
    let own = imported(&[&ingress(&[("use-regex", "true")], &paths)]).unwrap();
    assert_eq!(patterns(&own), ["!/v*/**", "/**"]);
    assert_eq!(left_out(&own).len(), 1);
}

#[test]
fn rewrites_exchange_segments_or_close_the_route() {
    let paths = [("/x(/|$)(.*)", "ImplementationSpecific")];
    let own = imported(&[&ingress(&[("rewrite-target", "/y/$2")], &paths)]).unwrap();
    assert!(lines(&own, "routes")[0].contains("strip_prefix: /x, add_prefix: /y"));
    let own =
        imported(&[&ingress(&[("rewrite-target", "/")], &[("/admin", "Prefix"), ("/", "Prefix")])]);
    let own = own.unwrap();
    assert_eq!(patterns(&own), ["!/admin*/**", "/**"]);
    let own = imported(&[&ingress(&[("rewrite-target", "/$1")], &[("/x/?(.*)", "Prefix")])]);
    assert_eq!(patterns(&own.unwrap()), ["/x/**", "!/x*/**"]);
}

#[test]
fn canaries_have_no_routes_and_no_limits() {
    let main = ingress(&[("limit-rps", "5")], ROOT);
    let annotations = [("canary", "true"), ("canary-weight", "10"), ("limit-rps", "50")];
    let canary = named("b", "shop.example", &annotations, ROOT);
    let own = imported(&[&main, &canary]).unwrap();
    assert_eq!(lines(&own, "limits").len(), 1);
    assert_eq!(patterns(&own), ["/**"]);
    assert_eq!(left_out(&own).len(), 2);
}

#[test]
fn annotations_that_do_not_exist_are_named() {
    let annotations =
        [("rate-limit", "100"), ("client-max-body-size", "10m"), ("limit-burst", "3")];
    let own = imported(&[&ingress(&annotations, ROOT)]).unwrap();
    let left_out = left_out(&own);
    assert_eq!(left_out.len(), 3);
    assert!(left_out.iter().all(|own| own.contains("no such annotation")), "{left_out:?}");
    assert!(lines(&own, "limits").is_empty());
    let other = ingress(&[], ROOT).replace("a.example/b", "nginx.org/limit-req-rate");
    assert!(self::left_out(&imported(&[&other]).unwrap())[0].contains("F5"));
}

#[test]
fn secrets_are_shown_nowhere() {
    let annotations = [
        ("auth-url", "https://user:hunter2@auth.example"),
        ("auth-secret", "hunter2"),
        ("configuration-snippet", "proxy_set_header Authorization \"Basic hunter2\";"),
        ("custom-headers", "hunter2"),
        ("x-unknown-token", "hunter2"),
    ];
    let secret = "---\nkind: Secret\nmetadata: { name: s }\ndata: { a: hunter2 }\n";
    let own = imported(&[&format!("{}{secret}", ingress(&annotations, ROOT))]).unwrap();
    assert!(!format!("{own:?}").contains("hunter2"), "{own:?}");
}

#[test]
fn hosts_without_a_route_for_all_paths_do_not_fall_through_to_others() {
    let one = ingress(&[], &[("/a", "Prefix")]);
    let all = named("b", "*.example", &[], ROOT);
    let own = imported(&[&one, &all]).unwrap();
    assert_eq!(patterns(&own), ["/a/**", "!/**", "/**"]);
}

#[test]
fn one_path_twice_is_that_of_the_older_ingress() {
    let at = |text: String, day: u32| {
        text.replace(
            "  namespace",
            &format!("  creationTimestamp: \"2026-01-0{day}T00:00:00Z\"\n  namespace"),
        )
    };
    let one = at(ingress(&[("limit-rps", "5")], ROOT), 2);
    let other = at(named("b", "shop.example", &[("limit-rps", "7")], ROOT), 1);
    let own = imported(&[&one, &other]).unwrap();
    assert!(lines(&own, "routes")[0].contains("limits: [shop-b-rps]"));
    assert!(left_out(&own)[0].contains("shop/b has this path"));
    let guarded = named("a", "shop.example", &[("auth-type", "basic")], ROOT);
    let own = imported(&[&ingress(&[], ROOT), &guarded]).unwrap();
    assert_eq!(patterns(&own), ["!/**"]);
}

#[test]
fn classes_and_controllers_are_told_apart() {
    let other = ingress(&[], ROOT).replace("spec:\n", "spec:\n  ingressClassName: alb\n");
    let problems = imported(&[&other]).unwrap_err();
    assert!(problems[0].message().contains("of alb"), "{}", problems[0]);
    let own = imported(&[&other, &ingress(&[], ROOT)]).unwrap();
    assert!(left_out(&own)[0].contains("another class"));
    assert!(imported(&["kind: Service\n"]).unwrap_err()[0].message().contains("no Ingress"));
}

#[test]
fn the_controllers_config_map_has_defaults_for_all() {
    let map = "kind: ConfigMap\nmetadata: { name: ingress-nginx-controller }\ndata:\n  \
               limit-req-status-code: \"429\"\n  limit-conn-zone-variable: $http_x_api_key\n  \
               proxy-body-size: 8m\n  denylist-source-range: 192.0.2.0/24\n";
    let own = imported(&[&ingress(&[("limit-rps", "5")], ROOT), map]).unwrap();
    assert!(own.policy.contains("denied_status: 429"));
    assert!(lines(&own, "limits")[0].contains("per: header.x-api-key, on_missing: skip, rate"));
    let route = &lines(&own, "routes")[0];
    assert!(route.contains("deny: [192.0.2.0/24]") && route.contains("8MiB"), "{route}");
    let map = "kind: ConfigMap\ndata:\n  global-auth-url: http://auth.example\n";
    let own = imported(&[&ingress(&[], ROOT), map]).unwrap();
    assert_eq!(patterns(&own), ["!/**"]);
    let open = imported(&[&ingress(&[("enable-global-auth", "false")], ROOT), map]).unwrap();
    assert_eq!(patterns(&open), ["/**"]);
}

#[test]
fn named_ports_are_those_of_services() {
    let named = ingress(&[], ROOT).replace("number: 80", "name: http");
    let own = imported(&[&named]).unwrap();
    assert!(left_out(&own)[0].contains("port http of Service web"));
    let service = "kind: Service\nmetadata: { name: web, namespace: shop }\nspec: { ports: \
                   [{ name: http, port: 8080 }] }\n";
    let own = imported(&[&named, service]).unwrap();
    assert!(own.policy.contains("http://web.shop.svc.cluster.local:8080"));
    assert_eq!(left_out(&own), [""; 0]);
}

#[test]
fn the_example_of_the_page_becomes_what_the_page_shows() {
    let own = imported(&[include_str!("../../examples/ingress-nginx.yaml")]).unwrap();
    let page = include_str!("../../../../docs/from-ingress-nginx.md");
    let shown = page.split("```yaml policy\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap().lines().filter(|line| line.starts_with("  "));
    let shown: Vec<&str> = shown.collect();
    assert!(shown.len() > 10);
    for line in shown {
        assert!(own.policy.lines().any(|own| own == line), "{line}\n{}", own.policy);
    }
    assert_eq!(left_out(&own).len(), 2);
}
