//! `tollgate demo`: what it prints is true.

use std::{collections::BTreeSet, net::SocketAddr, process::Command, thread};

use serde_json::Value;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Upstream, eventually, get};

/// The value of a line such as `FREE=eyJ…`.
fn value<'t>(printed: &'t str, name: &str) -> &'t str {
    let lines = printed.lines();
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.next().expect("the demo prints it")
}

#[test]
fn commands_that_it_prints_do_what_it_says() {
    let folder = Folder::before(&Upstream::start());
    let mut running = start(&folder, &[]);
    running.stdout.wait_for("Ctrl-C ends it");
    let printed = running.stdout.seen();
    assert_dashboard(printed);
    let address = value(printed, "API").strip_prefix("http://").unwrap().parse().unwrap();
    let free = value(printed, "FREE");
    let pro = value(printed, "PRO");

    send(address, get("/user").token(free))
        .assert_status(200)
        .assert_field("x-ratelimit-limit", "5000")
        .assert_field("x-ratelimit-used", "1");
    send(address, get("/user").token(pro)).assert_field("x-ratelimit-limit", "15000");
    send(address, get("/user")).assert_field("x-ratelimit-limit", "60");
    send(address, get("/user").token(&format!("{free}."))).assert_status(401);
    for number in 1..=11 {
        let response = send(address, get("/search/code").token(free));
        response.assert_status(if number <= 10 { 200 } else { 429 });
    }
    send(address, get("/search/code").token(pro)).assert_field("x-ratelimit-limit", "30");
    let known = get("/repos/octo/hello").token(pro).field("if-none-match", "\"v1\"");
    let fresh = send(address, get("/repos/octo/hello").token(pro));
    let used = fresh.assert_status(200).fields.one("x-ratelimit-used").unwrap();
    send(address, known)
        .assert_status(304)
        .assert_field("etag", "\"v1\"")
        .assert_field("x-ratelimit-used", used);
    let echo = get("/echo").token(pro).field("x-tollgate-subject", "somebody-else");
    let echoed = send(address, echo).json();
    assert_eq!(echoed["headers"]["x-tollgate-subject"], "7");
    assert_eq!(echoed["headers"]["authorization"], Value::Null);
    let standings = send(address, get("/rate_limit").token(pro));
    assert!(standings.assert_status(200).text().ends_with("}\n"), "{standings:?}");
    one_of_three_is_denied_in_flight(address);

    running.signal("INT");
    let output = running.finish();
    assert_exit(&output, 0);
    let events = text(&output.stderr);
    assert!(!events.contains("WARN"), "the first line of a demo is no warning: {events}");
}

#[test]
fn traffic_is_of_a_dozen_callers_of_whom_one_is_denied() {
    let folder = Folder::before(&Upstream::start());
    let mut running = start(&folder, &["--traffic"]);
    running.stdout.wait_for("Ctrl-C ends it");
    let admin = assert_dashboard(running.stdout.seen());
    let ranked = |query: &str| -> BTreeSet<String> {
        let report =
            send(admin, get(&format!("/callers?top=100&{query}")).host("localhost")).json();
        let callers = report["callers"].as_array().unwrap().iter();
        callers.map(|caller| caller["name"].as_str().unwrap().to_owned()).collect()
    };
    eventually("all callers are seen", || (ranked("by=units").len() == 12).then_some(()));
    eventually("user 99 is denied", || ranked("by=denials").contains("user:99").then_some(()));
    running.signal("INT");
    assert_exit(&running.finish(), 0);
}

/// The page is where the demo says that it is.
fn assert_dashboard(printed: &str) -> SocketAddr {
    let (_, rest) = printed.split_once("The dashboard is at http://").expect("it is named");
    let admin = rest.split('/').next().unwrap().parse().unwrap();
    let page = send(admin, get("/").host("localhost"));
    page.assert_status(200).assert_field("content-type", "text/html; charset=utf-8");
    admin
}

/// The demo, in a shell that lets it open as few files as any system does.
fn start(folder: &Folder, more: &[&str]) -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n 1024; exec "$@""#, "sh"]);
    command.args([env!("CARGO_BIN_EXE_tollgate"), "demo", "--listen", "127.0.0.1:0"]);
    command.args(["--admin", "127.0.0.1:0"]).args(more);
    Running::start_by(folder, command)
}

fn one_of_three_is_denied_in_flight(address: SocketAddr) {
    let ask = || thread::spawn(move || send(address, get("/slow")));
    let asking = [ask(), ask(), ask()];
    let mut responses = asking.map(|asking| asking.join().unwrap());
    responses.sort_by_key(|response| response.status);
    let [first, second, denied] = &responses;
    first.assert_status(200);
    second.assert_status(200);
    denied.assert_status(429).assert_field("x-tollgate-denied-by", "inflight");
    assert!(denied.text().ends_with("}\n"), "{denied:?}");
}
