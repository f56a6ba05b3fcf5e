//! Servers behind the proxy: how they are spoken to, what they may have, and what their failures
//! become.

mod balance;
mod bounds;
mod connections;
mod fakes;
mod faults;
mod health;
mod http2;
mod resolve;
mod retries;
mod shares;
mod slow_clients;
mod tls;
mod unread;

use crate::support::{Policy, Upstream, eventually};

/// A policy in front of these servers, with more fields of their upstream.
fn before(servers: &[&Upstream], fields: &str) -> Policy {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    before_urls(&urls, fields)
}

/// The same for servers of other kinds.
fn before_urls(urls: &[&str], fields: &str) -> Policy {
    let servers: Vec<String> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    Policy::before_servers(&format!("servers: [{}]{fields}", servers.join(", ")))
}

/// Waits until a condition holds that no event announces.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}
