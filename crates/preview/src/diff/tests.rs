//! The texts of differences. The integration tests check with a store that counters behave so.

use std::path::Path;

use http::Method;
use proptest::prelude::*;
use tollgate_policy::{Request, RequestPath, load};
use tollgate_yaml::Sources;

use super::*;

fn sources() -> Sources {
    Sources::system().with_variable("SECRET", "a secret that is long enough for it")
}

/// A policy with these sections; those that it must have have a default.
fn policy(text: &str) -> Policies {
    let section = |name: &str, default: &str| match text.lines().any(|line| line.starts_with(name))
    {
        true => String::new(),
        false => format!("{name} {default}\n"),
    };
    let all = format!(
        "version: 1\n{}{}{}{}{text}",
        section("upstreams:", "{ api: { servers: [http://127.0.0.1:9000] } }"),
        section("identity:", "{ callers: [{ name: anonymous, key: client.ip }] }"),
        section("limits:", "{ core: { per: caller, rate: 5000/hour } }"),
        section("routes:", "[{ match: { path: /** }, limits: [core] }]"),
    );
    let policy = load(Path::new("api.yaml"), &all, &sources());
    Policies::new(vec![policy.unwrap_or_else(|problems| panic!("{}\n{all}", problems[0]))])
}

fn diff_text(old: &str, new: &str) -> String {
    diff(&policy(old), &policy(new)).to_string()
}

/// Compares what is shown below the policy's name.
fn assert_diff(old: &str, new: &str, expected: &str) {
    assert_eq!(diff_text(old, new), format!("policy api\n{expected}"), "{old}\n{new}");
}

#[test]
fn policies_of_equal_effect_have_no_difference() {
    assert_eq!(diff_text("", ""), "no difference\n");
    let new = "limits:\n  core: { per: [caller], rate: 5_000 per 1h, algorithm: fixed_window }\n";
    assert_eq!(diff_text("", new), "no difference\n");
    // Another order, and a route that no request reaches.
    let old = "routes: [{ match: { path: /a }, limits: [core] }, { match: { path: /** } }]";
    let new = "routes: [{ match: { path: /a }, limits: [core] }, { match: { path: /** } }, \
               { match: { path: /b }, limits: [core] }]";
    assert_eq!(diff_text(old, new), "no difference\n");
}

#[test]
fn windows_are_shown_with_what_happens_to_used_units() {
    let limits = |core: &str, other: &str| {
        format!(
            "limits:\n  core: {{ per: caller, {core} }}\n  other: {{ per: client.ip, {other} }}\n"
        )
    };
    assert_diff(
        &limits("rate: 5000/hour", "rate: 5/s"),
        &limits("rate: 6000/hour", "rate: 5/s"),
        "  windows\n    rescaled core for everybody: 5000/hour -> 6000/hour: use is kept, 1000 more\n    \
         kept: other\n",
    );
    assert_diff(
        &limits("rate: 5000/hour", "rate: 5/s, algorithm: gcra, burst: 9"),
        &limits("rate: 5000/day", "rate: 4/s, algorithm: gcra, burst: 7"),
        "  windows\n    fresh core for everybody: 5000/hour -> 5000/day (window hour -> day): \
         all counters start from zero\n    rescaled other for everybody: 5/second by \
         gcra, burst 9 -> 4/second by gcra, burst 7: use is kept, 2 fewer: callers that have used more wait, \
         refills more slowly\n",
    );
}

#[test]
fn requests_that_match_another_route_are_shown() {
    let limits =
        "limits: { core: { per: caller, rate: 5/s }, other: { per: caller, rate: 6/s } }\n";
    let routes = |routes: &str| format!("{limits}routes: [{routes}]\n");
    let all = "{ match: { path: /** }, limits: [core] }";
    let repos = "{ match: { path: /repos/** }, limits: [core] }";
    assert_diff(
        &routes(&format!("{repos}, {all}")),
        &routes(&format!(
            "{{ match: {{ path: \"/repos/{{owner}}/{{repo}}/**\" }}, limits: [core, other] }}, \
             {repos}, {all}"
        )),
        "  routing\n    /repos/{owner}/{repo}/**: /repos/** -> /repos/{owner}/{repo}/**: limits \
         core -> core, other\n",
    );
    assert_diff(
        &routes(all),
        &routes(&format!("{{ match: {{ path: /login, methods: [POST, PUT] }} }}, {all}")),
        "  routing\n    POST,PUT /login: /** -> /login: limits core -> none\n",
    );
    assert_diff(
        &routes(&format!("{repos}, {all}")),
        &routes(repos),
        "  routing\n    /**: /** -> no route\n",
    );
    assert_diff(
        &routes(all),
        &routes(&format!("{{ match: {{ host: a.example.com, path: /x }} }}, {all}")),
        "  routing\n    /x at a.example.com: /** -> /x: limits core -> none\n",
    );
    assert_diff(
        &routes(all),
        &routes("{ match: { path: /** }, auth: none, cost: 2, limits: [core] }"),
        "  routing\n    /**: auth optional -> none; cost by limit -> 2\n",
    );
}

#[test]
fn requests_from_some_networks_that_match_another_route_are_shown() {
    let routes = |routes: &str| format!("routes: [{routes}]\n");
    let all = "{ match: { path: /** }, limits: [core] }";
    let admin = |from: &str| format!("{{ match: {{ path: /admin/**, from: {from} }} }}");
    assert_diff(
        &routes(all),
        &routes(&format!("{}, {all}", admin("[10.0.0.0/8]"))),
        "  routing\n    /admin/** from 10.0.0.0/8: /** -> /admin/**: limits core -> none\n",
    );
    assert_diff(
        &routes(&format!("{}, {all}", admin("[10.0.0.0/8, 192.0.2.1]"))),
        &routes(&format!("{}, {all}", admin("[10.0.0.0/16, 192.0.2.1]"))),
        "  routing\n    /admin/** from 10.0.0.0/8: /admin/** -> /**: limits none -> core\n",
    );
    // Together they are what the one was.
    let halves = admin("[10.0.0.0/9, 10.128.0.0/9]");
    assert_eq!(diff_text(&routes(&admin("[10.0.0.0/8]")), &routes(&halves)), "no difference\n");
    assert_diff(
        &routes(&admin("[\"::/0\"]")),
        &routes("{ match: { path: /admin/** } }"),
        "  routing\n    /admin/** from other addresses: no route -> /admin/**\n",
    );
    assert_diff(
        &routes("{ match: { path: /** }, deny: [192.0.2.1] }"),
        &routes("{ match: { path: /** }, allow: [10.0.0.0/8] }"),
        "  routing\n    /**: allow all -> 10.0.0.0/8; deny 192.0.2.1 -> none\n",
    );
}

#[test]
fn another_order_of_routes_is_shown_where_they_overlap() {
    let routes = |[first, second]: [&str; 2]| {
        format!(
            "routes: [{{ match: {{ path: \"{first}\" }}, limits: [core] }}, \
             {{ match: {{ path: \"{second}\" }} }}]\n"
        )
    };
    let old = routes(["/{a}/x", "/y/{b}"]);
    let new = "routes: [{ match: { path: \"/y/{b}\" } }, \
               { match: { path: \"/{a}/x\" }, limits: [core] }]\n";
    assert_diff(&old, new, "  routing\n    /y/x: /{a}/x -> /y/{b}: limits core -> none\n");
}

/// `/abc` begins and ends as two routes say. A third one does not match it, for there beginning and
/// end share nothing.
#[test]
fn path_whose_beginning_and_end_meet_is_diff_text() {
    let limited = "{ match: { path: \"/ab*\" }, limits: [core] }";
    let [third, other] =
        ["/ab*bc", "/*bc"].map(|path| format!("{{ match: {{ path: \"{path}\" }} }}"));
    let old = format!("routes: [{third}, {limited}, {other}]\n");
    let new = format!("routes: [{third}, {other}, {limited}]\n");
    assert_diff(&old, &new, "  routing\n    /ab*&*bc: /ab* -> /*bc: limits core -> none\n");
}

#[test]
fn parameter_that_stands_for_another_part_is_diff_text() {
    let policy = |path: &str| {
        format!(
            "limits: {{ core: {{ per: [client.ip, path.id], rate: 5/s }} }}\n\
             routes: [{{ match: {{ path: \"{path}\" }}, limits: [core] }}]\n"
        )
    };
    assert_diff(
        &policy("/{id}/{other}"),
        &policy("/{other}/{id}"),
        "  routing\n    /{id}/{other}: /{id}/{other} -> /{other}/{id}: core counts by another \
         path segment as path.id\n",
    );
}

#[test]
fn hosts_that_another_policy_decides_are_diff_text() {
    let named = |name: &str, hosts: &str| {
        let text = format!(
            "version: 1\nhosts: {hosts}\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             routes: [{{ match: {{ path: /** }} }}]\n"
        );
        load(Path::new(name), &text, &Sources::system()).unwrap_or_else(|_| panic!("{text}"))
    };
    let old = Policies::new(vec![named("a.yaml", "[a.example.com]"), named("rest.yaml", "[]")]);
    let new = Policies::new(vec![
        named("a.yaml", "[a.example.com]"),
        named("b.yaml", "[\"*.example.com\"]"),
        named("rest.yaml", "[]"),
    ]);
    let expected = "hosts\n  *.example.com: policy rest -> policy b: its limits apply, with \
                    their own counters\npolicy b\n  policy\n    new\n";
    assert_eq!(diff(&old, &new).to_string(), expected);
    assert!(diff(&old, &old).is_empty());
}

#[test]
fn lists_costs_and_responses_are_diff_text() {
    let old = "deny: [192.0.2.1]\nexempt: [\"anonymous:192.0.2.9\"]\n";
    let new = "deny: [192.0.2.2]\nresponses: { denied_status: 403 }\n\
               limits: { core: { per: caller, rate: 5000/hour, mode: shadow, cost: { GET: 1, default: 5 } } }\n\
               upstreams: { api: { servers: [http://127.0.0.1:9001] } }\n";
    assert_diff(
        old,
        new,
        "  access\n    deny: removed 192.0.2.1/32\n    deny: added 192.0.2.2/32\n    \
         exempt: removed anonymous:192.0.2.9\n  limits\n    core: cost: 1 -> GET 1, others 5\n    \
         core: mode: enforced -> shadow\n  upstreams\n    upstream api: 127.0.0.1:9000 -> 127.0.0.1:9001\n  \
         responses\n    denied status: 429 -> 403\n",
    );
}

#[test]
fn what_the_access_log_hides_is_diff_text() {
    let limits = "limits: { core: { per: [caller, header.x-tenant], rate: 5000/hour } }\n";
    assert_diff(
        limits,
        &format!("{limits}private: [header.x-tenant]\n"),
        "  access\n    header.x-tenant in the access log: plain -> hashed\n",
    );
}

#[test]
fn bound_on_refunds_is_diff_text() {
    let refunding =
        |refund: &str| format!("limits: {{ core: {{ per: caller, rate: 5000/hour{refund} }} }}\n");
    assert_diff(
        &refunding(""),
        &refunding(", refund: { at_most: 50% }"),
        "  limits\n    core: refund: 304 for authenticated callers -> \
         304 for authenticated callers; at most 50%\n",
    );
}

#[test]
fn rules_for_outages_and_full_stores_are_shown() {
    let saying =
        |says: &str| format!("limits: {{ core: {{ per: caller, rate: 5000/hour{says} }} }}\n");
    assert_diff(
        &saying(""),
        &saying(", on_store_error: closed, on_store_full: open"),
        "  limits\n    core: on store error: local -> closed\n    \
         core: on store full: open while redis is unreachable -> open\n",
    );
}

#[test]
fn cost_of_abandoned_requests_is_shown() {
    let costing = |cost: &str| {
        format!("limits: {{ core: {{ per: caller, rate: 5000/hour, cost: {{ {cost} }} }} }}\n")
    };
    assert_diff(
        &costing("reserve: 10, from_response_header: x-cost"),
        &costing("reserve: 10, from_response_header: x-cost, abandoned: 50"),
        "  limits\n    core: cost: 10, then from x-cost -> \
         10, then from x-cost, 50 if abandoned\n",
    );
}

#[test]
fn changes_of_upstreams_and_paths_are_shown() {
    let old = "upstreams: { api: { servers: [http://127.0.0.1:9000] } }\n";
    let new = "paths: { encoded_slash: keep }\nmethod_override: match\n\
               upstreams:\n  api:\n    servers: [http://127.0.0.1:9000, { url: http://127.0.0.1:9001, weight: 3 }]\n    \
               balance: caller\n    health_check: { path: /healthz }\n    retries: off\n    \
               queue: { size: 0 }\n    shares: off\n";
    let expected = "  paths\n    encoded slash: reject -> keep\n    method override: drop -> match\n  upstreams\n    \
         upstream api: 127.0.0.1:9000 -> 127.0.0.1:9000 (weight 1), 127.0.0.1:9001 (weight 3)\n    \
         upstream api: balance: least_loaded -> caller\n    \
         upstream api: health check: none -> /healthz every 5s within 2s, 200-299 is good, back after 2, out after 3\n    \
         upstream api: queue: 1024 -> 0\n    \
         upstream api: shares: address -> off\n    \
         upstream api: retries: 1, at most 20 % (statuses none) -> none\n";
    assert_diff(old, new, expected);
}

#[test]
fn changes_of_a_route_are_shown_without_header_values() {
    let route = |fields: &str| format!("routes: [{{ match: {{ path: /v1/** }}{fields} }}]\n");
    let edits = |value: &str| route(&format!(", request_headers: {{ set: {{ x-key: {value} }} }}"));
    let changed = ", max_body: 1KiB, upgrades: [], strip_prefix: /v1, add_prefix: /in, \
                   cors: { origins: [\"https://*.a.example\"], preflight: pass }, \
                   response_headers: { remove: [server] }";
    assert_diff(
        &route(""),
        &route(changed),
        "  routing\n    /v1/**: max body any -> 1024 bytes; upgrades websocket -> none; \
         path prefix none -> without /v1, below /in; \
         cors none -> https://*.a.example, preflight pass; \
         response headers none -> remove server\n",
    );
    let expected = "  routing\n    /v1/**: request headers have changed values\n";
    assert_diff(&edits("one"), &edits("two"), expected);
}

#[test]
fn origins_that_may_read_the_rate_limit_path_are_shown() {
    let routes = "routes: [{ match: { path: /v1/** }, cors: off }]\n";
    let changed = format!("{routes}cors: {{ origins: [\"https://*.a.example\"] }}\n");
    let expected =
        "  responses\n    origins that may read the rate limit path: none -> https://*.a.example\n";
    assert_diff(routes, &changed, expected);
}

#[test]
fn overrides_are_shown_by_the_callers_they_are_for() {
    let limits = "limits: { core: { per: [client.ip, header.x-team], rate: 5/s } }\n";
    let with = |overrides: &str| format!("{limits}overrides: [{overrides}]\n");
    let net = "{ client.ip: 10.0.0.0/8, limit: core, rate: 9/s, why: x }";
    let team = "{ header.x-team: hunter2, limit: core, rate: 7/s, why: x }";
    assert_diff(
        limits,
        &with(net),
        "  windows\n    rescaled core for client.ip 10.0.0.0/8: 5/second -> 9/second: use is kept, \
         4 more\n",
    );
    assert_diff(
        &with(&format!("{net}, {team}")),
        &with(&format!("{team}, {}", net.replace("why", "until: 2030-12-31, why"))),
        "  access\n    override of core for client.ip 10.0.0.0/8: until: no end -> \
         2031-01-01T00:00:00.000Z\n    order of the overrides of core: client.ip 10.0.0.0/8, a \
         value of header.x-team -> a value of header.x-team, client.ip 10.0.0.0/8\n",
    );
    // Another value is another counter, though none is shown.
    let text = diff_text(&with(team), &with(&team.replace("hunter2", "hunter3")));
    assert_eq!(text.matches("rescaled core for a value of header.x-team").count(), 2, "{text}");
    assert!(!text.contains("hunter"), "{text}");
}

#[test]
fn table_of_tiers_is_shown_with_the_callers_whose_tier_it_changes() {
    let with = |tier: &str| {
        format!(
            "identity:\n  jwt: [{{ issuer: me, algorithms: [HS256], secret_env: SECRET }}]\n  \
             callers: [{{ name: user, key: jwt.sub, tier: {tier} }}, {{ name: anonymous, key: client.ip }}]\n\
             tiers: {{ default: free, names: [free, pro, internal] }}\n\
             limits: {{ core: {{ per: caller, rate: {{ free: 1/s, pro: 2/s, internal: 3/s }} }} }}\n"
        )
    };
    let [one, other] = ["{ admin: internal, staff: pro }", "{ staff: pro, admin: internal }"]
        .map(|map| with(&format!("{{ from: jwt.roles, map: {map} }}")));
    // Only a caller that has both roles gets another tier.
    assert_diff(
        &one,
        &other,
        "  windows\n    rescaled core for internal, now pro: 3/second -> 2/second: use is kept, \
         1 fewer: callers that have used more wait\n  identity\n    tier of user: claim roles (admin: \
         internal, staff: pro, else free) -> claim roles (staff: pro, admin: internal, else free)\n",
    );
}

#[test]
fn places_and_schemes_of_credentials_are_diff_text() {
    let with = |fields: &str| {
        format!("identity:\n  callers: [{{ name: anonymous, key: client.ip }}]\n{fields}")
    };
    assert_diff(
        &with(""),
        &with("  token: { schemes: [bearer, token], header: x-token, other_schemes: forward }\n"),
        "  identity\n    token sources: authorization by bearer -> authorization by bearer or token, \
         header x-token\n    other authorization schemes: drop -> forward\n",
    );
    assert_diff(
        &with(""),
        &with("  forward_claims: { headers: { x-user: jwt.sub } }\n"),
        "  identity\n    claims for the upstream: none -> x-user from jwt.sub: every policy removes \
         these headers from client requests\n",
    );
}

#[test]
fn text_from_a_policy_cannot_forge_lines() {
    let new = "overrides: [{ caller: \"anonymous:192.0.2.1\", limit: core, rate: 1/s, until: 2030-01-01, \
               why: x }]\nresponses: { realm: \"a b\" }\n";
    let text = diff_text("", new);
    assert!(text.lines().count() < 10, "{text}");
    assert_eq!(printable(&"a\nb\u{1b}[31m"), "a?b?[31m");
    assert_eq!(bounded(&"ä".repeat(1000)).chars().count(), MAX_LINE + 1);
}

/// One of some ways to count, so that two are often alike.
fn any_measure() -> impl Strategy<Value = String> {
    let rate = prop::sample::select(vec!["5/s", "5/hour", "6/hour", "7/day"]);
    let way = prop::sample::select(vec![
        "",
        ", align: epoch",
        ", algorithm: sliding_window",
        ", algorithm: sliding_log",
        ", algorithm: gcra",
        ", algorithm: gcra, burst: 3",
        ", algorithm: token_bucket, capacity: 9",
    ]);
    let calendar = prop::sample::select(vec![
        "rate: 5/day, align: calendar",
        "rate: 5/day, align: calendar, timezone: Europe/Berlin",
        "rate: 5/month, align: calendar",
        "concurrent: 5",
        "concurrent: 6",
    ]);
    prop_oneof![
        (rate, way).prop_map(|(rate, way)| format!("rate: {rate}{way}")),
        calendar.prop_map(str::to_owned),
    ]
}

/// Routes of which many overlap; each does something else.
fn any_routes() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "*", "ab*", "*b", "*bc", "a*c"]);
    let path =
        (prop::collection::vec(segment, 0..3), any::<bool>()).prop_map(|(segments, open)| {
            let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
            if open { path + "/**" } else { path + "/" }
        });
    let method = prop::sample::select(vec!["", ", methods: [GET]", ", methods: [POST, PUT]"]);
    let host = prop::sample::select(vec!["", ", host: x.test", ", host: \"*.test\""]);
    let from = prop::sample::select(vec![
        "",
        ", from: [10.0.0.0/8]",
        ", from: [10.1.0.0/16, \"::1\"]",
        ", from: [\"::/0\"]",
    ]);
    prop::collection::vec((path, method, host, from, 1..4_u32), 1..5).prop_map(|routes| {
        let route = |(path, method, host, from, cost)| {
            format!("  - {{ match: {{ path: \"{path}\"{method}{host}{from} }}, limits: [core], cost: {cost} }}\n")
        };
        format!("routes:\n{}", routes.into_iter().map(route).collect::<String>())
    })
}

proptest! {
    /// The parts of a key that are shown as changed are those that the key is made of, and no
    /// others.
    #[test]
    fn prop_window_is_fresh_if_and_only_if_a_changed_part_of_its_key_is_shown(
        before in any_measure(),
        after in any_measure(),
    ) {
        let limits = |measure: &str| format!("limits: {{ core: {{ per: caller, {measure} }} }}\n");
        let [old, new] = [&before, &after].map(|measure| policy(&limits(measure)));
        let id = |all: &Policies| all.iter().next().unwrap().limits[0].rates[0][0].id;
        let difference = diff(&old, &new);
        let change = &difference.policies[0].windows[0];
        prop_assert_eq!(id(&old) == id(&new), change.because.is_empty());
        prop_assert_eq!(id(&old) == id(&new), change.outcome != WindowOutcome::Fresh);
        prop_assert_eq!(change.outcome == WindowOutcome::Kept, change.before == change.after);
    }

    /// A request is treated otherwise if, and only if, a change between its two routes is shown.
    #[test]
    fn prop_each_request_that_is_treated_otherwise_is_shown(
        old in any_routes(),
        new in any_routes(),
        path in "(/[abc]{1,4}){1,4}",
        method in prop::sample::select(vec![Method::GET, Method::PUT, Method::DELETE]),
        host in prop::sample::select(vec![None, Some("x.test"), Some("y.test"), Some("z")]),
        address in prop::sample::select(vec!["10.1.2.3", "10.2.3.4", "192.0.2.1", "::1"]),
    ) {
        let old = policy(&old);
        let new = policy(&new);
        let before = old.iter().next().unwrap();
        let after = new.iter().next().unwrap();
        let address = address.parse().unwrap();
        let request_path = RequestPath::new(&path, &path);
        let request = Request { host, path: request_path, method: &method, address };
        let routes = [before.route(request), after.route(request)].map(|found| {
            found.map(|(route, _)| (route.name.to_string(), route.cost.clone()))
        });
        let [from, to] = routes.clone().map(|route| route.map(|(name, _)| name));
        let difference = diff(&old, &new);
        let is_shown = difference.policies[0].routing.iter().any(|change| {
            change.before == from && change.after == to
                && (change.methods.is_empty()
                    || change.methods.iter().any(|own| *own == method.to_string() || own == "*"))
        });
        if routes[0] != routes[1] {
            prop_assert!(is_shown, "{path} {method} {host:?}\n{difference}");
        }
        if difference.policies[0].routing.is_empty() {
            prop_assert_eq!(&routes[0], &routes[1]);
        }
    }
}
