//! Servers in TLS: which certificates are accepted, which are not, and what the client's response
//! is.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};

use rustls::{ServerConnection, StreamOwned};

use super::{
    before_urls,
    fakes::{Certificates, Fake},
};
use crate::support::{PATIENCE, Proxy, Signal, post};

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

/// A server for one connection, and what `serve` makes of that.
fn server_of_one<T: Send + 'static>(
    certificates: &Certificates,
    serve: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) -> T + Send + 'static,
) -> (String, JoinHandle<T>) {
    let config = Arc::clone(certificates.acceptor(&["http/1.1"]).config());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        serve(StreamOwned::new(ServerConnection::new(config).unwrap(), socket))
    });
    (url, serving)
}

/// Reads a head, answers it, and reads until the connection ends: without an alert, that is an
/// error.
fn answer_and_read(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    answer: &str,
) -> io::Result<usize> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.write_all(answer.as_bytes())?;
    stream.read(&mut byte)
}

#[test]
fn server_is_told_of_the_end_of_its_connection() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const LAST: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    const BROKEN: &str = "HTTP/2.2 what\r\n\r\n";
    let certificates = Certificates::of(&["127.0.0.1"]);
    for (answer, fields, status) in [
        // Unused for long enough, or until the process ends.
        (OK, "keep_alive: 100ms", 200),
        (OK, "keep_alive: 60s", 200),
        (LAST, "keep_alive: 60s", 200),
        (BROKEN, "retries: off", 502),
        ("", "retries: off, response_timeout: 100ms", 504),
    ] {
        let (url, serving) =
            server_of_one(&certificates, move |stream| answer_and_read(stream, answer));
        let fields = format!("{}, {fields}", trusting(&certificates, ""));
        let proxy = Proxy::start(&before_urls(&[&url], &fields));
        proxy.get("/").assert_status(status);
        if fields.ends_with("60s") {
            drop(proxy);
        }
        assert_eq!(serving.join().unwrap().unwrap(), 0, "{answer} {fields}");
    }
}

#[test]
fn server_that_does_not_read_holds_up_no_end() {
    let certificates = Certificates::of(&["127.0.0.1"]);
    let (accepted, go) = (Signal::default(), Signal::default());
    let (opened, gone) = (accepted.clone(), go.clone());
    let (url, serving) = server_of_one(&certificates, move |mut stream| {
        stream.conn.complete_io(&mut stream.sock).unwrap();
        opened.open();
        gone.wait();
        // It ends, with an alert or without.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    let proxy = Proxy::start(&before_urls(&[&url], &trusting(&certificates, "")));
    let mut client = proxy.connect();
    let request = post("/", vec![b'x'; 16 * 1024 * 1024]).to_bytes();
    client.write(&request[..request.len() / 16]);
    accepted.wait();
    drop(client);
    drop(proxy);
    go.open();
    serving.join().unwrap();
}
