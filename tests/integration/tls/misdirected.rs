//! Requests for a host of another certificate than the one that their connection was opened with.

use std::io::{Read, Write};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{handshake::believing, listener};
use crate::support::{Policy, Proxy, Signer, TlsStream, Upstream, dial};

/// A listener with a certificate for `first.example` and all hosts of `shared.example`, and one
/// for `api.example.com` and one of these.
fn two(signer: &Signer) -> String {
    let first = signer.sign("first", &["first.example", "*.shared.example"]);
    let second = signer.sign("second", &["api.example.com", "x.shared.example"]);
    listener(&format!("certificates: [{first}, {second}]"))
}

/// The answer to a request for a host, on a connection that stays open.
fn ask(stream: &mut TlsStream, host: &str) -> String {
    write!(stream, "GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0]);
    let ends = |answer: &[u8]| answer.ends_with(b"\r\n\r\nok") || answer.ends_with(b"}\n");
    while !ends(&answer) {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn host_of_another_certificate_is_421_and_charges_nobody() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream).rate("100/hour");
    let proxy = Proxy::with_listeners(&two(&signer), "workers: 1", &[&policy]);
    let client = believing(&signer);
    let mut served = 0;
    for (name, host, status) in [
        ("first.example", "first.example", 200),
        ("first.example", "api.example.com", 421),
        ("api.example.com", "api.example.com", 200),
        ("api.example.com", "API.example.com.:8443", 200),
        ("api.example.com", "first.example", 421),
        // Both certificates are for this one.
        ("y.shared.example", "x.shared.example", 200),
        ("x.shared.example", "y.shared.example", 421),
        // No certificate is for these.
        ("first.example", "elsewhere.example", 200),
        ("first.example", "z.y.shared.example", 200),
        ("first.example", "127.0.0.1", 200),
        // Without a name, and with an unknown one, a client gets the first.
        ("192.0.2.1", "first.example", 200),
        ("192.0.2.1", "api.example.com", 200),
        ("elsewhere.example", "api.example.com", 421),
    ] {
        // The second connection resumes a session.
        for _ in 0..2 {
            let mut stream = dial(proxy.address(), &client, name).unwrap();
            let answer = ask(&mut stream, host);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name} {host}: {answer}");
            assert_eq!(answer.contains("x-ratelimit"), status == 200, "{answer}");
            served += usize::from(status == 200);
        }
    }
    assert_eq!(upstream.count(), served);
    let log = proxy.into_log();
    assert!(
        log.contains("the connection was not opened with the certificate of this host"),
        "{log}"
    );
}

#[test]
fn connection_goes_on_after_a_421_and_after_its_certificates_were_renewed() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let listener = two(&signer);
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&policy]);
    let mut stream = dial(proxy.address(), &signer.client(&[]), "api.example.com").unwrap();
    for is_renewed in [false, true] {
        if is_renewed {
            two(&signer);
            assert_eq!(proxy.renew_certificates(&listener), Ok(1));
        }
        assert!(ask(&mut stream, "first.example").starts_with("HTTP/1.1 421 "));
        assert!(ask(&mut stream, "api.example.com").starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn one_certificate_and_trusted_proxies_are_for_every_host() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let trusting = "workers: 1\ntrusted_proxies: [127.0.0.1]";
    let trusting = Proxy::with_listeners(&two(&signer), trusting, &[&policy]);
    for proxy in [super::proxy(&signer, &upstream), trusting] {
        let mut stream = dial(proxy.address(), &signer.client(&[]), "api.example.com").unwrap();
        assert!(ask(&mut stream, "first.example").starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn requests_of_one_connection_in_http2_are_told_apart() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let policy = Policy::before(&upstream);
    let proxy = Proxy::with_listeners(&two(&signer), "workers: 1", &[&policy]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let statuses = runtime.block_on(async {
        let socket = TcpStream::connect(proxy.address()).await.unwrap();
        let connector = TlsConnector::from(signer.client(&["h2"]));
        let name = "first.example".try_into().unwrap();
        let stream = TokioIo::new(connector.connect(name, socket).await.unwrap());
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let mut statuses = Vec::new();
        for host in ["first.example", "api.example.com", "y.shared.example"] {
            let request = http::Request::get(format!("https://{host}/"));
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            statuses.push(sender.send_request(request).await.unwrap().status().as_u16());
        }
        statuses
    });
    assert_eq!(statuses, [200, 421, 200]);
}
