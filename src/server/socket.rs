//! A client's socket as hyper sees it: the bytes that were read to tell the protocol come first,
//! and every byte that comes in passes the framing check.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::framing::Framing;

/// How a client that knows that this server speaks HTTP/2 begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A client's socket.
pub(super) struct Socket {
    stream: TcpStream,
    /// Bytes that were read to tell the protocol, to be read again.
    replay: Vec<u8>,
    /// The check of an HTTP/1 connection.
    framing: Option<Rc<RefCell<Framing>>>,
    /// Requests that hyper has handed on.
    dispatched: Rc<Cell<u64>>,
    writing: Rc<Writing>,
}

/// Whether the client takes what is written to it.
#[derive(Debug, Default)]
pub(super) struct Writing {
    is_blocked: Cell<bool>,
    writes: Cell<u64>,
}

impl Writing {
    /// Set while the client takes nothing; another number for each time that it stopped.
    pub(super) fn stalled(&self) -> Option<u64> {
        self.is_blocked.get().then(|| self.writes.get())
    }

    fn note<T>(&self, written: &Poll<io::Result<T>>) {
        self.is_blocked.set(written.is_pending());
        if written.is_ready() {
            self.writes.set(self.writes.get().wrapping_add(1));
        }
    }
}

impl Socket {
    /// Reads just as much as it takes to tell the protocol. None: the client left before.
    pub(super) async fn open(mut stream: TcpStream) -> io::Result<Option<(Socket, Protocol)>> {
        let mut start = [0; PREFACE.len()];
        let mut filled = 0;
        let protocol = loop {
            let Some(rest) = start.get_mut(filled..) else { break Protocol::Http2 };
            let read = stream.read(rest).await?;
            if read == 0 {
                return Ok(None);
            }
            filled += read;
            match start.get(..filled) {
                Some(PREFACE) => break Protocol::Http2,
                Some(begun) if PREFACE.starts_with(begun) => {}
                _ => break Protocol::Http1,
            }
        };
        let replay = start.get(..filled).unwrap_or_default().to_vec();
        let socket = Socket {
            stream,
            replay,
            framing: None,
            dispatched: Rc::default(),
            writing: Rc::default(),
        };
        Ok(Some((socket, protocol)))
    }

    /// Has every byte pass `framing` first; `dispatched` counts the requests that were handed on.
    pub(super) fn check(&mut self, framing: Rc<RefCell<Framing>>, dispatched: Rc<Cell<u64>>) {
        self.framing = Some(framing);
        self.dispatched = dispatched;
    }

    /// Tells whether the client takes what is written.
    pub(super) fn writing(&self) -> Rc<Writing> {
        Rc::clone(&self.writing)
    }

    fn poll_replay_or_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replay.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.replay.len().min(buffer.remaining());
        buffer.put_slice(self.replay.get(..length).unwrap_or_default());
        self.replay.drain(..length);
        if self.replay.is_empty() {
            self.replay = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let before = buffer.filled().len();
        ready!(socket.poll_replay_or_read(context, buffer))?;
        if let (Some(framing), Some(read)) = (&socket.framing, buffer.filled().get(before..)) {
            let mut framing = framing.borrow_mut();
            framing.read(read);
            // A fault in the body of a request that is being served: hyper may not see it. Before
            // that, the request is still to be answered by the verdict on it.
            let dispatched = socket.dispatched.get();
            if dispatched == framing.heads() {
                framing.verdict(dispatched).map_err(io::Error::other)?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.writing.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.writing.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
