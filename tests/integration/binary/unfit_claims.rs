//! What is logged and printed about claims that a limit counts by and that have no single value.

use super::{Folder, POLICY, Running, assert_exit, send, text};
use crate::support::{Upstream, get};

/// A limit by organisation, with these fields.
fn folder(upstream: &Upstream, fields: &str) -> Folder {
    let folder = Folder::with_settings(upstream, "admin: { address: 127.0.0.1:0 }");
    let limit = format!("limits:\n  org: {{ per: jwt.org, rate: 10/hour{fields} }}\n");
    let policy =
        POLICY.replace("limits:\n", &limit).replace("limits: [core]", "limits: [core, org]");
    folder.write("policies/api.yaml", &policy.replace("UPSTREAM", &upstream.url()));
    folder
}

fn token(folder: &Folder, org: &str) -> String {
    folder.token(&["--sub", "alice", "--claim", &format!("org={org}")])
}

#[test]
fn log_says_once_that_a_claim_is_a_list() {
    let upstream = Upstream::start();
    for (fields, status, on_missing) in [
        ("", 200, "on_missing=skip"),
        (", on_missing: deny", 403, "on_missing=deny"),
        (", on_missing: share", 200, "on_missing=share"),
    ] {
        let folder = folder(&upstream, fields);
        let token = token(&folder, r#"["secret-org", "other-org"]"#);
        let (running, address) = Running::serve(&folder);
        for _ in 0..3 {
            send(address, get("/").token(&token)).assert_status(status);
        }
        running.signal("TERM");
        let output = running.finish();
        let events = text(&output.stderr);
        let logged: Vec<&str> =
            events.lines().filter(|line| line.contains("no single value")).collect();
        assert_eq!(logged.len(), 1, "{events}");
        for part in ["WARN", "policy=api", "limit=org", "claim=org", "form=a list of 2", on_missing]
        {
            assert!(logged[0].contains(part), "{part} is not in {}", logged[0]);
        }
        assert!(!events.contains("secret-org"), "{events}");
    }
}

#[test]
fn log_says_nothing_of_a_claim_that_is_not_there() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let tokens = [folder.token(&["--sub", "alice"]), token(&folder, r#"["octo"]"#)];
    let (running, address) = Running::serve(&folder);
    for token in tokens {
        send(address, get("/").token(&token)).assert_status(200);
    }
    running.signal("TERM");
    let output = running.finish();
    assert!(!text(&output.stderr).contains("no single value"), "{output:#?}");
}

#[test]
fn explanation_says_what_the_claim_is() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, "");
    let token = token(&folder, r#"{ "id": 1 }"#);
    let (mut running, _) = Running::serve(&folder);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("address=").nth(1).unwrap().trim();
    let arguments = ["--admin", admin, "GET", "http://api.example.com/", "--token", &token];
    let output = folder.run(&[&["explain"], &arguments[..]].concat());
    assert_exit(&output, 0);
    let printed = text(&output.stdout);
    assert!(printed.contains("the request lacks jwt.org, which is an object"), "{printed}");
}

#[test]
fn check_tells_what_becomes_of_tokens_without_the_claim() {
    let upstream = Upstream::start();
    for (fields, notes) in [("", 1), (", on_missing: skip", 0), (", on_missing: deny", 0)] {
        let folder = folder(&upstream, fields);
        let output = folder.run(&["check", "tollgate.yaml"]);
        assert_exit(&output, 0);
        let printed = text(&output.stdout);
        let note =
            "\n  note: policies/api.yaml:13:15: limit org does not count tokens without jwt.org, ";
        assert_eq!(printed.matches(note).count(), notes, "{printed}");
        let output = folder.run(&["check", "tollgate.yaml", "--format", "json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let told = json["policies"][0]["notes"].as_array().unwrap().iter();
        let of_claims = told.filter(|note| note.as_str().unwrap().contains("jwt.org"));
        assert_eq!(of_claims.count(), notes, "{json}");
    }
}
