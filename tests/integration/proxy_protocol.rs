//! Listeners behind a balancer that writes PROXY headers.

use std::io::Write;

use crate::support::{Client, Policy, Proxy, Signer, Upstream, get, last_request, shake_hands};

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn listener(trusted: &str) -> String {
    format!("[{{ address: 127.0.0.1:0, proxy_protocol: {{ trusted: [{trusted}] }} }}]")
}

fn proxy(upstream: &Upstream, trusted: &str) -> Proxy {
    let policy =
        Policy::before(upstream).on_all_routes(&["core: { per: client.ip, rate: 9/hour }"]);
    Proxy::with_listeners(&listener(trusted), "workers: 1", &[&policy])
}

fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [V2_SIGNATURE, &[command, family], &length, rest].concat()
}

#[test]
fn client_is_who_the_header_says() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "127.0.0.1");
    let v4 = [203, 0, 113, 8, 127, 0, 0, 1, 1, 2, 3, 4];
    for (header, client) in [
        (b"PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n".to_vec(), "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (version_2(0x21, 0x11, &v4), "203.0.113.8"),
        (version_2(0x20, 0, &[]), "127.0.0.1"),
    ] {
        let request = get("/").from("192.0.2.1").to_bytes();
        let check_client = || {
            assert_eq!(upstream.last().fields.one("x-forwarded-for"), Some(client), "{header:?}");
        };
        // At once, and byte by byte: what follows the header is the client's either way.
        let mut at_once = Client::connect(proxy.address());
        at_once.write([&header[..], &request].concat());
        let used = at_once.read().assert_status(200).number("x-ratelimit-used");
        check_client();
        at_once.send(&get("/again")).assert_status(200);

        let mut slowly = Client::connect(proxy.address());
        for byte in &header {
            slowly.write([*byte]);
        }
        slowly.write(&request);
        assert_eq!(slowly.read().number("x-ratelimit-used"), used + 2);
        check_client();
    }
}

#[test]
fn connection_without_a_good_header_is_closed() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "127.0.0.1");
    let request = get("/").to_bytes();
    for start in [
        &b""[..],
        b"PROXY TCP4 203.0.113.7 127.0.0.1 1\r\n",
        b"PROXY TCP4 203.0.113.7 127.0.0.1 1 2\n",
        b"\r\n",
        &version_2(0x21, 0x11, &[1, 2, 3]),
        &version_2(0x21, 0x11, &[0; 5000]),
    ] {
        let mut client = Client::connect(proxy.address());
        client.write([start, &request].concat());
        client.assert_closed();
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn only_trusted_peers_may_connect() {
    let upstream = Upstream::start();
    let proxy = proxy(&upstream, "10.0.0.0/8");
    let mut client = Client::connect(proxy.address());
    client.assert_closed();
    assert_eq!(upstream.count(), 0);
}

#[test]
fn header_comes_before_the_handshake() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let listener = listener("127.0.0.1")
        .replace("proxy_protocol", &format!("tls: {{ certificates: [{pair}] }}, proxy_protocol"));
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(&upstream)]);
    let mut socket = std::net::TcpStream::connect(proxy.address()).unwrap();
    socket.write_all(b"PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n").unwrap();
    let connection = shake_hands(&mut socket, &signer.client(&[]), "api.example.com").unwrap();
    let mut stream = rustls::StreamOwned::new(connection, socket);
    assert!(last_request(&mut stream, "/", "").unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(upstream.last().fields.one("x-forwarded-for"), Some("203.0.113.7"));
}
