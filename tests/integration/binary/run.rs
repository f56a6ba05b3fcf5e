//! `tollgate run`: serving, signals, exit codes.

use std::net::TcpListener;

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Client, Signal, Upstream, get};

#[test]
fn serves_and_finishes_what_it_has_begun_on_a_signal() {
    for signal in ["TERM", "INT"] {
        let asked = Signal::default();
        let go = Signal::default();
        let upstream = Upstream::held(&asked, &go);
        let folder = Folder::before(&upstream);
        let token = folder.token(&["--sub", "42"]);
        let (running, address) = Running::serve(&folder);
        let mut idle = Client::connect(address);
        let mut busy = Client::connect(address);
        busy.write(get("/").token(&token).to_bytes());
        asked.wait();
        running.signal(signal);
        // A connection without a request closes at once: the end has begun.
        idle.assert_closed();
        go.open();
        busy.read().assert_status(200).assert_field("x-ratelimit-limit", "10");
        busy.assert_closed();
        assert_exit(&running.finish(), 0);
    }
}

#[test]
fn minted_tokens_are_good_and_bring_their_tier() {
    let upstream = Upstream::start();
    let folder = Folder::before(&upstream);
    let (_running, address) = Running::serve(&folder);
    let free = folder.token(&["--sub", "42"]);
    let pro = folder.token(&["--sub", "7", "--plan", "pro"]);
    let expired = folder.token(&["--sub", "42", "--claim", "exp=1000000000"]);
    let elsewhere = folder.token(&["--sub", "42", "--issuer", "https://other.example.com/"]);
    send(address, get("/").token(&free)).assert_field("x-ratelimit-limit", "10");
    send(address, get("/").token(&pro)).assert_field("x-ratelimit-limit", "20");
    send(address, get("/").token(&expired)).assert_status(401);
    send(address, get("/").token(&elsewhere)).assert_status(401);
    send(address, get("/")).assert_status(401);
}

#[test]
fn bad_configuration_exits_with_64_and_every_problem() {
    let folder = Folder::with_settings(&Upstream::start(), "colour: red");
    folder.write("policies/a.yaml", "version: 3\n");
    folder.write("policies/b.yaml", "version: [\n");
    for arguments in [&["run", "--config", "tollgate.yaml"][..], &["check", "tollgate.yaml"]] {
        let output = folder.run(arguments);
        assert_exit(&output, 64);
        let printed = text(&output.stderr);
        for expected in [
            "tollgate.yaml:4:1: unknown field `colour`",
            "policies/a.yaml:1:1: missing field `upstreams`",
            "policies/a.yaml:1:1: missing field `routes`",
            "policies/b.yaml:",
        ] {
            assert!(printed.contains(expected), "{expected} is not in\n{printed}");
        }
        assert!(printed.trim_end().ends_with("problems found"), "{printed}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn missing_configuration_exits_with_64() {
    let folder = Folder::before(&Upstream::start());
    let output = folder.run(&["run", "--config", "nowhere.yaml"]);
    assert_exit(&output, 64);
    assert!(text(&output.stderr).contains("nowhere.yaml: cannot read"), "{output:#?}");
}

#[test]
fn taken_port_exits_with_1() {
    let upstream = Upstream::start();
    let folder = Folder::before(&upstream);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let settings = format!("version: 1\nlisteners: [{{ address: \"{address}\" }}]\n");
    folder.write("tollgate.yaml", &settings);
    let output = folder.run(&["run", "--config", "tollgate.yaml"]);
    assert_exit(&output, 1);
    let printed = text(&output.stderr);
    assert!(printed.contains(&format!("cannot listen on {address}")), "{printed}");
}

#[test]
fn upstream_that_is_down_keeps_nothing_from_starting() {
    let folder = Folder::before(&Upstream::refusing());
    let token = folder.token(&["--sub", "42"]);
    let (running, address) = Running::serve(&folder);
    send(address, get("/").token(&token)).assert_status(502);
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
}
