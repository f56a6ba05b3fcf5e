//! Writes to a client, joined into few: the HTTP/2 engine writes each frame of data by itself,
//! and a call of the system and a record of TLS for each cost more than all else that is done for
//! it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;
use tollgate_upstream::downstream::Writing;

/// What was written and waits to be sent together with what comes next.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
}

/// The most that it holds: as much as a record of TLS holds. The room is given back whenever all
/// is sent.
const MAX_BYTES: usize = 16 * 1024;

impl WriteBuffer {
    /// Takes these slices, or sends them if they are large; what it holds goes first. The
    /// writes that reach `stream` are noted in `writing`.
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
        stream: &mut (impl AsyncWrite + Unpin),
        writing: &Writing,
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.bytes.len() + length > MAX_BYTES {
            ready!(self.poll_send(context, stream, writing))?;
        }
        if length > MAX_BYTES {
            let written = Pin::new(stream).poll_write_vectored(context, slices);
            writing.note(&written);
            return written;
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(MAX_BYTES);
        }
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        Poll::Ready(Ok(length))
    }

    /// Gives `stream` all that it holds.
    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
        writing: &Writing,
    ) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let written = Pin::new(&mut *stream).poll_write(context, &self.bytes);
            writing.note(&written);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => drop(self.bytes.drain(..written.min(self.bytes.len()))),
            }
        }
        self.bytes = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Hands over what was not sent, for another to send it.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::IoSlice, pin::pin, task::Waker};

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    fn write(
        buffer: &mut WriteBuffer,
        stream: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
    ) -> Poll<usize> {
        let mut context = Context::from_waker(Waker::noop());
        let slices = [IoSlice::new(bytes)];
        buffer
            .poll_write(&mut context, &slices, stream, &Writing::default())
            .map(|written| written.expect("a write"))
    }

    fn send(buffer: &mut WriteBuffer, stream: &mut (impl AsyncWrite + Unpin)) -> Poll<()> {
        let mut context = Context::from_waker(Waker::noop());
        let writing = Writing::default();
        buffer.poll_send(&mut context, stream, &writing).map(|sent| sent.expect("a write"))
    }

    fn receive(client: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
        let mut bytes = vec![0; 2 * MAX_BYTES];
        let mut context = Context::from_waker(Waker::noop());
        match pin!(client.read(&mut bytes)).poll(&mut context) {
            Poll::Ready(read) => bytes.truncate(read.expect("a read")),
            Poll::Pending => bytes.clear(),
        }
        bytes
    }

    #[test]
    fn small_writes_are_sent_together() {
        let (mut stream, mut client) = duplex(4 * MAX_BYTES);
        let mut buffer = WriteBuffer::default();
        for part in ["one ", "two ", "three"] {
            assert_eq!(write(&mut buffer, &mut stream, part.as_bytes()), Poll::Ready(part.len()));
        }
        assert_eq!(receive(&mut client), b"");
        assert_eq!(send(&mut buffer, &mut stream), Poll::Ready(()));
        assert_eq!(receive(&mut client), b"one two three");
        assert_eq!(buffer.bytes.capacity(), 0, "the room was not given back");
    }

    #[test]
    fn large_write_follows_what_was_written_before_it() {
        let (mut stream, mut client) = duplex(4 * MAX_BYTES);
        let mut buffer = WriteBuffer::default();
        let large = vec![b'x'; MAX_BYTES + 1];
        assert!(write(&mut buffer, &mut stream, b"small").is_ready());
        assert_eq!(write(&mut buffer, &mut stream, &large), Poll::Ready(large.len()));
        assert_eq!(receive(&mut client), [b"small", &large[..]].concat());
    }

    #[test]
    fn no_more_is_taken_than_there_is_room_for_while_the_client_takes_nothing() {
        let (mut stream, mut client) = duplex(10);
        let mut buffer = WriteBuffer::default();
        let full = vec![b'x'; MAX_BYTES];
        assert_eq!(write(&mut buffer, &mut stream, &full), Poll::Ready(full.len()));
        assert_eq!(write(&mut buffer, &mut stream, b"more"), Poll::Pending);
        let mut received = receive(&mut client);
        while send(&mut buffer, &mut stream).is_pending() {
            received.extend(receive(&mut client));
        }
        received.extend(receive(&mut client));
        assert_eq!(received, full);
        assert_eq!(write(&mut buffer, &mut stream, b"more"), Poll::Ready(4));
    }
}
