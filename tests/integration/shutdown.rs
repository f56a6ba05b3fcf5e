//! The end of a server's life: nothing new is taken on, nothing begun is dropped.

use std::{net::TcpStream, thread};

use crate::support::{Client, Policy, Proxy, Signal, Upstream, get, http2, post};

#[test]
fn request_in_flight_is_finished() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let mut proxy = Proxy::start(&Policy::before(&upstream).rate("10/hour"));
    let mut idle = proxy.connect();
    let mut busy = proxy.connect();
    busy.write(get("/").to_bytes());
    asked.wait();

    proxy.begin_shutdown();
    // A connection without a request closes at once, which also shows that the end has begun.
    idle.assert_closed();
    assert!(TcpStream::connect(proxy.address()).is_err(), "a connection was taken on");

    go.open();
    let response = busy.read();
    response.assert_status(200).assert_field("x-ratelimit-used", "1");
    assert_eq!(response.text(), "ok");
    busy.assert_closed();
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn kept_connection_is_closed() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let mut client = proxy.connect();
    client.send(&get("/")).assert_status(200);
    proxy.begin_shutdown();
    client.assert_closed();
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn request_that_has_begun_on_a_kept_connection_is_answered() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let mut idle = proxy.connect();
    let mut client = proxy.connect();
    client.send(&get("/")).assert_status(200);
    client.write("GET /late HTTP/1.1\r\nho");
    proxy.begin_shutdown();
    idle.assert_closed();
    client.write("st: a\r\n\r\n");
    client.read().assert_status(200).assert_field("connection", "close");
    client.assert_closed();
    assert_eq!(proxy.wait().cut, 0);
}

/// Its head was out before the end began, so it could not say that it is the last.
#[test]
fn request_after_a_response_that_had_begun_is_answered() {
    let begun = Signal::default();
    let go = Signal::default();
    let upstream = {
        let (begun, go) = (begun.clone(), go.clone());
        Upstream::scripted(move |exchange| {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe");
            begun.open();
            go.wait();
            exchange.write("llo");
        })
    };
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let mut idle = proxy.connect();
    let mut client = proxy.connect();
    client.write(get("/").to_bytes());
    client.read_head().assert_status(200).assert_no_field("connection");
    assert_eq!(client.read_bytes(2), b"he");
    begun.wait();
    proxy.begin_shutdown();
    idle.assert_closed();
    go.open();
    assert_eq!(client.read_bytes(3), b"llo");
    let response = client.send(&get("/"));
    response.assert_status(200).assert_field("connection", "close");
    assert_eq!(response.text(), "hello");
    client.assert_closed();
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn kept_connections_announce_that_they_close_and_lose_no_request() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let address = proxy.address();
    let begun = Signal::default();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let begun = begun.clone();
            thread::spawn(move || {
                let mut client = Client::connect(address);
                // Each request is answered, and the last answer says that it is the last.
                while client.send(&get("/")).assert_status(200).field("connection") != Some("close")
                {
                    begun.open();
                }
                client.assert_closed();
            })
        })
        .collect();
    begun.wait();
    proxy.begin_shutdown();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn clients_that_wait_to_be_accepted_are_served() {
    let upstream = Upstream::start();
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let mut client = proxy.connect();
            client.write(get("/").to_bytes());
            client
        })
        .collect();
    proxy.begin_shutdown();
    for mut client in clients {
        client.read().assert_status(200);
    }
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn http2_streams_in_flight_are_finished() {
    let asked = Signal::default();
    let go = Signal::default();
    let upstream = Upstream::held(&asked, &go);
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let address = proxy.address();
    let mut idle = proxy.connect();
    let client = thread::spawn(move || {
        let request = http::Request::get(format!("http://{address}/")).body(String::new());
        http2(address, vec![request.unwrap()])
    });
    asked.wait();
    proxy.begin_shutdown();
    idle.assert_closed();
    go.open();
    let responses = client.join().unwrap();
    assert_eq!((responses[0].status().as_u16(), &responses[0].body()[..]), (200, &b"ok"[..]));
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn upload_in_flight_is_finished() {
    let asked = Signal::default();
    let upstream = {
        let asked = asked.clone();
        Upstream::scripted_at_head(move |exchange| {
            asked.open();
            exchange.read_body();
            exchange.answer_ok();
        })
    };
    let mut proxy = Proxy::start(&Policy::before(&upstream));
    let mut idle = proxy.connect();
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhel");
    asked.wait();
    proxy.begin_shutdown();
    idle.assert_closed();
    client.write("lo");
    client.read().assert_status(200);
    assert_eq!(upstream.last().body, b"hello");
    assert_eq!(proxy.wait().cut, 0);
}

#[test]
fn request_that_outlives_the_grace_period_is_cut_and_counted() {
    let asked = Signal::default();
    let upstream = {
        let asked = asked.clone();
        Upstream::scripted(move |exchange| {
            asked.open();
            exchange.wait_for_close();
        })
    };
    let policy = Policy::before(&upstream);
    let mut proxy = Proxy::with_settings("workers: 1\ndrain: 10ms", &[&policy]);
    let mut client = proxy.connect();
    client.write(post("/", "x").to_bytes());
    asked.wait();
    proxy.begin_shutdown();
    assert_eq!(proxy.wait().cut, 1);
    client.assert_closed();
}

#[test]
fn log_is_complete_when_the_server_has_stopped() {
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_settings("workers: 2", &[&policy]);
    for number in 0..20 {
        proxy.get(&format!("/{number}")).assert_status(200);
    }
    let log = proxy.into_log();
    assert_eq!(log.lines().count(), 20, "{log}");
    for number in 0..20 {
        assert!(log.contains(&format!(" GET /{number} ")), "{number} is not in\n{log}");
    }
}
