//! What is asked of issuers, by the parts that ask, against a server that answers, fails or lies.

mod client;
mod introspection;
mod keys;
mod rotation;

use std::{sync::Arc, time::Duration};

use tollgate_identity::IssuerServer;

use super::support::{Authority, PATIENCE};

/// This path of a server, which may take its time; trusted by its own authority if it speaks TLS.
fn server(authority: &Authority, path: &str) -> IssuerServer {
    server_within(authority, path, PATIENCE)
}

fn server_within(authority: &Authority, path: &str, timeout: Duration) -> IssuerServer {
    let url = authority.url(path);
    let ca: Option<Arc<[u8]>> =
        url.starts_with("https").then(|| std::fs::read(authority.ca_file()).unwrap().into());
    IssuerServer::parse(&url, false, ca, timeout).unwrap()
}
