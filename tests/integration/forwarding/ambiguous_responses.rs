//! A response that could be read in two ways must not be passed on in one of them.

use super::plain;
use crate::support::{Request, Upstream};

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

/// What follows a response on its connection was asked for by nobody, and may be meant for whoever
/// asks next.
#[test]
fn bytes_after_a_response_are_nobodys_answer() {
    const STRAY: &str = "HTTP/1.1 200 OK\r\nx-stray: 1\r\ncontent-length: 0\r\n\r\n";
    for (method, response) in [
        ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        ("GET", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 68\r\n\r\n"),
    ] {
        let upstream = Upstream::answering(format!("{response}{STRAY}"));
        let proxy = plain(&upstream);
        for count in 1..=3 {
            let answered = proxy.send(Request::new(method, "/"));
            answered.assert_no_field("x-stray");
            assert_eq!(upstream.connections(), count, "after {response:?}");
        }
    }
}
