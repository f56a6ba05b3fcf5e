//! `tollgate health`: what a container's health check runs.

use super::{Folder, Running, assert_exit, text};
use crate::support::Upstream;

fn address(server: &Upstream) -> String {
    server.url().replace("http://", "")
}

/// Settings whose first listener is `listener`.
fn settings(listener: &str) -> String {
    format!("version: 1\nlisteners: [{{ address: \"{listener}\" }}, {{ address: 127.0.0.1:1 }}]\n")
}

#[test]
fn proxy_that_serves_is_healthy_until_it_ends() {
    let folder = Folder::before(&Upstream::start());
    let (running, address) = Running::serve(&folder);
    let ask = ["health", "--address", &address.to_string()];
    let output = folder.run(&ask);
    assert_exit(&output, 0);
    assert_eq!(text(&output.stdout), format!("{address} is healthy\n"));
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
    assert_exit(&folder.run(&ask), 1);
}

#[test]
fn first_listener_of_the_settings_is_asked_by_loopback() {
    let server = Upstream::start();
    let port = address(&server).rsplit_once(':').unwrap().1.to_owned();
    let folder = Folder::before(&server);
    for listener in [format!("127.0.0.1:{port}"), format!("0.0.0.0:{port}")] {
        folder.write("other.yaml", &settings(&listener));
        let output = folder.run(&["health", "--config", "other.yaml"]);
        assert_exit(&output, 0);
        let asked = server.last();
        assert_eq!((&*asked.method, &*asked.target), ("OPTIONS", "*"));
        assert_eq!(asked.fields.one("host"), Some(&*format!("127.0.0.1:{port}")));
    }
}

#[test]
fn any_answer_but_success_is_one_clear_line_and_exits_with_1() {
    for (server, expected) in [
        (Upstream::refusing(), "Connection refused"),
        (Upstream::silent(), "timed out"),
        (Upstream::answering("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"), "the answer is 503"),
        (Upstream::answering("220 mail ready\r\n"), "what answers is no HTTP server"),
        (Upstream::scripted(|exchange| exchange.close()), "what answers is no HTTP server"),
    ] {
        let folder = Folder::before(&server);
        let address = address(&server);
        let output = folder.run(&["health", "--address", &address]);
        assert_exit(&output, 1);
        let printed = text(&output.stderr);
        let begins = format!("tollgate: {address} is not healthy: {expected}");
        assert!(printed.starts_with(&begins), "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
    }
}

#[test]
fn address_that_is_none_exits_with_1() {
    let folder = Folder::before(&Upstream::start());
    let output = folder.run(&["health", "--address", "localhost"]);
    assert_exit(&output, 1);
    assert!(text(&output.stderr).starts_with("tollgate: cannot ask localhost: "), "{output:#?}");
}

#[test]
fn settings_that_are_wrong_exit_with_64() {
    let folder = Folder::before(&Upstream::start());
    folder.write("other.yaml", &settings("nowhere"));
    assert_exit(&folder.run(&["health", "--config", "other.yaml"]), 64);
    assert_exit(&folder.run(&["health", "--config", "none.yaml"]), 64);
}
