//! Certificates in files, as they are renewed in production.

use std::{
    fs,
    io::{Read, Write},
    net::SocketAddr,
};

use super::{Folder, Running, assert_exit, send, text};
use crate::support::{Signer, Upstream, dial, eventually, get, last_request, seconds};

/// The certificate that a client is shown now.
fn shown(address: SocketAddr, signer: &Signer) -> Vec<u8> {
    let stream = dial(address, &signer.client(&[]), "api.example.com").unwrap();
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn renewed_files_are_taken_and_broken_ones_are_not() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let folder = Folder::before(&upstream);
    let listener = format!("{{ address: 127.0.0.1:0, tls: {{ certificates: [{pair}] }} }}");
    let reload = "reload: { poll: 100ms, quiet: 10ms }";
    folder.write("tollgate.yaml", &format!("version: 1\nlisteners: [{listener}]\n{reload}\n"));
    let (mut running, address) = Running::serve(&folder);
    let first = shown(address, &signer);

    signer.sign("api", &["api.example.com"]);
    let second = eventually("the new certificate is shown", || {
        Some(shown(address, &signer)).filter(|shown| *shown != first)
    });
    let line = running.wait_for_event("other certificates");
    assert!(line.contains("listener=127.0.0.1:0"), "{line}");

    fs::write(signer.path("api.key"), "no key").unwrap();
    let line = running.wait_for_event("bad configuration");
    assert!(line.contains("no private key in"), "{line}");
    running.wait_for_event("configuration not reloaded");
    assert_eq!(shown(address, &signer), second);
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
}

#[test]
fn metrics_tell_when_certificates_end_also_after_a_renewal() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let folder = Folder::before(&upstream);
    let listener = format!("{{ address: 127.0.0.1:0, tls: {{ certificates: [{pair}] }} }}");
    let rest = "reload: { poll: 100ms, quiet: 10ms }\nadmin: { address: 127.0.0.1:0 }";
    folder.write("tollgate.yaml", &format!("version: 1\nlisteners: [{listener}]\n{rest}\n"));
    let (mut running, _) = Running::serve(&folder);
    let line = running.wait_for_event("admin listener is open");
    let admin: SocketAddr = line.split("address=").nth(1).unwrap().trim().parse().unwrap();
    let file = signer.path("api.pem");
    let series = format!(
        "tollgate_tls_certificate_not_after_timestamp_seconds{{listener=\"127.0.0.1:0\",\
         certificate=\"{}\"}} ",
        file
    );
    let told = || {
        let metrics = send(admin, get("/metrics").host("localhost")).text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&*series));
        line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse::<u64>().unwrap()
    };
    assert_eq!(told(), seconds("2090-01-01T00:00:00Z"));
    signer.sign_until("api", &["api.example.com"], 2031);
    let renewed = seconds("2031-01-01T00:00:00Z");
    eventually("the new end is told", || (told() == renewed).then_some(()));
}

#[test]
fn renewed_files_are_taken_beside_an_edited_listener() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let pair = signer.sign("api", &["api.example.com"]);
    let folder = Folder::before(&upstream);
    let settings = |fields: &str| {
        let tls = format!("tls: {{ certificates: [{pair}] }}");
        let reload = "reload: { poll: 100ms, quiet: 10ms }";
        format!("version: 1\nlisteners: [{{ address: 127.0.0.1:0, {tls}{fields} }}]\n{reload}\n")
    };
    folder.write("tollgate.yaml", &settings(""));
    let (mut running, address) = Running::serve(&folder);
    let first = shown(address, &signer);

    // Both are read as one: what can be taken is, and the rest waits.
    signer.sign("api", &["api.example.com"]);
    folder.write("tollgate.yaml", &settings(", protocols: [http1], hsts: { max_age: 1y }"));
    running.wait_for_event("needs a restart");
    eventually("the new certificate is shown", || {
        Some(shown(address, &signer)).filter(|shown| *shown != first)
    });
    let mut stream = dial(address, &signer.client(&["h2", "http/1.1"]), "api.example.com").unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]), "it is spoken until the restart");
    stream.conn.send_close_notify();
    let mut stream = dial(address, &signer.client(&["http/1.1"]), "api.example.com").unwrap();
    let answer = last_request(&mut stream, "/", "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(!answer.contains("strict-transport-security"), "{answer}");

    // It goes on like that while the listener waits.
    let second = shown(address, &signer);
    signer.sign("api", &["api.example.com"]);
    eventually("the next certificate is shown", || {
        Some(shown(address, &signer)).filter(|shown| *shown != second)
    });
    running.signal("TERM");
    assert_exit(&running.finish(), 0);
}

#[test]
fn revoked_certificate_is_refused_from_the_change_of_the_file_on() {
    let signer = Signer::new();
    let upstream = Upstream::start();
    let robot = signer.identity("robot", &[]);
    let pair = signer.sign("api", &["api.example.com"]);
    signer.revoke("crl.pem", &[], (1, 2090));
    let folder = Folder::before(&upstream);
    let ca = signer.path("ca.pem");
    let crl = signer.path("crl.pem");
    let tls = format!("certificates: [{pair}], client_ca_file: \"{ca}\", crl_file: \"{crl}\"");
    let listener = format!("{{ address: 127.0.0.1:0, tls: {{ {tls} }} }}");
    let reload = "reload: { poll: 100ms, quiet: 10ms }";
    folder.write("tollgate.yaml", &format!("version: 1\nlisteners: [{listener}]\n{reload}\n"));
    let (mut running, address) = Running::serve(&folder);
    let client = signer.client_as((robot.0.clone(), robot.1.clone_key()));
    let ask = || -> std::io::Result<String> {
        last_request(&mut dial(address, &client, "api.example.com")?, "/", "")
    };
    assert!(ask().unwrap().starts_with("HTTP/1.1 401 "));

    signer.revoke("crl.pem", &[&robot], (2, 2090));
    let line = running.wait_for_event("certificates of clients are checked anew");
    assert!(line.contains("listener=127.0.0.1:0"), "{line}");
    assert!(ask().is_err());
    let line = running.wait_for_event("a client's certificate was refused");
    assert!(line.contains("Revoked") && line.contains("listener="), "{line}");

    fs::write(crl, "no list").unwrap();
    let line = running.wait_for_event("bad configuration");
    assert!(line.contains("no CRL in"), "{line}");
    running.wait_for_event("configuration not reloaded");
    assert!(ask().is_err());

    signer.revoke("crl.pem", &[&robot], (3, 2021));
    running.wait_for_event("is out of date");
    running.signal("TERM");
    assert_exit(&running.finish(), 0);

    let output = folder.run(&["check", "tollgate.yaml"]);
    assert_exit(&output, 0);
    assert!(text(&output.stdout).contains("crl.pem` is out of date"), "{output:#?}");
}

#[test]
fn program_whose_certificate_was_revoked_may_command_no_more() {
    let signer = Signer::new();
    let robot = signer.identity("robot", &[]);
    let pair = signer.sign("api", &["api.example.com"]);
    signer.revoke("crl.pem", &[], (1, 2090));
    let (ca, crl) = (signer.path("ca.pem"), signer.path("crl.pem"));
    let tls = format!("certificates: [{pair}], client_ca_file: \"{ca}\", crl_file: \"{crl}\"");
    let listener = format!("{{ address: 127.0.0.2:0, protocol: redis, tls: {{ {tls} }} }}");
    let settings = format!("decisions: [{listener}]\nreload: {{ poll: 100ms, quiet: 10ms }}");
    let folder = Folder::with_settings(&Upstream::start(), &settings);
    let (mut running, _) = Running::serve(&folder);
    let line = running.wait_for_event("decisions listener is open");
    let address = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let client = signer.client_as((robot.0.clone(), robot.1.clone_key()));
    let mut stream = dial(address.trim().parse().unwrap(), &client, "api.example.com").unwrap();
    let mut said = [0; 7];
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"+PONG\r\n");

    signer.revoke("crl.pem", &[&robot], (2, 2090));
    running.wait_for_event("certificates of clients are checked anew");
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let told = b"-DENIED the client's certificate is no longer valid\r\n";
    assert_eq!(String::from_utf8_lossy(&rest), String::from_utf8_lossy(told));
}
