//! Bytes between a client and a server that have agreed to leave HTTP, as they come, both ways.
//!
//! It runs in the task of the client's connection and holds what the request holds: its place among
//! those in flight, its leases, its line in the access log. All of that ends when it does.
//!
//! When the proxy drains, both ends of a WebSocket get a Close frame, each between two frames.

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
use tollgate_clock::deadline::Deadline;
use tollgate_response::{Body, EndedTunnel};
use tollgate_upstream::Switched;

use super::{
    socket::{CLOSE_TIMEOUT, Socket},
    websocket::{As, Frames, going_away},
};

/// A tunnel that has not begun.
pub(super) struct Tunnel {
    pub(super) server: Switched,
    /// What the request holds.
    pub(super) body: Body,
    /// Whether it carries a WebSocket, which has words for its end.
    pub(super) is_websocket: bool,
}

/// Bytes that are carried at once. They are on the stack: a tunnel in which nothing moves holds
/// none.
const CHUNK: usize = 16 * 1024;

/// How long nothing may move once one side has ended: most have nothing to say to who is gone.
const LINGER: Duration = Duration::from_secs(5);

/// How far a tunnel is on its direction out, because this proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It is not, or has time left.
    No,
    /// Frames that have begun are finished, and then both sides get a Close frame.
    Notifying,
    /// Both ways were ended.
    Ending,
}

impl Tunnel {
    /// Carries bytes until both sides have ended, one fails, or nothing moves for `idle`. `early`
    /// is what the client has sent before the server agreed.
    pub(super) async fn run(
        self,
        mut client: Socket,
        early: Bytes,
        deadline: Deadline,
        idle: Duration,
    ) {
        let Tunnel { mut server, body, is_websocket } = self;
        let frames = || is_websocket.then(Frames::default);
        let mut up = Direction { rest: early, frames: frames(), ..Direction::default() };
        let mut down = Direction { frames: frames(), ..Direction::default() };
        client.stop_checking();
        deadline.set(idle);
        let mut is_last_call = false;
        let mut leaving = Leaving::No;
        let close_timeout = idle.min(CLOSE_TIMEOUT) / 2;
        let result: io::Result<()> = poll_fn(|context| {
            if let Some(left) = deadline.ticker().tunnels().filter(|_| leaving == Leaving::No) {
                if !std::mem::replace(&mut is_last_call, true) {
                    deadline.set_at_most(left);
                }
                if left.is_zero() && !(up.has_ended && down.has_ended) {
                    leaving = Leaving::Notifying;
                    up.go_away(As::Client);
                    down.go_away(As::Server);
                    deadline.set(close_timeout);
                }
            }
            let before = (up.progress(), down.progress());
            let sent = up.poll_carry(context, &mut client, &mut server)?;
            let received = down.poll_carry(context, &mut server, &mut client)?;
            if sent.is_ready() && received.is_ready() {
                return Poll::Ready(Ok(()));
            }
            if leaving == Leaving::No && before != (up.progress(), down.progress()) {
                let is_ending = up.has_ended || down.has_ended;
                deadline.set(if is_ending { idle.min(LINGER) } else { idle });
                if let Some(left) = deadline.ticker().tunnels().filter(|_| !is_ending) {
                    deadline.set_at_most(left);
                }
            }
            if !deadline.poll_passed(context) {
                return Poll::Pending;
            }
            match leaving {
                Leaving::No => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Leaving::Notifying => {
                    leaving = Leaving::Ending;
                    up.end();
                    down.end();
                    deadline.set(close_timeout);
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                // A side that got the Close and does not answer delays nothing.
                Leaving::Ending if up.is_closed && down.is_closed => Poll::Ready(Ok(())),
                Leaving::Ending => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            }
        })
        .await;
        body.end_tunnel(EndedTunnel {
            is_complete: result.is_ok(),
            bytes_up: up.carried,
            bytes_down: down.carried,
        });
    }
}

/// One direction.
#[derive(Default)]
struct Direction {
    /// What was read and not taken yet.
    rest: Bytes,
    carried: u64,
    must_flush: bool,
    /// Nothing more is to be carried.
    has_ended: bool,
    /// The other side was notified of the end.
    is_closed: bool,
    /// The reader has ended.
    is_read_out: bool,
    /// What was carried of a WebSocket; none: it is another protocol, or has ended.
    frames: Option<Frames>,
    /// What is said after the frame that has begun.
    farewell: Option<Bytes>,
    /// Whether what is still read is thrown away: a system that has unread bytes when a socket is
    /// closed throws away what was written, and with it the last words.
    is_discarding: bool,
}

impl Direction {
    fn progress(&self) -> (u64, bool) {
        (self.carried, self.has_ended)
    }

    /// Ends it, with a Close in these words if it carries a WebSocket.
    fn go_away(&mut self, speaker: As) {
        match self.frames {
            Some(_) if !self.has_ended => self.farewell = Some(going_away(speaker)),
            _ => self.has_ended = true,
        }
    }

    /// Ends it, whatever it is in the middle of.
    fn end(&mut self) {
        if self.farewell.take().is_some() {
            self.rest = Bytes::new();
            self.has_ended = true;
        }
    }

    /// Says farewell if it is time for that.
    fn say_farewell(&mut self) {
        let Some(frames) = self.frames.as_ref().filter(|frames| frames.is_between()) else {
            return;
        };
        let has_closed = frames.has_closed();
        let Some(farewell) = self.farewell.take() else { return };
        self.frames = None;
        self.rest = if has_closed { Bytes::new() } else { farewell };
        (self.has_ended, self.is_discarding) = (true, true);
    }

    /// What is to be written next: of a WebSocket that is to end, no more than the frame has left.
    fn next(&self) -> &[u8] {
        let most = match (&self.frames, &self.farewell) {
            (Some(frames), Some(_)) => frames.left(),
            _ => usize::MAX,
        };
        self.rest.get(..most).unwrap_or(&self.rest)
    }

    /// Ready once everything was carried and the writer was shut down.
    fn poll_carry<R, W>(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut reader = Pin::new(reader);
        let mut writer = Pin::new(writer);
        loop {
            self.say_farewell();
            if !self.rest.is_empty() {
                let written = ready!(writer.as_mut().poll_write(context, self.next()))?;
                let carried = self.rest.split_to(written);
                self.take(&carried)?;
                continue;
            }
            //= rfc9110#section-9.3.6
            //# the intermediary MUST attempt to send any outstanding data that came from the closed
            //# side to the other side, close both connections
            if self.has_ended && !self.is_closed {
                ready!(writer.as_mut().poll_shutdown(context))?;
                (self.is_closed, self.must_flush) = (true, false);
            }
            if self.is_closed && (self.is_read_out || !self.is_discarding) {
                return Poll::Ready(Ok(()));
            }
            let mut space = [const { MaybeUninit::uninit() }; CHUNK];
            let mut buffer = ReadBuf::uninit(&mut space);
            if self.poll_read(context, reader.as_mut(), &mut buffer)?.is_pending() {
                if self.must_flush {
                    ready!(writer.as_mut().poll_flush(context))?;
                    self.must_flush = false;
                }
                return Poll::Pending;
            }
            let read = buffer.filled();
            if read.is_empty() {
                (self.has_ended, self.is_read_out) = (true, true);
                continue;
            }
            if self.is_closed {
                continue;
            }
            let written = match self.farewell {
                // Not all of it may go.
                Some(_) => 0,
                None => match writer.as_mut().poll_write(context, read)? {
                    Poll::Ready(written) => {
                        self.take(read.get(..written).unwrap_or_default())?;
                        written
                    }
                    Poll::Pending => 0,
                },
            };
            self.rest = Bytes::copy_from_slice(read.get(written..).unwrap_or_default());
        }
    }

    /// Reads what comes next; nothing, where an error only says that there is no more.
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        reader: Pin<&mut impl AsyncRead>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match reader.poll_read(context, buffer) {
            // Many that speak TLS end without a word; what is carried knows its own end.
            //= rfc9112#section-9.8
            //# Servers SHOULD be prepared to receive an incomplete close from the client
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            // After the Close, what this side sends is not needed.
            Poll::Ready(Err(_)) if self.is_closed => Poll::Ready(Ok(())),
            read => read,
        }
    }

    /// Counts what was written.
    fn take(&mut self, carried: &[u8]) -> io::Result<()> {
        if carried.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.must_flush = true;
        if let Some(frames) = &mut self.frames {
            frames.carry(carried);
        }
        // Last words are this proxy's own.
        if !self.is_discarding {
            self.carried += carried.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn carry(
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
        early: &[u8],
    ) -> Direction {
        let mut reader = reader;
        let mut writer = writer;
        let mut direction =
            Direction { rest: Bytes::copy_from_slice(early), ..Direction::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let carried = poll_fn(|context| direction.poll_carry(context, &mut reader, &mut writer));
        runtime.block_on(carried).unwrap();
        direction
    }

    #[test]
    fn everything_is_carried_and_then_the_end() {
        let (mut far, near) = duplex(1 << 20);
        let (end, mut sink) = duplex(1 << 20);
        let long = vec![b'x'; 3 * CHUNK + 7];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(far.write_all(&long)).unwrap();
        drop(far);
        let direction = carry(near, end, b"early");
        assert_eq!(direction.carried as usize, long.len() + 5);
        let mut all = Vec::new();
        runtime.block_on(sink.read_to_end(&mut all)).unwrap();
        assert_eq!(all, [&b"early"[..], &long].concat());
    }

    #[test]
    fn no_more_is_read_while_the_other_side_takes_nothing() {
        let (mut far, mut near) = duplex(1 << 20);
        let (mut end, _sink) = duplex(10);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(far.write_all(&vec![0; 4 * CHUNK])).unwrap();
        let mut direction = Direction::default();
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            assert!(direction.poll_carry(&mut context, &mut near, &mut end).is_pending());
        }
        assert_eq!((direction.carried, direction.rest.len()), (10, CHUNK - 10));
    }
}
