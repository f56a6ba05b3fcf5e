//! Clients that speak TLS: names, versions, sessions, certificates of theirs and ours.

mod browsers;
mod callers;
mod handshake;
mod misdirected;
mod renewal;
mod revocation;

use crate::support::{Policy, Proxy, Signer, Upstream};

/// A listener with these fields of its `tls` section.
fn listener(tls: &str) -> String {
    format!("[{{ address: 127.0.0.1:0, tls: {{ {tls} }} }}]")
}

/// A proxy with one certificate, for `api.example.com`.
fn proxy(signer: &Signer, upstream: &Upstream) -> Proxy {
    let pair = signer.sign("api", &["api.example.com"]);
    let listener = listener(&format!("certificates: [{pair}]"));
    Proxy::with_listeners(&listener, "workers: 1", &[&Policy::before(upstream)])
}
