//! `tollgate demo`: what it prints is true.

use serde_json::Value;

use super::{Folder, Running, assert_exit, send};
use crate::support::{Upstream, get};

/// The value of a line such as `FREE=eyJ…`.
fn value<'t>(printed: &'t str, name: &str) -> &'t str {
    let lines = printed.lines();
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.next().expect("the demo prints it")
}

#[test]
fn commands_that_it_prints_do_what_it_says() {
    let folder = Folder::before(&Upstream::start());
    let mut running = Running::start(&folder, &["demo", "--listen", "127.0.0.1:0"]);
    running.stdout.wait_for("Ctrl-C ends it");
    let printed = running.stdout.seen();
    let address = value(printed, "API").strip_prefix("http://").unwrap().parse().unwrap();
    let (free, pro) = (value(printed, "FREE"), value(printed, "PRO"));

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
    send(address, known).assert_status(304).assert_field("etag", "\"v1\"");
    let echo = get("/echo").token(pro).field("x-tollgate-subject", "somebody-else");
    let echoed = send(address, echo).json();
    assert_eq!(echoed["headers"]["x-tollgate-subject"], "7");
    assert_eq!(echoed["headers"]["authorization"], Value::Null);

    running.signal("INT");
    assert_exit(&running.finish(), 0);
}
