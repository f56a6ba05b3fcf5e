//! Clients whose certificates were revoked.

use std::{
    fs,
    io::{Read, Write},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use rustls::{ClientConfig, HandshakeKind, pki_types::PrivateKeyDer, version};

use tokio::{net::TcpStream, runtime};
use tokio_rustls::TlsConnector;

use super::listener;
use crate::support::{
    ClientIdentity, Policy, Proxy, Signer, TlsStream, Upstream, dial,
    frames::{Frame, HEADERS, PREFACE, SETTINGS, frame, get_on},
    last_request,
};

/// The client certificates of the tests, and the proxy that they connect to.
struct Case {
    signer: Signer,
    upstream: Upstream,
    robot: ClientIdentity,
    other: ClientIdentity,
}

/// A list that no test outlives.
const FRESH: i32 = 2090;
const STALE: i32 = 2021;

impl Case {
    fn new() -> Case {
        let signer = Signer::new();
        let robot = signer.identity("robot", &[]);
        let other = signer.identity("other", &[]);
        Case { signer, upstream: Upstream::start(), robot, other }
    }

    /// A listener with these fields beside its list.
    fn listener(&self, fields: &str) -> String {
        let pair = self.signer.sign("api", &["api.example.com"]);
        let ca = self.signer.path("ca.pem");
        let crl = self.signer.path("crl.pem");
        let files = format!("client_ca_file: \"{ca}\", crl_file: \"{crl}\"");
        listener(&format!("certificates: [{pair}], {files}{fields}"))
    }

    fn proxy(&self, listener: &str) -> Proxy {
        let callers = [
            "{ name: machine, key: client_certificate.subject }",
            "{ name: anonymous, key: client.ip }",
        ];
        let policy = Policy::before(&self.upstream).callers(&callers);
        Proxy::with_listeners(listener, "workers: 1", &[&policy])
    }

    /// A client that shows a certificate, in both versions of TLS.
    fn clients(&self, identity: &ClientIdentity) -> [Arc<ClientConfig>; 2] {
        [&version::TLS12, &version::TLS13]
            .map(|version| self.signer.client_of_as(version, copy(identity)))
    }
}

fn copy((certificate, key): &ClientIdentity) -> ClientIdentity {
    (certificate.clone(), PrivateKeyDer::clone_key(key))
}

/// Whether a new connection of this client is served.
fn is_served(proxy: &Proxy, client: &Arc<ClientConfig>) -> bool {
    let answer = dial(proxy.address(), client, "api.example.com")
        .and_then(|mut stream| last_request(&mut stream, "/", ""));
    match answer {
        Ok(answer) if answer.is_empty() => false,
        Ok(answer) => {
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            true
        }
        Err(_) => false,
    }
}

/// Sends a request on a connection that stays open, and returns its answer.
fn request(stream: &mut TlsStream) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: api.example.com\r\n\r\n").unwrap();
    read_answer(stream)
}

/// The head of an answer whose body is read, too.
fn read_answer(stream: &mut TlsStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head
}

/// The status of a stream's answer in HTTP/2.
fn read_status(stream: &mut TlsStream, number: u32) -> u16 {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).unwrap();
        let kind = head[3];
        let flags = head[4];
        let own = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if (kind, own) == (HEADERS, number) {
            return Frame { kind, flags, stream: own, payload }.status();
        }
    }
}

#[test]
fn revoked_certificate_is_refused_and_others_pass() {
    let case = Case::new();
    for mode in ["", ", client_certificate: optional"] {
        case.signer.revoke("crl.pem", &[&case.robot], (1, FRESH));
        let proxy = case.proxy(&case.listener(mode));
        for client in case.clients(&case.robot) {
            assert!(!is_served(&proxy, &client), "{mode}");
        }
        for client in case.clients(&case.other) {
            assert!(is_served(&proxy, &client), "{mode}");
        }
        assert_eq!(is_served(&proxy, &case.signer.client(&[])), !mode.is_empty());
    }
}

#[test]
fn list_that_is_out_of_date_refuses_all_unless_it_may_be() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[&case.robot], (1, STALE));
    for (fields, expected) in [("", false), (", crl_expired: accept", true)] {
        let proxy = case.proxy(&case.listener(fields));
        for client in case.clients(&case.other) {
            assert_eq!(is_served(&proxy, &client), expected, "{fields}");
        }
        for client in case.clients(&case.robot) {
            assert!(!is_served(&proxy, &client), "{fields}");
        }
    }
}

#[test]
fn authority_without_a_list_refuses_its_clients_unless_it_may_have_none() {
    let case = Case::new();
    let stranger = Signer::named("Stranger");
    let authorities = ["ca.pem", "both.pem"].map(|file| case.signer.path(file));
    let both = [&authorities[0], &stranger.path("ca.pem")].map(|file| fs::read(file).unwrap());
    fs::write(&authorities[1], both.concat()).unwrap();
    let theirs = stranger.identity("robot", &[]);
    case.signer.revoke("crl.pem", &[&case.robot], (1, FRESH));
    for (fields, expected) in [("", false), (", crl_missing: accept", true)] {
        let listener = case.listener(fields).replace(&authorities[0], &authorities[1]);
        let proxy = case.proxy(&listener);
        for client in case.clients(&theirs) {
            assert_eq!(is_served(&proxy, &client), expected, "{fields}");
        }
        for client in case.clients(&case.robot) {
            assert!(!is_served(&proxy, &client), "{fields}");
        }
        for client in case.clients(&case.other) {
            assert!(is_served(&proxy, &client), "{fields}");
        }
    }
    // Each authority has its own list in one file.
    let lists = [&case.signer, &stranger].map(|signer| signer.revocation_list(&[], (1, FRESH)));
    fs::write(case.signer.path("crl.pem"), lists.concat()).unwrap();
    let listener = case.listener("").replace(&authorities[0], &authorities[1]);
    let proxy = case.proxy(&listener);
    for client in case.clients(&theirs).into_iter().chain(case.clients(&case.robot)) {
        assert!(is_served(&proxy, &client));
    }
}

#[test]
fn of_two_lists_of_an_authority_the_newer_one_counts() {
    let case = Case::new();
    let old = case.signer.revocation_list(&[], (1, FRESH));
    let new = case.signer.revocation_list(&[&case.robot], (2, FRESH));
    for lists in [[&old, &new], [&new, &old]] {
        fs::write(case.signer.path("crl.pem"), lists.map(String::as_str).concat()).unwrap();
        let proxy = case.proxy(&case.listener(""));
        for client in case.clients(&case.robot) {
            assert!(!is_served(&proxy, &client));
        }
    }
}

#[test]
fn session_of_a_certificate_that_was_revoked_is_not_resumed() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[], (1, FRESH));
    let listener = case.listener("");
    let proxy = case.proxy(&listener);
    let clients = [case.clients(&case.robot), case.clients(&case.other)];
    for client in clients.iter().flatten() {
        assert!(is_served(&proxy, client));
        let mut again = dial(proxy.address(), client, "api.example.com").unwrap();
        assert_eq!(again.conn.handshake_kind(), Some(HandshakeKind::Resumed));
        last_request(&mut again, "/", "").unwrap();
    }
    case.signer.revoke("crl.pem", &[&case.robot], (2, FRESH));
    assert_eq!(proxy.renew_certificates(&listener), Ok(1));
    let [robot, other] = &clients;
    assert!(!robot.iter().any(|client| is_served(&proxy, client)));
    assert!(other.iter().all(|client| is_served(&proxy, client)));
}

#[test]
fn session_is_not_resumed_when_the_list_has_gone_out_of_date() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[], (1, FRESH));
    for (fields, expected) in [("", false), (", crl_expired: accept", true)] {
        let proxy = case.proxy(&case.listener(fields));
        let clients = case.clients(&case.robot);
        assert!(clients.iter().all(|client| is_served(&proxy, client)));
        // Whole handshakes go by the system's clock, which a test cannot move.
        proxy.advance_to("2090-01-02T00:00:00Z");
        for client in &clients {
            assert_eq!(is_served(&proxy, client), expected, "{fields}");
        }
    }
}

#[test]
fn open_connection_of_a_certificate_that_was_revoked_gets_no_other_answer() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[], (1, FRESH));
    let listener = case.listener("");
    let proxy = case.proxy(&listener);
    let open = |identity: &ClientIdentity| {
        let [_, client] = case.clients(identity);
        let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
        assert!(request(&mut stream).starts_with("HTTP/1.1 200 "));
        stream
    };
    let mut robot = open(&case.robot);
    let mut other = open(&case.other);
    let served = case.upstream.count();
    case.signer.revoke("crl.pem", &[&case.robot], (2, FRESH));
    assert_eq!(proxy.renew_certificates(&listener), Ok(1));
    let answer = request(&mut robot);
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(robot.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(case.upstream.count(), served);
    for _ in 0..2 {
        assert!(request(&mut other).starts_with("HTTP/1.1 200 "));
    }
    let log = proxy.into_log();
    assert!(log.contains(" 403 ") && log.contains("denied=auth"), "{log}");
}

/// Longer than until what is fresh is out of date.
const AGES: Duration = Duration::from_secs(65 * 366 * 86_400);

#[test]
fn open_connection_is_checked_again_when_a_list_is_out_of_date() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[], (1, FRESH));
    for (fields, expected) in [("", "HTTP/1.1 403 "), (", crl_expired: accept", "HTTP/1.1 200 ")] {
        let proxy = case.proxy(&case.listener(fields));
        let [_, client] = case.clients(&case.robot);
        let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
        for _ in 0..2 {
            assert!(request(&mut stream).starts_with("HTTP/1.1 200 "), "{fields}");
        }
        proxy.advance(AGES);
        let answer = request(&mut stream);
        assert!(answer.starts_with(expected), "{fields}: {answer}");
    }
}

#[test]
fn open_connection_of_a_certificate_that_has_expired_gets_no_other_answer() {
    let case = Case::new();
    let pair = case.signer.sign("api", &["api.example.com"]);
    let ca = case.signer.path("ca.pem");
    let proxy = case.proxy(&listener(&format!("certificates: [{pair}], client_ca_file: \"{ca}\"")));
    let short = case.signer.identity_until(FRESH, "robot", &[]);
    for (identity, expected) in [(&short, "HTTP/1.1 403 "), (&case.other, "HTTP/1.1 200 ")] {
        let [_, client] = case.clients(identity);
        let mut stream = dial(proxy.address(), &client, "api.example.com").unwrap();
        assert!(request(&mut stream).starts_with("HTTP/1.1 200 "));
        proxy.advance(AGES);
        let answer = request(&mut stream);
        assert!(answer.starts_with(expected), "{answer}");
    }
}

#[test]
fn open_http2_connection_gets_no_other_answer_either() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[], (1, FRESH));
    let listener = case.listener("");
    let proxy = case.proxy(&listener);
    let client = case.signer.client_as(copy(&case.robot));
    let mut client = (*client).clone();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let mut stream = dial(proxy.address(), &client.into(), "api.example.com").unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, [])].concat()).unwrap();
    for (number, status) in [(1, 200), (3, 403)] {
        stream.write_all(&get_on(number)).unwrap();
        assert_eq!(read_status(&mut stream, number), status);
        case.signer.revoke("crl.pem", &[&case.robot], (2, FRESH));
        let _ = proxy.renew_certificates(&listener).unwrap();
    }
    assert_eq!(case.upstream.count(), 1);
}

#[test]
fn broken_list_is_reported_and_the_old_one_stays() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[&case.robot], (1, FRESH));
    let listener = case.listener("");
    let proxy = case.proxy(&listener);
    let broken = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    let list = case.signer.revocation_list(&[], (2, FRESH));
    let torn = &list[..list.len() / 2];
    for (content, problem) in [
        ("", "no CRL in"),
        (broken, "cannot be read"),
        (torn, "no CRL in"),
        (&format!("{list}{broken}"), "cannot be read"),
    ] {
        fs::write(case.signer.path("crl.pem"), content).unwrap();
        let problems = proxy.renew_certificates(&listener).unwrap_err();
        assert!(problems.contains(problem) && problems.contains("tollgate.yaml:2:"), "{problems}");
        assert!(!case.clients(&case.robot).iter().any(|client| is_served(&proxy, client)));
        assert!(case.clients(&case.other).iter().all(|client| is_served(&proxy, client)));
    }
    fs::remove_file(case.signer.path("crl.pem")).unwrap();
    let problems = proxy.renew_certificates(&listener).unwrap_err();
    assert!(problems.contains("cannot read"), "{problems}");
    assert!(!case.clients(&case.robot).iter().any(|client| is_served(&proxy, client)));
}

#[test]
fn open_connection_of_a_program_whose_certificate_has_expired_gets_no_other_answer() {
    let case = Case::new();
    let pair = case.signer.sign("api", &["api.example.com"]);
    let ca = case.signer.path("ca.pem");
    let tls = format!("tls: {{ certificates: [{pair}], client_ca_file: \"{ca}\" }}");
    let settings = format!(
        "workers: 1\ndecisions: [{{ address: 127.0.0.1:0, protocol: http, {tls} }}, \
         {{ address: 127.0.0.1:0, protocol: grpc, {tls} }}]"
    );
    let policy = Policy::before(&case.upstream)
        .limits(&["asked: { per: key, rate: 9/hour, verified: true }"]);
    for (listener, question, before) in [
        (0, "GET /v1/standing?limit=asked&key=a HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        (0, "POST /v1/charge HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", 400),
        (1, "POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", 400),
        (1, "GET /unknown HTTP/1.1\r\nhost: a\r\n\r\n", 404),
    ] {
        let proxy = Proxy::with_settings(&settings, &[&policy]);
        let short = case.signer.identity_until(FRESH, "robot", &[]);
        let [_, client] = case.clients(&short);
        let mut stream = dial(proxy.asked_at(listener), &client, "api.example.com").unwrap();
        let mut ask = || {
            stream.write_all(question.as_bytes()).unwrap();
            read_answer(&mut stream)
        };
        let answer = ask();
        assert!(answer.starts_with(&format!("HTTP/1.1 {before} ")), "{question}: {answer}");
        proxy.advance(AGES);
        let answer = ask();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{question}: {answer}");
        assert!(answer.contains("connection: close"), "{question}: {answer}");
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "{question}");
    }
}

/// The `grpc-status` of a call at a listener for Envoy, and of another on the same connection, once
/// what is fresh is out of date.
fn statuses_before_and_after(proxy: &Proxy, client: &Arc<ClientConfig>) -> [String; 2] {
    let mut client = ClientConfig::clone(client);
    client.alpn_protocols = vec![b"h2".to_vec()];
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let stream = TcpStream::connect(proxy.asked_at(0)).await.unwrap();
        let name = "api.example.com".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let before = call_health(&mut sender).await;
        proxy.advance(AGES);
        [before, call_health(&mut sender).await]
    })
}

async fn call_health(sender: &mut h2::client::SendRequest<Bytes>) -> String {
    let request = http::Request::post("https://api.example.com/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (answer, mut body) = sender.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    assert_eq!(head.status, 200);
    while body.data().await.is_some() {}
    let trailers = body.trailers().await.unwrap();
    let fields = trailers.unwrap_or(head.headers);
    fields.get("grpc-status").unwrap().to_str().unwrap().to_owned()
}

#[test]
fn open_connection_of_an_envoy_whose_certificate_is_no_longer_good_has_its_calls_refused() {
    let case = Case::new();
    case.signer.revoke("crl.pem", &[], (1, FRESH));
    let (pair, ca) = (case.signer.sign("api", &["api.example.com"]), case.signer.path("ca.pem"));
    let list = format!(", crl_file: \"{}\"", case.signer.path("crl.pem"));
    let short = case.signer.identity_until(FRESH, "robot", &[]);
    for (identity, fields, after) in [
        (&short, "", "7"),
        (&case.robot, "", "0"),
        (&case.robot, &*list, "7"),
        (&case.robot, &format!("{list}, crl_expired: accept"), "0"),
    ] {
        let tls = format!("tls: {{ certificates: [{pair}], client_ca_file: \"{ca}\"{fields} }}");
        let settings =
            format!("workers: 1\ndecisions: [{{ address: 127.0.0.1:0, protocol: grpc, {tls} }}]");
        let proxy = Proxy::with_settings(&settings, &[&Policy::before(&case.upstream)]);
        let [_, client] = case.clients(identity);
        assert_eq!(statuses_before_and_after(&proxy, &client), ["0", after], "{fields}");
    }
}
