//! Settings that have changed: what takes effect, and what has to wait for a restart.

use std::fs;

use super::{ON_REQUEST, Served};
use crate::{binary::text, support::Upstream};

fn edit(served: &Served, from: &str, to: &str) {
    let file = served.folder.path().join("tollgate.yaml");
    let settings = fs::read_to_string(&file).unwrap();
    assert!(settings.contains(from), "{settings}");
    fs::write(file, settings.replace(from, to)).unwrap();
}

#[test]
fn change_that_needs_a_restart_is_logged_once() {
    let upstream = Upstream::start();
    let mut served = Served::start(&upstream, ON_REQUEST);
    edit(&served, "workers: 1", "workers: 2\ndrain: 1s");
    served.reload().assert_status(200);
    let line = served.running.wait_for_event("needs a restart");
    assert!(line.contains("sections=\"workers, drain\""), "{line}");
    served.reload().assert_status(200);
    assert_eq!(served.status()["needs_restart"], serde_json::json!(["workers", "drain"]));
    edit(&served, "workers: 2\ndrain: 1s", "workers: 1");
    served.reload().assert_status(200);
    assert_eq!(served.status()["needs_restart"], serde_json::json!([]));
    served.running.signal("TERM");
    let log = served.running.finish();
    let logged = String::from_utf8_lossy(&log.stderr).matches("needs a restart").count();
    assert_eq!(logged, 1, "{log:#?}");
}

#[test]
fn policies_may_move_elsewhere() {
    let upstream = Upstream::start();
    let served = Served::start(&upstream, ON_REQUEST);
    served.folder.write("other/api.yaml", &super::with_limit(&served.policy(), 2000));
    edit(&served, "workers: 1", "workers: 1\npolicies: other");
    served.reload().assert_status(200);
    assert_eq!(served.limit(), 2000);
    assert_eq!(served.status()["needs_restart"], serde_json::json!([]));
}

#[test]
fn warnings_are_logged_once_for_each_configuration_in_force() {
    const OPEN: &str = "everybody on this machine can read `../secret`";
    let upstream = Upstream::start();
    let mut served = Served::start(&upstream, ON_REQUEST);
    let policy = served.policy();
    served.folder.write("policies/api.yaml", &policy.replace("limits: [core]", "limits: [cor]"));
    served.reload().assert_status(422);
    let overrides = "overrides: [{ caller: \"user:7\", limit: core, rate: 5/hour, \
                     until: 2999-12-31, why: a move }]\n";
    served.folder.write("policies/api.yaml", &format!("{policy}{overrides}"));
    served.reload().assert_status(200);
    let line = served.running.wait_for_event(" override ");
    assert!(line.contains("of=user:7") && line.contains("why=a move"), "{line}");
    served.running.signal("TERM");
    let log = served.running.finish();
    let logged = text(&log.stderr).matches(OPEN).count();
    assert_eq!(logged, 2, "at the start and after the reload: {log:#?}");
    let fields =
        text(&log.stderr).matches("configuration warning rule=\"readable-secret\"").count();
    assert_eq!(fields, 2, "{log:#?}");
}
