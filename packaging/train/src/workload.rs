//! What is asked: the workloads W1 to W9 of the benchmark.

use jsonwebtoken::Algorithm;

/// What is asked of a Tollgate, and how it is set up for that.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// What signs the tokens; none: there are no tokens and no limits.
    pub(crate) signature: Option<Algorithm>,
    /// Requests an hour of each user.
    pub(crate) limit: u32,
    pub(crate) store: Store,
    pub(crate) protocol: Protocol,
    pub(crate) kind: Kind,
    /// Connections at once.
    pub(crate) connections: usize,
    /// Requests at once on each connection.
    pub(crate) streams: usize,
    /// Requests in all.
    pub(crate) requests: usize,
    /// The status of the replies once each user is known.
    pub(crate) status: u16,
}

/// Where the counters are.
#[derive(Clone, Copy)]
pub(crate) enum Store {
    Memory,
    Redis,
}

/// What is spoken with clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/1.1 over TLS, one request a connection, whose session is resumed or is not.
    Handshakes {
        resumed: bool,
    },
    /// HTTP/2 over TLS.
    Http2,
}

/// How large requests and replies are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `GET /`, and 1 KiB.
    Small,
    /// A browser's 20 fields, and 16 KiB with 15 fields.
    Browser,
    /// A body of 64 KiB, and 100 bytes.
    Post,
}

/// More than any user asks.
const PLENTY: u32 = 1_000_000_000;

const PLAIN: Workload = Workload {
    name: "W1",
    signature: None,
    limit: PLENTY,
    store: Store::Memory,
    protocol: Protocol::Http1,
    kind: Kind::Small,
    connections: 64,
    streams: 1,
    requests: 20_000,
    status: 200,
};

const HS256: Workload = Workload { name: "W2 HS256", signature: Some(Algorithm::HS256), ..PLAIN };

const W7: Workload = Workload { name: "W7", connections: 16, requests: 1_000, ..PLAIN };

/// All of them, in order.
pub(crate) const WORKLOADS: &[Workload] = &[
    PLAIN,
    HS256,
    Workload { name: "W2 RS256", signature: Some(Algorithm::RS256), requests: 5_000, ..PLAIN },
    Workload { name: "W2 ES256", signature: Some(Algorithm::ES256), requests: 5_000, ..PLAIN },
    Workload { name: "W3 HS256", limit: 1, status: 429, ..HS256 },
    Workload { name: "W4 HS256", store: Store::Redis, requests: 5_000, ..HS256 },
    Workload { name: "W5", protocol: Protocol::Https, ..PLAIN },
    Workload { name: "W5 HS256", protocol: Protocol::Https, ..HS256 },
    Workload { name: "W6", protocol: Protocol::Http2, connections: 8, streams: 16, ..PLAIN },
    Workload { name: "W6 HS256", protocol: Protocol::Http2, connections: 8, streams: 16, ..HS256 },
    Workload { protocol: Protocol::Handshakes { resumed: false }, ..W7 },
    Workload { protocol: Protocol::Handshakes { resumed: true }, ..W7 },
    Workload { name: "W8", kind: Kind::Browser, ..PLAIN },
    Workload { name: "W8 HS256", kind: Kind::Browser, ..HS256 },
    Workload { name: "W9", kind: Kind::Post, requests: 5_000, ..PLAIN },
];
