//! What is logged of a proxy in front that is not trusted.

use super::{Folder, Running, text};
use crate::support::{Client, Upstream, get};

/// The warnings about ignored fields of a proxy with these settings, asked over several
/// connections, which several workers take.
fn warnings(settings: &str, field: &str) -> Vec<String> {
    let upstream = Upstream::start();
    let settings = format!("workers: 2\n{settings}");
    let folder = Folder::before(&upstream);
    let listeners = "listeners: [{ address: 127.0.0.1:0 }]";
    folder.write("tollgate.yaml", &format!("version: 1\n{listeners}\n{settings}\n"));
    let (running, address) = Running::serve(&folder);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(address)).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send(&get("/").field(field, "for=203.0.113.1")).assert_status(401);
        }
    }
    drop(clients);
    running.signal("TERM");
    let output = running.finish();
    let stderr = text(&output.stderr);
    stderr.lines().filter(|line| line.contains("not trusted")).map(str::to_owned).collect()
}

#[test]
fn field_of_an_untrusted_proxy_is_warned_of_once_with_the_setting() {
    let warnings = warnings("", "x-forwarded-for");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in ["WARN", "peer=127.0.0.1", "x-forwarded-for", "trusted_proxies: [127.0.0.1/32]"] {
        assert!(warnings[0].contains(part), "{part} is not in {}", warnings[0]);
    }
}

/// What it knows there is the client's address, and a client's is nothing to trust.
#[test]
fn client_behind_the_proxy_protocol_is_not_named_as_a_proxy() {
    let upstream = Upstream::start();
    let folder = Folder::before(&upstream);
    let listener = "{ address: 127.0.0.1:0, proxy_protocol: { trusted: [127.0.0.1] } }";
    folder.write("tollgate.yaml", &format!("version: 1\nlisteners: [{listener}]\nworkers: 1\n"));
    let (running, address) = Running::serve(&folder);
    let mut client = Client::connect(address);
    client.write("PROXY TCP4 203.0.113.9 192.0.2.1 5000 443\r\n");
    client.send(&get("/").field("x-forwarded-for", "198.51.100.1")).assert_status(401);
    drop(client);
    running.signal("TERM");
    let output = running.finish();
    let logged: Vec<&str> =
        text(&output.stderr).lines().filter(|line| line.contains("not trusted")).collect();
    let [line] = &logged[..] else { panic!("{output:#?}") };
    assert!(!line.contains("203.0.113.9/32"), "{line}");
    assert!(line.contains("trusted_proxies: [the networks of your proxies]"), "{line}");
}

#[test]
fn only_the_field_that_trusted_proxies_would_write_is_warned_of() {
    for (settings, field, expected) in [
        ("", "forwarded", 0),
        ("client_address_from: forwarded", "forwarded", 1),
        ("client_address_from: forwarded", "x-forwarded-for", 0),
        ("trusted_proxies: [127.0.0.1/32]", "x-forwarded-for", 0),
    ] {
        let warnings = warnings(settings, field);
        assert_eq!(warnings.len(), expected, "{settings}, {field}: {warnings:?}");
    }
}
