//! Each warning, and what comes near it and is meant.

use std::{net::IpAddr, path::Path};

use tollgate_clock::Timestamp;
use tollgate_keyword::Keyword;
use tollgate_yaml::{
    Problem, Sources,
    warning::{OnSettings, Rule},
};

use crate::{Policies, load};

/// 2026-06-01T00:00:00Z.
const NOW: Timestamp = Timestamp::from_secs(1_780_272_000);

const START: &str = "\
version: 1
upstreams: { api: { servers: [http://127.0.0.1:9000] } }
identity:
  jwt: [{ issuer: me, algorithms: [HS256], secret_env: SECRET, audience: [api] }]
  callers: [{ name: user, key: jwt.sub }, { name: anonymous, key: client.ip }]
";

/// What is unwise in a policy with these lines, the first of them on line 6, as `line:column rule`.
fn warned(lines: &str) -> Vec<String> {
    warned_with(lines, |_| false)
}

fn warned_with(lines: &str, meets: impl Fn(&OnSettings) -> bool) -> Vec<String> {
    warned_in(&format!("{START}{lines}\n"), meets)
}

/// The same of a whole policy.
fn warned_in(text: &str, meets: impl Fn(&OnSettings) -> bool) -> Vec<String> {
    let sources = Sources::system().with_variable("SECRET", "a secret that is long enough for it");
    let policy = load(Path::new("api.yaml"), text, &sources);
    let policy = policy.unwrap_or_else(|problems| panic!("{text}\n{}", problems[0]));
    let holding = policy.warnings.iter().filter(|warning| warning.holds(NOW, &meets));
    let lines = holding.map(|warning| {
        let problem = &warning.problem;
        format!("{}:{} {}", problem.line(), problem.column(), warning.rule.keyword())
    });
    lines.collect()
}

/// The rules alone, of a limit with these fields on a route for `path`.
fn warned_of_limit(fields: &str, path: &str) -> Vec<String> {
    let lines = warned(&format!(
        "limits: {{ core: {{ rate: 9/hour, {fields} }} }}\n\
         routes: [{{ match: {{ path: \"{path}\" }}, limits: [core] }}]"
    ));
    lines.into_iter().map(|line| line.split(' ').next_back().unwrap().to_owned()).collect()
}

/// The lines of routes that no request takes, of those with these matches, from line 1.
fn shadowed(matches: &[&str]) -> Vec<usize> {
    let routes: String =
        matches.iter().map(|own| format!("  - {{ match: {{ {own} }}, limits: [] }}\n")).collect();
    let lines = warned(&format!("routes:\n{routes}"));
    let line = |line: &String| {
        let (place, rule) = line.split_once(' ').unwrap();
        assert_eq!(rule, Rule::ShadowedRoute.keyword());
        place.split(':').next().unwrap().parse::<usize>().unwrap() - 6
    };
    lines.iter().map(line).collect()
}

#[test]
fn route_that_an_earlier_one_takes_all_of_is_a_warning() {
    for (matches, expected) in [
        (&["path: \"/**\"", "path: /a"][..], &[2][..]),
        (&["path: \"/a/**\"", "path: /a", "path: \"/a/{x}/b/**\"", "path: /b"], &[2, 3]),
        (&["path: \"/{x}\"", "path: \"/{y}\""], &[2]),
        (&["path: /a, methods: [GET, POST]", "path: /a, methods: [POST]"], &[2]),
        (&["path: /a, host: \"*.x.com\"", "path: /a, host: b.x.com"], &[2]),
        (&["path: /a, host: \"*.x.com\"", "path: /a, host: \"*.b.x.com\""], &[2]),
    ] {
        assert_eq!(shadowed(matches), expected, "{matches:?}");
    }
}

#[test]
fn routes_that_take_a_part_of_the_methods_each_shadow_one_together() {
    let [get, post] = ["path: /a, methods: [GET]", "path: \"/**\", methods: [POST]"];
    assert_eq!(shadowed(&[get, post, "path: /a, methods: [GET, POST]"]), [3]);
    assert_eq!(shadowed(&[get, post, "path: /a, methods: [GET, PUT]"]), [0; 0]);
    assert_eq!(shadowed(&[get, post, "path: /a"]), [0; 0]);
}

#[test]
fn route_that_some_request_takes_is_none() {
    for matches in [
        &["path: /a", "path: \"/**\""][..],
        &["path: \"/a/*\"", "path: \"/a/**\""],
        &["path: \"/*/b\"", "path: \"/a/*\""],
        &["path: /a, methods: [GET]", "path: /a"],
        &["path: /a, host: b.x.com", "path: /a"],
        &["path: /a, host: b.x.com", "path: /a, host: \"*.x.com\""],
        &["path: /a, host: \"*.x.com\"", "path: /a, host: x.com"],
    ] {
        assert_eq!(shadowed(matches), [0; 0], "{matches:?}");
    }
}

#[test]
fn route_for_all_hosts_of_a_policy_is_shadowed_by_one_for_each_of_them() {
    let policy = |host: &str| {
        format!(
            "hosts: [a.x.com, \"*.b.x.com\"]\nroutes:\n  \
             - {{ match: {{ host: \"{host}\", path: /a }}, limits: [] }}\n  \
             - {{ match: {{ path: /a }}, limits: [] }}"
        )
    };
    assert_eq!(warned(&policy("a.x.com")), [""; 0]);
    assert_eq!(warned(&policy("*.b.x.com")), [""; 0]);
    let one = policy("a.x.com").replace(", \"*.b.x.com\"", "");
    assert_eq!(warned(&one), ["9:22 shadowed-route"]);
}

#[test]
fn limit_that_no_route_lists_is_a_warning() {
    let limits = "limits:\n  core: { per: caller, rate: 9/hour }\n  \
                  search: { per: caller, rate: 9/hour }\n";
    let route =
        |limits: &str| format!("routes: [{{ match: {{ path: \"/**\" }}, limits: [{limits}] }}]");
    assert_eq!(warned(&format!("{limits}{}", route("core"))), ["8:3 unused-limit"]);
    assert_eq!(warned(&format!("{limits}{}", route("core, search"))), [""; 0]);
    // Programs charge it, by the names of callers.
    let named = limits.replace("search: { per: caller", "search: { per: caller, verified: true");
    assert_eq!(warned(&format!("{named}{}", route("core"))), [""; 0]);
}

#[test]
fn method_that_is_a_mistyped_one_is_a_warning() {
    for (cost, methods, expected) in [
        ("GTE: 1", "GET", &["unknown-method"][..]),
        ("GET: 1", "PSOT", &["unknown-method"]),
        ("POST: 1", "GET, PROPFIND, LOCK, MKCOL, PURGE, QUERY", &[]),
        ("SETTLE: 1", "PUBLISH", &[]),
    ] {
        let lines = warned(&format!(
            "limits: {{ core: {{ per: caller, rate: 9/hour }} }}\nroutes:\n  \
             - {{ match: {{ path: \"/**\", methods: [{methods}] }}, limits: [core], \
             cost: {{ default: 1, {cost} }} }}"
        ));
        let rules: Vec<&str> =
            lines.iter().map(|line| line.split(' ').next_back().unwrap()).collect();
        assert_eq!(rules, expected, "{cost} {methods}");
    }
}

#[test]
fn tier_that_nothing_names_is_a_warning() {
    let policy = |limit: &str| {
        format!(
            "tiers: {{ default: free, names: [free, pro] }}\n\
             limits: {{ core: {{ per: caller, {limit} }} }}\n\
             routes: [{{ match: {{ path: \"/**\" }}, limits: [core] }}]"
        )
    };
    assert_eq!(warned(&policy("rate: 9/hour")), ["6:39 unused-tier"]);
    for named in [
        "rate: { pro: 9/hour, default: 9/day }",
        // Callers of the other tier would fall to the default tier without it.
        "rate: { free: 9/hour, default: 9/day }",
        "rate: 9/hour, candidate: { rate: { pro: 9/hour, default: 8/hour } }",
        "rate: 9/hour, algorithm: gcra, burst: { pro: 2, default: 1 }",
        "concurrent: { pro: 2, default: 1 }",
    ] {
        assert_eq!(warned(&policy(named)), [""; 0], "{named}");
    }
    let by_caller = START.replace("key: client.ip", "key: client.ip, tier: pro");
    let text = format!("{by_caller}{}\n", policy("rate: 9/hour"));
    let sources = Sources::system().with_variable("SECRET", "a secret that is long enough for it");
    let policy = load(Path::new("api.yaml"), &text, &sources).ok().unwrap();
    assert_eq!(policy.warnings, []);
}

#[test]
fn override_is_a_warning_once_it_is_over() {
    let policy = |until: &str| {
        format!(
            "limits: {{ core: {{ per: caller, rate: 9/hour }} }}\n\
             overrides:\n  - {{ caller: \"user:1\", limit: core, rate: 99/hour, until: {until}, why: x }}\n\
             routes: [{{ match: {{ path: \"/**\" }}, limits: [core] }}]"
        )
    };
    assert_eq!(warned(&policy("2026-05-31")), ["8:60 ended-override"]);
    assert_eq!(warned(&policy("2026-06-01")), [""; 0]);
}

#[test]
fn override_for_a_caller_of_a_limit_that_counts_by_something_else_is_a_warning() {
    let policy = |caller: &str, per: &str| {
        format!(
            "limits: {{ core: {{ per: {per}, rate: 9/hour }} }}\n\
             overrides:\n  - {{ caller: \"{caller}\", limit: core, rate: 99/hour, until: 2099-01-01, why: x }}\n\
             routes: [{{ match: {{ path: /a }}, limits: [core] }}]"
        )
    };
    for (caller, per) in [("user:1", "client.ip"), ("user:1", "path"), ("user:1", "jwt.org")] {
        let lines = warned(&policy(caller, per));
        assert_eq!(lines, ["8:15 override-not-per-caller"], "{caller} {per}");
    }
    for (caller, per) in [
        ("user:1", "caller"),
        ("user:1", "[path, caller]"),
        ("user:1", "jwt.sub"),
        ("anonymous:192.0.2.1", "client.ip"),
    ] {
        assert_eq!(warned(&policy(caller, per)), [""; 0], "{caller} {per}");
    }
}

#[test]
fn limit_by_what_clients_choose_freely_is_a_warning() {
    for (per, path) in [
        ("header.x-device", "/a"),
        ("cookie.session", "/a"),
        ("host", "/a"),
        ("path", "/a/**"),
        ("[method, header.x-device]", "/a"),
        ("[path.id, header.x-device]", "/{id}"),
        ("[client.ip, header.x-device]", "/a"),
        ("[client.ip, cookie.session]", "/a"),
    ] {
        assert_eq!(
            warned_of_limit(&format!("per: {per}, on_missing: skip"), path),
            ["unverified-key"],
            "{per}"
        );
    }
    for (per, path) in [
        ("caller", "/a"),
        ("[client.ip, path]", "/**"),
        ("[caller, header.x-device]", "/a"),
        ("[jwt.org, path]", "/**"),
        ("path", "/a"),
        ("method", "/a"),
        ("path.id", "/{id}"),
    ] {
        assert_eq!(
            warned_of_limit(&format!("per: {per}, on_missing: skip"), path),
            [""; 0],
            "{per} {path}"
        );
    }
}

#[test]
fn limit_by_client_that_stands_beside_on_every_route_bounds_one_by_what_clients_choose() {
    let both = "[core, beside]";
    for (beside, lists, auth, expected) in [
        ("per: client.ip", [both, both], "none", &[][..]),
        ("per: [client.ip, method]", [both, both], "none", &[]),
        ("per: caller", [both, both], "required", &[]),
        ("per: client.ip", [both, "[core]"], "none", &["unverified-key"]),
        ("per: caller", [both, both], "optional", &["unverified-key"]),
        ("per: client.ip, mode: shadow", [both, both], "none", &["unverified-key"]),
        ("per: [client.ip, path]", [both, both], "none", &["unverified-key"]),
        ("per: jwt.org", [both, both], "required", &["unverified-key"]),
    ] {
        let [one, other] = lists;
        let lines = warned(&format!(
            "limits:\n  core: {{ per: header.x-device, rate: 9/hour, on_missing: skip }}\n\
             \x20 beside: {{ {beside}, rate: 9/hour }}\n\
             routes:\n  - {{ match: {{ path: /a/* }}, auth: {auth}, limits: {one} }}\n\
             \x20 - {{ match: {{ path: /b/* }}, auth: {auth}, limits: {other} }}"
        ));
        let rules: Vec<&str> =
            lines.iter().map(|line| line.split(' ').next_back().unwrap()).collect();
        assert_eq!(rules, expected, "{beside} {lists:?} {auth}");
    }
}

#[test]
fn hosts_that_are_listed_are_not_chosen_freely() {
    let policy = |hosts: &str| {
        format!(
            "hosts: [{hosts}]\n\
             limits: {{ core: {{ per: host, rate: 9/hour }} }}\n\
             routes: [{{ match: {{ path: /a }}, limits: [core] }}]"
        )
    };
    assert_eq!(warned(&policy("a.x.com, b.x.com")), [""; 0]);
    assert_eq!(warned(&policy("a.x.com, \"*.b.x.com\"")), ["7:24 unverified-key"]);
}

#[test]
fn exempting_everybody_is_a_warning() {
    let policy = |exempt: &str| {
        format!("exempt: [{exempt}]\nroutes: [{{ match: {{ path: /a }}, limits: [] }}]")
    };
    assert_eq!(warned(&policy("192.0.2.0/24, 0.0.0.0/0")), ["6:24 whole-internet"]);
    assert_eq!(warned(&policy("\"::/0\"")), ["6:10 whole-internet"]);
    assert_eq!(warned(&policy("0.0.0.0/1, user:1, 128.0.0.0/1")), ["6:29 whole-internet"]);
    assert_eq!(warned(&policy("0.0.0.0/1, 192.0.2.1, user:1")), [""; 0]);
}

#[test]
fn private_networks_are_exempt_with_everybody_only_behind_an_unknown_load_balancer() {
    let policy =
        "exempt: [192.0.2.0/24, 10.0.0.0/8]\nroutes: [{ match: { path: /a }, limits: [] }]";
    let balancer = IpAddr::from([10, 0, 0, 1]);
    assert_eq!(
        warned_with(policy, |condition| {
            matches!(condition, OnSettings::AllClientsIn(network) if network.contains(&balancer))
        }),
        ["6:24 exempt-balancer"]
    );
    assert_eq!(warned(policy), [""; 0]);
}

#[test]
fn callers_by_certificate_are_a_warning_only_where_no_client_is_asked_for_one() {
    let text = "\
version: 1
upstreams: { api: { servers: [http://127.0.0.1:9000] } }
identity:
  callers:
    - { name: robot, key: client_certificate.subject }
    - { name: anonymous, key: client.ip }
    - { name: service, key: client_certificate.san }
routes: [{ match: { path: /a }, limits: [] }]
";
    let policy = load(Path::new("api.yaml"), text, &Sources::system());
    let policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
    let warned = |asks: bool| {
        let unmet =
            |condition: &OnSettings| !asks && *condition == OnSettings::NoClientCertificates;
        let holding = policy.warnings.iter().filter(|own| own.holds(NOW, unmet));
        holding.map(|own| (own.rule, own.problem.line())).collect::<Vec<_>>()
    };
    let rule = Rule::UnaskedCertificate;
    assert_eq!(warned(false), [(rule, 5), (rule, 7)]);
    assert_eq!(warned(true), []);
}

#[test]
fn cost_must_fit_what_callers_of_its_route_can_have() {
    let policy = |caller: &str, route: &str| {
        format!(
            "version: 1\nupstreams: {{ api: {{ servers: [http://127.0.0.1:9000] }} }}\n\
             identity:\n  \
             jwt: [{{ issuer: me, algorithms: [HS256], secret_env: SECRET, audience: [api] }}]\n  \
             callers: [{caller}, {{ name: anonymous, key: client.ip, tier: anonymous }}]\n\
             tiers: {{ default: free, names: [anonymous, free] }}\n\
             limits: {{ core: {{ per: client.ip, rate: {{ anonymous: 20/hour, free: 99/hour }} }} }}\n\
             routes: [{{ match: {{ path: /** }}, cost: 50, limits: [core]{route} }}]\n"
        )
    };
    let sources = Sources::system().with_variable("SECRET", "a secret that is long enough for it");
    let said = |text: &str| match load(Path::new("api.yaml"), text, &sources) {
        Ok(policy) => {
            let holding = policy.warnings.iter().filter(|own| own.holds(NOW, |_| false));
            holding.map(|own| own.rule.keyword().to_owned()).collect()
        }
        Err(problems) => problems.iter().map(|own| own.message().to_owned()).collect::<Vec<_>>(),
    };
    let user = "{ name: user, key: jwt.sub, tier: jwt.plan }";
    let low = "{ name: user, key: jwt.sub, tier: anonymous }";
    let never = "a cost of 50 never fits limit `core`: tier anonymous has 20";
    for (caller, route, expected) in [
        (user, ", auth: required", &[][..]),
        (user, "", &["unpayable-cost"]),
        (user, ", auth: none", &[never]),
        (low, ", auth: required", &[never]),
        (
            "{ name: key, key: client_certificate.subject, tier: free }",
            ", auth: none",
            &["unpayable-cost"],
        ),
    ] {
        assert_eq!(said(&policy(caller, route)), expected, "{caller} {route}");
    }
}

/// The rules alone, of one limit with these fields on a route with these.
fn warned_of(limit: &str, route: &str) -> Vec<String> {
    let lines = warned(&format!(
        "limits: {{ core: {{ rate: 9/hour, {limit} }}, addr: {{ per: client.ip, rate: 9/hour }} }}\n\
         routes: [{{ match: {{ path: /a{route}, limits: [core, addr] }}]"
    ));
    lines.into_iter().map(|line| line.split(' ').next_back().unwrap().to_owned()).collect()
}

#[test]
fn key_that_the_client_may_leave_out_is_a_warning() {
    for (limit, expected) in [
        ("per: [client.ip, header.x-user]", &["skippable-key"][..]),
        ("per: cookie.session", &["skippable-key"]),
        ("per: cookie.session, on_missing: deny", &[]),
        ("per: cookie.session, on_missing: skip", &[]),
        ("per: [client.ip, path, method]", &[]),
    ] {
        assert_eq!(warned_of(limit, " }"), expected, "{limit}");
    }
}

#[test]
fn limit_by_a_claim_on_a_route_without_tokens_is_a_warning() {
    for (limit, route, expected) in [
        ("per: jwt.org, on_missing: skip", " }, auth: none", &["claim-without-token"][..]),
        ("per: jwt.org, on_missing: deny", " }, auth: none", &["claim-without-token"]),
        ("per: jwt.org", " }", &[]),
        ("per: client.ip", " }, auth: none", &[]),
    ] {
        assert_eq!(warned_of(limit, route), expected, "{limit}{route}");
    }
}

#[test]
fn limit_that_can_never_count_is_a_warning() {
    let cost = "per: client.ip, cost: { GET: 0, POST: 1, default: 0 }";
    for (limit, route, expected) in [
        (cost, ", methods: [GET] }", &["never-counts"][..]),
        (cost, ", methods: [GET, POST] }", &[]),
        (cost, " }", &[]),
        (cost, ", methods: [GET] }, cost: 2", &[]),
        ("per: client.ip, cost: 0", " }", &["never-counts"]),
        ("per: client.ip, cost: { reserve: 0, from_response_header: x-cost }", " }", &[]),
        ("per: client.ip", ", methods: [GET] }", &[]),
    ] {
        assert_eq!(warned_of(limit, route), expected, "{limit}{route}");
    }
}

#[test]
fn issuer_whose_tokens_a_route_takes_for_any_audience_is_a_warning() {
    let warned = |issuer: &str, auth: &[&str]| {
        let routes: String = (0..)
            .zip(auth)
            .map(|(at, auth)| format!("  - {{ match: {{ path: /{at} }}, auth: {auth} }}\n"))
            .collect();
        let start = START.replace(", audience: [api] }", &format!("{issuer} }}"));
        warned_in(&format!("{start}routes:\n{routes}"), |_| false)
    };
    let missing = ["4:19 missing-audience"];
    let other = " }, { issuer: other, audience: [api], jwks_url: \"https://other.example/keys\"";
    for (issuer, auth, is_missing) in [
        ("", &["required"][..], true),
        ("", &["optional"], true),
        ("", &["{ required: [me] }"], true),
        ("", &["{ audience: [api] }", "{ required_claims: { azp: web } }"], true),
        ("", &["{ audience: [api] }", "none"], false),
        (", audience: []", &["required"], true),
        (", audience: api", &["required"], false),
        (", any_audience: false", &["required"], true),
        (", any_audience: true", &["required"], false),
        (other, &["required", "none"], true),
        (other, &["{ required: [other] }"], false),
    ] {
        let found = warned(issuer, auth);
        let found: Vec<&String> =
            found.iter().filter(|line| !line.contains("shared-subject")).collect();
        assert_eq!(found, &missing[..usize::from(is_missing)], "{issuer} {auth:?}");
    }
}

/// What is unwise in policies for one server each, as `file: message`: of each its identity and the
/// port of its server.
fn warned_together(policies: [(&str, u16); 2]) -> Vec<String> {
    let sources = Sources::system().with_variable("SECRET", "a secret that is long enough for it");
    let policies = policies.iter().zip(["a", "b"]).map(|((identity, port), name)| {
        let text = format!(
            "version: 1\nhosts: [{name}.example.com]\n\
             upstreams: {{ api: {{ servers: [\"http://127.0.0.1:{port}\"] }} }}\n\
             identity: {{ {identity} }}\nroutes: [{{ match: {{ path: \"/**\" }}, limits: [] }}]\n"
        );
        let policy = load(Path::new(&format!("{name}.yaml")), &text, &sources);
        policy.unwrap_or_else(|problems| panic!("{text}\n{}", problems[0]))
    });
    let policies = Policies::new(policies.collect());
    let warnings = policies.iter().flat_map(|policy| &policy.warnings);
    let shared = warnings.filter(|warning| warning.rule == Rule::SharedSubject);
    let line = |problem: &Problem| format!("{}: {}", problem.file(), problem.message());
    shared.map(|warning| line(&warning.problem)).collect()
}

#[test]
fn callers_of_two_policies_with_one_name_at_one_server_are_a_warning() {
    const USER: &str = "callers: [{ name: user, key: jwt.sub }]";
    let of = |issuer: &str, more: &str| {
        let key = "algorithms: [HS256], secret_env: SECRET";
        format!("jwt: [{{ issuer: {issuer}, {key} }}], {more}")
    };
    let main = of("\"https://main.example/\"", USER);
    let partner = of("\"https://partner.example/\"", USER);
    let shared = "shared_subjects: true";
    let meant = |identity: &str| format!("{identity}, {shared}");
    let other_kind =
        of("\"https://partner.example/\"", "callers: [{ name: partner, key: jwt.sub }]");
    let other_claim = of("\"https://main.example/\"", "callers: [{ name: user, key: jwt.id }]");
    let unnamed = of("none, name: partner", USER);
    let tenants = of("\"https://main.example/{t}/\", tenants: any", USER);
    let both = "one `X-Tollgate-Caller` and one `X-Tollgate-Subject`";
    let subject = "one `X-Tollgate-Subject`";
    for (own, other, file, names) in [
        (&main, &partner, "b.yaml", both),
        (&partner, &main, "b.yaml", both),
        (&main, &meant(&partner), "a.yaml", both),
        (&meant(&main), &partner, "b.yaml", both),
        (&main, &other_kind, "b.yaml", subject),
        (&main, &other_claim, "b.yaml", both),
        (&main, &unnamed, "b.yaml", both),
        (&main, &meant(&tenants), "a.yaml", subject),
    ] {
        let expected = format!(
            "{file}: callers of policy `a` and of policy `b` may have {names} at a server that \
             both have"
        );
        assert_eq!(warned_together([(own, 9000), (other, 9000)]), [expected], "{own} {other}");
        assert_eq!(warned_together([(own, 9000), (other, 9001)]), [""; 0], "{own} {other}");
        let [own, other] = [own, other].map(|identity| match identity.contains(shared) {
            true => identity.clone(),
            false => meant(identity),
        });
        assert_eq!(warned_together([(&own, 9000), (&other, 9000)]), [""; 0], "{own} {other}");
    }
    let anonymous = "callers: [{ name: anonymous, key: client.ip }]";
    for other in [&main, anonymous] {
        assert_eq!(warned_together([(&main, 9000), (other, 9000)]), [""; 0], "{other}");
    }
}
