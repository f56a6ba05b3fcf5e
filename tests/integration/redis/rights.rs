//! The rights of a Redis user: those that docs/redis.md gives it are enough, and none is missing
//! there.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::{Policy, Proxy, Redis, SECRET, Upstream, forms_of_algorithms};

/// The words of the command that docs/redis.md says.
fn documented() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/redis.md");
    let page = fs::read_to_string(page).unwrap();
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER tollgate")).unwrap();
    line.split(' ').map(|word| word.replace("PASSWORD", SECRET)).collect()
}

/// A server whose user `tollgate` may do what is documented, and the settings of a proxy by it.
fn limited_server() -> (Redis, String) {
    let redis = Redis::start();
    let words = documented();
    redis.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let settings = format!("{}, username: tollgate, password_env: TEST_SECRET", redis.settings());
    (redis, settings)
}

fn decided_by_redis(proxy: &Proxy) {
    for caller in ["alice", "bob"] {
        for _ in 0..3 {
            proxy.get_as(caller).assert_status(200).assert_no_field("x-tollgate-store");
        }
    }
}

#[test]
fn documented_rights_are_enough_for_all_algorithms() {
    for algorithm in forms_of_algorithms() {
        let (redis, settings) = limited_server();
        let upstream = Upstream::start();
        let policy = Policy::before(&upstream)
            .core(&format!("rate: 10/hour, algorithm: {algorithm}, on_store_error: closed"));
        let settings = format!("workers: 1\nstore: {{ redis: {{ {settings} }}, deadline: 10s }}");
        let proxy = Proxy::with_settings(&settings, &[&policy]);
        decided_by_redis(&proxy);
        proxy.look("user:alice").unwrap();
        proxy.reset("user:alice");
        decided_by_redis(&proxy);
        let refused: Vec<redis::Value> = redis.ask(&["ACL", "LOG"]);
        assert!(refused.is_empty(), "{algorithm}: {refused:?}");
    }
}

/// What scripts and clients run, by their sources.
#[test]
fn all_commands_are_documented() {
    let words = documented();
    let allowed: BTreeSet<&str> = words.iter().filter_map(|word| word.strip_prefix('+')).collect();
    // Where there is more than one server; and what tests run.
    let elsewhere = ["asking", "cluster", "readonly", "role", "sentinel"];
    let mut missing = BTreeSet::new();
    let mut files = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/store/src/redis")];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let inner = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            files.extend(inner.filter(|path| !path.to_string_lossy().contains("tests")));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for start in ["call('", "cmd(\""] {
            for found in text.split(start).skip(1) {
                let command = found.split(['\'', '"']).next().unwrap().to_lowercase();
                let is_known = allowed.contains(&*command) || elsewhere.contains(&&*command);
                if command.starts_with(char::is_alphabetic) && !is_known {
                    missing.insert(command);
                }
            }
        }
    }
    assert_eq!(missing, BTreeSet::new());
    assert!(allowed.contains("evalsha") && allowed.contains("zcount"));
}
