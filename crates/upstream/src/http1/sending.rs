//! A request on its way to the server: its head, and its body as it comes from the client.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use crate::{RequestBody, RequestBodyError};

/// Data of a body that is copied behind its framing: one write is cheaper than two pieces of one.
const MAX_COPIED_BYTES: usize = 2 * 1024;

/// A request on its way, with a body.
pub struct Sending<B = RequestBody> {
    head: Bytes,
    /// Framing of the body, and data that is small.
    framed: BytesMut,
    data: Bytes,
    /// Framing after the data.
    tail: Bytes,
    /// None: nothing of the body is left to be taken from the client.
    body: Option<Box<B>>,
    length: Length,
    /// Nothing that was written waits in the stream: TLS takes more than it can send at once.
    is_flushed: bool,
}

/// How the body is framed (RFC 9112 section 6).
enum Length {
    /// So many bytes are still to come.
    Bytes(u64),
    /// In chunks.
    Chunked,
}

/// Why a request was not sent whole.
#[derive(Debug)]
pub enum SendError {
    /// The server takes no more.
    Connection(io::Error),
    /// The client's body broke off.
    Body(RequestBodyError),
}

impl<B: Body<Data = Bytes, Error = RequestBodyError> + Unpin> Sending<B> {
    /// Nothing is to be sent.
    pub(super) fn nothing() -> Self {
        Sending::new(Bytes::new(), None, None)
    }

    /// A request with this head. A body is chunked unless its length is in the head.
    pub fn new(head: Bytes, body: Option<Box<B>>, length: Option<u64>) -> Self {
        let length = match length {
            Some(bytes) => Length::Bytes(bytes),
            None => Length::Chunked,
        };
        Sending {
            is_flushed: head.is_empty(),
            head,
            framed: BytesMut::new(),
            data: Bytes::new(),
            tail: Bytes::new(),
            body,
            length,
        }
    }

    /// Whether all of it was sent.
    pub fn is_over(&self) -> bool {
        self.body.is_none() && self.is_written() && self.is_flushed
    }

    /// Whether all that came of the body was sent, and more is to come.
    pub(super) fn awaits_body(&self) -> bool {
        self.body.is_some() && self.is_written()
    }

    fn is_written(&self) -> bool {
        self.head.is_empty()
            && self.framed.is_empty()
            && self.data.is_empty()
            && self.tail.is_empty()
    }

    /// Gives up what is left.
    pub(super) fn abandon(&mut self) {
        *self = Sending::nothing();
    }

    /// Sends as much as can be.
    ///
    /// # Errors
    /// [`SendError`]; nothing more can be sent.
    pub fn poll<S: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<Result<(), SendError>> {
        loop {
            // The beginning of a body that is there goes out with the head. No more is taken from
            // the client than the server takes.
            let has_room = self.framed.is_empty() && self.data.is_empty() && self.tail.is_empty();
            let is_more = !has_room || self.poll_body(context)?;
            ready!(self.poll_write(context, stream)).map_err(SendError::Connection)?;
            if self.body.is_none() {
                ready!(Pin::new(stream).poll_flush(context)).map_err(SendError::Connection)?;
                // Lets go of the buffers, too: the connection may be kept for long.
                *self = Sending::nothing();
                return Poll::Ready(Ok(()));
            }
            if !is_more {
                ready!(Pin::new(stream).poll_flush(context)).map_err(SendError::Connection)?;
                return Poll::Pending;
            }
        }
    }

    /// Takes the next frame from the client; whether one was there.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Result<bool, SendError> {
        let Some(body) = &mut self.body else { return Ok(false) };
        let Poll::Ready(frame) = Pin::new(&mut **body).poll_frame(context) else {
            return Ok(false);
        };
        let frame = frame.transpose().map_err(SendError::Body)?;
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.push(data)?,
            Some(Err(frame)) => self.end(frame.trailers_ref())?,
            None => self.end(None)?,
        }
        if self.body.as_ref().is_some_and(|body| body.is_end_stream()) {
            self.end(None)?;
        }
        Ok(true)
    }

    fn push(&mut self, data: Bytes) -> Result<(), SendError> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.length {
            Length::Bytes(left) => {
                *left = left
                    .checked_sub(data.len() as u64)
                    .ok_or(SendError::Body(RequestBodyError::Length))?;
            }
            Length::Chunked => write_size(&mut self.framed, data.len()),
        }
        match data.len() <= MAX_COPIED_BYTES {
            true => self.framed.extend_from_slice(&data),
            false => self.data = data,
        }
        if let Length::Chunked = self.length {
            self.push_framing(Bytes::from_static(b"\r\n"));
        }
        Ok(())
    }

    /// Framing after all that is to be sent so far.
    fn push_framing(&mut self, framing: Bytes) {
        if self.data.is_empty() {
            self.framed.extend_from_slice(&framing);
        } else if self.tail.is_empty() {
            self.tail = framing;
        } else {
            self.tail = [&self.tail[..], &framing].concat().into();
        }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), SendError> {
        self.body = None;
        match &self.length {
            Length::Bytes(0) => Ok(()),
            //= rfc9110#section-8.6
            //# a sender MUST NOT forward a message with a Content-Length header field value that is
            //# known to be incorrect
            Length::Bytes(_) => Err(SendError::Body(RequestBodyError::Length)),
            Length::Chunked => {
                self.push_framing(last_chunk(trailers));
                Ok(())
            }
        }
    }

    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<()>> {
        while !self.is_written() {
            let stream = Pin::new(&mut *stream);
            let is_head_alone =
                self.framed.is_empty() && self.data.is_empty() && self.tail.is_empty();
            let written = if is_head_alone {
                ready!(stream.poll_write(context, &self.head))?
            } else {
                let pieces =
                    [&self.head[..], &self.framed, &self.data, &self.tail].map(IoSlice::new);
                ready!(stream.poll_write_vectored(context, &pieces))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        for piece in
            [&mut self.head as &mut dyn Buf, &mut self.framed, &mut self.data, &mut self.tail]
        {
            let part = written.min(piece.remaining());
            piece.advance(part);
            written -= part;
        }
    }
}

/// The last chunk, and the fields after it.
fn last_chunk(trailers: Option<&HeaderMap>) -> Bytes {
    let Some(trailers) = trailers else { return Bytes::from_static(b"0\r\n\r\n") };
    let mut end = BytesMut::from(&b"0\r\n"[..]);
    for (name, value) in trailers {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            end.extend_from_slice(piece);
        }
    }
    end.extend_from_slice(b"\r\n");
    end.freeze()
}

/// The line before a chunk's data.
fn write_size(buffer: &mut BytesMut, size: usize) {
    let mut digits = [0; 16];
    let mut begin = digits.len();
    let mut left = size;
    loop {
        begin -= 1;
        if let Some(digit) = digits.get_mut(begin) {
            *digit = b"0123456789abcdef".get(left % 16).copied().unwrap_or(b'0');
        }
        left /= 16;
        if left == 0 {
            break;
        }
    }
    buffer.extend_from_slice(digits.get(begin..).unwrap_or_default());
    buffer.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A stream that takes everything, and has it sent only at a later flush.
    #[derive(Default)]
    struct Slow {
        written: Vec<u8>,
        flushes: usize,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.written.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            self.flushes += 1;
            if self.flushes < 3 { Poll::Pending } else { Poll::Ready(Ok(())) }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn request_is_flushed_until_it_is_sent() {
        let mut stream = Slow::default();
        let mut sending: Sending =
            Sending::new(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n"), None, None);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            assert!(sending.poll(&mut context, &mut stream).is_pending());
            assert!(!sending.is_over(), "it was written, and is not sent");
        }
        assert!(sending.poll(&mut context, &mut stream).is_ready());
        assert!(sending.is_over());
        assert_eq!(stream.written, b"GET / HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn size_of_a_chunk_is_hexadecimal() {
        for (size, expected) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (65_537, "10001\r\n")]
        {
            let mut line = BytesMut::new();
            write_size(&mut line, size);
            assert_eq!(str::from_utf8(&line).unwrap(), expected);
        }
    }
}
