//! Counters from one start to the next, and what a changed policy does to open windows.

use std::fs;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Redis, Response, Upstream, get};

const SNAPSHOT: &str = "store: { memory: { snapshot: { file: counters.snapshot } } }";
const RATE: &str = "{ free: 10/hour, pro: 20/hour }";

/// Starts, sends so many requests of user 42, stops, and returns the last response.
fn run(folder: &Folder, requests: usize) -> Response {
    let token = folder.token(&["--sub", "42"]);
    let (running, address) = Running::serve(folder);
    let responses: Vec<Response> =
        (0..requests).map(|_| send(address, get("/").token(&token))).collect();
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
    responses.into_iter().last().unwrap()
}

fn saving() -> (Upstream, Folder) {
    let upstream = Upstream::start();
    let folder = Folder::with_settings(&upstream, SNAPSHOT);
    (upstream, folder)
}

fn change_policy(folder: &Folder, from: &str, to: &str) {
    let file = folder.path().join("policies/api.yaml");
    let policy = fs::read_to_string(&file).unwrap();
    assert!(policy.contains(from), "{policy}");
    fs::write(file, policy.replace(from, to)).unwrap();
}

#[test]
fn restart_hands_out_no_fresh_window() {
    let (_upstream, folder) = saving();
    let before = run(&folder, 3);
    before.assert_field("x-ratelimit-used", "3");
    let after = run(&folder, 1);
    after.assert_field("x-ratelimit-used", "4");
    assert_eq!(before.field("x-ratelimit-reset"), after.field("x-ratelimit-reset"));
}

#[test]
fn counters_that_were_saved_keep_their_names_in_redis() {
    let (_upstream, folder) = saving();
    let redis = Redis::start();
    run(&folder, 3).assert_field("x-ratelimit-used", "3");
    let file = folder.path().join("tollgate.yaml");
    let settings = fs::read_to_string(&file).unwrap();
    let change = |store: &str| {
        assert!(settings.contains(SNAPSHOT), "{settings}");
        fs::write(
            &file,
            settings.replace(SNAPSHOT, &format!("store: {{ {store}, deadline: 10s }}")),
        )
        .unwrap();
    };
    let in_redis = format!("{{ redis: {{ {} }} }}", redis.settings());
    let memory = "{ memory: { snapshot: { file: counters.snapshot } } }";
    // There, with what was counted in the process, and back, with what was counted there.
    change(&format!("current: {memory}, next: {in_redis}, percent: 100, mode: move"));
    run(&folder, 2).assert_field("x-ratelimit-used", "5");
    change(&format!("current: {in_redis}, next: {memory}, percent: 100, mode: move"));
    run(&folder, 1).assert_field("x-ratelimit-used", "6");
    folder.write("tollgate.yaml", &settings);
    run(&folder, 1).assert_field("x-ratelimit-used", "7");
}

#[test]
fn counters_are_saved_from_time_to_time() {
    let upstream = Upstream::start();
    let settings = "store: { memory: { snapshot: { file: counters.snapshot, every: 1s } } }";
    let folder = Folder::with_settings(&upstream, settings);
    let token = folder.token(&["--sub", "42"]);
    let (running, address) = Running::serve(&folder);
    send(address, get("/").token(&token)).assert_field("x-ratelimit-used", "1");
    let saved = folder.path().join("counters.snapshot");
    while fs::metadata(&saved).map_or(0, |file| file.len()) < 100 {
        std::thread::yield_now();
    }
    running.signal("KILL");
    drop(running);
    run(&folder, 1).assert_field("x-ratelimit-used", "2");
}

#[test]
fn start_goes_on_without_a_file_that_is_no_snapshot() {
    for (content, complaint) in [
        ("tollgate counters\n\u{1}", "torn or changed since it was saved"),
        ("something else", "not a file of saved counters"),
    ] {
        let (_upstream, folder) = saving();
        folder.write("counters.snapshot", content);
        let token = folder.token(&["--sub", "42"]);
        let (running, address) = Running::serve(&folder);
        send(address, get("/").token(&token)).assert_field("x-ratelimit-used", "1");
        running.signal("TERM");
        let output = running.finish();
        assert_exit(&output, 0);
        let logged = text(&output.stderr);
        assert!(logged.contains(complaint) && logged.contains("counters.snapshot"), "{logged}");
    }
}

#[test]
fn changed_policy_meets_open_windows_as_documented() {
    // limiter.md section 1.5, row by row.
    for (rate, used, remaining, keeps_reset) in [
        ("{ free: 20/hour, pro: 20/hour }", "5", "15", true),
        ("{ free: 4/hour, pro: 20/hour }", "4", "0", true),
        ("{ free: 10/day, pro: 20/hour }", "1", "9", false),
    ] {
        let (_upstream, folder) = saving();
        let before = run(&folder, 4);
        change_policy(&folder, RATE, rate);
        let after = run(&folder, 1);
        after.assert_field("x-ratelimit-used", used);
        after.assert_field("x-ratelimit-remaining", remaining);
        let reset = |response: &Response| response.field("x-ratelimit-reset").map(str::to_owned);
        assert_eq!(reset(&before) == reset(&after), keeps_reset, "{rate}");
    }
}

#[test]
fn limit_that_was_lowered_and_raised_again_is_where_it_was() {
    let (_upstream, folder) = saving();
    run(&folder, 6);
    change_policy(&folder, RATE, "{ free: 2/hour, pro: 20/hour }");
    run(&folder, 1).assert_status(429).assert_field("x-ratelimit-used", "6");
    change_policy(&folder, "{ free: 2/hour, pro: 20/hour }", RATE);
    run(&folder, 1).assert_status(200).assert_field("x-ratelimit-used", "7");
}

#[test]
fn removed_limit_shows_no_headers_and_another_algorithm_starts_afresh() {
    let (_upstream, folder) = saving();
    run(&folder, 4);
    change_policy(&folder, "pro: 20/hour } }", "pro: 20/hour }, algorithm: sliding_window }");
    run(&folder, 1).assert_field("x-ratelimit-used", "1");
    change_policy(&folder, "limits: [core]", "limits: []");
    assert_eq!(run(&folder, 1).field("x-ratelimit-used"), None);
}
