//! Connections to the upstream: kept, made anew, given up.

use super::plain;
use crate::support::{
    Client, Policy, Proxy, Request, Signal, Upstream, delete, get, http2, options, post,
};

#[test]
fn one_connection_serves_request_after_request() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    for _ in 0..5 {
        client.send(&get("/")).assert_status(200);
        client.send(&post("/", "x")).assert_status(200);
    }
    // Other clients of the same worker use it too.
    proxy.get("/").assert_status(200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn http_2_streams_share_the_upstream_connection() {
    let upstream = Upstream::start();
    let proxy = plain(&upstream);
    let request = |method: &str, body: &str| {
        let builder = http::Request::builder().method(method).uri("http://api.example.com/x");
        builder.body(body.to_owned()).unwrap()
    };
    let requests = vec![request("GET", ""), request("POST", "hi"), request("GET", "")];
    for response in http2(proxy.address(), requests) {
        assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"ok"[..]));
        assert!(!response.headers().contains_key("connection"));
    }
    assert_eq!(upstream.requests()[1].body, b"hi");
    assert_eq!(upstream.requests()[1].fields.one("host"), Some("api.example.com"));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn upstream_that_closes_is_connected_to_anew() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        exchange.close();
    });
    let proxy = plain(&upstream);
    for count in 1..=3 {
        proxy.get("/").assert_status(200);
        assert_eq!(upstream.connections(), count);
    }
}

#[test]
fn any_request_is_sent_anew_that_a_closed_connection_never_took() {
    for request in [get("/"), post("/", "hello"), Request::new("PATCH", "/")] {
        let go = Signal::default();
        let closed = Signal::default();
        let upstream = {
            let go = go.clone();
            let closed = closed.clone();
            Upstream::scripted(move |exchange| {
                exchange.answer_ok();
                go.wait();
                exchange.close();
                closed.open();
            })
        };
        let proxy = plain(&upstream);
        proxy.get("/").assert_status(200);
        go.open();
        closed.wait();
        proxy.send(request).assert_status(200);
        assert_eq!((upstream.count(), upstream.connections()), (2, 2));
    }
}

/// Answers the first request of each connection and closes it at the second.
fn closing_at_second() -> Upstream {
    Upstream::scripted(|exchange| match exchange.number {
        1 => exchange.answer_ok(),
        _ => exchange.close(),
    })
}

#[test]
fn repeatable_request_is_sent_again_when_its_kept_connection_was_closed() {
    for request in [get("/"), Request::new("HEAD", "/"), options("/"), delete("/")] {
        let upstream = closing_at_second();
        let proxy = plain(&upstream);
        proxy.get("/").assert_status(200);
        proxy.send(request).assert_status(200);
        // First, the one that was lost, and the same again.
        assert_eq!((upstream.count(), upstream.connections()), (3, 2));
        let seen = upstream.requests();
        assert_eq!(seen[1].fields.one("x-request-id"), seen[2].fields.one("x-request-id"));
    }
}

#[test]
fn request_that_must_not_be_repeated_is_a_502() {
    for request in [post("/", "x"), post("/", ""), Request::new("PATCH", "/")] {
        let upstream = closing_at_second();
        let proxy = plain(&upstream);
        proxy.get("/").assert_status(200);
        proxy.send(request).assert_status(502);
        assert_eq!((upstream.count(), upstream.connections()), (2, 1));
    }
}

#[test]
fn repeated_request_is_charged_once() {
    let upstream = closing_at_second();
    let proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
    for used in ["1", "2", "3"] {
        proxy.get("/").assert_status(200).assert_field("x-ratelimit-used", used);
    }
}

#[test]
fn new_connection_that_breaks_is_tried_again_as_the_policy_says() {
    for (retries, count) in [("retries: off", 1), ("retries: { attempts: 1 }", 2)] {
        let upstream = Upstream::scripted(|exchange| exchange.close());
        let proxy = Proxy::start(&Policy::before(&upstream).upstream(&upstream, retries));
        proxy.get("/").assert_status(502);
        assert_eq!(upstream.count(), count, "{retries}");
    }
}

#[test]
fn response_that_has_begun_is_not_tried_again() {
    let upstream = Upstream::scripted(|exchange| match exchange.number {
        1 => exchange.answer_ok(),
        _ => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-");
            exchange.close();
        }
    });
    let proxy = plain(&upstream);
    proxy.get("/").assert_status(200);
    proxy.get("/").assert_status(502);
    assert_eq!(upstream.count(), 2);
}

/// Waits, in a script, until the proxy gives up what it was asked or half asked.
fn given_up(asked: &Signal, given_up: &Signal, begun: &'static str) -> Upstream {
    let asked = asked.clone();
    let given_up = given_up.clone();
    Upstream::scripted_at_head(move |exchange| {
        exchange.write(begun);
        asked.open();
        exchange.wait_for_close();
        given_up.open();
    })
}

#[test]
fn interim_responses_go_on_to_clients_that_know_them() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nx-ratelimit-limit: 9\r\n\r\n";
    let go = Signal::default();
    let of_upstream = go.clone();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write(format!("HTTP/1.1 100 Continue\r\n\r\n{hint}{hint}"));
        of_upstream.wait();
        exchange.write("HTTP/1.1 199 Odd\r\n\r\n");
        exchange.answer_ok();
    });
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    for _ in 0..2 {
        let interim = client.read_head();
        interim.assert_status(103).assert_field("link", "</a.css>");
        assert_eq!(interim.field("x-ratelimit-limit"), None);
    }
    go.open();
    client.read_head().assert_status(199);
    assert_eq!(client.read().assert_status(200).text(), "ok");
    // The next request, and one of HTTP/1.0.
    client.write(get("/").to_bytes());
    for status in [103, 103, 199] {
        client.read_head().assert_status(status);
    }
    client.read().assert_status(200);
    client.write("GET / HTTP/1.0\r\n\r\n");
    client.read_head().assert_status(200);
}

#[test]
fn interim_responses_declare_no_content() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write("HTTP/1.1 103 Early Hints\r\ncontent-length: 0\r\nlink: </a>\r\n\r\n");
        exchange.answer_ok();
    });
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    let interim = client.read_head();
    interim.assert_status(103).assert_field("link", "</a>");
    assert_eq!(interim.field("content-length"), None);
    client.read().assert_status(200);
}

#[test]
fn client_that_closes_its_side_gets_its_response() {
    let go = Signal::default();
    let of_upstream = go.clone();
    let upstream = Upstream::scripted(move |exchange| {
        of_upstream.wait();
        exchange.answer_ok();
    });
    let proxy = plain(&upstream);
    let requests = [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
    ];
    let mut clients: Vec<Client> = requests
        .iter()
        .map(|request| {
            let mut client = proxy.connect();
            client.write(request);
            client.end();
            client
        })
        .collect();
    upstream.wait_for(requests.len());
    go.open();
    for client in &mut clients {
        assert_eq!(client.read().assert_status(200).text(), "ok");
        client.assert_closed();
    }
    assert_eq!(proxy.logged_times(" 499 "), 0);
}

#[test]
fn client_that_leaves_takes_its_request_back_from_the_upstream() {
    let asked = Signal::default();
    let gone = Signal::default();
    let upstream = given_up(&asked, &gone, "");
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    asked.wait();
    drop(client);
    gone.wait();
}

#[test]
fn client_that_leaves_in_the_middle_of_a_response_ends_it_for_the_upstream() {
    let asked = Signal::default();
    let gone = Signal::default();
    let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";
    let upstream = given_up(&asked, &gone, begun);
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head().assert_status(200);
    assert_eq!(client.read_chunk().as_deref(), Some(&b"hi"[..]));
    drop(client);
    gone.wait();
}

#[test]
fn client_that_breaks_off_its_upload_breaks_it_for_the_upstream() {
    let asked = Signal::default();
    let gone = Signal::default();
    let upstream = given_up(&asked, &gone, "");
    let proxy = plain(&upstream);
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhalf");
    asked.wait();
    drop(client);
    gone.wait();
    // The worker goes on.
    proxy.get("/%00").assert_status(400);
}

#[test]
fn interim_responses_are_changed_as_the_route_says() {
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nx-inside: a\r\n\r\n";
    let upstream = Upstream::scripted(move |exchange| {
        exchange.write(hint);
        exchange.answer_ok();
    });
    let policy = Policy::before(&upstream).routes(&[
        "{ match: { path: /own/** }, limits: [] }",
        "{ match: { path: /** }, limits: [], response_headers: { remove: [x-inside], set: { x-by: us } } }",
    ]);
    let proxy = Proxy::start(&policy);
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    let interim = client.read_head();
    interim.assert_status(103).assert_field("link", "</a.css>").assert_field("x-by", "us");
    interim.assert_no_field("x-inside");
    client.read().assert_status(200).assert_field("x-by", "us");
    client.write(get("/own/").to_bytes());
    let interim = client.read_head();
    interim.assert_status(103).assert_field("x-inside", "a").assert_no_field("x-by");
    client.read().assert_status(200).assert_no_field("x-by");
}
