//! Bodies and trailers: framed right, and streamed as they come, both ways.

use std::thread;

use super::plain;
use crate::support::{Policy, Proxy, Request, Signal, Upstream, get, http2, post};

#[test]
fn response_without_content_declares_none() {
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n");
    let proxy = Proxy::start(&Policy::before(&upstream));
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
        let response = proxy.send(Request::new(method, "/"));
        response.assert_status(204);
        assert_eq!(response.field("content-length"), None, "{method}");
        assert_eq!(response.field("transfer-encoding"), None, "{method}");
    }
}

#[test]
fn body_of_known_length_keeps_its_length() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    for body in ["", "x", &"y".repeat(1 << 20)] {
        proxy.send(post("/", body)).assert_status(200);
        let seen = upstream.last();
        assert!(seen.body == body.as_bytes());
        assert_eq!(seen.fields.one("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(seen.fields.one("transfer-encoding"), None);
    }
}

#[test]
fn request_without_a_body_gets_none() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
        proxy.send(Request::new(method, "/"));
        let seen = upstream.last();
        assert_eq!(seen.method, method);
        assert_eq!(seen.fields.one("transfer-encoding"), None, "{method}");
        assert!(matches!(seen.fields.one("content-length"), None | Some("0")), "{method}");
    }
}

#[test]
fn body_may_come_with_any_method_and_in_any_form() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    for method in ["GET", "DELETE", "OPTIONS", "PATCH"] {
        for body in [
            "content-length: 2\r\n\r\nhi",
            "transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        ] {
            let mut client = proxy.connect();
            client.write(format!("{method} / HTTP/1.1\r\nhost: a\r\n{body}"));
            client.read().assert_status(200);
            assert_eq!(upstream.last().body, b"hi", "{method} with {body:?}");
        }
    }
}

#[test]
fn chunked_body_of_a_response_stays_chunked() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    );
    let response = plain(&upstream).get("/");
    response.assert_field("transfer-encoding", "chunked").assert_no_field("content-length");
    assert_eq!(response.text(), "hello");
}

#[test]
fn body_that_ends_with_its_connection_is_framed_anew() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\n\r\nhello");
        exchange.close();
    });
    let response = plain(&upstream).get("/");
    response.assert_field("transfer-encoding", "chunked");
    assert_eq!(response.text(), "hello");
}

#[test]
fn client_is_answered_in_the_proxys_version_and_not_in_the_upstreams() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.0 200 OK\r\n\r\nhello");
        exchange.close();
    });
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.read_bytes(12), b"HTTP/1.1 200");
    // The connection is kept, although the upstream does not keep its own.
    let mut client = proxy.connect();
    for _ in 0..2 {
        assert_eq!(client.send(&get("/")).text(), "hello");
    }
}

#[test]
fn http_1_0_gets_no_chunks() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write("GET / HTTP/1.0\r\nhost: a\r\n\r\n");
    let response = client.read();
    response.assert_no_field("transfer-encoding");
    assert_eq!(response.text(), "hello");
}

#[test]
fn head_is_answered_with_the_length_and_without_the_body() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n");
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let response = client.send(&Request::new("HEAD", "/"));
        response.assert_status(200).assert_field("content-length", "5000");
    }
    assert_eq!(upstream.last().method, "HEAD");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn responses_that_have_no_body_keep_the_connection_in_step() {
    for (head, status) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("HTTP/1.1 304 Not Modified\r\netag: \"v1\"\r\n\r\n", 304),
        ("HTTP/1.1 304 Not Modified\r\netag: \"v1\"\r\ncontent-length: 5\r\n\r\n", 304),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
    ] {
        let upstream = Upstream::answering(head);
        let proxy = plain(&upstream);
        let mut client = proxy.connect();
        for _ in 0..2 {
            let response = client.send(&get("/"));
            assert_eq!(response.status, status, "{head:?} became\n{response:?}");
            assert_eq!(response.field("etag").is_some(), status == 304);
        }
        assert_eq!(upstream.connections(), 1, "{head:?}");
    }
}

#[test]
fn trailers_of_a_response_go_through_to_who_wants_them() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, x-ratelimit-limit\r\n\
         \r\n2\r\nhi\r\n0\r\nx-sum: 7\r\nx-ratelimit-limit: 1\r\ncontent-length: 9\r\n\r\n",
    );
    let proxy = plain(&upstream);
    let response = proxy.send(get("/").field("te", "trailers"));
    assert_eq!(response.trailers.names(), ["x-sum"]);
    assert_eq!(response.trailers.one("x-sum"), Some("7"));

    let request = http::Request::get("http://api.example.com/").body(String::new()).unwrap();
    assert_eq!(http2(proxy.address(), vec![request])[0].body(), "hi");
}

#[test]
fn trailer_of_a_request_goes_through() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\
         trailer: x-sum, authorization, x-tollgate-tier\r\n\r\n\
         2\r\nhi\r\n0\r\nx-sum: 7\r\nauthorization: Basic x\r\n\
         x-tollgate-tier: pro\r\n\r\n",
    );
    client.read().assert_status(200);
    let seen = upstream.last();
    assert_eq!(seen.body, b"hi");
    assert_eq!(seen.trailers.names(), ["x-sum"]);
}

#[test]
fn trailers_tell_the_upstream_nothing_that_a_head_may_not() {
    let upstream = Upstream::start();
    let claims = "forward_claims: { headers: { x-user-email: jwt.email }, payload: x-jwt-payload }";
    let policy = Policy::before(&upstream).identity(&[claims, "token: { header: x-token }"]);
    let proxy = Proxy::start(&policy);
    let mut client = proxy.connect();
    let names = ["x-user-email", "x_user_email", "x-jwt-payload", "x-forwarded-for", "x-token"];
    let fields: String = names.iter().map(|name| format!("{name}: mine\r\n")).collect();
    // Twice: a body that loses all its trailers still ends where it does.
    for _ in 0..2 {
        client.write(format!(
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: {}\r\n\r\n\
             2\r\nhi\r\n0\r\n{fields}\r\n",
            names.join(", "),
        ));
        client.read().assert_status(200);
        let seen = upstream.last();
        assert_eq!((seen.body.as_slice(), seen.trailers.names().len()), (&b"hi"[..], 0));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn upload_streams_to_the_upstream_as_it_comes() {
    let first_seen = Signal::default();
    let upstream = {
        let first_seen = first_seen.clone();
        Upstream::scripted_at_head(move |exchange| {
            assert_eq!(exchange.read_chunk().as_deref(), Some(&b"first"[..]));
            first_seen.open();
            assert_eq!(exchange.read_chunk().as_deref(), Some(&b"second"[..]));
            assert_eq!(exchange.read_chunk(), None);
            exchange.answer_ok();
            exchange.close();
        })
    };
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    client.write("5\r\nfirst\r\n");
    first_seen.wait();
    client.write("6\r\nsecond\r\n0\r\n\r\n");
    client.read().assert_status(200);
}

#[test]
fn response_streams_to_the_client_as_it_comes() {
    let first_seen = Signal::default();
    let upstream = {
        let first_seen = first_seen.clone();
        Upstream::scripted(move |exchange| {
            exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            first_seen.wait();
            exchange.write("6\r\nsecond\r\n0\r\n\r\n");
        })
    };
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head().assert_status(200);
    assert_eq!(client.read_chunk().as_deref(), Some(&b"first"[..]));
    first_seen.open();
    assert_eq!(client.read_chunk().as_deref(), Some(&b"second"[..]));
    assert_eq!(client.read_chunk(), None);
}

/// More than all buffers between client and upstream hold, the kernel's included.
const HUGE: usize = 64 << 20;

#[test]
fn upstream_is_read_no_faster_than_the_client_reads() {
    let is_written = Signal::default();
    let upstream = {
        let is_written = is_written.clone();
        Upstream::scripted(move |exchange| {
            exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {HUGE}\r\n\r\n"));
            exchange.write(vec![b'x'; HUGE]);
            is_written.open();
        })
    };
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head().assert_status(200);
    // Others are served meanwhile by the same worker, and often enough for a proxy that reads ahead
    // to have swallowed it all.
    for _ in 0..200 {
        proxy.get("/%00").assert_status(400);
    }
    assert!(!is_written.is_open(), "the proxy took {HUGE} bytes that were not read");
    assert_eq!(client.read_bytes(HUGE).len(), HUGE);
    is_written.wait();
}

#[test]
fn client_is_read_no_faster_than_the_upstream_reads() {
    let go = Signal::default();
    let is_written = Signal::default();
    let upstream = {
        let go = go.clone();
        Upstream::scripted_at_head(move |exchange| {
            go.wait();
            exchange.read_body();
            exchange.answer_ok();
        })
    };
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    thread::scope(|scope| {
        scope.spawn(|| {
            client.write(post("/", vec![b'x'; HUGE]).to_bytes());
            is_written.open();
            client.read().assert_status(200);
        });
        for _ in 0..200 {
            proxy.get("/%00").assert_status(400);
        }
        assert!(!is_written.is_open(), "the proxy took {HUGE} bytes that were not read");
        go.open();
    });
    assert_eq!(upstream.last().body.len(), HUGE);
}

#[test]
fn early_response_reaches_a_client_that_is_still_sending() {
    let upstream = Upstream::scripted_at_head(|exchange| {
        exchange.write("HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        exchange.wait_for_close();
        exchange.close();
    });
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nbegun");
    client.read().assert_status(413);
}

#[test]
fn broken_response_is_broken_for_the_client_too() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
        exchange.close();
    });
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    let answer = client.read_to_end();
    assert!(!answer.ends_with(b"0\r\n\r\n"), "a body that broke off looks whole");
}
