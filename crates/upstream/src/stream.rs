//! A socket to a server, in TLS or as it is, and what is counted of it in HTTP/2.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take},
    net::TcpStream,
};

use super::{frames::Frames, secure_stream::SecureStream, slots::Slot};

/// A connection to a server, ready for a protocol of whichever kind.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// In TLS, whose state is many times larger.
    Tls(Box<SecureStream>),
    /// In memory.
    #[cfg(test)]
    Memory(tokio::io::DuplexStream),
}

/// A stream in HTTP/2: it counts what is read from it, can be cut, and holds the right to be open.
///
/// A request may be repeated only if nothing of a response has come, and hyper does not report
/// interim responses.
pub(super) struct MeteredStream {
    stream: Take<Stream>,
    traffic: Rc<Traffic>,
    /// Free again when the socket is closed, however that comes.
    _slot: Slot,
}

/// The state of a stream, for code that does not own the stream.
#[derive(Default)]
pub(super) struct Traffic {
    read: Cell<u64>,
    is_closed: Cell<bool>,
    /// Woken by the first byte, and by the end.
    waker: RefCell<Option<Waker>>,
    /// Who reads.
    reader: RefCell<Option<Waker>>,
    frames: RefCell<Frames>,
    is_cut: Cell<bool>,
    is_storm: Cell<bool>,
}

/// What is read at once. What a client does not read stays here, and what it lies in with it.
const READ_BYTES: u64 = 16 * 1024;

impl MeteredStream {
    pub(super) fn new(stream: Stream, slot: Slot) -> (MeteredStream, Rc<Traffic>) {
        let traffic = Rc::<Traffic>::default();
        let stream = stream.take(READ_BYTES);
        (MeteredStream { stream, traffic: Rc::clone(&traffic), _slot: slot }, traffic)
    }
}

impl Drop for MeteredStream {
    fn drop(&mut self) {
        self.traffic.is_closed.set(true);
        self.traffic.wake();
    }
}

impl Traffic {
    /// Bytes that ever came.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    /// Whether the stream is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Ready once something has come, or nothing will.
    pub(super) fn poll_first(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.read.get() > 0 || self.is_closed.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// Makes reads of the stream fail.
    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// A request in HTTP/2 is about to be sent.
    pub(super) fn expect_response(&self) {
        self.frames.borrow_mut().expect_response();
    }

    /// No stream is in use any more.
    pub(super) fn rest(&self) {
        self.frames.borrow_mut().rest();
    }

    /// Whether it was cut for a storm of interim responses in HTTP/2.
    pub(super) fn is_storm(&self) -> bool {
        self.is_storm.get()
    }

    fn count(&self, bytes: &[u8]) {
        if !self.frames.borrow_mut().read(bytes) {
            self.is_storm.set(true);
        }
        let before = self.read.replace(self.read.get() + bytes.len() as u64);
        if before == 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.traffic.is_cut.get() || self.traffic.is_storm.get() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let mut reader = self.traffic.reader.borrow_mut();
        if !reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *reader = Some(context.waker().clone());
        }
        drop(reader);
        let before = buffer.filled().len();
        self.stream.set_limit(READ_BYTES);
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.traffic.count(buffer.filled().get(before..).unwrap_or_default());
        if self.traffic.is_storm.get() {
            buffer.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        polled
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(context)
    }
}

/// Does the same with a stream of whichever kind.
macro_rules! each {
    ($streams:expr, $stream:ident => $call:expr) => {
        match $streams {
            Stream::Plain($stream) => $call,
            Stream::Tls($stream) => $call,
            #[cfg(test)]
            Stream::Memory($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}
