//! A response that could be read in two ways must not be passed on in one of them.

use super::plain;
use crate::support::Upstream;

fn assert_bad_gateway(response: impl Into<String>) {
    let response = response.into();
    let shown = response[..response.len().min(200)].to_owned();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write(&response);
        exchange.close();
    });
    let answered = plain(&upstream).get("/");
    assert_eq!(answered.status, 502, "{shown:?} became\n{answered:?}");
}

#[test]
fn two_ways_to_tell_a_length_are_a_502() {
    assert_bad_gateway(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\n\r\n",
    );
}

#[test]
fn coding_that_was_not_asked_for_is_a_502() {
    assert_bad_gateway(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    );
    assert_bad_gateway("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\nhi");
}

#[test]
fn malformed_fields_are_a_502() {
    for field in ["x : a", "x: a\r\n folded", "x: a\0b", ": a", "x", "content-length: -1"] {
        assert_bad_gateway(format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n"));
    }
}

#[test]
fn upgrade_that_was_not_asked_for_is_a_502() {
    assert_bad_gateway(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    );
}

#[test]
fn storm_of_interim_responses_is_a_502() {
    let storm = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_000);
    assert_bad_gateway(storm + "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
}
