//! Certificates in files, as they are renewed in production.

use std::{fs, net::SocketAddr};

use super::{Folder, Running, assert_exit};
use crate::support::{Signer, Upstream, dial, eventually};

/// The certificate that a client is shown now.
fn shown(address: SocketAddr, signer: &Signer) -> Vec<u8> {
    let stream = dial(address, &signer.client(&[]), "api.example.com").unwrap();
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn renewed_files_are_taken_and_broken_ones_are_not() {
    let (signer, upstream) = (Signer::new(), Upstream::start());
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
