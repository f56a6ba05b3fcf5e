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
fn change_is_told_of_files_folders_and_settings() {
    let folder = changed("free: 10/hour", "free: 30/hour");
    let expected =
        "  windows\n    rescaled core for free: 10/hour -> 30/hour: used stays, 20 more\n";
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
fn machines_are_told_what_is_kept_too() {
    let folder = changed("pro: 20/hour", "pro: 20/day");
    let output = folder.run(&["diff", "--json", "policies", "next/policies"]);
    assert_exit(&output, 0);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let windows = told["policies"][0]["windows"].as_array().unwrap();
    let fates: Vec<_> = windows.iter().map(|own| (&own["fate"], &own["to"][0])).collect();
    assert_eq!(
        format!("{fates:?}"),
        r#"[(String("fresh"), String("pro")), (String("kept"), String("free"))]"#
    );
    assert_eq!(windows[0]["because"][0], "window hour -> day");
}

#[test]
fn problems_of_both_sides_are_told() {
    let folder = changed("[core]", "[coer]");
    folder.write("policies/api.yaml", &policy("jwt.sub", "sub"));
    let output = folder.run(&["diff", "policies", "next/policies"]);
    assert_exit(&output, 64);
    for expected in ["policies/api.yaml:10:", "next/policies/api.yaml:15:", "2 problems found"] {
        assert!(text(&output.stderr).contains(expected), "{expected}: {output:#?}");
    }
}

#[test]
fn secrets_are_never_told() {
    let folder = changed("", "");
    folder.write("next/secret", "another secret that is long enough to be one");
    let output = folder.run(&["diff", "policies", "next/policies"]);
    assert_exit(&output, 0);
    let told = text(&output.stdout);
    assert!(told.contains("keys or details of identity are others"), "{told}");
    assert!(!told.contains("another secret"), "{told}");
}
