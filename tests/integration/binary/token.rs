//! `tollgate token`: what it needs, and what it takes from the policy. That its tokens are good is
//! shown with `run`.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Folder, POLICY, assert_exit, text};
use crate::support::Upstream;

#[test]
fn key_is_needed_and_only_one() {
    let folder = Folder::before(&Upstream::start());
    for arguments in [
        &["token", "--sub", "42"][..],
        &["token", "--sub", "42", "--secret-file", "secret", "--secret-env", "X"],
        &["token", "--secret-file", "secret"],
    ] {
        let output = folder.run(arguments);
        assert_exit(&output, 64);
        assert!(text(&output.stderr).contains("Usage: tollgate token"), "{output:#?}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn key_that_cannot_be_used_exits_with_1() {
    let folder = Folder::before(&Upstream::start());
    folder.write("short", "too short");
    for (file, expected) in [("short", "at least 32"), ("none", "cannot read none")] {
        let arguments = ["token", "--sub", "42", "--issuer", "me", "--secret-file", file];
        let output = folder.run(&arguments);
        assert_exit(&output, 1);
        assert!(text(&output.stderr).contains(expected), "{output:#?}");
    }
}

/// Header and claims of the token that a command prints.
fn minted(folder: &Folder, arguments: &[&str]) -> (Value, Value) {
    let key = ["token", "--secret-file", "secret", "--sub", "42"];
    let output = folder.run(&[&key[..], arguments].concat());
    assert_exit(&output, 0);
    let segments = text(&output.stdout).split('.').take(2);
    let mut parts = segments.map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    let mut next = || serde_json::from_slice(&parts.next().unwrap()).unwrap();
    (next(), next())
}

#[test]
fn token_is_what_the_policy_wants() {
    let folder = Folder::before(&Upstream::start());
    let policy = POLICY
        .replace("UPSTREAM", "http://127.0.0.1:9000")
        .replace("HS256", "HS384")
        .replace(
            "audience: [api]",
            "audience: [web, api]\n      types: [at+jwt]\n      max_lifetime: 5m",
        )
        .replace("https://id.example.com/", "https://login.acme.test/");
    folder.write("secret", &"a secret ".repeat(6));
    folder.write("policies/api.yaml", &policy);
    for path in ["tollgate.yaml", "policies", "policies/api.yaml"] {
        let (header, claims) = minted(&folder, &["--policy", path]);
        assert_eq!(header, json!({ "alg": "HS384", "typ": "at+jwt" }));
        assert_eq!(claims["iss"], "https://login.acme.test/");
        assert_eq!(claims["aud"], "web");
        let lifetime = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
        assert_eq!(lifetime, 300);
    }
}

#[test]
fn token_that_the_policy_would_refuse_exits_with_1() {
    let folder = Folder::before(&Upstream::start());
    folder.write("other", "another secret that is long enough for it");
    let token = ["token", "--policy", "tollgate.yaml", "--sub", "42", "--secret-file"];
    for (arguments, expected) in [
        (&["other"][..], "token signature is wrong"),
        (&["secret", "--expires-in", "0s", "--claim", "exp=1"], "expired"),
        (&["secret", "--audience", "web"], "audience"),
    ] {
        let output = folder.run(&[&token[..], arguments].concat());
        assert_exit(&output, 1);
        let complaint = text(&output.stderr);
        assert!(
            complaint.contains("would refuse this token") && complaint.contains(expected),
            "{complaint}"
        );
        assert!(text(&output.stdout).starts_with("ey"), "it may be wanted all the same");
    }
}

#[test]
fn issuer_is_asked_for_where_there_are_several_or_no_policy() {
    let token = ["token", "--secret-file", "secret", "--sub", "42"];
    let empty = Folder(tempfile::tempdir().unwrap());
    empty.write("secret", crate::support::SECRET);
    let output = empty.run(&token);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("give --policy, or --issuer"), "{output:#?}");

    let folder = Folder::before(&Upstream::start());
    let partner = "\n    - { name: partner, issuer: partner.test, algorithms: [HS256], secret_file: ../secret }\n  callers:";
    let policy = POLICY.replace("UPSTREAM", "http://127.0.0.1:9000");
    let policy = policy.replace("- issuer:", "- name: main\n      issuer:");
    folder.write("policies/api.yaml", &policy.replace("\n  callers:", partner));
    let output = folder.run(&[&token[..], &["--policy", "policies"]].concat());
    assert_exit(&output, 1);
    assert!(text(&output.stderr).contains("give --issuer: one of main, partner"), "{output:#?}");
    let (_, claims) = minted(&folder, &["--policy", "policies", "--issuer", "partner"]);
    assert_eq!((&claims["iss"], claims.get("aud")), (&json!("partner.test"), None));
}
