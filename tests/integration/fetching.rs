//! What is asked of issuers, by the parts that ask, against a server that answers, fails or lies.

mod client;
mod introspection;
mod keys;
mod rotation;

use std::{sync::Arc, time::Duration};

use tollgate_identity::Endpoint;

use super::support::{Authority, PATIENCE};

/// This path of a server, which may take its time; trusted by its own authority if it speaks TLS.
fn endpoint(authority: &Authority, path: &str) -> Endpoint {
    endpoint_within(authority, path, PATIENCE)
}

fn endpoint_within(authority: &Authority, path: &str, timeout: Duration) -> Endpoint {
    let url = authority.url(path);
    let ca: Option<Arc<[u8]>> =
        url.starts_with("https").then(|| std::fs::read(authority.ca_file()).unwrap().into());
    Endpoint::parse(&url, false, ca, timeout).unwrap()
}
