//! Which certificate, version and protocol a client gets.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use rustls::{ClientConfig, HandshakeKind, version};
use tollgate_upstream::downstream::{Handshake, HandshakeFailure};
use x509_parser::prelude::FromDer;

use super::{listener, proxy};
use crate::support::{Policy, Proxy, Signer, Upstream, dial, eventually, last_request};

/// The first DNS name of the certificate that a client got which asked for `name`.
fn shown(proxy: &Proxy, signer: &Signer, name: &str) -> String {
    let stream = dial(proxy.address(), &believing(signer), name).unwrap();
    let shown = &stream.conn.peer_certificates().unwrap()[0];
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(shown).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    names.value.general_names[0].to_string()
}

/// A client that takes whatever it is shown: the wrong certificate is to be seen.
pub(super) fn believing(signer: &Signer) -> Arc<ClientConfig> {
    let mut config = (*signer.client(&[])).clone();
    config.dangerous().set_certificate_verifier(Arc::new(anything::Anything));
    config.into()
}

#[test]
fn certificate_is_the_one_with_the_name_then_a_wildcard_then_the_first() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pairs = [
        signer.sign("first", &["first.example"]),
        signer.sign("wildcard", &["*.a.example"]),
        signer.sign("exact", &["B.a.example", "other.example"]),
    ];
    let listener = listener(&format!("certificates: [{}]", pairs.join(", ")));
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(&upstream)]);
    for (name, expected) in [
        ("first.example", "first.example"),
        ("b.a.example", "b.a.example"),
        ("B.A.example", "b.a.example"),
        ("other.example", "b.a.example"),
        ("c.a.example", "*.a.example"),
        // A wildcard is one label.
        ("d.c.a.example", "first.example"),
        ("a.example", "first.example"),
        ("unknown.example", "first.example"),
        // No name at all.
        ("192.0.2.1", "first.example"),
    ] {
        let shown = shown(&proxy, &signer, name).to_ascii_lowercase();
        assert_eq!(shown, format!("dnsname({expected})"), "{name}");
    }
}

#[test]
fn protocol_is_agreed_on_in_the_handshake() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    for (protocols, offered, agreed) in [
        ("[http1, h2]", &["h2", "http/1.1"][..], Some("h2")),
        ("[http1, h2]", &["http/1.1", "h2"], Some("h2")),
        ("[http1, h2]", &["http/1.1"], Some("http/1.1")),
        ("[http1]", &["h2", "http/1.1"], Some("http/1.1")),
        ("[h2]", &["h2", "http/1.1"], Some("h2")),
        ("[h2]", &["http/1.1"], None),
        ("[http1]", &["h2"], None),
    ] {
        let listener = format!(
            "[{{ address: 127.0.0.1:0, protocols: {protocols}, tls: {{ certificates: [{pair}] }} }}]"
        );
        let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(&upstream)]);
        let stream = dial(proxy.address(), &signer.client(offered), "api.example.com");
        let got = stream.ok().map(|stream| stream.conn.alpn_protocol().unwrap().to_vec());
        assert_eq!(got.as_deref(), agreed.map(str::as_bytes), "{protocols} {offered:?}");
    }
}

#[test]
fn requests_pass_by_both_versions_and_the_upstream_sees_https() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let proxy = proxy(&signer, &upstream);
    for version in [&version::TLS12, &version::TLS13] {
        let mut stream =
            dial(proxy.address(), &signer.client_of(version), "api.example.com").unwrap();
        let answer = last_request(&mut stream, "/", "x-forwarded-proto: http\r\n").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(upstream.last().fields.one("x-forwarded-proto"), Some("https"));
    }
}

#[test]
fn older_versions_are_refused() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let only = listener(&format!("certificates: [{pair}], min_version: \"1.3\""));
    let only = Proxy::with_listeners(&only, "workers: 1", &[&Policy::before(&upstream)]);
    assert!(dial(only.address(), &signer.client_of(&version::TLS12), "api.example.com").is_err());
    dial(only.address(), &signer.client_of(&version::TLS13), "api.example.com").unwrap();

    // A hello of TLS 1.1, which no library here can say any more.
    let proxy = proxy(&signer, &upstream);
    let mut socket = TcpStream::connect(proxy.address()).unwrap();
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    socket.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    // An alert, fatal.
    assert_eq!(answer.first(), Some(&0x15), "{answer:?}");
    assert_eq!(answer.get(5), Some(&2), "{answer:?}");
}

#[test]
fn sessions_are_resumed_also_with_another_certificate() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let listener = listener(&format!("certificates: [{pair}]"));
    let proxy = Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(&upstream)]);
    for version in [&version::TLS12, &version::TLS13] {
        let client = signer.client_of(version);
        let mut kinds = Vec::new();
        for _ in 0..3 {
            let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
            kinds.push(stream.conn.handshake_kind().unwrap());
            last_request(&mut stream, "/", "").unwrap();
            signer.sign("api", &["api.example.com"]);
            assert_eq!(proxy.renew_certificates(&listener), Ok(1));
        }
        let expected = [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed];
        assert_eq!(kinds, expected, "{version:?}");
    }
}

#[test]
fn who_speaks_no_tls_is_closed_at_once() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let proxy = proxy(&signer, &upstream);
    for garbage in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], &[0; 100], b"SSH-2.0-x\r\n"] {
        let mut socket = TcpStream::connect(proxy.address()).unwrap();
        socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        socket.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        let ended = socket.read_to_end(&mut answer);
        assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
        assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    }
    assert_eq!(upstream.count(), 0);
}

/// A client's verifier that finds nothing wrong.
mod anything {
    use rustls::{
        DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, UnixTime},
    };

    #[derive(Debug)]
    pub(super) struct Anything;

    impl ServerCertVerifier for Anything {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
}

#[test]
fn handshakes_are_counted_by_how_they_ended() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let proxy = proxy(&signer, &upstream);
    let client = signer.client_of(&version::TLS13);
    for _ in 0..2 {
        let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
        last_request(&mut stream, "/", "").unwrap();
    }
    let older = signer.client_of(&version::TLS12);
    let mut stream = dial(proxy.address(), &older, "api.example.com").unwrap();
    last_request(&mut stream, "/", "").unwrap();
    let stranger = Signer::new().client(&[]);
    assert!(dial(proxy.address(), &stranger, "api.example.com").is_err());
    let mut socket = TcpStream::connect(proxy.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let _ = socket.read_to_end(&mut Vec::new());

    let done = |is_tls13, is_resumed| Handshake::Done { is_tls13, is_resumed };
    for (handshake, expected) in [
        (done(true, false), 1),
        (done(true, true), 1),
        (done(false, false), 1),
        (done(false, true), 0),
        (Handshake::Failed(HandshakeFailure::Alert), 1),
        (Handshake::Failed(HandshakeFailure::Malformed), 1),
        (Handshake::Failed(HandshakeFailure::Timeout), 0),
    ] {
        let is_so = || (proxy.handshakes().total(handshake) == expected).then_some(());
        eventually(&format!("{handshake:?} is counted {expected} times"), is_so);
    }
}
