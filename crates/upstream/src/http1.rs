//! HTTP/1.1 towards servers, over one connection (RFC 9112): requests as they are written, and
//! responses as they are read.
//!
//! A connection has no task of its own: the request that waits for its response drives it, and the
//! response's body drives it on until it is finished and the connection can be kept. That saves a
//! task switch each way, and dropping a request drops its connection with it. Why this is code of
//! our own is in `docs/design/upstream-codec.md`.
//!
//! A response is read strictly: what this proxy and another reader could understand differently is
//! an error, and the connection is closed.

mod body_length;
mod chunked;
mod connection;
mod request_head;
mod response_head;
mod sending;
#[cfg(test)]
mod tests;

pub(super) use self::{
    connection::{Connection, MAX_READ_BYTES, Message},
    response_head::MAX_INTERIM,
};
// The rest is public for the fuzz targets: neither reads nor writes a socket by itself.
pub use self::{
    body_length::{BodyLength, BodyPart},
    chunked::{ChunkError, Chunked},
    request_head::write_head,
    response_head::{Expected, HeadError, HeadReader, ResponseHead},
    sending::{SendError, Sending},
};
