//! What goes wrong with connections, counted: each kind is a number for those who watch, and at
//! most a line a second in the log, however many clients do it.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_keyword::{Keyword, keywords};

keywords! {
    /// Something that ended a connection, or kept one from being made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// There were as many connections as there may be.
        Full = "full",
        /// There were as many of one address as there may be.
        AddressFull = "address_full",
        /// The system could not hand over a connection: it is most likely out of descriptors.
        Accept = "accept",
        /// A request's head, or a connection's first byte, took too long.
        SlowHead = "slow_head",
        /// A client came without the PROXY header that was to be there, or took too long over it.
        ProxyHeader = "proxy_header",
        /// A TLS handshake failed or took too long.
        Handshake = "handshake",
        /// A client did not read what it had asked for, or read it too slowly.
        SlowReader = "slow_reader",
        /// Clients did not read responses of an upstream, and too much was held for them.
        Unread = "unread",
        /// A request's body made no progress, or came too slowly.
        SlowBody = "slow_body",
        /// An HTTP/2 client kept the connection busy with frames that ask for nothing, or with
        /// heads that are much larger than what came for them.
        Flood = "flood",
        /// A panic while a request was handled.
        RequestPanic = "request_panic",
        /// A panic in a connection, outside of any request.
        ConnectionPanic = "connection_panic",
    }
}

/// How often each happened.
#[derive(Debug, Default)]
pub struct Faults([Counter; Fault::KEYWORDS.len()]);

/// A number, and how much of it was logged.
#[derive(Debug, Default)]
struct Counter {
    total: AtomicU64,
    logged: AtomicU64,
}

impl Faults {
    /// How often this happened since the start.
    pub fn total(&self, fault: Fault) -> u64 {
        self.of(fault).map_or(0, |counter| counter.total.load(Ordering::Relaxed))
    }

    /// Counts one more.
    pub fn count(&self, fault: Fault) {
        if let Some(counter) = self.of(fault) {
            counter.total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs what was not logged yet. Called once a second or so.
    pub fn report(&self) {
        for fault in Fault::all() {
            let times = self.of(fault).map_or(0, Counter::take_unlogged);
            if times > 0 {
                log(fault, times);
            }
        }
    }

    fn of(&self, fault: Fault) -> Option<&Counter> {
        self.0.get(fault as usize)
    }
}

fn log(fault: Fault, times: u64) {
    match fault {
        Fault::Full => tracing::warn!(times, "connections refused: see limits.connections"),
        Fault::AddressFull => {
            tracing::warn!(times, "connections refused: see limits.connections_per_address");
        }
        Fault::Accept => tracing::warn!(times, "connections could not be accepted"),
        Fault::SlowHead => tracing::info!(times, "connections closed: no request in time"),
        Fault::ProxyHeader => {
            tracing::warn!(times, "connections closed: no good PROXY header, see proxy_protocol");
        }
        Fault::Handshake => tracing::info!(times, "connections closed: no TLS handshake"),
        Fault::SlowReader => {
            tracing::info!(times, "responses broken off: the client does not read")
        }
        Fault::Unread => tracing::warn!(
            times,
            "responses broken off: too much waits for clients that do not read, see max_unread"
        ),
        Fault::SlowBody => tracing::info!(times, "requests broken off: their bodies do not come"),
        Fault::Flood => {
            tracing::warn!(times, "connections closed: floods of HTTP/2 frames, or of heads")
        }
        // Each has a line of its own, which says more.
        Fault::RequestPanic | Fault::ConnectionPanic => {}
    }
}

impl Counter {
    /// What came since this was last asked.
    fn take_unlogged(&self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        total.saturating_sub(self.logged.swap(total, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_number_of_its_own() {
        let faults = Faults::default();
        for (times, fault) in Fault::all().enumerate() {
            (0..times).for_each(|_| faults.count(fault));
        }
        for (times, fault) in Fault::all().enumerate() {
            assert_eq!(faults.total(fault), times as u64, "{}", fault.keyword());
            assert_eq!(faults.of(fault).unwrap().take_unlogged(), times as u64);
            assert_eq!(faults.of(fault).unwrap().take_unlogged(), 0);
        }
    }
}
