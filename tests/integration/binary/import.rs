//! `tollgate import`: what it writes is a policy, and what it leaves out it says.

use std::{
    fs::{self, File},
    process::Command,
};

use super::{Folder, assert_exit, text};
use crate::support::Upstream;

/// A file as guides to Kubernetes have it, with values as YAML reads them.
const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: { name: ratelimit-config }
data:
  config.yaml: |
    domain: shop
    descriptors:
      - key: generic_key
        value: v1
        descriptors:
          - { key: generic_key, value: login, rate_limit: { unit: minute, requests_per_unit: 5 } }
      - key: path
        value: /v1/*/export
        metadata: { owner: team-a }
        rate_limit: { unit: minute, requests_per_unit: 3 }
      - { key: throughput, value: 30, rate_limit: { unit: second, requests_per_unit: 30 } }
      - key: files
        value: files/*
        share_threshold: true
        rate_limit: { unit: hour, requests_per_unit: 100 }
";

fn folder(file: &str) -> Folder {
    let folder = Folder::before(&Upstream::start());
    fs::write(folder.path().join("limits.yaml"), file).unwrap();
    folder
}

#[test]
fn what_is_imported_is_a_policy() {
    let folder = folder(CONFIG_MAP);
    let output = folder.run(&["import", "envoy", "limits.yaml"]);
    assert_exit(&output, 0);
    let told = text(&output.stderr);
    assert!(told.contains("\nthe same ") && !told.contains("\nleft out "), "{told}");
    let policy = text(&output.stdout);
    for entry in [
        "when: [{ key: generic_key, value: v1 }, { key: generic_key, value: login }]",
        "when: { key: [path], value: { path: /v1/*/export } }",
        "when: { key: [throughput], value: { throughput: \"30\" } }",
        "when: [{ key: files, value: files/*, shared: true }]",
    ] {
        assert!(policy.contains(entry), "{entry}\n{policy}");
    }
    fs::write(folder.path().join("imported.yaml"), policy).unwrap();
    let output = folder.run(&["check", "imported.yaml"]);
    assert_exit(&output, 0);
    let checked = text(&output.stdout);
    assert_eq!(checked.matches("who chooses").count(), 1, "only of the path: {checked}");
    assert!(policy.contains("\n# To do: `tollgate check` names the limits"), "{policy}");
    assert!(!checked.contains("note:"), "no request is for its upstream: {checked}");
}

#[test]
fn what_kubectl_prints_is_read_from_standard_input() {
    let other = "---\napiVersion: v1\nkind: ConfigMap\ndata: { theme: dark }\n";
    let service = "---\nkind: Service\nspec: {}\n";
    let folder = folder(&format!("{CONFIG_MAP}{other}{service}"));
    let expected = folder.run(&["import", "envoy", "limits.yaml"]);
    assert_exit(&expected, 0);
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["import", "envoy", "-"])
        .current_dir(folder.path())
        .stdin(File::open(folder.path().join("limits.yaml")).unwrap())
        .output()
        .unwrap();
    assert_exit(&output, 0);
    assert_eq!(text(&output.stdout), text(&expected.stdout));
}

#[test]
fn what_is_left_out_is_said_at_the_top_and_by_the_exit_code() {
    let rate = "unit: day, requests_per_unit: 1";
    let file = format!(
        "domain: shop\ndescriptors:\n- {{ key: a, rate_limit: {{ {rate}, name: a, replaces: [{{ name: b }}] }} }}\n"
    );
    let folder = folder(&file);
    let output = folder.run(&["import", "envoy", "limits.yaml"]);
    assert_exit(&output, 3);
    let told = text(&output.stderr);
    let row = told.lines().find(|line| line.starts_with("left out ")).unwrap_or_default();
    assert!(row.contains(" limits.yaml:3:"), "{told}");
    let policy = text(&output.stdout);
    assert!(policy.contains("\n# Left out: limits.yaml:3:"), "{policy}");
    let output = folder.run(&["import", "envoy", "limits.yaml", "--allow-partial"]);
    assert_exit(&output, 0);
    assert_eq!(text(&output.stdout), policy);
}
