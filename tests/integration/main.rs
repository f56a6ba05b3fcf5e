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

/// Which room of a crate imports which, and that each crate uses what it depends on.
mod floors;

/// Which requirements of standards are met, and where.
mod standards;

/// Which route a request takes, and that no spelling of it takes another.
mod routing;

/// What an upstream's framework takes for the path of a route takes that route.
mod readings;

/// Networks that routes name: which requests they match, and which clients they let in.
mod networks;

/// Who is calling, and the responses to requests without a valid identity.
mod identity;

/// How much passes, and when more does.
mod limits;

/// What `diff` reports about a change of policies, and what the change does.
mod diff;

/// The limits of one caller: how they stand, and resetting them.
mod callers;

/// What clients get: limit headers, denials, errors.
mod headers;

/// What is forwarded in both directions, and the responses to an upstream's failures.
mod forwarding;

/// Upstream servers: protocols, bounds, and the responses to their failures.
mod upstreams;

/// The lines of the access log.
mod access_log;

/// Spans of requests, over OTLP.
mod traces;

/// How a panic is reported, and that it is reported once.
mod panics;

/// Other proxies that ask whether they may forward a request.
mod forward_auth;

/// What holds for every proxy that asks.
mod askers;
/// What the pages promise, and at each door the test that shows it.
mod promises;

/// Fields that override the method, and the methods of routes.
mod method_override;

/// Descriptors of Envoy's rate limit filter.
mod descriptors;
/// Programs that charge limits by name.
mod programs;

/// Switching to other protocols, and the tunnels after that.
mod upgrades;

/// gRPC calls, and the form of their denials.
mod grpc;

/// What pages of other origins may request and read.
mod cors;

/// What routes change about requests and responses, and what they refuse.
mod rewriting;

/// Requests whose length or form is ambiguous.
mod framing;

/// HTTP/2 that breaks the protocol or floods it.
mod http2;

/// Slow clients, floods, garbage: what the open internet sends.
mod hardening;

/// The conformance suite: the limiter behaves alike on every store.
mod stores;

/// Counters in Redis: real servers, single, sharded, in a cluster.
mod redis;

/// What happens while Redis is away, and when it is back.
mod outages;

/// Denials that the process remembers, so that it need not ask Redis.
mod relief;

/// Moving callers from one store to another.
mod moving;

/// Clients that use TLS: names, versions, sessions, client and server certificates.
mod tls;

/// Listeners behind a balancer that writes PROXY headers.
mod proxy_protocol;

/// Listeners that are files.
mod unix;

/// The end of a server's life.
mod shutdown;

/// The program as its users start it: real files, real signals, exit codes.
mod binary;

/// Requests to issuers: fetching keys, and introspection of opaque tokens.
mod fetching;

/// Policy files, good and bad.
mod policies;

/// Policies that are shipped as examples.
mod examples;

/// README and docs/: their tables, examples and links.
mod docs;
