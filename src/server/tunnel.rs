//! Bytes between a client and a server that have agreed to leave HTTP, as they come, both ways.
//!
//! It runs in the task of the client's connection and holds what the request holds: its place among
//! those in flight, its leases, its line in the access log. All of that ends when it does.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{connection::LAST_WORDS, socket::Socket};
use crate::{deadline::Deadline, response::Body, upstream::Switched};

/// A tunnel that has not begun.
pub(super) struct Tunnel {
    pub(super) server: Switched,
    /// What the request holds.
    pub(super) body: Body,
}

/// Bytes that are carried at once. They are on the stack: a tunnel in which nothing moves holds none.
const CHUNK: usize = 16 * 1024;

/// How long nothing may move once one side has ended: most have nothing to say to who is gone.
const LINGER: Duration = Duration::from_secs(5);

impl Tunnel {
    /// Carries bytes until both sides have ended, one fails, or nothing moves for `idle`. `early` is
    /// what the client has sent before the server agreed.
    pub(super) async fn run(
        self,
        mut client: Socket,
        early: Bytes,
        (deadline, idle): (Deadline, Duration),
    ) {
        let Tunnel { mut server, body } = self;
        let (mut up, mut down) = (Way::beginning_with(early), Way::default());
        client.stop_checking();
        deadline.set(idle);
        let mut is_last_call = false;
        let result: io::Result<()> = poll_fn(|context| {
            if let Some(left) = deadline.ticker().tunnels() {
                if !std::mem::replace(&mut is_last_call, true) {
                    deadline.set_at_most(left);
                }
                if left.is_zero() && !(up.has_ended && down.has_ended) {
                    // Both are told, as if it had been the other.
                    (up.has_ended, down.has_ended) = (true, true);
                    deadline.set(idle.min(LAST_WORDS));
                }
            }
            let before = (up.progress(), down.progress());
            let sent = up.poll_carry(context, (&mut client, &mut server))?;
            let received = down.poll_carry(context, (&mut server, &mut client))?;
            if sent.is_ready() && received.is_ready() {
                return Poll::Ready(Ok(()));
            }
            if before != (up.progress(), down.progress()) {
                let is_ending = up.has_ended || down.has_ended;
                deadline.set(if is_ending { idle.min(LINGER) } else { idle });
                if let Some(left) = deadline.ticker().tunnels().filter(|_| !is_ending) {
                    deadline.set_at_most(left);
                }
            }
            if deadline.poll_passed(context) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Pending
        })
        .await;
        body.end_tunnel(result.is_ok(), (up.carried, down.carried));
    }
}

/// One direction.
#[derive(Default)]
struct Way {
    /// What was read and not taken yet.
    rest: Bytes,
    carried: u64,
    must_flush: bool,
    /// Nothing more is to be read.
    has_ended: bool,
    /// The other side was told so.
    is_closed: bool,
}

impl Way {
    fn beginning_with(rest: Bytes) -> Way {
        Way { rest, ..Way::default() }
    }

    fn progress(&self) -> (u64, bool) {
        (self.carried, self.has_ended)
    }

    /// Ready once everything was carried and the writer was told so.
    fn poll_carry<R, W>(
        &mut self,
        context: &mut Context<'_>,
        (reader, writer): (&mut R, &mut W),
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (mut reader, mut writer) = (Pin::new(reader), Pin::new(writer));
        loop {
            while !self.rest.is_empty() {
                let written = ready!(writer.as_mut().poll_write(context, &self.rest))?;
                let written = self.take(written)?;
                let _ = self.rest.split_to(written);
            }
            if self.is_closed {
                return Poll::Ready(Ok(()));
            }
            if self.has_ended {
                ready!(writer.as_mut().poll_shutdown(context))?;
                self.is_closed = true;
                continue;
            }
            let mut space = [const { MaybeUninit::uninit() }; CHUNK];
            let mut buffer = ReadBuf::uninit(&mut space);
            let read = match reader.as_mut().poll_read(context, &mut buffer) {
                // Many that speak TLS end without a word; what is carried knows its own end.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            };
            if read?.is_pending() {
                if self.must_flush {
                    ready!(writer.as_mut().poll_flush(context))?;
                    self.must_flush = false;
                }
                return Poll::Pending;
            }
            let read = buffer.filled();
            if read.is_empty() {
                self.has_ended = true;
                continue;
            }
            let written = match writer.as_mut().poll_write(context, read)? {
                Poll::Ready(written) => self.take(written)?,
                Poll::Pending => 0,
            };
            self.rest = Bytes::copy_from_slice(read.get(written..).unwrap_or_default());
        }
    }

    /// Counts what was written.
    fn take(&mut self, written: usize) -> io::Result<usize> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.must_flush = true;
        self.carried += written as u64;
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn carry(reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin, early: &[u8]) -> Way {
        let (mut reader, mut writer) = (reader, writer);
        let mut way = Way::beginning_with(Bytes::copy_from_slice(early));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let carried = poll_fn(|context| way.poll_carry(context, (&mut reader, &mut writer)));
        runtime.block_on(carried).unwrap();
        way
    }

    #[test]
    fn everything_is_carried_and_then_the_end() {
        let (mut far, near) = duplex(1 << 20);
        let (end, mut sink) = duplex(1 << 20);
        let long = vec![b'x'; 3 * CHUNK + 7];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(far.write_all(&long)).unwrap();
        drop(far);
        let way = carry(near, end, b"early");
        assert_eq!(way.carried as usize, long.len() + 5);
        let mut all = Vec::new();
        runtime.block_on(sink.read_to_end(&mut all)).unwrap();
        assert_eq!(all, [&b"early"[..], &long].concat());
    }

    #[test]
    fn what_nobody_takes_is_not_read_on() {
        let (mut far, mut near) = duplex(1 << 20);
        let (mut end, _sink) = duplex(10);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(far.write_all(&vec![0; 4 * CHUNK])).unwrap();
        let mut way = Way::default();
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            assert!(way.poll_carry(&mut context, (&mut near, &mut end)).is_pending());
        }
        assert_eq!((way.carried, way.rest.len()), (10, CHUNK - 10));
    }
}
