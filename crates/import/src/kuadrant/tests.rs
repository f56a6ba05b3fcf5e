use super::*;
use crate::Verdict;

const ROUTES: &str = "
kind: Gateway
metadata: { name: edge, namespace: g }
spec: { listeners: [{ name: http, allowedRoutes: { namespaces: { from: All } } }] }
---
kind: HTTPRoute
metadata: { name: r, namespace: n }
spec:
  parentRefs: [{ name: edge, namespace: g }]
  hostnames: [a.io]
  rules: [{ name: all, backendRefs: [{ name: app, port: 80 }] }]
---
";
const AUTH: &str = "
kind: AuthPolicy
metadata: { name: a, namespace: n }
spec:
  targetRef: { kind: HTTPRoute, name: r }
  rules: { authentication: { id: { jwt: { issuerUrl: \"https://id\" } } } }
---
";

fn import(text: &str) -> Result<Imported, Problems> {
    let input = Input { name: "f.yaml".to_owned(), text: text.to_owned() };
    kuadrant(&[input], &Options::default())
}

fn policy(name: &str, target: &str, spec: &str) -> String {
    let namespace = if target.contains("Gateway") { "g" } else { "n" };
    format!(
        "kind: RateLimitPolicy\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
         spec: {{ targetRef: {{ {target} }}, {spec} }}\n---\n"
    )
}

const ROUTE: &str = "kind: HTTPRoute, name: r";
const GATEWAY: &str = "kind: Gateway, name: edge";

/// A policy with one limit, which has more fields.
fn of_limit(auth: &str, fields: &str) -> Imported {
    let limits = format!("limits: {{ l: {{ rates: [{{ limit: 5, window: 10s }}], {fields} }} }}");
    import(&format!("{ROUTES}{auth}{}", policy("p", ROUTE, &limits))).unwrap()
}

fn worst(imported: &Imported) -> Verdict {
    imported.findings.iter().map(|own| own.verdict).min().unwrap_or(Verdict::Same)
}

#[test]
fn counters_are_keys() {
    for (expression, expected) in [
        ("auth.identity.org", "per: jwt.org, on_missing: skip, rate: 5/10s"),
        ("request.headers['X-A']", "per: header.x-a, on_missing: skip, rate: 5/10s"),
        ("source.remote_address", "per: client.ip, ipv6_prefix: 128, rate: 5/10s"),
        ("source.address", "per: client.ip, ipv6_prefix: 128, rate: 5/10s"),
        ("request.host", "per: host, rate: 5/10s"),
        ("request.path", "per: path, rate: 5/10s"),
    ] {
        let imported = of_limit(AUTH, &format!("counters: [{{ expression: \"{expression}\" }}]"));
        assert!(imported.policy.contains(&format!("r-l: {{ {expected}")), "{}", imported.policy);
    }
    let imported = of_limit("", "");
    assert!(imported.policy.contains("r-l: { per: all, rate: 5/10s }"), "{}", imported.policy);
    for expression in ["auth.identity.metadata.x", "request.size", "request.headers['x'] + 'a'"] {
        let imported = of_limit(AUTH, &format!("counters: [{{ expression: \"{expression}\" }}]"));
        assert!(!imported.policy.contains("\nlimits:"), "{expression}");
        assert_eq!(worst(&imported), Verdict::LeftOut);
    }
    // Without tokens there are no claims.
    assert!(
        !of_limit("", "counters: [{ expression: auth.identity.org }]").policy.contains("\nlimits:")
    );
}

#[test]
fn predicates_narrow_a_limit_or_leave_it_out() {
    for (predicate, expected) in [
        ("request.method == 'POST'", "cost: { POST: 1, default: 0 }"),
        ("request.method != 'GET'", "cost: { GET: 0, default: 1 }"),
        (
            "request.url_path == '/toy'",
            "path: /toy, host: a.io }, auth: { required: [id] }, limits: [r-l]",
        ),
        (
            "request.url_path.startsWith('/a')",
            "path: /a*/**, host: a.io }, auth: { required: [id] }, limits: [r-l]",
        ),
        ("request.headers['x'] == 'v'", "{ limit: r-l, header.x: v, rate: 5/10s"),
        ("auth.identity.group == 'admin'", "{ limit: r-l, jwt.group: admin, rate: 5/10s"),
        ("auth.identity.sub != 'bob'", "{ limit: r-l, jwt.sub: bob, rate: unlimited"),
        ("source.remote_address == '10.0.0.1'", "{ limit: r-l, client.ip: 10.0.0.1, rate: 5/10s"),
        ("request.host == 'a.io'", "limits: [r-l]"),
        ("request.host.endsWith('.io')", "limits: [r-l]"),
    ] {
        let counters = "counters: [{ expression: auth.identity.sub }]";
        let imported =
            of_limit(AUTH, &format!("{counters}, when: [{{ predicate: \"{predicate}\" }}]"));
        assert!(imported.policy.contains(expected), "{predicate}: {}", imported.policy);
    }
    for predicate in [
        "!request.path.startsWith('/x')",
        "request.path != '/x'",
        "auth.identity.sub != 'bob'",
        "source.id == source.address",
        "request.url_path.matches('/x')",
        "request.path == '/x?y'",
        "request.host.endsWith('a.io')",
        "request.host == 'b.io'",
    ] {
        let imported = of_limit(AUTH, &format!("when: [{{ predicate: \"{predicate}\" }}]"));
        assert!(!imported.policy.contains("\nlimits:"), "{predicate}: {}", imported.policy);
        assert_eq!(worst(&imported), Verdict::LeftOut, "{predicate}");
    }
}

/// Which limits hold on the route, with the methods of their predicates.
fn in_force(policies: &str) -> Vec<String> {
    let imported = import(&format!("{ROUTES}{policies}")).unwrap();
    let (_, limits) = imported.policy.split_once("\nlimits:\n").unwrap_or_default();
    let lines = limits.lines().take_while(|line| line.starts_with("  "));
    let mut all: Vec<String> = lines
        .map(|line| {
            let name = line.trim().split(':').next().unwrap_or_default();
            let method = line
                .split_once("cost: { ")
                .map_or("", |(_, rest)| rest.split(':').next().unwrap_or_default());
            format!("{name} {method}").trim().to_owned()
        })
        .collect();
    all.sort();
    all
}

#[test]
fn policies_of_a_path_are_merged_as_they_say() {
    let rate = "rates: [{ limit: 5, window: 10s }]";
    let block = |kind: &str, strategy: &str, when: &str, names: &[&str]| {
        let limits: Vec<String> =
            names.iter().map(|name| format!("{name}: {{ {rate} }}")).collect();
        let when = match when {
            "" => String::new(),
            method => format!("when: [{{ predicate: \"request.method == '{method}'\" }}],"),
        };
        format!("{kind}: {{ strategy: {strategy}, {when} limits: {{ {} }} }}", limits.join(", "))
    };
    let own = |when: &str, names: &[&str]| {
        policy("own", ROUTE, &block("defaults", "atomic", when, names))
    };
    for (kind, strategy, when, own, expected) in [
        ("defaults", "atomic", "", own("", &["b"]), &["r-b"][..]),
        ("defaults", "atomic", "", own("", &[]), &["r-a", "r-b"]),
        ("defaults", "merge", "", own("", &["b", "c"]), &["r-a", "r-b", "r-c"]),
        ("overrides", "atomic", "", own("", &["c"]), &["r-a", "r-b"]),
        ("overrides", "merge", "", own("", &["b", "c"]), &["r-a", "r-b", "r-c"]),
        // The `when` of one policy holds for the limits of both.
        ("defaults", "merge", "POST", own("", &["c"]), &["r-a POST", "r-b POST", "r-c POST"]),
        ("defaults", "merge", "POST", own("PUT", &["c"]), &["r-a PUT", "r-b PUT", "r-c PUT"]),
        ("overrides", "merge", "POST", own("PUT", &["c"]), &["r-a POST", "r-b POST", "r-c POST"]),
        ("overrides", "atomic", "", own("PUT", &["c"]), &["r-a", "r-b"]),
    ] {
        let above = policy("above", GATEWAY, &block(kind, strategy, when, &["a", "b"]));
        assert_eq!(in_force(&format!("{above}{own}")), expected, "{kind} {strategy} {when}");
    }
}

#[test]
fn who_wins_a_name_gives_its_rate() {
    let limits = |number: u32| {
        format!(
            "{{ strategy: merge, limits: {{ a: {{ rates: [{{ limit: {number}, window: 1m }}] }} }} }}"
        )
    };
    for (kind, expected) in [("defaults", "rate: 2/minute"), ("overrides", "rate: 1/minute")] {
        let above = policy("above", GATEWAY, &format!("{kind}: {}", limits(1)));
        let own = policy("own", ROUTE, &format!("defaults: {}", limits(2)));
        let imported = import(&format!("{ROUTES}{above}{own}")).unwrap();
        assert!(imported.policy.contains(expected), "{kind}: {}", imported.policy);
    }
}

#[test]
fn two_policies_on_one_target_need_their_age_unless_it_makes_no_difference() {
    let limits = |name: &str| format!("{{ {name}: {{ rates: [{{ limit: 5, window: 10s }}] }} }}");
    let atomic = |name: &str| policy(name, ROUTE, &format!("limits: {}", limits(name)));
    let merge = |name: &str| {
        policy(name, ROUTE, &format!("defaults: {{ strategy: merge, limits: {} }}", limits(name)))
    };
    let problems = import(&format!("{ROUTES}{}{}", atomic("a"), atomic("b"))).unwrap_err();
    assert!(problems[0].help().contains("creationTimestamp"), "{problems:?}");
    assert_eq!(in_force(&format!("{}{}", merge("a"), merge("b"))), ["r-a", "r-b"]);
    let dated = |name: &str, year: &str| {
        let date = format!("name: {name}, creationTimestamp: {year}-01-01T00:00:00Z, namespace");
        atomic(name).replace(&format!("name: {name}, namespace"), &date)
    };
    // Of two with atomic defaults, the newer one holds.
    assert_eq!(in_force(&format!("{}{}", dated("a", "2026"), dated("b", "2025"))), ["r-a"]);
}

#[test]
fn gateway_policy_has_a_counter_for_each_route_and_a_route_one_for_all_its_rules() {
    let second = "
kind: HTTPRoute
metadata: { name: s, namespace: n }
spec:
  parentRefs: [{ name: edge, namespace: g }]
  hostnames: [b.io, c.io]
  rules: [{ backendRefs: [{ name: app, port: 80 }] }, { matches: [{ path: { value: /x } }], backendRefs: [{ name: app, port: 80 }] }]
---
";
    let limits = "limits: { a: { rates: [{ limit: 5, window: 10s }] } }";
    let imported = import(&format!("{ROUTES}{second}{}", policy("p", GATEWAY, limits))).unwrap();
    assert_eq!(imported.policy.matches("limits: [s-a]").count(), 4, "{}", imported.policy);
    assert_eq!(imported.policy.matches("limits: [r-a]").count(), 1, "{}", imported.policy);
    assert!(imported.policy.contains("one counter for b.io"), "{}", imported.policy);
    assert!(imported.policy.contains("another counter for b.io"), "{}", imported.policy);
    let imported = import(&format!(
        "{ROUTES}{second}{}",
        policy("p", "kind: HTTPRoute, name: r, sectionName: none", limits)
    ));
    assert!(imported.unwrap().findings[0].here.contains("not in force on any route"));
}

#[test]
fn rates_are_carried_over_with_what_they_were_there() {
    let of = |rates: &str| {
        import(&format!(
            "{ROUTES}{}",
            policy("p", ROUTE, &format!("limits: {{ l: {{ rates: [{rates}] }} }}"))
        ))
    };
    for (rates, expected, verdict) in [
        ("{ limit: 5, window: 1h30m }", "rate: 5/5400s", Verdict::Same),
        ("{ limit: -1, window: 10s }", "rate: 0/10s", Verdict::Same),
        ("{ limit: 5, window: 1500ms }", "rate: 5/1500ms", Verdict::Nearly),
        ("{ limit: 5, window: 500ms }", "rate: 5/500ms", Verdict::Nearly),
        (
            "{ limit: 9, window: 10s }, { limit: 5, window: 10s }",
            "rate: [9/10s, 5/10s]",
            Verdict::Nearly,
        ),
        ("{ limit: 4294967295, window: 10s }", "rate: unlimited", Verdict::Nearly),
        ("", "routes:", Verdict::LeftOut),
        ("{ limit: 5, window: 99999h }", "routes:", Verdict::LeftOut),
    ] {
        let imported = of(rates).unwrap();
        assert!(imported.policy.contains(expected), "{rates}: {}", imported.policy);
        assert_eq!(worst(&imported), verdict, "{rates}");
    }
    let five: Vec<String> = (1..=5).map(|at| format!("{{ limit: 5, window: {at}s }}")).collect();
    assert!(of(&five.join(", ")).unwrap().policy.contains("limits: [r-l, r-l-2]"));
    for wrong in ["{ limit: 5, window: 1d }", "{ limit: 5 }", "{ limit: many, window: 1s }"] {
        let problems = of(wrong).unwrap_err();
        assert!(problems[0].place().starts_with("f.yaml:1"), "{problems:?}");
    }
}

#[test]
fn texts_that_headers_are_compared_with_are_not_shown() {
    let imported =
        of_limit("", "when: [{ predicate: \"request.headers['x-key'].matches('hunter2')\" }]");
    let here = &imported.findings[0].here;
    assert!(here.contains("request.headers['…'].matches('…')"), "{here}");
}

#[test]
fn tokens_are_never_counted_as_requests() {
    let policy = policy("p", ROUTE, "limits: { l: { rates: [{ limit: 100000, window: 24h }] } }");
    let imported =
        import(&format!("{ROUTES}{}", policy.replace("RateLimit", "TokenRateLimit"))).unwrap();
    assert!(!imported.policy.contains("\nlimits:"), "{}", imported.policy);
    assert_eq!(worst(&imported), Verdict::LeftOut);
}

#[test]
fn guards_without_a_counterpart_close_their_routes_and_show_no_secret() {
    for (rules, is_closed) in [
        (
            "authentication: { k: { apiKey: { selector: { matchLabels: { app: hunter2 } } } } }",
            true,
        ),
        ("authentication: { k: { kubernetesTokenReview: { audiences: [hunter2] } } }", true),
        (
            "authentication: { id: { jwt: { issuerUrl: \"https://id\" } } }, authorization: { a: { opa: { rego: hunter2 } } }",
            true,
        ),
        (
            "authentication: { id: { jwt: { issuerUrl: \"https://id\" } }, k: { apiKey: {} } }",
            false,
        ),
        ("authentication: { a: { anonymous: {} } }", false),
    ] {
        let auth =
            AUTH.replace("authentication: { id: { jwt: { issuerUrl: \"https://id\" } } }", rules);
        let imported = of_limit(&auth, "");
        assert_eq!(
            imported.policy.contains("deny: [0.0.0.0/0, \"::/0\"]"),
            is_closed,
            "{rules}: {}",
            imported.policy
        );
        let all = format!("{}{:?}", imported.policy, imported.findings);
        assert!(!all.contains("hunter2"), "{all}");
    }
    // The route's own AuthPolicy takes the place of that of its Gateway.
    let above = AUTH
        .replace("name: a, namespace: n", "name: deny, namespace: g")
        .replace("kind: HTTPRoute, name: r", "kind: Gateway, name: edge")
        .replace(
            "authentication: { id: { jwt: { issuerUrl: \"https://id\" } } }",
            "authorization: { a: { opa: {} } }",
        );
    let imported = of_limit(&format!("{above}{AUTH}"), "");
    assert!(!imported.policy.contains("deny: ["), "{}", imported.policy);
    assert!(of_limit(&above, "").policy.contains("deny: ["));
}

#[test]
fn properties_of_the_identity_are_followed_to_their_claims() {
    let filters = "
  rules:
    authentication: { id: { jwt: { issuerUrl: \"https://id\" } } }
    response: { success: { filters: { identity: { json: { properties: {
      who: { selector: auth.identity.sub }, key: { selector: auth.identity.metadata.name } } } } } } }
---
";
    let (head, _) = AUTH.split_once("\n  rules").unwrap();
    let auth = format!("{head}{filters}");
    let counter = |name: &str| {
        of_limit(&auth, &format!("counters: [{{ expression: auth.identity.{name} }}]"))
    };
    assert!(counter("who").policy.contains("per: jwt.sub"), "{}", counter("who").policy);
    for name in ["key", "sub"] {
        assert!(!counter(name).policy.contains("\nlimits:"), "{name}");
    }
}
