//! Secrets that stand in a policy as they are, for the fields of requests to upstreams: no command
//! shows them, whatever is wrong beside them.

use super::{Folder, POLICY, Running, assert_exit, send, text};
use crate::support::{Upstream, get, post};

/// What may be wrong in a route with a secret. The first ones are YAML, the others are not.
const BROKEN: [&str; 26] = [
    "{ match: { path: /** }, limits: [coer], request_headers: { set: { x-any: hunter2 } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x_y: hunter2 } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { add: { x-any: hunter2, host: a b } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x-any: \"hunter2 \" } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x-any: [hunter2] } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x-any hunter2 } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: \"x-any: hunter2\" } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: [hunter2] } }",
    "{ match: { path: /** }, limits: [core], request_headers: { authorization: hunter2 } }",
    "{ match: { path: /** }, limits: [core], request_headers: hunter2 }",
    "{ match: { path: /** }, limits: [core], request_header: { set: { x-any: hunter2 } } }",
    "{ match: { path: /** }, limits: [core], headers: { Authorization: hunter2 } }",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-any: >\n          hunter2\n          é",
    "match: { path: /** }\n    request_headers:\n      set:\n        \"x any\":\n          hunter2",
    "{ match: { path: /** }, response_headers: { set: { set-cookie: a=hunter2 } }, limits: [coer] }",
    "{ match: { path: /** }, limits: [] }\n\
     tests: [{ given: { path: /, headers: { X-Api-Key: hunter2, \"b d\": e } }, expect: { status: 200 } }]",
    // No YAML any more.
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x-any: hunter2 } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x-any: \"hunter2 } } }",
    "{ match: { path: /** }, limits: [core], request_headers: { set: { x-any: hunter2, x-any: hunter2 } } }",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-any:hunter2",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-any hunter2\n        x-b: c",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-any: a: hunter2",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-b: c\n       x-any: hunter2",
    "match: { path: /** }\n    request_headers:\n      set:\n\t\tx-any: hunter2",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-any: *hunter2",
    "match: { path: /** }\n    request_headers:\n      set:\n        x-any: @hunter2",
];

/// The policy with this as its only route.
fn policy(upstream: &str, route: &str) -> String {
    let (before, _) = POLICY.split_once("  - { match").unwrap();
    format!("{}  - {route}\n", before.replace("UPSTREAM", upstream))
}

#[test]
fn check_shows_none_in_any_format() {
    let folder = Folder::before(&Upstream::start());
    for route in BROKEN {
        folder.write("policies/api.yaml", &policy("http://127.0.0.1:9000", route));
        for format in ["text", "json", "sarif", "github"] {
            let output = folder.run(&["check", "policies", "--format", format]);
            assert_exit(&output, 64);
            let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(printed.contains("api.yaml"), "{route}\n{printed}");
            assert!(!printed.contains("hunter"), "{route}\n{printed}");
        }
    }
}

#[test]
fn log_status_and_reload_show_none() {
    let upstream = Upstream::start();
    let settings = "admin: { address: 127.0.0.1:0 }\nreload: { poll: 1h, events: false }";
    let folder = Folder::with_settings(&upstream, settings);
    let good = "{ match: { path: /** }, limits: [], request_headers: { set: { x-any: hunter1 } } }";
    folder.write("policies/api.yaml", &policy(&upstream.url(), good));
    let (mut running, address) = Running::serve(&folder);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
    let mut printed = String::new();
    for route in [BROKEN[0], BROKEN[6], BROKEN[16], BROKEN[19]] {
        folder.write("policies/api.yaml", &policy(&upstream.url(), route));
        let local = |request: crate::support::Request| send(admin, request.host("127.0.0.1"));
        printed += &local(post("/reload", "").field("x-tollgate-action", "1")).text();
        printed += &local(get("/status")).text();
        for command in ["status", "reload"] {
            let output = folder.run(&[command, "--admin", &admin.to_string()]);
            assert_exit(&output, 1);
            printed += text(&output.stdout);
            printed += text(&output.stderr);
        }
        printed += &running.wait_for_event("bad configuration");
    }
    // What was in force goes on, and sends it.
    send(address, get("/")).assert_status(200);
    assert_eq!(upstream.last().fields.one("x-any"), Some("hunter1"));
    running.signal("TERM");
    let output = running.finish();
    printed += text(&output.stderr);
    printed += text(&output.stdout);
    assert!(printed.contains("api.yaml:15:") && !printed.contains("hunter"), "{printed}");
}

#[test]
fn diff_and_explain_show_none() {
    let folder = Folder::before(&Upstream::start());
    let with = |value: &str| {
        let route = format!(
            "{{ match: {{ path: /** }}, limits: [], request_headers: \
             {{ set: {{ authorization: Bearer {value}, x-any: {value} }}, add: {{ x-b: {value} }} }} }}"
        );
        policy("http://127.0.0.1:9000", &route)
    };
    folder.write("policies/api.yaml", &with("hunter1"));
    folder.write("next/api.yaml", &with("hunter2"));
    folder.write("next/../policies.old/api.yaml", &policy("http://127.0.0.1:9000", BROKEN[0]));
    for (arguments, code, expected) in [
        (&["diff", "policies", "next"][..], 0, "request headers have changed values"),
        (&["diff", "policies", "next", "--format", "json"], 0, "request headers"),
        (&["diff", "policies.old", "next"], 64, "coer"),
        (&["explain", "--policy", "policies", "GET", "http://a.example/"], 0, "with x-any: …"),
        (&["explain", "--policy", "policies.old", "GET", "http://a.example/"], 64, "coer"),
    ] {
        let output = folder.run(arguments);
        assert_exit(&output, code);
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(printed.contains(expected), "{printed}");
        assert!(!printed.contains("hunter"), "{printed}");
    }
}
