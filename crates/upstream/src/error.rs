//! Why there is no response from an upstream, or why its body broke off.

use std::io;

use tollgate_wire::Violation;

use super::http1::ChunkError;

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
    Exchange(#[source] ExchangeError),
    /// The response is ambiguous, switches to a protocol that was not asked for, has a body where
    /// there can be none or a status that no client knows, or never begins for all that is sent.
    #[error("unsound response")]
    Unsound,
    /// The client's body broke off or was malformed.
    #[error("request body failed: {0}")]
    RequestBody(#[source] RequestBodyError),
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

impl UpstreamError {
    /// A word for it, one of few: for statistics.
    pub fn word(&self) -> &'static str {
        match self {
            UpstreamError::NoAddress => "no_address",
            UpstreamError::Connect(_) => "connect",
            UpstreamError::Tls { .. } => "tls",
            UpstreamError::Exhausted(_) => "exhausted",
            UpstreamError::ConnectTimeout => "connect_timeout",
            UpstreamError::Busy => "busy",
            UpstreamError::ShareUsed => "share_used",
            UpstreamError::ResponseTimeout => "response_timeout",
            UpstreamError::Exchange(_) => "exchange",
            UpstreamError::Unsound => "unsound_response",
            UpstreamError::RequestBody(_) => "request_body",
            UpstreamError::RequestBodyTooLarge => "request_body_too_large",
            UpstreamError::RequestBodyTimeout => "request_body_timeout",
            UpstreamError::RequestBodyTooSlow => "request_body_too_slow",
        }
    }
}

/// Why an upstream's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] ExchangeError),
    /// Nothing came for too long.
    #[error("response body made no progress")]
    Timeout,
}

/// Why an exchange with a server has failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection broke.
    #[error("the connection failed: {0}")]
    Io(#[source] io::Error),
    /// There was no response.
    #[error("the server closed the connection without a response")]
    Closed,
    /// There was only a part of the body.
    #[error("the server closed the connection before the end of its response")]
    Incomplete,
    /// What came is no head in HTTP/1.1.
    #[error("the response is not valid HTTP/1.1: {0}")]
    Head(#[source] httparse::Error),
    /// The chunks of a body are malformed.
    #[error("the body of the response is not valid: {0}")]
    Chunk(#[source] ChunkError),
    /// The client's body broke off while the response was on its way.
    #[error("request body failed: {0}")]
    RequestBody(#[source] RequestBodyError),
    /// An exchange in HTTP/2 failed.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

/// Why a request's body breaks off.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The client's connection failed, or what came is no body.
    #[error(transparent)]
    Client(#[from] hyper::Error),
    /// It is larger than its route takes.
    #[error("the body is too large")]
    TooLarge,
    /// It is not as long as its head says.
    #[error("the body is not as long as its content-length says")]
    Length,
    /// A trailer is one that HTTP/1.1 does not have.
    #[error(transparent)]
    Trailers(#[from] Violation),
    /// The exchange that it was part of is over.
    #[error("the rest of the body is not needed")]
    Abandoned,
}
