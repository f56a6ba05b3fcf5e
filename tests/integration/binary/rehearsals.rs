//! Tests inside policies: what `tollgate check` predicts by them also happens.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};
use tollgate_identity::SigningKey;
use tollgate_policy::{Begin, Case, load};
use tollgate_yaml::Sources;

use super::{Folder, POLICY, Running, assert_exit, send, text};
use crate::support::{Request, Upstream};

#[test]
fn failing_test_is_printed_with_its_place_and_exits_with_1() {
    let folder = Folder::before(&Upstream::start());
    let policy = POLICY.replace("UPSTREAM", "http://127.0.0.1:9000");
    let tests = "tests:\n  \
         - { given: { path: /a, jwt: { sub: \"7\" } }, repeat: 11, expect: { status: 429, limit: core } }\n  \
         - { name: second, given: { path: /a }, expect: { status: 200 } }\n";
    folder.write("policies/api.yaml", &format!("{policy}{tests}"));
    for path in ["tollgate.yaml", "policies/api.yaml"] {
        let output = folder.run(&["check", path]);
        assert_exit(&output, 1);
        let printed = text(&output.stdout);
        let expected = "\
policy api: 1 limit, 1 route, 1 of 2 tests failed
  note: nothing says what serves upstream api: routes take paths as they are written, and with \
                        `paths: express`, say, what that framework takes for them \
                        (docs/frameworks.md)

policies/api.yaml:18:5: test 2, second
  GET /a from 192.0.2.1
  status: expected 200, got 401: no token
  | www-authenticate: Bearer realm=\"tollgate\"
";
        assert!(printed.contains(expected), "{printed}");
        assert_eq!(text(&output.stderr), "tollgate: 1 of 2 tests failed\n");
    }
}

#[test]
fn tests_show_what_depends_on_the_time() {
    let folder = Folder::before(&Upstream::start());
    let policy = POLICY.replace("UPSTREAM", "http://127.0.0.1:9000");
    let policy = policy.replace(
        "core: { per: caller, rate: { free: 10/hour, pro: 20/hour } }",
        "core: { per: caller, rate: [100/second, 2000/hour] }\n  \
         monthly: { per: caller, rate: 3/month, align: calendar, timezone: Europe/Berlin }",
    );
    let route = "  - { match: { path: /report }, auth: required, limits: [monthly] }\n  - { match: { path: /** }";
    let policy = policy.replace("  - { match: { path: /** }", route);
    let overrides = "overrides: [{ caller: \"user:42\", limit: monthly, rate: 5/month, until: 2026-12-31, why: migration }]\n";
    let tests = "tests:
  - name: a hundred at once
    given: { path: /a, jwt: { sub: \"7\" } }
    repeat: 150
    expect: { status: 429, limit: core, admitted: 100 }
  - name: two thousand in an hour
    given: { path: /a, jwt: { sub: \"7\" } }
    repeat: 2500
    every: 10ms
    expect: { status: 429, limit: core, admitted: 2000 }
  - name: more for a caller until the end of the year
    at: 2026-12-31T20:00:00Z
    given: { path: /report, jwt: { sub: \"42\" } }
    repeat: 6
    expect: { status: 429, admitted: 5 }
  - name: and no more after it
    at: 2027-01-01
    given: { path: /report, jwt: { sub: \"42\" } }
    repeat: 6
    expect: { status: 429, admitted: 3 }
  - name: March in Berlin ends at midnight there
    at: 2026-03-31T23:59:59+02:00
    given: { path: /report, jwt: { sub: \"7\" } }
    repeat: 4
    expect: { status: 429, headers: { retry-after: 1 } }
  - name: and April begins
    after: 1s
    given: { path: /report, jwt: { sub: \"7\" } }
    expect: { status: 200, headers: { x-ratelimit-used: 1 } }
";
    folder.write("policies/api.yaml", &format!("{policy}{overrides}{tests}"));
    let output = folder.run(&["check", "policies/api.yaml"]);
    assert_exit(&output, 0);
    let printed = text(&output.stdout);
    assert!(printed.contains("policy api: ok, 2 limits, 2 routes, 6 tests\n"), "{printed}");
}

#[test]
fn tests_take_the_route_for_their_address() {
    let folder = Folder::before(&Upstream::start());
    let policy = "version: 1\nupstreams: { api: { servers: [http://127.0.0.1:9000] } }\nroutes:\n  \
         - { match: { path: /a, from: [10.0.0.0/8] }, deny: [10.6.0.0/16] }\n\
         tests:\n  \
         - { given: { path: /a, address: 10.0.0.1 }, expect: { status: 200, route: /a } }\n  \
         - { given: { path: /a, address: 10.6.0.1 }, expect: { status: 403, route: /a } }\n  \
         - { given: { path: /a, address: \"::ffff:10.0.0.1\" }, expect: { status: 200 } }\n  \
         - { given: { path: /a, address: 11.0.0.1 }, expect: { status: 404 } }\n";
    folder.write("policies/api.yaml", policy);
    let output = folder.run(&["check", "policies/api.yaml"]);
    assert_exit(&output, 0);
    assert!(text(&output.stdout).contains("4 tests"), "{}", text(&output.stdout));
}

#[test]
fn shipped_tests_happen_with_the_real_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let upstream = Upstream::as_asked();
    let text = fs::read_to_string(root.join("config/policies/api.yaml")).unwrap();
    let text = text.replace("http://127.0.0.1:9000", &upstream.url());
    let (key, public_pem) = SigningKey::generate_ed25519().unwrap();
    let sources = Sources::system().with_file("../keys/public.pem", public_pem.clone());
    let policy = load(Path::new("api.yaml"), &text, &sources);
    let policy = policy.unwrap_or_else(|problems| panic!("{}", problems[0]));
    let folder = Folder::with_settings(&upstream, "trusted_proxies: [127.0.0.1]");
    folder.write("policies/api.yaml", &text);
    folder.write("keys/public.pem", &public_pem);

    let mut played = 0;
    // A test that sets the clock cannot be played: the program runs by the system's clock.
    for case in policy.tests.iter().filter(|case| matches!(case.begin, Begin::At(_))) {
        let (_running, address) = Running::serve(&folder);
        for _ in 1..case.repeat {
            send(address, request(case, &key));
        }
        let response = send(address, request(case, &key));
        let place = format!("{:?}: {response:?}", case.name);
        if let Some(status) = case.expect.status {
            assert_eq!(response.status, status.as_u16(), "{place}");
        }
        if let Some(limit) = &case.expect.limit {
            assert_eq!(response.field("x-tollgate-denied-by"), Some(&**limit), "{place}");
        }
        for (name, value) in &case.expect.headers {
            // By now a second has passed, perhaps.
            if name != "retry-after" {
                assert_eq!(response.field(name.as_str()), value.as_deref(), "{name} {place}");
            }
        }
        played += 1;
    }
    assert!(played >= 5);
}

fn request(case: &Case, key: &SigningKey) -> Request {
    let given = &case.given;
    let method = ["GET", "POST"].into_iter().find(|known| *known == given.method.as_str()).unwrap();
    let mut request = Request::new(method, given.target.as_str())
        .from(&given.address.to_string())
        .wants(given.response.status().as_u16());
    if method == "POST" {
        request = request.field("content-length", "0");
    }
    for (name, value) in &given.headers {
        request = request.field(name.as_str(), value.to_str().unwrap());
    }
    let Some(Ok(token)) = &given.token else { return request };
    let mut claims: Map<String, Value> = serde_json::from_str(&token.claims.to_json()).unwrap();
    claims.insert("aud".into(), json!("api"));
    claims.insert("exp".into(), json!(4_000_000_000_u64));
    request.token(&key.sign(None, &claims).unwrap())
}
