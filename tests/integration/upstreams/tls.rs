//! Servers in TLS: which certificates are accepted, which are not, and what the client's response
//! is.

use std::{io::Write, net::TcpListener, sync::atomic::Ordering, thread};

use super::{
    before_urls,
    fakes::{Certificates, Fake},
};
use crate::support::{Proxy, Signal, post};

fn trusting(certificates: &Certificates, more: &str) -> String {
    format!("tls: {{ ca_file: \"{}\"{more} }}", certificates.path("ca.pem"))
}

#[test]
fn server_is_believed_that_shows_a_certificate_for_its_address() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let server = Fake::tls(certificates.acceptor(&["http/1.1"]));
    let proxy = Proxy::start(&before_urls(&[&server.https_url()], &trusting(&certificates, "")));
    let response = proxy.get("/");
    response.assert_status(200);
    assert_eq!(response.text(), "ok");
}

#[test]
fn session_is_resumed() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let server = Fake::tls(certificates.acceptor(&[]));
    let proxy = Proxy::start(&before_urls(&[&server.https_url()], &trusting(&certificates, "")));
    for _ in 0..3 {
        proxy.get("/").assert_status(200);
    }
    assert_eq!(server.seen.connections(), 3);
    assert_eq!(server.seen.resumed.load(Ordering::SeqCst), 2);
}

#[test]
fn name_of_the_policy_is_what_the_certificate_must_be_for() {
    let certificates = Certificates::of(&["api.internal"]);
    let server = Fake::tls(certificates.acceptor(&["http/1.1"]));
    for (name, status) in [("api.internal", 200), ("other.internal", 502)] {
        let fields = trusting(&certificates, &format!(", server_name: {name}"));
        let proxy = Proxy::start(&before_urls(&[&server.https_url()], &fields));
        proxy.get("/").assert_status(status);
    }
}

#[test]
fn who_is_not_believed_is_a_502_that_tells_nothing() {
    let certificates = Certificates::of(&["elsewhere.internal"]);
    let stranger = Certificates::of(&["127.0.0.1"]);
    for acceptor in [certificates.acceptor(&[]), stranger.acceptor(&[])] {
        let server = Fake::tls(acceptor);
        let fields = trusting(&certificates, "");
        let proxy = Proxy::start(&before_urls(&[&server.https_url()], &fields));
        let response = proxy.get("/");
        response.assert_status(502);
        let text = response.text();
        for word in ["certificate", "elsewhere", "127.0.0.1", "tls", "TLS"] {
            assert!(!text.contains(word), "{text}");
        }
        assert_eq!(server.seen.count(), 0);
    }
}

#[test]
fn server_without_tls_is_a_502() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
    let fields = format!("{}, retries: off", trusting(&certificates, ""));
    Proxy::start(&before_urls(&[&url], &fields)).get("/").assert_status(502);
    answering.join().unwrap();
}

#[test]
fn client_certificate_is_shown_to_who_asks_for_it() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let server = Fake::tls(certificates.acceptor_of_known(&["http/1.1"]));
    let pair = format!(
        ", certificate_file: \"{}\", key_file: \"{}\"",
        certificates.path("client.pem"),
        certificates.path("client.key")
    );
    for (more, status) in [(pair.as_str(), 200), ("", 502)] {
        let fields = format!("{}, retries: off", trusting(&certificates, more));
        let proxy = Proxy::start(&before_urls(&[&server.https_url()], &fields));
        proxy.get("/").assert_status(status);
    }
}

#[test]
fn handshake_that_hangs_is_a_504() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let fields = format!("{}, connect_timeout: 200ms", trusting(&certificates, ""));
    Proxy::start(&before_urls(&[&url], &fields)).get("/").assert_status(504);
}

/// TLS takes more than its socket does. What waits in it has to be sent once the server makes room.
#[test]
fn upload_arrives_whole_at_a_server_that_reads_late() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let (accepted, go) = (Signal::default(), Signal::default());
    let server = Fake::tls_that_waits(certificates.acceptor(&["http/1.1"]), &accepted, &go);
    let proxy = Proxy::start(&before_urls(&[&server.https_url()], &trusting(&certificates, "")));
    let body: Vec<u8> =
        (0..16 * 1024 * 1024_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let sum = crc16::State::<crc16::XMODEM>::calculate(&body);
    let expected = format!("{} {sum}", body.len());
    let request = post("/", body).to_bytes();
    let mut client = proxy.connect();
    let (begin, rest) = request.split_at(1024 * 1024);
    client.write(begin);
    accepted.wait();
    go.open();
    client.write(rest);
    let answered = client.read();
    answered.assert_status(200);
    assert_eq!(answered.text(), expected);
}
