use super::*;
use crate::Verdict;

const GATEWAY: &str = "
kind: Gateway
metadata: { name: edge, namespace: n }
spec: { gatewayClassName: eg, listeners: [{ name: http }, { name: other, hostname: b.io }] }
---
kind: HTTPRoute
metadata: { name: r, namespace: n }
spec:
  parentRefs: [{ name: edge, sectionName: http }]
  hostnames: [a.io]
  rules: [{ name: all, backendRefs: [{ name: app, port: 80 }] }]
---
";

fn import(text: &str) -> Result<Imported, Problems> {
    import_class(text, None)
}

fn import_class(text: &str, class: Option<&str>) -> Result<Imported, Problems> {
    let input = Input { name: "f.yaml".to_owned(), text: text.to_owned() };
    let options = Options { class: class.map(str::to_owned), ..Options::default() };
    envoy_gateway(&[input], &options)
}

/// The lines of a section, without their dashes.
fn section<'i>(imported: &'i Imported, name: &str) -> Vec<&'i str> {
    let lines = imported.policy.lines().skip_while(|line| *line != format!("{name}:")).skip(1);
    lines
        .take_while(|line| line.starts_with(' '))
        .map(|line| line.trim_start_matches([' ', '-']))
        .collect()
}

fn policy(target: &str, limits: &str) -> String {
    format!(
        "kind: BackendTrafficPolicy\nmetadata: {{ name: p, namespace: n }}\n\
         spec:\n  targetRefs: [{target}]\n  rateLimit: {limits}\n---\n"
    )
}

const ROUTE: &str = "{ kind: HTTPRoute, name: r }";

fn of_rules(kind: &str, rules: &str) -> Result<Imported, Problems> {
    import(&format!("{GATEWAY}{}", policy(ROUTE, &format!("{{ {kind}: {{ rules: [{rules}] }} }}"))))
}

fn worst(imported: &Imported) -> Verdict {
    imported.findings.iter().map(|own| own.verdict).min().unwrap_or(Verdict::Same)
}

#[test]
fn rules_become_limits_that_count_the_same_requests() {
    use Verdict::{Nearly, Same};
    let hour = "limit: { requests: 3, unit: Hour }";
    for (selector, limit, overrides, verdict) in [
        ("", "per: all, rate: 3/hour", &[][..], Same),
        (
            "headers: [{ name: X-A, value: one }, { name: x-b, value: two }]",
            "per: [header.x-a, header.x-b], on_missing: skip, rate: unlimited",
            &["header.x-a: one, header.x-b: two, rate: 3/hour"],
            Same,
        ),
        (
            "headers: [{ name: x-a, type: Distinct }, { name: x-a, value: admin, invert: true }]",
            "per: header.x-a, on_missing: skip, rate: 3/hour",
            &["header.x-a: admin, rate: unlimited"],
            Nearly,
        ),
        ("methods: [{ value: POST }, { value: PUT }]", "per: all, rate: 3/hour", &[], Same),
        ("methods: [{ value: GET, invert: true }]", "per: all, rate: 3/hour", &[], Same),
        (
            "sourceCIDR: { value: 0.0.0.0/0, type: Distinct }",
            "per: client.ip, ipv6_prefix: 128, rate: 3/hour",
            &[],
            Nearly,
        ),
        (
            "sourceCIDR: { value: 10.0.0.0/8, type: Distinct }",
            "per: client.ip, ipv6_prefix: 128, rate: unlimited",
            &["client.ip: 10.0.0.0/8, rate: 3/hour"],
            Same,
        ),
        (
            "sourceCIDR: { value: 10.0.0.0/8, type: Distinct, invert: true }",
            "per: client.ip, ipv6_prefix: 128, rate: 3/hour",
            &["client.ip: 10.0.0.0/8, rate: unlimited"],
            Same,
        ),
        (
            "sourceCIDR: { value: 10.1.0.0/16 }",
            "per: client.ip, ipv4_prefix: 16, ipv6_prefix: 128, rate: unlimited",
            &["client.ip: 10.1.0.0/16, rate: 3/hour"],
            Same,
        ),
        (
            "sourceCIDR: { value: \"2001:db8::/32\" }",
            "per: client.ip, ipv6_prefix: 32, rate: unlimited",
            &["client.ip: \"2001:db8::/32\", rate: 3/hour"],
            Same,
        ),
    ] {
        let rule = match selector {
            "" => format!("{{ {hour} }}"),
            selector => format!("{{ clientSelectors: [{{ {selector} }}], {hour} }}"),
        };
        let imported = of_rules("global", &rule).unwrap();
        let limits = section(&imported, "limits");
        assert!(limits[0].starts_with(&format!("p-0-r: {{ {limit}")), "{selector}: {limits:?}");
        assert!(limits[0].contains("align: epoch"), "{limits:?}");
        let written: Vec<bool> = section(&imported, "overrides")
            .iter()
            .zip(overrides)
            .map(|(own, expected)| own.contains(expected))
            .collect();
        assert_eq!(written, vec![true; overrides.len()], "{selector}: {}", imported.policy);
        assert_eq!(worst(&imported), verdict, "{selector}: {:?}", imported.findings);
    }
}

#[test]
fn what_a_limit_cannot_say_is_left_out_as_a_whole() {
    for selector in [
        "headers: [{ name: x-a, value: admin, invert: true }]",
        "headers: [{ name: x-a, type: RegularExpression, value: a+ }]",
        "headers: [{ name: x-a, value: a }, { name: x-a, value: b }]",
        "methods: [{ value: GET, invert: true }, { value: PUT, invert: true }]",
        "path: { type: RegularExpression, value: /a+ }",
        "queryParams: [{ name: q, value: a }]",
        "somethingNew: true",
    ] {
        let rule = format!(
            "{{ clientSelectors: [{{ {selector} }}], limit: {{ requests: 3, unit: Hour }} }}"
        );
        let imported = of_rules("global", &rule).unwrap();
        assert_eq!(worst(&imported), Verdict::LeftOut, "{selector}");
        assert!(!imported.policy.contains("\nlimits:"), "{}", imported.policy);
    }
    for cost in
        ["request: { from: Metadata }", "response: { from: Metadata, metadata: { key: tokens } }"]
    {
        let rule = format!("{{ limit: {{ requests: 3, unit: Hour }}, cost: {{ {cost} }} }}");
        assert!(!of_rules("global", &rule).unwrap().policy.contains("\nlimits:"), "{cost}");
    }
}

#[test]
fn units_have_fixed_lengths_and_costs_are_charged_at_once() {
    for (rule, expected) in [
        ("limit: { requests: 5, unit: Month }", "rate: 5/30d, align: epoch"),
        ("limit: { requests: 5, unit: Week }", "rate: 5/7d, align: epoch"),
        ("limit: { requests: 5, unit: Year }", "rate: 5/365d, align: epoch"),
        ("limit: { requests: 0, unit: Hour }", "rate: 0/hour, align: epoch"),
        ("limit: { requests: 4294967295, unit: Hour }", "rate: unlimited, align: epoch"),
        (
            "limit: { requests: 9, unit: Hour }, cost: { request: { from: Number, number: 2 }, response: { from: Number, number: 1 } }",
            "rate: 9/hour, align: epoch, cost: 3",
        ),
        (
            "limit: { requests: 2, unit: Hour }, cost: { request: { from: Number, number: 3 } }",
            "rate: 0/hour, align: epoch }",
        ),
        ("limit: { requests: 2, unit: Hour }, shadowMode: true", "align: epoch, mode: shadow"),
        (
            "clientSelectors: [{ methods: [{ value: PUT }] }], limit: { requests: 9, unit: Hour }, cost: { request: { from: Number, number: 2 } }",
            "cost: { PUT: 2, default: 0 }",
        ),
    ] {
        let imported = of_rules("global", &format!("{{ {rule} }}")).unwrap();
        assert!(section(&imported, "limits")[0].contains(expected), "{rule}: {}", imported.policy);
    }
    let rule =
        "{ limit: { requests: 9, unit: Hour }, cost: { request: { from: Number, number: 2 } } }";
    let imported = of_rules("local", rule).unwrap();
    assert_eq!(
        section(&imported, "limits"),
        ["p-local-0-r: { per: all, rate: 9/hour, algorithm: gcra }"]
    );
}

#[test]
fn local_rule_is_charged_there_for_what_a_faster_one_denies() {
    let rule = |requests: u32, unit: &str, more: &str| {
        format!(
            "{{ clientSelectors: [{{ methods: [{{ value: PUT }}] }}], limit: {{ requests: {requests}, unit: {unit} }}{more} }}"
        )
    };
    let shadow = ", shadowMode: true";
    for (first, second, expected) in [
        (rule(60, "Minute", ""), rule(61, "Minute", ""), [true, false]),
        (rule(60, "Minute", ""), rule(3600, "Hour", ""), [true, true]),
        (rule(60, "Hour", shadow), rule(2, "Minute", ""), [true, false]),
        (rule(60, "Hour", ""), rule(2, "Minute", shadow), [false, false]),
        (rule(60, "Hour", ""), rule(2, "Minute", "").replace("PUT", "GET"), [false, false]),
    ] {
        let imported = of_rules("local", &format!("{first}, {second}")).unwrap();
        let rows = imported.findings.iter().filter(|own| own.there.contains("requests per"));
        let told = rows.map(|own| own.here.contains("denies is charged to this one there"));
        assert_eq!(told.collect::<Vec<_>>(), expected, "{first} {second}");
    }
}

#[test]
fn local_rule_with_several_methods_is_not_in_force_there() {
    for (kind, expected) in [("local", true), ("global", false)] {
        let rule = "{ clientSelectors: [{ methods: [{ value: PUT }, { value: POST }] }], limit: { requests: 3, unit: Hour } }";
        let imported = of_rules(kind, rule).unwrap();
        let told = imported.findings.iter().any(|own| own.here.contains("not in force there"));
        assert_eq!(told, expected, "{kind}");
    }
}

#[test]
fn of_several_selectors_the_last_path_and_network_hold_and_any_method() {
    let imported = of_rules(
        "global",
        "{ clientSelectors: [{ methods: [{ value: PUT }], path: { value: /a } }, \
         { methods: [{ value: POST }], path: { value: /b } }], limit: { requests: 3, unit: Hour } }",
    );
    let imported = imported.unwrap();
    assert!(section(&imported, "limits")[0].contains("cost: { PUT: 1, POST: 1, default: 0 }"));
    let routes = section(&imported, "routes");
    assert!(
        routes[0].contains("path: /b/**") && routes[0].contains("limits: [p-0-r]"),
        "{routes:?}"
    );
    assert!(routes[1].contains("path: /**") && routes[1].contains("limits: []"), "{routes:?}");
    assert_eq!(worst(&imported), Verdict::Nearly);
}

#[test]
fn inverted_network_splits_the_route_and_inverted_path_exempts_nothing() {
    let rule = |selector: &str| {
        format!("{{ clientSelectors: [{{ {selector} }}], limit: {{ requests: 3, unit: Hour }} }}")
    };
    let imported =
        of_rules("global", &rule("sourceCIDR: { value: 10.0.0.0/8, invert: true }")).unwrap();
    let routes = section(&imported, "routes");
    assert!(routes[0].contains("from: [10.0.0.0/8] }, auth: none, limits: []"), "{routes:?}");
    assert!(!routes[1].contains("from") && routes[1].contains("limits: [p-0-r]"), "{routes:?}");
    let imported =
        of_rules("global", &rule("path: { type: Exact, value: /health, invert: true }")).unwrap();
    let routes = section(&imported, "routes");
    assert!(routes.len() == 1 && routes[0].contains("limits: [p-0-r]"), "{routes:?}");
    assert_eq!(worst(&imported), Verdict::Nearly);
}

#[test]
fn each_match_and_host_has_a_counter_unless_the_rule_is_shared() {
    let route = "
kind: HTTPRoute
metadata: { name: s, namespace: n }
spec:
  parentRefs: [{ name: edge }]
  hostnames: [a.io, b.io]
  rules: [{ matches: [{ path: { value: /x } }, { path: { value: /y } }], backendRefs: [{ name: app, port: 80 }] }]
---
";
    let rules = "{ global: { rules: [{ limit: { requests: 3, unit: Hour } }, \
                 { limit: { requests: 9, unit: Hour }, shared: true }] } }";
    let target = "{ kind: HTTPRoute, name: s }";
    let imported = import(&format!("{GATEWAY}{route}{}", policy(target, rules))).unwrap();
    let names: Vec<&str> =
        section(&imported, "limits").iter().filter_map(|own| own.split(':').next()).collect();
    assert_eq!(names, ["p-0-s", "p-1", "p-0-s-2", "p-0-s-3", "p-0-s-4"]);
    let note = "its 2 listeners have a counter each there, 6 in all";
    assert!(imported.findings.iter().any(|own| own.here.contains(note)), "{:?}", imported.findings);
    // `b.io` has a listener of its own: routes of others do not catch what it does not have.
    assert!(imported.policy.contains("/x/**, host: b.io"), "{}", imported.policy);
}

#[test]
fn nearest_policy_takes_a_route_whole_unless_it_merges() {
    let gateway = policy(
        "{ kind: Gateway, name: edge }",
        "{ global: { rules: [{ limit: { requests: 1, unit: Hour } }] } }",
    );
    let own = |merge: &str, limits: &str| {
        let text = policy(ROUTE, limits).replace("name: p,", "name: q,");
        text.replace("  rateLimit", &format!("{merge}  rateLimit"))
    };
    let global = "{ global: { rules: [{ limit: { requests: 2, unit: Hour } }] } }";
    let local = "{ local: { rules: [{ limit: { requests: 2, unit: Hour } }] } }";
    for (own, expected) in [
        (String::new(), "limits: [p-0-r]"),
        (own("", global), "limits: [q-0-r]"),
        (own("", "null"), "limits: []"),
        (own("  mergeType: StrategicMerge\n", global), "limits: [q-0-r, p-0-r]"),
        (own("  mergeType: JSONMerge\n", global), "limits: [q-0-r]"),
        (own("  mergeType: JSONMerge\n", local), "limits: [q-local-0-r, p-0-r]"),
        (own("", global).replace("name: r", "name: r, sectionName: all"), "limits: [q-0-r]"),
        (own("", global).replace("name: r", "name: r, sectionName: none"), "limits: [p-0-r]"),
    ] {
        let imported = import(&format!("{GATEWAY}{gateway}{own}")).unwrap();
        assert!(
            section(&imported, "routes")[0].contains(expected),
            "{expected}: {}",
            imported.policy
        );
    }
}

#[test]
fn what_envoy_gateway_refuses_is_a_problem_with_its_place() {
    let hour = "limit: { requests: 3, unit: Hour }";
    for (kind, rules, expected) in [
        ("global", "{ limit: { requests: 3, unit: Fortnight } }".to_owned(), "no limit of so many"),
        ("global", "{ clientSelectors: [{ headers: [{ name: x, type: Distinct, invert: true }] }], limit: { requests: 3, unit: Hour } }".to_owned(), "Distinct with"),
        ("global", "{ clientSelectors: [{ sourceCIDR: { value: here } }], limit: { requests: 3, unit: Hour } }".to_owned(), "no network"),
        ("local", format!("{{ {hour} }}, {{ {hour} }}"), "another local rule"),
        ("local", format!("{{ {hour} }}, {{ clientSelectors: [{{ methods: [{{ value: A }}] }}], limit: {{ requests: 3, unit: Minute }} }}"), "no multiple"),
        ("global", "3".to_owned(), "no limit"),
    ] {
        let problems = of_rules(kind, &rules).unwrap_err();
        assert!(problems[0].message().contains(expected), "{rules}: {problems:?}");
        assert!(problems[0].place().starts_with("f.yaml:1"), "{}", problems[0].place());
    }
    let one = policy(ROUTE, "{ global: { rules: [] } }");
    let problems = import(&format!("{GATEWAY}{one}{one}")).unwrap_err();
    assert!(problems[0].help().contains("creationTimestamp"), "{problems:?}");
    let dated = one.replace("name: p,", "name: q, creationTimestamp: 2026-01-01T00:00:00Z,");
    let older = one.replace("name: p,", "name: p, creationTimestamp: 2025-01-01T00:00:00Z,");
    let imported = import(&format!("{GATEWAY}{dated}{older}")).unwrap();
    assert!(imported.findings[0].here.contains("older policy p"), "{:?}", imported.findings);
    let problems = import("kind: Service\n").unwrap_err();
    assert!(problems[0].message().contains("no HTTPRoute"));
}

#[test]
fn guards_without_a_counterpart_close_their_routes_and_show_no_secret() {
    let guarded = |spec: &str| {
        let own = format!(
            "kind: SecurityPolicy\nmetadata: {{ name: s, namespace: n }}\nspec: {{ targetRef: {ROUTE}, {spec} }}\n"
        );
        import(&format!("{GATEWAY}{own}")).unwrap()
    };
    for spec in [
        "basicAuth: { users: { name: hunter2 } }",
        "apiKeyAuth: { credentialRefs: [{ name: hunter2 }] }",
        "extAuth: { http: { path: /hunter2 } }",
        "jwt: { providers: [{ name: a, localJWKS: { inline: hunter2 } }] }",
        "jwt: { providers: [] }",
        "authorization: { defaultAction: Deny }",
        "authorization: { rules: [{ action: Allow, principal: { jwt: { claims: [] } } }] }",
        "authorization: { defaultAction: Allow, rules: [{ action: Deny, principal: { clientCIDRs: [hunter2] } }] }",
    ] {
        let imported = guarded(spec);
        assert!(
            imported.policy.contains("deny: [0.0.0.0/0, \"::/0\"]"),
            "{spec}: {}",
            imported.policy
        );
        assert!(imported.policy.contains("# To do: the routes of SecurityPolicy s are closed"));
        assert_eq!(worst(&imported), Verdict::LeftOut);
        let all = format!("{}{:?}", imported.policy, imported.findings);
        assert!(!all.contains("hunter2"), "{all}");
    }
    let imported = guarded(
        "authorization: { rules: [{ action: Allow, principal: { clientCIDRs: [10.0.0.0/8] } }] }",
    );
    assert!(imported.policy.contains("auth: none, allow: [10.0.0.0/8]"), "{}", imported.policy);
    assert_eq!(worst(&imported), Verdict::Same);
    let imported = guarded("cors: { allowOrigins: [\"https://a.io\"], maxAge: 10m }");
    assert!(
        imported
            .policy
            .contains("cors: { origins: [\"https://a.io\"], preflight: answer, max_age: 10m }")
    );
}

#[test]
fn headers_that_are_made_of_claims_count_by_the_claims() {
    let security = format!(
        "kind: SecurityPolicy\nmetadata: {{ name: s, namespace: n }}\nspec: {{ targetRef: {ROUTE}, jwt: {{ providers: \
         [{{ name: id, issuer: \"https://id\", audiences: [api], remoteJWKS: {{ uri: \"https://id/keys\" }}, \
         claimToHeaders: [{{ claim: org, header: X-Org }}] }}] }} }}\n---\n"
    );
    let limits = policy(
        ROUTE,
        "{ global: { rules: [{ clientSelectors: [{ headers: [{ name: x-org, value: acme }] }], limit: { requests: 3, unit: Hour } }] } }",
    );
    let imported = import(&format!("{GATEWAY}{security}{limits}")).unwrap();
    for expected in [
        "jwt: [{ name: id, issuer: \"https://id\", jwks_url: \"https://id/keys\", audience: [api] }]",
        "p-0-r: { per: jwt.org, on_missing: skip, rate: unlimited, align: epoch, refund: { status: [] } }",
        "jwt.org: acme, rate: 3/hour",
        "auth: { required: [id] }, limits: [p-0-r]",
        "jwt: { iss: \"https://id\", org: acme, sub: sample } }, repeat: 8, expect: { admitted: 3 }",
    ] {
        assert!(imported.policy.contains(expected), "{expected}: {}", imported.policy);
    }
}

#[test]
fn routes_of_other_classes_and_hidden_routes_are_named() {
    let other =
        GATEWAY.replace("edge", "inner").replace("eg,", "other,").replace("name: r,", "name: t,");
    let text = format!("{GATEWAY}{other}");
    let imported = import(&text).unwrap();
    assert!(
        imported.findings[0].here.contains("has the same host and path"),
        "{:?}",
        imported.findings
    );
    let imported = import_class(&text, Some("eg")).unwrap();
    assert!(imported.findings[0].here.contains("no listener"), "{:?}", imported.findings);
    let matched = GATEWAY.replace(
        "name: all,",
        "matches: [{ headers: [{ name: a, value: b }] }, { path: { value: /a } }],",
    );
    let imported = import(&matched).unwrap();
    assert!(imported.findings[0].there.contains("headers"), "{:?}", imported.findings);
    assert_eq!(section(&imported, "routes").len(), 1);
}

#[test]
fn more_specific_hosts_end_where_others_would_catch_their_requests() {
    let other = "
kind: HTTPRoute
metadata: { name: wild, namespace: n }
spec: { parentRefs: [{ name: edge }], hostnames: [\"*.io\"], rules: [{ backendRefs: [{ name: app, port: 80 }] }] }
---
";
    let text = GATEWAY.replace("name: all,", "matches: [{ path: { value: /a } }],");
    let imported = import(&format!("{text}{other}")).unwrap();
    let routes = section(&imported, "routes");
    assert!(routes[1].starts_with("{ match: { path: /**, host: a.io }"), "{routes:?}");
    assert!(routes[1].contains("deny: [0.0.0.0/0, \"::/0\"]"), "{routes:?}");
}
