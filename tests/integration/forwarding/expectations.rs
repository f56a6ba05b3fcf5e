//! `Expect: 100-continue`, and interim responses.

use super::plain;
use crate::support::{Policy, Proxy, Upstream};

const EXPECTING: &str =
    "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n";

#[test]
fn body_is_asked_for_once_the_request_is_admitted() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("1/hour"));
    let mut client = proxy.connect();
    client.write(EXPECTING);
    client.read_head().assert_status(100);
    client.write("hi");
    client.read().assert_status(200);
    let seen = upstream.last();
    assert_eq!(seen.body, b"hi");
    assert_eq!(seen.fields.one("expect"), None);
}

#[test]
fn denied_request_is_not_asked_for_its_body() {
    let upstream = Upstream::start();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("0/hour"));
    let mut client = proxy.connect();
    client.write(EXPECTING);
    client.read().assert_status(429);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn interim_responses_of_the_upstream_are_not_taken_for_its_answer() {
    let upstream = Upstream::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    assert_eq!(plain(&upstream).get("/").assert_status(200).text(), "ok");
}
