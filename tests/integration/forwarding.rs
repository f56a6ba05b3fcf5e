//! What goes through, both ways, and what an upstream's failures become.

mod ambiguous_responses;
mod bodies;
mod connections;
mod expectations;
mod fields;
mod via;

use crate::support::{Policy, Proxy, Upstream};

/// A proxy without limits.
fn plain(upstream: &Upstream) -> Proxy {
    Proxy::start(&Policy::before(upstream))
}
