//! Why there is no response from an upstream, or why its body broke off.

use std::io;

/// Why there is no response from the upstream.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No address of any server is known.
    #[error("no address of any server is known")]
    NoAddress,
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The server could not be spoken to in TLS, or is not who it should be.
    #[error("no TLS with {server}: {error}")]
    Tls {
        /// The server, as the policy names it.
        server: String,
        /// What TLS says.
        #[source]
        error: io::Error,
    },
    /// This machine has no room for another connection.
    #[error("no room for another connection: {0}")]
    Exhausted(#[source] io::Error),
    /// No connection was made in time.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// All connections are in use, and too many requests wait for one, or this one has for too
    /// long.
    #[error("all connections are in use")]
    Busy,
    /// The client's address uses its share of the connections, and none of them became free in
    /// time.
    #[error("the client uses its share of the connections")]
    ShareUsed,
    /// The upstream did not answer in time.
    #[error("no response in time")]
    ResponseTimeout,
    /// The connection broke, or what came was no HTTP.
    #[error("exchange failed: {0}")]
    Exchange(#[source] hyper::Error),
    /// The response is ambiguous, switches to a protocol that was not asked for, has a body where
    /// there can be none or a status that no client knows, or never begins for all that is sent.
    #[error("unsound response")]
    Unsound,
    /// The client's body broke off or was malformed.
    #[error("request body failed: {0}")]
    RequestBody(#[source] hyper::Error),
    /// The client's body is larger than its route takes.
    #[error("request body too large")]
    RequestBodyTooLarge,
    /// The client's body made no progress.
    #[error("request body made no progress")]
    RequestBodyTimeout,
    /// The client's body came, but too slowly.
    #[error("request body came too slowly")]
    RequestBodyTooSlow,
}

/// Why an upstream's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// Nothing came for too long.
    #[error("response body made no progress")]
    Timeout,
}
