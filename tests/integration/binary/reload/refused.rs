//! Configurations that are refused: the last good one stays, and everybody can see why.

use std::{fs, os::unix::fs::symlink};

use rustix::fs::{CWD, Mode, mkfifoat};

use super::{EVENTS, ON_REQUEST, Served, with_limit};
use crate::{
    binary::{assert_exit, text},
    support::{Upstream, eventually, get},
};

/// The exit code of `tollgate status`, and what it prints.
fn status_command(served: &Served, arguments: &[&str]) -> (i32, String) {
    let admin = served.admin.to_string();
    let output = served.folder.run(&[&["status", "--admin", &admin], arguments].concat());
    (output.status.code().unwrap(), text(&output.stdout).to_owned())
}

#[test]
fn broken_policy_changes_nothing_and_is_reported_everywhere_until_it_is_mended() {
    let upstream = Upstream::start();
    let mut served = Served::start(&upstream, EVENTS);
    let policy = served.policy();
    let (code, summary) = status_command(&served, &[]);
    assert_eq!(code, 0, "{summary}");
    assert!(summary.contains("policy api: all hosts, 1 limit, 1 route"), "{summary}");
    let digest = served.status()["digest"].clone();

    let broken = policy.replace("limits: [core]", "limits: [cor]");
    served.folder.write("policies/api.yaml", &broken);
    let line = served.running.wait_for_event("bad configuration");
    let place = format!("policies/api.yaml:{}:", broken.lines().count());
    for expected in [place.as_str(), "`cor`", "did you mean `core`?"] {
        assert!(line.contains(expected), "{expected} is not in {line}");
    }
    let line = served.running.wait_for_event("what was in force stays");
    assert!(line.contains("problems=1 generation=1"), "{line}");
    assert_eq!(served.limit(), 1000);

    let status = served.status();
    assert_eq!((&status["generation"], &status["reloads"]["failed"]), (&1.into(), &1.into()));
    assert_eq!(status["digest"], digest, "that of the policies in force");
    let problem = status["refused"]["problems"][0].as_str().unwrap();
    assert!(problem.contains(&place) && problem.contains("did you mean `core`?"), "{problem}");
    let metrics = served.ask_admin(get("/metrics")).text();
    assert!(metrics.contains("\ntollgate_config_reload_failed 1\n"), "{metrics}");
    assert!(
        metrics.contains("\ntollgate_config_reloads_total{result=\"failed\"} 1\n"),
        "{metrics}"
    );
    let health = served.ask_admin(get("/healthz"));
    health.assert_status(200);
    assert_eq!(health.json()["reload"], "failed");
    let (code, summary) = status_command(&served, &[]);
    assert_eq!(code, 1);
    assert!(summary.contains(problem), "{summary}");
    let refused = served.reload();
    refused.assert_status(422);
    assert_eq!(refused.json()["problems"][0], problem);
    let admin = served.admin.to_string();
    let output = served.folder.run(&["reload", "--admin", &admin]);
    assert_exit(&output, 1);
    assert!(text(&output.stdout).contains(problem), "{output:#?}");

    served.folder.write("policies/api.yaml", &with_limit(&policy, 2000));
    served.wait_for_limit(2000, "the mended policy is taken");
    served.running.wait_for_event("configuration reloaded");
    let status = served.status();
    assert_eq!((&status["generation"], &status["refused"]), (&2.into(), &().into()));
    assert_ne!(status["digest"], digest);
    let metrics = served.ask_admin(get("/metrics")).text();
    assert!(metrics.contains("\ntollgate_config_reload_failed 0\n"), "{metrics}");
    assert_eq!(served.ask_admin(get("/healthz")).json()["reload"], "ok");
    assert_eq!(status_command(&served, &[]).0, 0);
    let (code, json) = status_command(&served, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["generation"]), (0, &2.into()));
}

/// A test of the policy that this limit of users passes.
fn test_of(limit: u64) -> String {
    format!(
        "tests:\n  - {{ name: enough, given: {{ path: /, jwt: {{ sub: \"42\" }} }}, \
         expect: {{ status: 200, headers: {{ x-ratelimit-limit: {limit} }} }} }}\n"
    )
}

#[test]
fn policy_whose_tests_fail_changes_nothing_until_they_pass() {
    let upstream = Upstream::start();
    let mut served = Served::start(&upstream, EVENTS);
    let policy = served.policy();

    let failing = with_limit(&policy, 500) + &test_of(1000);
    served.folder.write("policies/api.yaml", &failing);
    let line = served.running.wait_for_event("bad configuration");
    let place = format!("policies/api.yaml:{}:5", failing.lines().count());
    let difference = "test 1, enough fails: header x-ratelimit-limit: expected 1000, got 500";
    for expected in [&place, difference, "correct the policy or the test"] {
        assert!(line.contains(expected), "{expected} is not in {line}");
    }
    served.running.wait_for_event("what was in force stays");
    assert_eq!(served.limit(), 1000);
    let (code, summary) = status_command(&served, &[]);
    assert_eq!(code, 1);
    assert!(summary.contains(&format!("{place}: {difference}")), "{summary}");
    assert_eq!(served.status()["refused"]["problems"].as_array().unwrap().len(), 1);

    served.folder.write("policies/api.yaml", &(with_limit(&policy, 500) + &test_of(500)));
    served.wait_for_limit(500, "the policy whose test passes is taken");
    assert_eq!(status_command(&served, &[]).0, 0);
}

#[test]
fn failing_tests_are_ignored_as_soon_as_the_settings_say_so() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    let policy = with_limit(&served.policy(), 500) + &test_of(1000);
    served.folder.write("policies/api.yaml", &policy);
    served.reload().assert_status(422);
    assert_eq!(served.limit(), 1000);

    let settings = served.folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(settings, text.replace("poll: 1h", "tests: ignored, poll: 1h")).unwrap();
    served.reload().assert_status(200);
    assert_eq!(served.limit(), 500);
    assert_eq!(served.status()["needs_restart"], serde_json::json!([]));
}

#[test]
fn policy_whose_tests_fail_is_not_served_unless_they_are_ignored() {
    let upstream = Upstream::start();
    let folder = super::folder(&upstream, ON_REQUEST);
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(&file, policy + &test_of(500)).unwrap();
    let output = folder.run(&["run", "--config", "tollgate.yaml"]);
    assert_exit(&output, 64);
    let printed = text(&output.stderr);
    assert!(printed.contains("header x-ratelimit-limit: expected 500, got 1000"), "{printed}");
    assert!(printed.ends_with("1 problem found\n"), "{printed}");

    let file = folder.path().join("tollgate.yaml");
    let settings = fs::read_to_string(&file).unwrap();
    fs::write(file, settings.replace("poll: 1h", "tests: ignored, poll: 1h")).unwrap();
    assert_eq!(Served::from(folder).limit(), 1000);
}

#[test]
fn problems_of_all_files_are_reported_together() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    served.folder.write("policies/api.yaml", "version: 3\n");
    served.folder.write("policies/other.yaml", "");
    let settings = fs::read_to_string(served.folder.path().join("tollgate.yaml")).unwrap();
    served.folder.write("tollgate.yaml", &format!("{settings}colour: red\n"));
    let refused = served.reload();
    refused.assert_status(422);
    let printed = refused.text();
    for expected in ["unknown field `colour`", "api.yaml", "other.yaml: the file is empty"] {
        assert!(printed.contains(expected), "{expected} is not in\n{printed}");
    }
    assert_eq!(served.limit(), 1000);
}

#[test]
fn nothing_left_to_read_is_no_configuration() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    let path = |name: &str| served.folder.path().join(name);
    let policy = served.policy();
    for (name, expected) in [
        ("policies/api.yaml", "no policies"),
        ("policies", "tollgate.yaml: there is no file or folder `policies`"),
        ("tollgate.yaml", "tollgate.yaml: cannot read"),
        ("secret", "cannot read `../secret`"),
    ] {
        fs::rename(path(name), path("away")).unwrap();
        let refused = served.reload();
        refused.assert_status(422);
        assert!(refused.text().contains(expected), "{name}: {}", refused.text());
        assert_eq!(served.limit(), 1000, "{name}");
        fs::rename(path("away"), path(name)).unwrap();
        served.reload().assert_status(200);
    }
    served.folder.write("policies/api.yaml", "");
    let refused = served.reload();
    assert!(refused.text().contains("the file is empty"), "{}", refused.text());
    served.folder.write("policies/api.yaml", &policy);
    served.reload().assert_status(200);
}

#[test]
fn refused_configuration_is_logged_once_and_not_with_each_poll() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, super::POLL);
    let failed = |served: &Served| served.status()["reloads"]["failed"].as_u64().unwrap();
    served.folder.write("policies/api.yaml", "version: 3\n");
    eventually("it is refused", || (failed(&served) == 1).then_some(()));
    let unrelated = served.folder.path().join("policies/b.yaml");
    fs::write(unrelated, "version: 3\n").unwrap();
    eventually("another one is refused", || (failed(&served) == 2).then_some(()));
    served.running.signal("TERM");
    let log = served.running.finish();
    let logged = text(&log.stderr).matches("what was in force stays").count();
    assert_eq!(logged, 2, "{log:#?}");
}

#[test]
fn pipe_among_the_policies_is_refused_and_holds_up_nothing() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    let pipe = served.folder.path().join("policies/z.yaml");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let refused = served.reload();
    refused.assert_status(422);
    assert!(refused.text().contains("z.yaml: cannot read: not a regular file"), "{refused:?}");
    fs::remove_file(&pipe).unwrap();
    served.reload().assert_status(200);
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    served.reload().assert_status(422);
    served.running.signal("TERM");
    assert_exit(&served.running.finish(), 0);
}

#[test]
fn files_that_editors_hide_are_no_policies() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    let policies = served.folder.path().join("policies");
    symlink("user@host.1234:1", policies.join(".#api.yaml")).unwrap();
    served.folder.write("policies/._api.yaml", "\0\u{5}\u{16}\u{7}");
    served.reload().assert_status(200);
    assert_eq!(served.limit(), 1000);
}
