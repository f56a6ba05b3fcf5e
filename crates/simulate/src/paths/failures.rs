//! Requests of a route whose credentials did not pass.

use std::{collections::BTreeSet, net::IpAddr};

/// Clients that are told apart: more of them are many.
const FEW: usize = 8;

/// Failures that say nothing yet.
const LEAST: u64 = 10;

/// Requests that were answered 401 or 403, and who has sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    requests: u64,
    /// At most one more than [`FEW`].
    clients: BTreeSet<IpAddr>,
}

impl Failures {
    pub(super) fn add(&mut self, times: u64, client: IpAddr) {
        self.requests += times;
        if self.clients.len() <= FEW {
            self.clients.insert(client);
        }
    }

    pub(super) fn merge(&mut self, other: Failures) {
        self.requests += other.requests;
        for client in other.clients {
            self.add(0, client);
        }
    }

    /// Whether most of so many requests have failed.
    pub(crate) fn are_most_of(&self, requests: u64) -> bool {
        self.requests >= LEAST && self.requests.saturating_mul(2) > requests
    }

    /// Whether they are of a few clients.
    pub(crate) fn are_of_few(&self) -> bool {
        self.clients.len() <= FEW
    }
}
