//! The one test binary: what only a whole proxy can show.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that cannot go on fails its test; clippy knows only `#[test]` functions"
)]

/// Fakes, clients and tokens that all tests share.
mod support;

/// Which room of `src` imports which.
mod floors;

/// Which route a request takes, and that no spelling of it takes another.
mod routing;

/// Networks that routes name: whence they are taken, and whom they let in.
mod networks;

/// Who is calling, and what those hear who cannot be told.
mod identity;

/// How much passes, and when more does.
mod limits;

/// What a change of policies is said to do, and what it does.
mod diff;

/// What clients are told: limit headers, denials, errors.
mod headers;

/// What goes through, both ways, and what an upstream's failures become.
mod forwarding;

/// Servers: how they are spoken to, what they may have, and what their failures become.
mod upstreams;

/// What the access log says of all that.
mod access_log;

/// What a panic is told as, and that it is told once.
mod panics;

/// Switching to other protocols, and what comes after that.
mod upgrades;

/// gRPC calls, and how they are told that they are denied.
mod grpc;

/// What pages of other origins may ask, and read.
mod cors;

/// What routes change about requests and responses, and what they do not take.
mod rewriting;

/// Requests whose length or form is ambiguous.
mod framing;

/// HTTP/2 as nobody should speak it.
mod http2;

/// Slow clients, floods, garbage: what the open internet sends.
mod hardening;

/// The conformance suite: whatever keeps the counters, the limiter behaves alike.
mod stores;

/// Counters in Redis: real servers, alone, sharded, in a cluster.
mod redis;

/// What happens when Redis is not there, and when it is back.
mod outages;

/// Denials that are remembered here, so that Redis need not be asked.
mod relief;

/// Moving callers from one store to another.
mod moving;

/// Clients that speak TLS: names, versions, sessions, certificates of theirs and ours.
mod tls;

/// Listeners behind a balancer that writes PROXY headers.
mod proxy_protocol;

/// Listeners that are files.
mod unix;

/// The end of a server's life.
mod shutdown;

/// The program as its users start it: real files, real signals, exit codes.
mod binary;

/// What is asked of issuers: their keys, and what opaque tokens are.
mod fetching;

/// Policy files, good and bad.
mod policies;

/// Policies that are shipped as examples, and the page that explains one.
mod examples;
