//! Counters on disk, as who runs the program sees it: they outlive a kill, and `tollgate store`
//! counts, checks, copies and merges them, beside a proxy that has them open and without one.

use std::{fs, net::SocketAddr, path::PathBuf};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Upstream, eventually, get};

const STORE: &str = "store: { disk: { path: counters, flush: 20ms }, deadline: 10s }
admin: { address: 127.0.0.1:0 }";

struct Served {
    running: Running,
    address: SocketAddr,
    admin: String,
}

fn serve(folder: &Folder) -> Served {
    let (mut running, address) = Running::serve(folder);
    let line = running.wait_for_event("admin listener is open");
    let admin = line.split("address=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    Served { running, address, admin }
}

fn used(served: &Served, token: &str) -> u64 {
    let response = send(served.address, get("/").token(token));
    response.number("x-ratelimit-used")
}

/// Bytes of the first journal of the counters on disk.
fn journal_bytes(folder: &Folder) -> u64 {
    fs::metadata(folder.path().join("counters/journal-0")).map_or(0, |it| it.len())
}

/// Waits until all that was charged is on disk.
fn flushed(folder: &Folder, keys: usize) {
    eventually("counters are on disk", || (journal_bytes(folder) > 40 * keys as u64).then_some(()));
}

#[test]
fn counters_outlive_a_kill_and_a_restart() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, STORE);
    let token = folder.token(&["--sub", "42"]);
    let served = serve(&folder);
    for number in 1..=2 {
        let before = journal_bytes(&folder);
        assert_eq!(used(&served, &token), number);
        eventually("it is on disk", || (journal_bytes(&folder) > before).then_some(()));
    }
    served.running.signal("KILL");
    served.running.finish();
    let served = serve(&folder);
    assert_eq!(used(&served, &token), 3);
    served.running.signal("TERM");
    assert_exit(&served.running.finish(), 0);
    let served = serve(&folder);
    assert_eq!(used(&served, &token), 4, "a clean stop loses nothing");
}

#[test]
fn second_process_is_refused_and_told_who_has_the_counters() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, STORE);
    let served = serve(&folder);
    let output = folder.run(&["run", "--config", "tollgate.yaml"]);
    assert_exit(&output, 1);
    let error = text(&output.stderr);
    assert!(error.contains("is in use by process "), "{error}");
    drop(served);
}

#[test]
fn store_is_counted_checked_copied_and_merged_beside_a_proxy_and_without() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, STORE);
    let token = folder.token(&["--sub", "42"]);
    let served = serve(&folder);
    used(&served, &token);
    flushed(&folder, 1);

    let admin = ["--admin", &served.admin];
    let run = |arguments: &[&str], place: &[&str]| {
        let output = folder.run(&[&["store"], arguments, place].concat());
        assert_exit(&output, 0);
        text(&output.stdout).to_owned()
    };
    let beside = run(&["stat"], &admin);
    assert!(beside.contains("counters in memory: ") && beside.contains("last flush: "), "{beside}");
    assert!(run(&["check"], &admin).contains("no file is damaged"));
    let copy = folder.path().join("copy").display().to_string();
    assert!(run(&["backup", &copy], &admin).contains("has 1 counters"));
    assert!(run(&["compact"], &admin).contains("all tables were merged"));
    // The settings name the same listener only by a port that the system has chosen.
    let held = folder.run(&["store", "stat", "--path", "counters"]);
    assert_exit(&held, 1);
    assert!(text(&held.stderr).contains("is in use by process "), "{held:?}");
    served.running.signal("TERM");
    assert_exit(&served.running.finish(), 0);

    let config = ["--config", "tollgate.yaml"];
    for place in [&config[..], &["--path", "counters"], &["--path", &copy]] {
        let alone = run(&["stat"], place);
        assert!(alone.contains("counters on disk: 1, and 0 that are over"), "{alone}");
        assert!(run(&["check"], place).contains("no file is damaged"));
    }
    run(&["backup", "again"], &config);
    run(&["compact"], &config);
    assert!(run(&["stat"], &["--path", "again"]).contains("counters on disk: 1,"));

    // The copy is where the proxy goes on.
    fs::rename(folder.path().join("counters"), folder.path().join("old")).unwrap();
    fs::rename(&copy, folder.path().join("counters")).unwrap();
    assert_eq!(used(&serve(&folder), &token), 2);
}

#[test]
fn damage_is_reported_at_the_start_and_mended_by_hand() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, STORE);
    let served = serve(&folder);
    for sub in ["1", "2", "3"] {
        used(&served, &folder.token(&["--sub", sub]));
        std::thread::park_timeout(std::time::Duration::from_millis(60));
    }
    flushed(&folder, 3);
    served.running.signal("TERM");
    served.running.finish();
    let journal: PathBuf = folder.path().join("counters/journal-0");
    let mut bytes = fs::read(&journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xFF;
    fs::write(&journal, &bytes).unwrap();

    let refused = folder.run(&["run", "--config", "tollgate.yaml"]);
    assert_exit(&refused, 1);
    let error = text(&refused.stderr);
    assert!(error.contains("journal-0 is damaged") && error.contains("--repair"), "{error}");
    assert_eq!(fs::read(&journal).unwrap(), bytes, "it stays as it is");
    let config = ["--config", "tollgate.yaml"];
    let checked = folder.run(&[&["store", "check"], &config[..]].concat());
    assert_exit(&checked, 1);
    assert!(text(&checked.stdout).contains("journal-0"), "{checked:?}");
    let repaired = folder.run(&[&["store", "check", "--repair"], &config[..]].concat());
    assert_exit(&repaired, 0);
    assert!(folder.path().join("counters/journal-0.damaged").exists());
    used(&serve(&folder), &folder.token(&["--sub", "1"]));
}

#[test]
fn settings_without_a_disk_are_no_store_to_count() {
    let folder = Folder::before(&Upstream::start());
    let output = folder.run(&["store", "stat", "--config", "tollgate.yaml"]);
    assert_exit(&output, 64);
    assert!(text(&output.stderr).contains("keeps no counters on disk"), "{output:?}");
}

#[test]
fn counters_go_to_the_next_process_and_back_if_it_does_not_start() {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, &format!("{STORE}\nhandover: next.sock"));
    let token = folder.token(&["--sub", "42"]);
    let mut served = serve(&folder);
    assert_eq!(used(&served, &token), 1);
    // It takes the sockets, and ends before it serves: a store of which nothing can be made.
    let settings = fs::read_to_string(folder.path().join("tollgate.yaml")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    fs::write(
        folder.path().join("broken.yaml"),
        settings.replace("path: counters", "path: file/counters"),
    )
    .unwrap();
    assert_exit(&folder.run(&["run", "--config", "broken.yaml"]), 1);
    served.running.wait_for_event("no process took over");
    eventually("the folder is open again", || {
        let output = folder.run(&["store", "stat", "--path", "counters"]);
        text(&output.stderr).contains("is in use by process ").then_some(())
    });
    assert_eq!(used(&served, &token), 2);

    let next = serve(&folder);
    assert_exit(&served.running.finish(), 0);
    assert_eq!(used(&next, &token), 3);
}
