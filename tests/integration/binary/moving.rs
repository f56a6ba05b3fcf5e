//! How the program reports a move of callers that waits for other proxies.

use super::{Folder, Running, send, text};
use crate::support::{Policy, Proxy, Redis, Upstream, get};

#[test]
fn log_status_and_metrics_say_what_a_move_waits_for() {
    let upstream = Upstream::start();
    let first = Redis::start();
    let second = Redis::start();
    // It knows of no next store.
    let _other = Proxy::with_redis(&first.settings(), &Policy::before(&upstream).rate("5/hour"));
    let store = format!(
        "store: {{ current: {{ redis: {{ {} }} }}, next: {{ redis: {{ {} }} }}, percent: 10, \
         mode: mirror, deadline: 10s }}",
        first.settings(),
        second.settings()
    );
    let settings = format!("admin: {{ address: 127.0.0.1:0 }}\n{store}");
    let folder = Folder::with_settings(&upstream, &settings);
    let (mut running, _) = Running::serve(&folder);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("address=").nth(1).unwrap().trim().to_owned();
    let asking = "version: 1\nlisteners: [{ address: 127.0.0.1:1 }]\n";
    folder.write("asking.yaml", &format!("{asking}admin: {{ address: \"{admin}\" }}\n"));
    let ask =
        |command: &str| text(&folder.run(&[command, "--config", "asking.yaml"]).stdout).to_owned();
    let edit = |from: &str, to: &str| {
        let file = folder.path().join("tollgate.yaml");
        let settings = std::fs::read_to_string(&file).unwrap();
        assert!(settings.contains(from), "{settings}");
        std::fs::write(file, settings.replace(from, to)).unwrap();
    };

    edit("mode: mirror", "mode: move");
    let reported = ask("reload");
    assert!(reported.contains("callers are mirrored, and not moved yet: "), "{reported}");
    const OBSTACLE: &str = "1 other proxy does not charge the next store for as many callers";
    loop {
        let line = running.wait_for_event("callers are mirrored, and not moved yet");
        assert!(line.contains("percent=10"), "{line}");
        if line.contains(OBSTACLE) {
            break;
        }
    }
    let reported = ask("status");
    assert!(
        reported.contains(&format!("0 % are moved, and others are mirrored for now: {OBSTACLE}")),
        "{reported}"
    );
    let metrics = send(admin.parse().unwrap(), get("/metrics").host("localhost")).text();
    assert!(metrics.contains("\ntollgate_store_move_waits 1\n"), "{metrics}");
    assert!(metrics.contains("\ntollgate_store_moved_percent 0\n"), "{metrics}");

    edit("mode: move", "mode: move_now");
    running.wait_for_event("callers move to the next store");
    let metrics = send(admin.parse().unwrap(), get("/metrics").host("localhost")).text();
    assert!(metrics.contains("\ntollgate_store_move_waits 0\n"), "{metrics}");
    assert!(metrics.contains("\ntollgate_store_moved_percent 10\n"), "{metrics}");
    let reported = ask("status");
    assert!(!reported.contains("for now"), "{reported}");
}
