//! How a server greets, what it says of itself, and when keys expire.

use std::time::Duration;

use super::{
    super::{Address, Server},
    Pair,
    real::{RealServer, command, integer},
};

/// The model's text, each of whose lines the real server has as well, but for those that are
/// chance.
pub(super) fn assert_has_lines(real: &[u8], model: &[u8]) {
    let [real, model] = [real, model].map(|text| String::from_utf8_lossy(text).into_owned());
    let mut lines = model.lines().skip(1);
    let is_made_up = |line: &str| line.starts_with("run_id:") || line.starts_with("master_replid:");
    let missing = lines.find(|line| match is_made_up(line) {
        true => {
            let name = &line[..=line.find(':').unwrap()];
            let same = real.lines().find(|other| other.starts_with(name));
            same.is_none_or(|other| other.len() != line.len())
        }
        false => !real.lines().any(|other| other == *line),
    });
    assert_eq!(missing, None, "{real}");
}

#[test]
fn server_greets_and_reports_as_redis_does() {
    let mut real = RealServer::start(&[]);
    let mut pair = Pair::new(&mut real, "3");
    for words in [&["HELLO"][..], &["HELLO", "3"], &["HELLO", "2"], &["HELLO", "3"]] {
        let found = pair.execute(command(words));
        let found = pair.session.encode(&found);
        let expected = pair.real.execute(words);
        // Each server has an ID of its own for a connection.
        let without_id = |greeting: &[u8]| {
            let text = String::from_utf8_lossy(greeting).into_owned();
            let (before, id) = text.split_once("id\r\n:").unwrap();
            let (_, after) = id.split_once("\r\n").unwrap();
            [before, after].concat()
        };
        assert_eq!(without_id(&found), without_id(&expected), "{words:?}");
    }
    for section in ["server", "replication"] {
        let found = pair.execute(command(&["INFO", section]));
        let found = pair.session.encode(&found);
        assert_has_lines(&pair.real.execute(&["INFO", section]), &found);
    }
    pair.replies.clear();
    for words in [
        &["ROLE"][..],
        &["PING"],
        &["hello", "4"],
        &["HELLO", "3", "TYPO"],
        &["ASKING"],
        &["READONLY"],
        &["CLUSTER", "INFO"],
        &["INFO", "typo"],
        &["TIME", "1"],
        &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
    ] {
        pair.execute(command(words));
    }
    pair.compare("reports", Duration::MAX);
}

#[test]
fn key_is_gone_when_its_time_has_passed_and_not_before() {
    let mut real = RealServer::start(&[]);
    let mut model = Server::new(Address::new("127.0.0.1", real.port), 0);
    let mut session = model.connect();
    let set = command(&["SET", "a", "b", "PX", "25"]);
    let before = real.now();
    real.execute_all(std::slice::from_ref(&set));
    let expires_at = integer(&real.execute(&["PEXPIRETIME", "a"]));
    model.handle(before, &mut session, &set);
    let late = expires_at - model.expires_at(b"a").unwrap();
    let get = command(&["GET", "a"]);
    let mut is_gone = false;
    while !is_gone {
        let before = real.now();
        let expected = real.execute(&["GET", "a"]);
        let after = real.now();
        let [found, later] = [before, after].map(|now| {
            let now = now.saturating_add_signed(-late * 1000);
            let reply = model.handle(now, &mut session, &get);
            session.encode(&reply)
        });
        assert!(found == expected || later == expected, "{before:?} {after:?}");
        is_gone = expected == b"$-1\r\n" && later == expected;
    }
    assert_eq!(model.keys(), 0);
}
