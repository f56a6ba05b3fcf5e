//! How long a response's body is, and how much of it is still to come (RFC 9112 section 6.3).

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::chunked::{Chunk, ChunkError, Chunked, take_at_most};

/// What is still to come of a body.
#[derive(Debug)]
pub enum BodyLength {
    /// So many bytes.
    Bytes(u64),
    /// Chunks.
    Chunked(Chunked),
    /// All until the server closes the connection.
    UntilClose,
}

/// What a read of a body gives.
#[derive(Debug)]
pub enum BodyPart {
    /// Data, at least a byte of it.
    Data(Bytes),
    /// Trailers, after which nothing comes.
    Trailers(HeaderMap),
    /// The end.
    End,
    /// More has to be read first.
    Incomplete,
}

impl BodyLength {
    pub(super) const NONE: BodyLength = BodyLength::Bytes(0);

    /// Whether all of it was read.
    pub fn is_over(&self) -> bool {
        match self {
            BodyLength::Bytes(left) => *left == 0,
            BodyLength::Chunked(chunked) => chunked.is_over(),
            BodyLength::UntilClose => false,
        }
    }

    /// What is known of its length.
    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            BodyLength::Bytes(left) => SizeHint::with_exact(*left),
            BodyLength::Chunked(_) | BodyLength::UntilClose => SizeHint::default(),
        }
    }

    /// Takes the next part out of what was read.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub fn take(&mut self, read: &mut BytesMut) -> Result<BodyPart, ChunkError> {
        match self {
            BodyLength::Bytes(0) => Ok(BodyPart::End),
            BodyLength::Bytes(left) => {
                let data = take_at_most(read, *left);
                *left -= data.len() as u64;
                Ok(BodyPart::of(data))
            }
            BodyLength::UntilClose => Ok(BodyPart::of(read.split().freeze())),
            BodyLength::Chunked(chunked) => Ok(match chunked.take(read)? {
                Chunk::Data(data) => BodyPart::Data(data),
                Chunk::Trailers(trailers) if trailers.is_empty() => BodyPart::End,
                Chunk::Trailers(trailers) => BodyPart::Trailers(trailers),
                Chunk::Incomplete => BodyPart::Incomplete,
                Chunk::End => BodyPart::End,
            }),
        }
    }
}

impl BodyPart {
    fn of(data: Bytes) -> BodyPart {
        if data.is_empty() { BodyPart::Incomplete } else { BodyPart::Data(data) }
    }

    /// As a frame, if it is one.
    pub(super) fn into_frame(self) -> Option<Frame<Bytes>> {
        match self {
            BodyPart::Data(data) => Some(Frame::data(data)),
            BodyPart::Trailers(trailers) => Some(Frame::trailers(trailers)),
            BodyPart::End | BodyPart::Incomplete => None,
        }
    }
}
