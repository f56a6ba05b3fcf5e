//! A response that could be read in two ways must not be passed on in one of them.

use super::plain;
use crate::support::{Request, Upstream, get};

fn assert_bad_gateway(response: impl Into<String>) {
    let response = response.into();
    let shown = response[..response.len().min(200)].to_owned();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write(&response);
        exchange.close();
    });
    let proxy = plain(&upstream);
    let upgrade = get("/").field("connection", "upgrade").field("upgrade", "websocket");
    for request in [get("/"), upgrade] {
        let answered = proxy.send(request);
        assert_eq!(answered.status, 502, "{shown:?} became\n{answered:?}");
    }
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
    assert_bad_gateway("HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nhi");
    assert_bad_gateway("HTTP/1.1 200 OK\r\ntransfer-encoding: identity, chunked\r\n\r\nhi");
}

/// One parser takes the first length of a list and another takes the last; and a HEAD or a 304
/// states the length of a body that is not there to be measured.
#[test]
fn lengths_that_differ_are_a_502() {
    let two = |first: &str, second: &str| {
        [
            format!("content-length: {first}, {second}"),
            format!("content-length: {first}\r\ncontent-length: {second}"),
        ]
    };
    let lists = [two("2", "3"), two("2", "02"), two("2", ""), two("2", "x"), two("", "2")];
    let single =
        ["+2", "2 2", "0x2", "18446744073709551616"].map(|it| format!("content-length: {it}"));
    for field in lists.iter().flatten().chain(&single) {
        assert_bad_gateway(format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\nok"));
        for (method, status) in [("HEAD", "200 OK"), ("GET", "304 Not Modified")] {
            let upstream = Upstream::answering(format!("HTTP/1.1 {status}\r\n{field}\r\n\r\n"));
            let answered = plain(&upstream).send(Request::new(method, "/"));
            assert_eq!(answered.status, 502, "{method} {field:?} became\n{answered:?}");
        }
    }
}

#[test]
fn equal_lengths_become_one() {
    for field in [
        "content-length: 2",
        "content-length: 2, 2",
        "content-length: 2 ,2,\t2",
        "content-length: 2\r\nContent-Length: 2",
        "content-length: 2\r\ncontent-length: 2, 2",
    ] {
        for (method, status, body) in
            [("GET", 200, "ok"), ("HEAD", 200, ""), ("GET", 304, ""), ("HEAD", 304, "")]
        {
            let upstream =
                Upstream::answering(format!("HTTP/1.1 {status} x\r\n{field}\r\n\r\n{body}"));
            let answered = plain(&upstream).send(Request::new(method, "/"));
            answered.assert_status(status);
            // The engine sends no length with a 304.
            if status == 200 {
                answered.assert_field("content-length", "2");
            }
            assert_eq!(answered.text(), body, "{method} {field:?}");
        }
    }
}

/// RFC 9112 section 2.2 lets a recipient take a line feed for the end of a line, and so does the
/// protocol engine. Who is behind this proxy may not, and sees other fields.
#[test]
fn bare_line_feeds_in_a_head_are_a_502() {
    for response in [
        "HTTP/1.1 200 OK\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nx: a\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\nok",
        "HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
        "\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 103 Early Hints\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\n\r\nok",
    ] {
        assert_bad_gateway(response);
        // The same a byte at a time.
        let upstream = Upstream::scripted(move |exchange| {
            for byte in response.as_bytes() {
                exchange.write([*byte]);
            }
            exchange.close();
        });
        assert_eq!(plain(&upstream).get("/").status, 502, "{response:?}");
    }
}

#[test]
fn line_feeds_in_a_body_are_its_own() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n");
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n\n\nHTTP/1.1 103\nx: y\n\n\n");
    });
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    for _ in 0..3 {
        assert_eq!(client.send(&get("/")).text(), "\n\nHTTP/1.1 103\nx: y\n\n\n");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn status_that_no_client_knows_is_a_502() {
    for status in ["600", "650", "999", "099", "000", "1000", "20"] {
        assert_bad_gateway(format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n"));
    }
    let upstream = Upstream::answering("HTTP/1.1 599 x\r\ncontent-length: 0\r\n\r\n");
    plain(&upstream).get("/").assert_status(599);
}

/// There is nothing to show for it, and some clients read none (RFC 9110 section 15.3.6): what
/// comes would be the next answer.
#[test]
fn reset_content_with_content_is_a_502() {
    for rest in [
        "content-length: 2\r\n\r\nok",
        "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "connection: close\r\n\r\nok",
    ] {
        assert_bad_gateway(format!("HTTP/1.1 205 Reset Content\r\n{rest}"));
    }
}

#[test]
fn reset_content_without_content_goes_on() {
    for rest in [
        "content-length: 0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "connection: close\r\n\r\n",
    ] {
        let upstream = Upstream::scripted(move |exchange| {
            exchange.write(format!("HTTP/1.1 205 Reset Content\r\n{rest}"));
            if rest.starts_with("connection") {
                exchange.close();
            }
        });
        let proxy = plain(&upstream);
        let mut client = proxy.connect();
        for _ in 0..2 {
            assert_eq!(client.send(&get("/")).assert_status(205).text(), "", "{rest:?}");
        }
    }
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

/// Bytes after a response on its connection answer no request, and may be meant for the client that
/// sends the next one.
#[test]
fn bytes_after_a_response_answer_no_request() {
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
