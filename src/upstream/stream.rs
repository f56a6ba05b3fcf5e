//! A socket to a server, in TLS or as it is, that counts what comes from it.

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
use tokio_rustls::client::TlsStream;

use super::{
    frames::Frames,
    heads::{HeadProgress, Heads, MAX_INTERIM},
    slots::Slot,
};

/// A connection to a server, ready for a protocol of whichever kind.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// In TLS, whose state is many times larger.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream that counts what is read from it, and holds the right to be open.
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
    /// The heads since a request was sent in HTTP/1.1; none once its response has begun.
    heads: Cell<Option<Heads>>,
    has_bare_line_feed: Cell<bool>,
    is_closed: Cell<bool>,
    /// Woken by the first byte, and by the end.
    waker: RefCell<Option<Waker>>,
    severable: Option<Severable>,
    is_cut: Cell<bool>,
    is_storm: Cell<bool>,
}

/// What is known about a stream that many use, in HTTP/2, and that can be cut.
struct Severable {
    /// Who reads.
    reader: RefCell<Option<Waker>>,
    frames: RefCell<Frames>,
}

/// Bytes that may come before a response's head is complete: interim responses and the head.
const MAX_INTERIM_BYTES: u64 = 128 * 1024;

/// What is read at once. What a client does not read stays here, and what it lies in with it.
const READ_BYTES: u64 = 16 * 1024;

impl MeteredStream {
    pub(super) fn new(stream: Stream, slot: Slot) -> (MeteredStream, Rc<Traffic>) {
        MeteredStream::with(stream, slot, Traffic::default())
    }

    /// One that speaks HTTP/2 and can be cut.
    pub(super) fn severable(stream: Stream, slot: Slot) -> (MeteredStream, Rc<Traffic>) {
        let severable =
            Severable { reader: RefCell::default(), frames: RefCell::new(Frames::new()) };
        MeteredStream::with(
            stream,
            slot,
            Traffic { severable: Some(severable), ..Traffic::default() },
        )
    }

    fn with(stream: Stream, slot: Slot, traffic: Traffic) -> (MeteredStream, Rc<Traffic>) {
        let traffic = Rc::new(traffic);
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
        let reader = self.severable.as_ref().and_then(|severable| severable.reader.take());
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// A request in HTTP/1.1 is about to be sent.
    pub(super) fn await_head(&self) {
        self.heads.set(Some(Heads::default()));
    }

    /// Whether a response in HTTP/1.1 cannot be passed on, or will never begin: there was a bare
    /// line feed in its head, or so much came before its end, more than was `read_before`.
    pub(super) fn is_unsound(&self, read_before: u64) -> bool {
        self.has_bare_line_feed.get()
            || self.heads.get().is_some_and(|heads| {
                heads.interim() > MAX_INTERIM || self.read.get() - read_before > MAX_INTERIM_BYTES
            })
    }

    /// A request in HTTP/2 is about to be sent.
    pub(super) fn expect_response(&self) {
        self.with_frames(Frames::expect_response);
    }

    /// No stream is in use any more.
    pub(super) fn rest(&self) {
        self.with_frames(Frames::rest);
    }

    /// Whether it was cut for a storm of interim responses in HTTP/2.
    pub(super) fn is_storm(&self) -> bool {
        self.is_storm.get()
    }

    fn with_frames(&self, change: impl FnOnce(&mut Frames)) {
        if let Some(severable) = &self.severable {
            change(&mut severable.frames.borrow_mut());
        }
    }

    fn follow_heads(&self, bytes: &[u8], mut heads: Heads) {
        let is_over = match heads.read(bytes) {
            HeadProgress::Incomplete => false,
            // A storm is still one where the response comes with the last of it.
            HeadProgress::Done => heads.interim() <= MAX_INTERIM,
            HeadProgress::BareLineFeed => {
                self.has_bare_line_feed.set(true);
                true
            }
        };
        self.heads.set(Some(heads).filter(|_| !is_over));
    }

    fn count(&self, bytes: &[u8]) {
        if let Some(heads) = self.heads.get() {
            self.follow_heads(bytes, heads);
        }
        if let Some(severable) = &self.severable
            && !severable.frames.borrow_mut().read(bytes)
        {
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
        if let Some(severable) = &self.traffic.severable {
            if self.traffic.is_cut.get() || self.traffic.is_storm.get() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            let mut reader = severable.reader.borrow_mut();
            if !reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *reader = Some(context.waker().clone());
            }
        }
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
