//! `tollgate diff`: what a change does, before it is made.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use super::{Folder, POLICY, assert_exit, text};
use crate::support::Upstream;

fn policy(from: &str, to: &str) -> String {
    POLICY.replace("UPSTREAM", "http://127.0.0.1:9000").replace(from, to)
}

/// With a folder, a settings file and a lone file of a changed policy.
fn changed(from: &str, to: &str) -> Folder {
    let folder = Folder::before(&Upstream::start());
    folder.write("policies/api.yaml", &policy("", ""));
    folder.write("next/policies/api.yaml", &policy(from, to));
    folder.write("next/tollgate.yaml", "version: 1\nlisteners: [{ address: 127.0.0.1:0 }]\n");
    folder.write("next/secret", crate::support::SECRET);
    folder.write("policies.next/changed.yaml", &policy(from, to));
    folder
}

#[test]
fn changes_of_files_folders_and_settings_are_printed() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let expected =
        "  windows\n    rescaled core for free: 10/hour -> 30/hour: use is kept, 20 more\n";
    for [old, new, name] in [
        ["policies/api.yaml", "policies.next/changed.yaml", "changed"],
        ["policies", "next/policies", "api"],
        ["tollgate.yaml", "next/tollgate.yaml", "api"],
        [".", "next", "api"],
        ["policies/api.yaml", "next", "api"],
    ] {
        let output = folder.run(&["diff", old, new]);
        assert_exit(&output, 0);
        assert_eq!(text(&output.stdout), format!("policy {name}\n{expected}"), "{old} {new}");
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn version_that_comes_through_a_pipe_is_one_of_the_other_file() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["diff", "/dev/stdin", "policies.next/changed.yaml"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = command.stdin.take().unwrap();
    pipe.write_all(policy("", "").as_bytes()).unwrap();
    drop(pipe);
    let output = command.wait_with_output().unwrap();
    assert_exit(&output, 0);
    assert!(text(&output.stdout).contains("rescaled core for free"), "{output:#?}");
}

#[test]
fn exit_code_tells_whether_there_is_a_difference_if_it_is_asked_to() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let output = folder.run(&["diff", "--exit-code", "policies", "next/policies"]);
    assert_exit(&output, 1);
    assert!(text(&output.stdout).contains("rescaled"), "{output:#?}");
    let output = folder.run(&["diff", "--exit-code", "policies", "."]);
    assert_exit(&output, 0);
    assert_eq!(text(&output.stdout), "no difference\n");
}

#[test]
fn json_lists_what_is_kept_too() {
    let folder = changed("pro: 20/hour", "pro: 20/day");
    let output = folder.run(&["diff", "--json", "policies", "next/policies"]);
    assert_exit(&output, 0);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let windows = report["policies"][0]["windows"].as_array().unwrap();
    let outcomes: Vec<_> = windows.iter().map(|own| (&own["fate"], &own["to"][0])).collect();
    assert_eq!(
        format!("{outcomes:?}"),
        r#"[(String("fresh"), String("pro")), (String("kept"), String("free"))]"#
    );
    assert_eq!(windows[0]["because"][0], "window hour -> day");
}

#[test]
fn problems_of_both_sides_are_printed() {
    let folder = changed("[core]", "[coer]");
    folder.write("policies/api.yaml", &policy("jwt.sub", "sub"));
    let output = folder.run(&["diff", "policies", "next/policies"]);
    assert_exit(&output, 64);
    for expected in ["policies/api.yaml:10:", "next/policies/api.yaml:15:", "2 problems found"] {
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:#?}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let folder = changed("", "");
    folder.write("next/secret", "another secret that is long enough to be one");
    let output = folder.run(&["diff", "policies", "next/policies"]);
    assert_exit(&output, 0);
    let printed = text(&output.stdout);
    assert!(printed.contains("keys or details of identity have changed"), "{printed}");
    assert!(!printed.contains("another secret"), "{printed}");
}

#[test]
fn keys_that_are_missing_are_compared_by_name() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let moved = policy("secret_file: ../secret", "secret_file: elsewhere/secret");
    folder.write("lone/old.yaml", &policy("", "").replace("../secret", "gone/secret"));
    folder.write("lone/new.yaml", &moved.replace("free: 10/hour", "free: 30/hour"));
    let output = folder.run(&["diff", "lone/old.yaml", "lone/new.yaml"]);
    assert_exit(&output, 0);
    let printed = text(&output.stdout);
    for expected in [
        "rescaled core for free: 10/hour -> 30/hour",
        "keys or details of identity have changed",
        "were compared by name: lone/old.yaml:8: cannot read `gone/secret`",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    // The same name on both sides is no difference, though only one side has the file.
    folder.write("lone/old.yaml", &policy("", "").replace("../secret", "../keys/secret"));
    folder.write("policies/api.yaml", &policy("", "").replace("../secret", "../keys/secret"));
    folder.write("keys/secret", crate::support::SECRET);
    folder.write("lone/deep/old.yaml", &policy("", "").replace("../secret", "../keys/secret"));
    let output = folder.run(&["diff", "lone/deep/old.yaml", "policies/api.yaml"]);
    assert_exit(&output, 0);
    assert!(text(&output.stdout).starts_with("no difference\nkey files"), "{output:#?}");
    let output = folder.run(&["diff", "lone/old.yaml", "policies/api.yaml"]);
    assert_eq!(text(&output.stdout), "no difference\n");
}

#[test]
fn settings_whose_certificates_are_missing_still_name_their_policies() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let tls = "tls: { certificates: [{ certificate_file: gone.pem, key_file: gone.key }] }";
    let settings = format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0, {tls} }}]\n");
    folder.write("next/tollgate.yaml", &settings);
    let output = folder.run(&["diff", "tollgate.yaml", "next/tollgate.yaml"]);
    assert_exit(&output, 0);
    assert!(text(&output.stdout).contains("rescaled core for free"), "{output:#?}");
}

#[test]
fn mistakes_are_problems_even_where_keys_are_missing() {
    let folder = changed("[core]", "[coer]");
    let gone = policy("[core]", "[coer]").replace("../secret", "gone/secret");
    folder.write("lone/new.yaml", &gone);
    let output = folder.run(&["diff", "policies/api.yaml", "lone/new.yaml"]);
    assert_exit(&output, 64);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("cannot read `gone/secret`") && printed.contains("`coer`"),
        "{printed}"
    );
}

#[test]
fn formats_are_text_json_and_markdown() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let run = |format: &[&str]| {
        let output = folder.run(&[&["diff"], format, &["policies", "next/policies"]].concat());
        assert_exit(&output, 0);
        text(&output.stdout).to_owned()
    };
    assert_eq!(run(&["--format", "text"]), run(&[]));
    let json = run(&["--format", "json"]);
    assert_eq!(json, run(&["--json"]));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["by_name_because"], serde_json::Value::Null);
    let expected = "\
### Policy `api`

**windows**

- `rescaled core for free: 10/hour -> 30/hour: use is kept, 20 more`

";
    assert_eq!(run(&["--format", "markdown"]), expected);
}
