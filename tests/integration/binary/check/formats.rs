//! Formats for machines, several paths, settings beside policies, and warnings that count.

use std::{fs, fs::Permissions, os::unix::fs::PermissionsExt, process::Output};

use serde_json::{Value, json};

use crate::{
    binary::{Folder, POLICY, assert_exit, text},
    support::Upstream,
};

const TEST: &str = "tests: [{ name: second, given: { path: /a }, expect: { status: 200 } }]\n";

/// With a good policy, one with a warning, one with a test that fails, and one with a problem.
fn folder() -> Folder {
    let folder = Folder::before(&Upstream::start());
    let good = POLICY.replace("UPSTREAM", "http://127.0.0.1:9000");
    folder.write("other/good.yaml", &good);
    // A secret that everybody can read is a warning.
    fs::set_permissions(folder.path().join("secret"), Permissions::from_mode(0o600)).unwrap();
    folder.write("other/warned.yaml", &good.replace("limits: [core]", "limits: []"));
    folder.write("other/failing.yaml", &format!("{good}{TEST}"));
    folder.write("other/bad, 1.yaml", &good.replace("limits: [core]", "limits: [coer]"));
    folder
}

fn json_of(output: &Output) -> Value {
    assert_eq!(text(&output.stderr), "", "{output:#?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:#?}"))
}

#[test]
fn json_has_problems_warnings_and_tests_of_all_paths() {
    let folder = folder();
    let paths = ["other/bad, 1.yaml", "other/warned.yaml", "other/failing.yaml"];
    let output = folder.run(&[&["check", "--format", "json"][..], &paths].concat());
    assert_exit(&output, 64);
    let report = json_of(&output);
    let problem = json!({
        "file": "other/bad, 1.yaml", "line": 15, "column": 54, "severity": "error",
        "rule": "bad-configuration", "message": "no limit is called `coer`",
        "help": "did you mean `core`?",
    });
    assert_eq!(report["problems"], json!([problem]));
    let warning = json!({
        "file": "other/warned.yaml", "line": 13, "column": 3, "severity": "warning",
        "rule": "unused-limit", "message": "no route lists limit `core`",
        "help": "add it to the `limits` of a route, or remove it; where only programs charge it by \
                 a caller's name, say so by `verified: true`",
    });
    assert_eq!(report["warnings"], json!([warning]));
    let test = &report["tests"][0];
    assert_eq!(test["policy"], "failing");
    assert_eq!(test["name"], "second");
    assert_eq!((&test["file"], &test["line"]), (&json!("other/failing.yaml"), &json!(16)));
    assert_eq!(test["passed"], false);
    let difference = json!({ "what": "status", "expected": "200", "got": "401: no token" });
    assert_eq!(test["differences"], json!([difference]));
    let summary = json!({
        "problems": 1, "warnings": 1, "tests": 1, "failed_tests": 1, "exit_code": 64,
    });
    assert_eq!(report["summary"], summary);
}

#[test]
fn exit_code_of_every_format_is_that_of_the_text() {
    let folder = folder();
    for (arguments, code) in [
        (&["other/good.yaml"][..], 0),
        (&["other/warned.yaml"], 0),
        (&["--strict", "other/warned.yaml"], 64),
        (&["other/failing.yaml"], 1),
        (&["other/bad, 1.yaml", "other/failing.yaml"], 64),
        (&["nowhere.yaml"], 64),
    ] {
        for format in ["text", "json", "sarif", "github"] {
            let output = folder.run(&[&["check", "--format", format], arguments].concat());
            assert_eq!(output.status.code(), Some(code), "{format} {arguments:?}: {output:#?}");
        }
    }
}

#[test]
fn sarif_has_a_rule_a_level_and_a_place_for_each_result() {
    let folder = folder();
    let paths = ["other/bad, 1.yaml", "other/warned.yaml", "other/failing.yaml", "nowhere.yaml"];
    let output = folder.run(&[&["check", "--format", "sarif"][..], &paths].concat());
    let report = json_of(&output);
    assert_eq!(report["version"], "2.1.0");
    let run = &report["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let mut results = Vec::new();
    for result in run["results"].as_array().unwrap() {
        let rule = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[rule]["id"], result["ruleId"]);
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        let line = place["region"]["startLine"].as_u64();
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        let rule = result["ruleId"].as_str().unwrap();
        let level = result["level"].as_str().unwrap();
        results.push(format!("{level} {rule} {uri} {line:?}"));
    }
    let expected = [
        "error bad-configuration other/bad%2C%201.yaml Some(15)",
        "error bad-configuration nowhere.yaml None",
        "warning unused-limit other/warned.yaml Some(13)",
        "error failed-test other/failing.yaml Some(16)",
    ];
    assert_eq!(results, expected);
}

#[test]
fn github_is_one_command_a_line() {
    let folder = folder();
    let paths = ["other/bad, 1.yaml", "other/warned.yaml", "other/failing.yaml"];
    let output = folder.run(&[&["check", "--format", "github"][..], &paths].concat());
    let expected = "\
::error file=other/bad%2C 1.yaml,line=15,col=54,title=bad-configuration::no limit is called `coer`%0Adid you mean `core`?
::warning file=other/warned.yaml,line=13,col=3,title=unused-limit::no route lists limit `core`%0Aadd it to the `limits` of a route, or remove it; where only programs charge it by a caller's name, say so by `verified: true`
::error file=other/failing.yaml,line=16,col=9,title=failed-test::policy failing: test 1, second: GET /a from 192.0.2.1%0Astatus: expected 200, got 401: no token
";
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn strict_says_why_it_refuses() {
    let folder = folder();
    let output = folder.run(&["check", "--strict", "other/warned.yaml"]);
    assert_exit(&output, 64);
    let printed = text(&output.stdout);
    assert!(printed.starts_with("warning: other/warned.yaml:13:3: no route lists"), "{printed}");
    assert!(
        printed.ends_with("\n1 warning found, which `--strict` takes for problems\n"),
        "{printed}"
    );
}

#[test]
fn settings_that_are_named_hold_for_policies_alone() {
    let folder = folder();
    let policy = POLICY.replace("UPSTREAM", "http://127.0.0.1:9000");
    folder.write("other/good.yaml", &format!("{policy}exempt: [127.0.0.0/8]\n"));
    let warned = "behind a load balancer in `127.0.0.0/8` every client is exempt";
    for (arguments, expected) in [
        (&["other/good.yaml"][..], false),
        (&["other/good.yaml", "--config", "tollgate.yaml"], true),
    ] {
        let output = folder.run(&[&["check"], arguments].concat());
        assert_exit(&output, 0);
        assert_eq!(text(&output.stdout).contains(warned), expected, "{output:#?}");
    }
    folder.write("tollgate.yaml", "version: 1\nlisteners: []\n");
    let output = folder.run(&["check", "other/good.yaml", "--config", "tollgate.yaml"]);
    assert_exit(&output, 64);
    assert!(text(&output.stderr).contains("tollgate.yaml:2:12: no listener"), "{output:#?}");
}

#[test]
fn settings_alone_are_checked_with_their_policies() {
    let folder = folder();
    let output = folder.run(&["check", "--config", "tollgate.yaml"]);
    assert_exit(&output, 0);
    let printed = text(&output.stdout);
    assert!(
        printed.contains("tollgate.yaml: ok") && printed.contains("policy api: ok"),
        "{printed}"
    );
}
