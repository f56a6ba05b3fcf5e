//! `tollgate explain`: what it says is what happens, nothing is charged for it, and no secret is in
//! it.

use std::net::SocketAddr;

use serde_json::Value;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Redis, Request, Upstream, post};

const POLICY: &str = r#"
version: 1
upstreams: { api: { servers: ["UPSTREAM"] } }
identity:
  jwt:
    - { name: main, issuer: https://id.example.com/, audience: [api], algorithms: [HS256], secret_file: ../secret }
  callers:
    - { name: staff,     key: jwt.staff, tier: { from: jwt.roles, map: { admin: pro, staff: free } } }
    - { name: user,      key: jwt.sub,   tier: jwt.plan }
    - { name: anonymous, key: client.ip, tier: anonymous }
  token: { cookie: session }
tiers: { default: free, names: [anonymous, free, pro] }
limits:
  core:   { per: caller, rate: { anonymous: 2/hour, free: 3/hour, pro: unlimited } }
  tenant: { per: header.x-tenant, rate: 100/hour, on_missing: deny }
  trial:  { per: [caller, path], rate: 1/hour, mode: shadow }
  guess:  { per: client.ip, rate: 100/hour }
overrides:
  - { caller: "user:big", limit: core, rate: 50/hour, until: 2099-12-31, why: a trial }
  - { client.ip: 198.51.100.0/24, limit: guess, rate: 70/hour, why: an office }
  - { header.x-tenant: s3cret-tenant, limit: tenant, rate: 80/hour, why: a contract }
exempt: [ "user:root" ]
deny: [ "user:mallory" ]
routes:
  - { match: { path: /healthz, methods: [GET] }, auth: none, limits: [] }
  - { match: { path: /tenants/* }, limits: [tenant] }
  - { match: { path: /admin/** }, scopes: [admin], limits: [core] }
  - { match: { path: /private }, auth: required, limits: [core] }
  - { match: { path: /open/**, methods: [GET, POST] }, limits: [core, trial, guess] }
  - { match: { path: /inside/**, from: [10.0.0.0/8] }, deny: [10.6.0.0/16], limits: [core] }
"#;

fn folder(upstream: &Upstream) -> Folder {
    let folder = Folder::with_settings(upstream, "admin: { address: 127.0.0.1:0 }");
    folder.write("policies/api.yaml", &POLICY.replace("UPSTREAM", &upstream.url()));
    folder
}

/// With an admin listener: its addresses.
fn serve(folder: &Folder) -> (Running, SocketAddr, SocketAddr) {
    let (mut running, address) = Running::serve(folder);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
    (running, address, admin)
}

fn explained(folder: &Folder, arguments: &[&str]) -> Value {
    let output = folder.run(&[&["explain", "--json"], arguments].concat());
    assert_exit(&output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_is_said_is_what_happens() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let (_running, address, admin) = serve(&folder);
    let admin = admin.to_string();
    let mint = |arguments: &[&str]| folder.token(arguments);
    let free = mint(&["--sub", "42"]);
    let big = mint(&["--sub", "big"]);
    let admins = mint(&["--sub", "42", "--claim", "scope=admin"]);
    let mallory = mint(&["--sub", "mallory"]);
    let root = mint(&["--sub", "root"]);
    let other = mint(&["--sub", "42", "--audience", "other"]);
    let changed = format!("{free}x");
    for (method, target, token, headers, expected) in [
        ("GET", "/healthz", None, &[][..], 200),
        ("POST", "/healthz", None, &[], 404),
        ("GET", "/nowhere", None, &[], 404),
        ("GET", "/a/%2e%2e/b", None, &[], 404),
        ("GET", "/open/a%2Fb", None, &[], 400),
        ("TRACE", "/open", None, &[], 405),
        ("GET", "/private", None, &[], 401),
        ("GET", "/private", Some(&free), &[], 200),
        ("GET", "/private", Some(&changed), &[], 401),
        ("GET", "/private", Some(&other), &[], 401),
        ("GET", "/open/x?a=b", Some(&big), &[], 200),
        ("GET", "/open/x", Some(&mallory), &[], 403),
        ("GET", "/open/x", Some(&root), &[], 200),
        ("GET", "/open/x", Some(&free), &[("cookie", "session=abc")], 400),
        ("GET", "/admin/x", Some(&free), &[], 403),
        ("GET", "/admin/x", Some(&admins), &[], 200),
        ("GET", "/admin/x", Some(&big), &[], 403),
        ("GET", "/tenants/x", None, &[], 403),
        ("GET", "/tenants/x", None, &[("x-tenant", "acme")], 200),
        ("GET", "/tenants/x", None, &[("x-tenant", "acme"), ("x-tenant", "other")], 400),
        ("GET", "/open/x", Some(&free), &[], 429),
        ("GET", "/rate_limit", Some(&free), &[], 200),
    ] {
        let url = format!("http://api.example.com{target}");
        let mut arguments = vec!["--admin", &admin, method, &url];
        let mut request = Request::new(method, target);
        if let Some(token) = token {
            arguments.extend(["--token", token.as_str()]);
            request = request.token(token);
        }
        let lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        for (line, (name, value)) in lines.iter().zip(headers) {
            arguments.extend(["-H", line.as_str()]);
            request = request.field(name, value);
        }
        // Asked twice: the first time must leave nothing behind.
        explained(&folder, &arguments);
        let report = explained(&folder, &arguments);
        let prospect = &report["prospect"];
        let before = upstream.requests().len();
        let response = send(address, request);
        let is_forwarded = upstream.requests().len() > before;
        let status = match prospect["action"].as_str() {
            Some("forward") => 200,
            _ => prospect["status"].as_u64().unwrap(),
        };
        let place = format!("{method} {target} {headers:?}: {prospect:#}\n{response:?}");
        assert_eq!(status, u64::from(response.status), "{place}");
        assert_eq!(response.status, expected, "{place}");
        assert_eq!(prospect["action"] == "forward", is_forwarded, "{place}");
        let denied_by = response.field("x-tollgate-denied-by");
        if denied_by.is_some() {
            assert_eq!(prospect["denied_by"].as_str(), denied_by, "{place}");
        }
        // A second may pass between the two.
        let wait = response.field("retry-after").map(|secs| secs.parse::<u64>().unwrap());
        match (wait, prospect["retry_after"].as_u64()) {
            (Some(wait), Some(printed_wait)) => {
                assert!(wait.abs_diff(printed_wait) <= 1, "{place}")
            }
            (wait, printed_wait) => assert_eq!(wait, printed_wait, "{place}"),
        }
    }
}

#[test]
fn running_proxy_tells_how_limits_stand_and_charges_nothing() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let (_running, address, admin) = serve(&folder);
    let admin = admin.to_string();
    let token = folder.token(&["--sub", "42"]);
    let url = "http://api.example.com/open/x";
    let core = |url: &str| {
        let report = explained(&folder, &["--admin", &admin, "--token", &token, "GET", url]);
        report["limits"][0].clone()
    };
    for used in 0..3 {
        let limit = core(url);
        assert_eq!(limit["name"], "core");
        assert_eq!(limit["per"][0], "caller user:42");
        assert_eq!(limit["windows"][0]["rate"], "3/hour");
        assert_eq!(limit["windows"][0]["fits"], true);
        assert_eq!(limit["windows"][0]["standing"]["used"], used);
        let used = (used + 1).to_string();
        let response = send(address, Request::new("GET", "/open/x").token(&token));
        response.assert_status(200).assert_field("x-ratelimit-used", &used);
    }
    assert_eq!(core(url)["windows"][0]["fits"], false);
}

#[test]
fn files_are_explained_for_people() {
    let folder = folder(&Upstream::answering("never asked"));
    let token = folder.token(&["--sub", "42", "--plan", "gold"]);
    let output = folder.run(&[
        "explain",
        "--policy",
        "policies/api.yaml",
        "--token",
        &token,
        "--address",
        "192.0.2.1",
        "POST",
        "/open/x?secret=1",
    ]);
    assert_exit(&output, 0);
    let printed = text(&output.stdout);
    let printed = printed.replace(&server(&folder), "SERVER");
    let expected = "\
request   POST policy.test/open/x
          from 192.0.2.1
policy    api: it is for every host
route     /open/**, auth optional
          not /healthz: another path and another method
          not /tenants/*: another path
          not /admin/**: another path
          not /private: another path
caller    user:42
          by the rule user: jwt.sub
          tier free: the default: jwt.plan is \"gold\", which is no tier
          credential: a bearer token in header authorization, of main
          jwt.plan is \"gold\"
          jwt.sub is \"42\"
limits    core   primary, per caller user:42, costs 1
                 3/hour
          trial  shadow, per caller user:42, path /open/x, costs 1
                 1/hour
                 it denies no request of this caller
                 counted as caller=user:42,path=/open/x
          guess  secondary, per client.ip 192.0.2.1, costs 1
                 100/hour
                 counted as client.ip:192.0.2.1
would     go to upstream api at SERVER for /open/x?secret=1
          with x-forwarded-for: 192.0.2.1
          with x-forwarded-proto: http
          with x-forwarded-host: policy.test
          with x-request-id: (a new one)
          with x-tollgate-tier: free
          with x-tollgate-subject: 42
          with x-tollgate-caller: user:42
          without authorization
";
    assert_eq!(printed, expected);
}

/// Where the folder's policy forwards to.
fn server(folder: &Folder) -> String {
    let policy = std::fs::read_to_string(folder.path().join("policies/api.yaml")).unwrap();
    let rest = policy.split("http://").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn reasons_are_printed() {
    let folder = folder(&Upstream::start());
    let good = folder.token(&["--sub", "42"]);
    let stale = folder.token(&["--sub", "42", "--expires-in", "0s", "--claim", "exp=1"]);
    let policy = ["explain", "--policy", "policies"];
    for (arguments, expected) in [
        (&["--token", &good[..20], "GET", "/private"][..], "problem: token is "),
        (&["--token", &stale, "GET", "/private"], "problem: token has expired"),
        (&["GET", "/private"], "be answered 401: no token"),
        (&["--claims", r#"{"sub":"root"}"#, "GET", "/open/x"], "core   the caller is exempt"),
        (
            &["--claims", r#"{"sub":"big"}"#, "GET", "/open/x"],
            "an override of user:big, until 2100",
        ),
        (&["--claims", r#"{"sub":"7","plan":"pro"}"#, "GET", "/open/x"], "unlimited for tier pro"),
        (
            &["--address", "198.51.100.7", "GET", "/open/x"],
            "70/hour\n                 an override of client.ip 198.51.100.0/24: an office",
        ),
        (
            &["-H", "x-tenant: s3cret-tenant", "GET", "/tenants/x"],
            "an override of a value of header.x-tenant: a contract",
        ),
        (
            &["--claims", r#"{"staff":"7","roles":["staff","admin"]}"#, "GET", "/private"],
            "tier pro: jwt.roles contains admin",
        ),
        (
            &["--claims", r#"{"staff":"7","roles":["guest"]}"#, "GET", "/private"],
            "tier free: the default: no value of jwt.roles is in the table",
        ),
        (&["GET", "/tenants/x"], "refused: the request lacks header.x-tenant"),
        (&["--claims", r#"{"sub":"mallory"}"#, "GET", "/open/x"], "403: on the policy's deny list"),
        (&["GET", "/rate_limit"], "be answered 200: a query for the caller's rate limit status"),
        (&["OPTIONS", "*"], "be answered 204: `OPTIONS *` is a request about this server"),
        (&["-H", "host: a b", "GET", "/"], "be answered 400: "),
        (&["GET", "/healthz"], "not read: the route has `auth: none`"),
        (
            &["-H", "authorization: token x", "GET", "/private"],
            "credential: none: authorization has scheme token, the policy accepts bearer",
        ),
        (
            &["-H", "authorization: s3cret", "GET", "/open/x"],
            "credential: none: authorization has an unknown scheme, the policy accepts bearer",
        ),
        (
            &["-H", "authorization: Bearer: x", "GET", "/open/x"],
            "be answered 400: a malformed credential",
        ),
        (&["--address", "10.0.0.1", "GET", "/inside"], "route     /inside/**, auth optional"),
        (&["--address", "11.0.0.1", "GET", "/inside"], "not /inside/**: another address"),
        (&["--address", "10.6.0.1", "GET", "/inside"], "403: the route denies 10.6.0.0/16"),
    ] {
        let output = folder.run(&[&policy[..], arguments].concat());
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        assert!(printed.contains(expected), "{arguments:?}: {expected} is not in\n{printed}");
    }
}

#[test]
fn question_that_makes_no_sense_is_refused() {
    let folder = folder(&Upstream::start());
    for (arguments, code, expected) in [
        (&["G T", "/"][..], 1, "`G T` is not a method"),
        (&["GET", "http://"], 1, "not a URL"),
        (&["GET", "x"], 1, "`x` is not a URL or a path: write /x"),
        (&["--api-key", "a.b", "GET", "/"], 1, "the policy has no API keys"),
        (&["--claims", r#"{"iss":"x"}"#, "GET", "/"], 1, "no issuer of the policy is `x`"),
        (&["--claims", "[]", "GET", "/"], 64, "not a JSON object"),
        (&["--token", "a", "--claims", "{}", "GET", "/"], 64, "cannot be used with"),
        (&["-H", "x", "GET", "/"], 64, "write NAME: VALUE"),
        (
            &["--admin", "127.0.0.1:1", "--policy", "policies", "GET", "/"],
            64,
            "cannot be used with",
        ),
    ] {
        let policy: &[&str] =
            if arguments.contains(&"--policy") { &[] } else { &["--policy", "policies"] };
        let output = folder.run(&[&["explain"], policy, arguments].concat());
        assert_exit(&output, code);
        let printed = text(&output.stderr);
        assert!(printed.contains(expected), "{arguments:?}: {expected} is not in\n{printed}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let folder = folder(&Upstream::start());
    let (_running, _, admin) = serve(&folder);
    let token = folder.token(&["--sub", "42", "--claim", "email=someone@example.com"]);
    let signature = token.rsplit('.').next().unwrap();
    let cookie = format!("cookie: session={token}; theme=of-the-user");
    let header = format!("authorization: Bearer {token}");
    let admin = admin.to_string();
    for credential in [["-H", cookie.as_str()], ["-H", header.as_str()], ["--token", &token]] {
        for place in [["--policy", "policies"], ["--admin", &admin]] {
            for form in [&["--json"][..], &[]] {
                let tenant = "x-tenant: a-secret-of-the-tenant";
                let question = ["explain", "-H", tenant, "GET", "http://api.example.com/open/x"];
                let output = folder.run(&[&question, &place[..], &credential, form].concat());
                assert_exit(&output, 0);
                let printed = text(&output.stdout);
                assert!(printed.contains("user:42"), "{printed}");
                for secret in [signature, "of-the-user", "someone@", "a-secret-of-the-tenant"] {
                    assert!(!printed.contains(secret), "{secret} is in\n{printed}");
                }
            }
        }
    }
}

const OTHER_CREDENTIALS: &str = r#"
version: 1
upstreams: { api: { servers: [http://127.0.0.1:9000] } }
identity:
  jwt:
    - { issuer: https://id.example.com/, algorithms: [HS256], secret_file: ../secret, claim_names: { sub: oid } }
  api_keys: { file: ../keys.yaml }
  callers:
    - { name: service,   key: api_key.id, tier: api_key.tier }
    - { name: user,      key: jwt.sub }
    - { name: anonymous, key: client.ip }
  invalid_token: anonymous
  forward_claims: { headers: { x-email: jwt.email }, payload: x-claims }
tiers: { default: free, names: [free, pro] }
limits: { core: { per: caller, rate: { free: 1/hour, pro: 2/hour } } }
routes: [{ match: { path: /** }, limits: [core] }]
tests:
  - given: { path: /, api_key: reporting }
    repeat: 3
    expect: { status: 429, limit: core, caller: service:reporting }
  - given: { path: /, jwt: { oid: "7" } }
    expect: { status: 200, caller: user:7 }
"#;

#[test]
fn every_kind_of_credential_is_described() {
    let folder = Folder::before(&Upstream::start());
    let key = folder.run(&["key", "--id", "reporting", "--tier", "pro", "--append", "keys.yaml"]);
    assert_exit(&key, 0);
    let printed = text(&key.stdout);
    let key = printed.split_whitespace().find(|word| word.starts_with("reporting.")).unwrap();
    folder.write("policies/api.yaml", OTHER_CREDENTIALS);
    assert_exit(&folder.run(&["check", "policies"]), 0);

    let explain = ["explain", "--policy", "policies", "GET", "/"];
    let claims = r#"{"oid":"7","email":"a@b.example","tenant":"of-the-user"}"#;
    for (arguments, expected) in [
        (
            ["--api-key", key],
            &[
                "service:reporting",
                "by the rule service: api_key.id",
                "tier pro: set by api_key.tier",
                "an API key in header x-api-key",
                "without x-api-key",
            ][..],
        ),
        (
            ["--api-key", "reporting.that-does-not-exist"],
            &["anonymous:127.0.0.1", "problem: API key is unknown or its secret is wrong"],
        ),
        (
            ["--token", "abc.def"],
            &[
                "anonymous:127.0.0.1",
                "problem: token is not a JWT: it needs three parts in base64url, with dots between them",
            ],
        ),
        (
            ["--claims", claims],
            &["user:7", "with x-email: a@b.example", "with x-claims: (all claims)"],
        ),
    ] {
        let output = folder.run(&[&explain[..], &arguments].concat());
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        for expected in expected {
            assert!(printed.contains(expected), "{arguments:?}: {expected} is not in\n{printed}");
        }
        for secret in [key, "that-does-not-exist", "abc.def", "of-the-user"] {
            assert!(!printed.contains(secret), "{secret} is in\n{printed}");
        }
    }
}

#[test]
fn policy_test_with_an_unknown_key_is_refused() {
    let folder = Folder::before(&Upstream::start());
    assert_exit(&folder.run(&["key", "--id", "reporting", "--append", "keys.yaml"]), 0);
    let policy = OTHER_CREDENTIALS.replace("api_key: reporting", "api_key: repotring");
    folder.write("policies/api.yaml", &policy);
    let output = folder.run(&["check", "policies"]);
    assert_exit(&output, 64);
    let printed = text(&output.stderr);
    let expected = "policies/api.yaml:18:32: no API key has the id `repotring`";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn counters_in_redis_are_looked_at() {
    let redis = Redis::start();
    let upstream = Upstream::start();
    let settings = format!(
        "admin: {{ address: 127.0.0.1:0 }}\nstore: {{ redis: {{ url: \"{}\" }}, deadline: 10s }}",
        redis.url()
    );
    let folder = Folder::with_settings(&upstream, &settings);
    let (_running, address, admin) = serve(&folder);
    let token = folder.token(&["--sub", "42"]);
    for used in 0..2 {
        let url = "http://api.example.com/";
        let question = ["--admin", &admin.to_string(), "--token", &token, "GET", url];
        let report = explained(&folder, &question);
        assert_eq!(report["limits"][0]["windows"][0]["standing"]["used"], used, "{report:#}");
        send(address, Request::new("GET", "/").token(&token)).assert_status(200);
    }
}

#[test]
fn what_is_no_question_is_refused_and_not_repeated() {
    let upstream = Upstream::start();
    let folder = folder(&upstream);
    let (_running, _, admin) = serve(&folder);
    for (body, status) in [
        ("{\"method\": \"GET\", \"token\": \"a-secret\"", 400),
        ("{\"method\": \"GET\", \"url\": \"/\", \"a-secret\": 1}", 400),
        ("{\"method\": \"GET\", \"url\": \"a-secret b\"}", 422),
    ] {
        let response =
            send(admin, post("/explain", body).host("localhost").field("x-tollgate-action", "1"));
        response.assert_status(status);
        assert!(!response.text().contains("a-secret"), "{}", response.text());
    }
}
