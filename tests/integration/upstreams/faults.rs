//! What goes wrong with servers, with real sockets: which status it becomes, and that it leaves
//! nothing behind.

use std::fs;

use super::{before, until};
use crate::support::{Proxy, Upstream, get, post};

/// A server that answers with these bytes and closes.
fn saying(bytes: &'static str) -> Upstream {
    Upstream::scripted(move |exchange| {
        exchange.write(bytes);
        exchange.close();
    })
}

#[test]
fn each_fault_has_its_status_and_the_limit_headers() {
    let fields = "response_timeout: 2s, connect_timeout: 2s";
    for (server, status, what) in [
        (Upstream::refusing(), 502, "no listener"),
        (saying(""), 502, "closed"),
        (saying("HTTP/1.1 200 O"), 502, "closed in the head"),
        (saying("\0\x01garbage\r\n\r\n"), 502, "garbage"),
        (saying("HTTP/1.1 2000 OK\r\n\r\n"), 502, "no status"),
        (saying("HTTP/2.0 200 OK\r\n\r\n"), 502, "no version"),
        (saying("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"), 502, "no length"),
        (saying("HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\nxx"), 502, "two lengths"),
        (saying("HTTP/1.1 100 Continue\r\n\r\n"), 502, "closed after a 100"),
        (Upstream::silent(), 504, "hung"),
    ] {
        let proxy = Proxy::start(&before(&[&server], fields).rate("10/hour"));
        let response = proxy.get("/");
        assert_eq!(response.status, status, "{what}\n{response:?}");
        response.assert_field("x-ratelimit-used", "1");
        // The proxy goes on as before.
        assert_eq!(proxy.get("/%00").status, 400, "{what}");
    }
}

#[test]
fn slow_head_is_a_504_however_much_of_it_comes() {
    let server = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nx-a: ");
        exchange.wait_for_close();
    });
    let proxy = Proxy::start(&before(&[&server], "response_timeout: 200ms"));
    proxy.get("/").assert_status(504);
    assert_eq!(server.count(), 1);
}

#[test]
fn body_that_breaks_off_never_looks_whole() {
    for (head, is_closing) in [
        ("content-length: 100", true),
        ("transfer-encoding: chunked", true),
        ("content-length: 100", false),
        ("transfer-encoding: chunked", false),
    ] {
        let server = Upstream::scripted(move |exchange| {
            exchange.write(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n"));
            match is_closing {
                true => exchange.close(),
                false => exchange.wait_for_close(),
            }
        });
        let proxy = Proxy::start(&before(&[&server], "idle_timeout: 200ms"));
        let mut client = proxy.connect();
        client.write(get("/").to_bytes());
        client.read_head().assert_status(200);
        let rest = client.read_to_end();
        assert!(rest.len() < 100 && !rest.ends_with(b"0\r\n\r\n"), "{head}");
        assert_eq!(server.count(), 1, "a body that has begun is not asked for again");
    }
}

#[test]
fn fault_in_an_upload_is_reported() {
    let server = Upstream::scripted_at_head(|exchange| exchange.close());
    let proxy = Proxy::start(&before(&[&server], ""));
    let response = proxy.send(post("/", vec![b'x'; 4 << 20]));
    response.assert_status(502);
    assert_eq!(server.count(), 1);
}

/// Open descriptors of this process to a port.
fn descriptors_to(port: u16) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    let is_to = |line: &&str| {
        let mut columns = line.split_ascii_whitespace().skip(2);
        let address = columns.next().unwrap_or_default();
        // Those that the proxy has not closed: established, or closed by the server only.
        address.ends_with(&remote) && matches!(columns.next(), Some("01" | "08"))
    };
    table.lines().filter(is_to).count()
}

#[test]
fn faulty_requests_leave_no_connections_behind() {
    let server = Upstream::scripted(|exchange| match exchange.request.target.as_str() {
        "/closed" => exchange.close(),
        "/half" => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
            exchange.close();
        }
        "/garbage" => {
            exchange.write("garbage\r\n\r\n");
            exchange.close();
        }
        "/hung" => exchange.wait_for_close(),
        _ => exchange.answer_ok(),
    });
    let fields = "response_timeout: 300ms, max_connections: 4";
    let proxy = Proxy::start(&before(&[&server], fields));
    let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
    for round in 0..500 {
        for target in ["/closed", "/half", "/garbage"] {
            let mut client = proxy.connect();
            client.write(get(target).to_bytes());
            client.read_head();
        }
        if round % 50 == 0 {
            proxy.get("/hung").assert_status(504);
        }
    }
    // A slot that was lost would be missing by now.
    proxy.get("/").assert_status(200);
    until("they are closed", || descriptors_to(port) <= 1);
}
