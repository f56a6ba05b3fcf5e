//! `tollgate look` and `tollgate reset`, and the same over HTTP: who may ask for what, what is
//! told, and the line in the log.

use std::{fs, net::SocketAddr};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Request, Upstream, get, post};

pub(super) fn serve(folder: &Folder) -> (Running, SocketAddr, String) {
    let (mut running, address) = Running::serve(folder);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("admin listener is open").nth(1).unwrap();
    let admin = admin.split("address").nth(1).unwrap().trim_matches(|c: char| !c.is_ascii_digit());
    (running, address, admin.to_owned())
}

pub(super) fn folder(upstream: &Upstream, settings: &str) -> Folder {
    Folder::with_settings(upstream, &format!("admin: {{ address: 127.0.0.1:0 }}\n{settings}"))
}

pub(super) fn use_up(address: SocketAddr, token: &str) {
    for _ in 0..10 {
        send(address, get("/").token(token)).assert_status(200);
    }
    send(address, get("/").token(token)).assert_status(429);
}

pub(super) fn local(request: Request) -> Request {
    request.host("localhost")
}

/// A request to act. Without its type it would count as one of a form.
fn act(target: &str, body: impl Into<Vec<u8>>) -> Request {
    post(target, body).field("content-type", "application/json")
}

#[test]
fn denied_caller_is_looked_at_and_reset() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (mut running, address, admin) = serve(&folder);
    let token = folder.token(&["--sub", "42"]);
    use_up(address, &token);

    let looked = folder.run(&["look", "user:42", "--limit", "core", "--admin", &admin]);
    assert_exit(&looked, 0);
    let said = text(&looked.stdout);
    let expected = "user:42, policy api, issuer https://id.example.com/, tier free\n  core\n    10/hour (free): 10 of 10 used, 0 left, reset ";
    assert!(said.starts_with(expected), "{said}");

    let reset = folder.run(&["reset", "user:42", "--why", "ticket 7", "--admin", &admin]);
    assert_exit(&reset, 0);
    assert_eq!(text(&reset.stdout), "reset user:42: api/core\n");
    let line = running.wait_for_event("counters of a caller were reset");
    for part in [
        "by=\"127.0.0.1\"",
        "token=\"none\"",
        "caller=\"user:42\"",
        "limits=\"api/core\"",
        "why=\"ticket 7\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let passed = send(address, get("/").token(&token));
    passed.assert_status(200);
    assert_eq!(passed.number("x-ratelimit-used"), 1);

    let json = folder.run(&["look", "user:42", "--json", "--admin", &admin]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let window = &report["policies"][0]["limits"][0]["windows"][0];
    assert_eq!((&window["used"], &window["answered_by"]), (&1.into(), &"memory".into()));
}

#[test]
fn look_and_reset_of_a_part_of_a_name_say_what_to_run_next() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    let limits = "limits:\n  pairs: { per: [caller, path], rate: 5/hour }\n";
    let policy = policy.replace("limits:\n", limits).replace("[core]", "[core, pairs]");
    fs::write(&file, policy).unwrap();
    let (_running, address, admin) = serve(&folder);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--admin", &admin]].concat());
    let none = run(&["look", "path:/it's"]);
    assert_exit(&none, 0);
    let expected = "  pairs: not shown, it counts by caller and path: this proxy has seen none of \
                    these lately, ask for caller=user:VALUE,path=/it's\n";
    assert!(text(&none.stdout).ends_with(expected), "{none:?}");

    send(address, get("/it's").token(&folder.token(&["--sub", "42"]))).assert_status(200);
    let looked = run(&["look", "path:/it's"]);
    let expected = "  pairs: not shown, it counts by caller and path: this proxy has seen these \
                    lately\n    tollgate look 'caller=user:42,path=/it'\\''s'\n";
    assert!(text(&looked.stdout).ends_with(expected), "{looked:?}");
    let reset = run(&["reset", "user:42", "--why", "x"]);
    let expected = "reset user:42: api/core\n  pairs: not reset, it counts by caller and path: this \
                    proxy has seen these lately\n    tollgate reset \
                    'caller=user:42,path=/it'\\''s' --why TEXT\n";
    assert_eq!(text(&reset.stdout), expected);
    let refused = run(&["reset", "path:/it's", "--why", "x"]);
    assert_exit(&refused, 1);
    let expected = "limit `pairs` counts by caller and path: name all values, as in \
                    caller=user:VALUE,path=/it's; this proxy has seen these lately:\n  tollgate reset \
                    'caller=user:42,path=/it'\\''s' --why TEXT\n";
    assert!(text(&refused.stderr).ends_with(expected), "{refused:?}");
}

#[test]
fn look_with_counters_on_disk_does_not_say_that_the_store_is_away() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "store: { disk: { path: counters }, deadline: 10s }\n");
    let (_running, address, admin) = serve(&folder);
    send(address, get("/").token(&folder.token(&["--sub", "42"]))).assert_status(200);
    let looked = folder.run(&["look", "user:42", "--limit", "core", "--admin", &admin]);
    assert_exit(&looked, 0);
    let said = text(&looked.stdout);
    assert!(said.contains("1 of 10 used, 9 left, reset "), "{said}");
    assert!(!said.contains("the store does not answer"), "{said}");
}

#[test]
fn http_answers_in_json_and_says_what_to_do_about_mistakes() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (_running, address, admin) = serve(&folder);
    let admin: SocketAddr = admin.parse().unwrap();
    let token = folder.token(&["--sub", "a/b é"]);
    send(address, get("/").token(&token)).assert_status(200);

    let looked = send(admin, local(get("/callers/user%3Aa%2Fb%20%C3%A9?policy=api&limit=core")));
    looked.assert_status(200).assert_field("content-type", "application/json");
    let report = looked.json();
    assert_eq!(report["policies"][0]["caller"], "user:a/b é");
    assert_eq!(report["policies"][0]["limits"][0]["windows"][0]["used"], 1);
    let order = r#"{ "limit": "core", "policy": "api", "why": "a test" }"#;
    let reset = send(admin, local(act("/callers/user%3Aa%2Fb%20%C3%A9/reset", order)));
    reset.assert_status(200);
    assert_eq!(reset.json()["limits"][0], "api/core");
    assert_eq!(send(address, get("/").token(&token)).number("x-ratelimit-used"), 1);

    let why = r#"{ "why": "a test" }"#;
    let said = |request, status| {
        let response = send(admin, local(request));
        response.assert_status(status);
        response.json()["message"].as_str().unwrap().to_owned()
    };
    for (request, status, expected) in [
        (
            get("/callers/robot:1"),
            422,
            "`robot` is no entry of `callers`, and no limit counts by it: ask for one of user:VALUE",
        ),
        (
            get("/callers/user%zz"),
            400,
            "write the caller percent-encoded, as in /callers/user%3A42",
        ),
        (
            get("/callers/user:1?limit=nix"),
            404,
            "no limit is called `nix`: those that count by `user:1` alone are core",
        ),
        (get("/callers/user:1?policy=nix"), 404, "no policy is called `nix`: there are api"),
        (get("/callers/user:1?limits=core"), 400, "the only parameters are `limit` and `policy`"),
        (
            act("/callers/user:1/reset", r#"{ "limit": "nix", "why": "x" }"#),
            404,
            "no limit is called `nix`: those that count by `user:1` alone are core",
        ),
        (
            act("/callers/client.ip:192.0.2.1/reset", why),
            422,
            "no limit counts by `client.ip:192.0.2.1` alone",
        ),
        (
            act("/callers/client.ip:192.0.2.1/reset", r#"{ "limit": "core", "why": "x" }"#),
            422,
            "limit `core` counts by caller: name all values, as in user:VALUE; this proxy has seen \
             none of `client.ip:192.0.2.1` lately",
        ),
        (
            act("/callers/user:1/reset", r#"{ "why": " " }"#),
            400,
            "`why` must say why, in one line of at most 500 characters",
        ),
        (
            act("/callers/user:1/reset", r#"{ "why": "a\nb" }"#),
            400,
            "`why` must say why, in one line of at most 500 characters",
        ),
    ] {
        assert_eq!(said(request, status), expected);
    }
    for order in ["", "{}", r#"{ "why": "x", "limits": [] }"#] {
        let message = said(act("/callers/user:1/reset", order), 400);
        assert!(message.starts_with("send JSON such as "), "{message}");
    }
    send(admin, local(get("/callers/user:1/reset")))
        .assert_status(405)
        .assert_field("allow", "POST");
    send(admin, local(act("/callers/user:1", why))).assert_status(405);
    send(admin, local(get("/callers/"))).assert_status(404);
    // A page of another origin cannot reset anything.
    for origin in ["http://localhost:1", "https://evil.example", "null"] {
        let page = local(act("/callers/user:1/reset", why)).field("origin", origin);
        send(admin, page).assert_status(403);
    }
}

#[test]
fn mistakes_are_told_on_the_command_line() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let (_running, _, admin) = serve(&folder);
    for (arguments, expected) in [
        (
            &["look", "robot:1"][..],
            "`robot` is no entry of `callers`, and no limit counts by it: ask for one of user:VALUE",
        ),
        (&["look", "user:1", "--limit", "a b"], "no limit is called `a b`"),
        (&["reset", "user:1", "--why", ""], "`why` must say why"),
        (
            &["reset", "user:1", "--why", "x", "--policy", "nix"],
            "no policy is called `nix`: there are api",
        ),
    ] {
        let output = folder.run(&[arguments, &["--admin", &admin]].concat());
        assert_exit(&output, 1);
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
    }
    let output = folder.run(&["reset", "user:1", "--admin", &admin]);
    assert_exit(&output, 64);
    assert!(text(&output.stderr).contains("--why <TEXT>"), "{output:?}");
}

#[test]
fn every_reset_is_logged_however_many_there_are() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "log: { format: json }");
    let (mut running, _, admin) = serve(&folder);
    let admin: SocketAddr = admin.parse().unwrap();
    for number in 0..30 {
        let order = format!("{{ \"why\": \"ticket {number}\\\" x=1\" }}");
        send(admin, local(act("/callers/user:1/reset", order))).assert_status(200);
        let line = running.wait_for_event("counters of a caller were reset");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["fields"]["why"], format!("ticket {number}\" x=1"));
    }
}

#[test]
fn reset_outlives_a_crash() {
    let upstream = Upstream::start();
    let folder = folder(
        &upstream,
        "store: { memory: { snapshot: { file: counters.snapshot, every: 1h } } }",
    );
    let token = folder.token(&["--sub", "42"]);
    let (running, address, _) = serve(&folder);
    use_up(address, &token);
    running.signal("TERM");
    assert_exit(&running.finish(), 0);

    let (running, address, admin) = serve(&folder);
    send(address, get("/").token(&token)).assert_status(429);
    assert_exit(&folder.run(&["reset", "user:42", "--why", "x", "--admin", &admin]), 0);
    running.signal("KILL");
    drop(running.finish());

    let (_running, address, _) = serve(&folder);
    assert_eq!(send(address, get("/").token(&token)).number("x-ratelimit-used"), 1);
}
