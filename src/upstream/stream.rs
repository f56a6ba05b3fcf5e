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

use super::slots::Slot;

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
/// Whether anything of a response has come is what a repetition depends on, and hyper does not tell
/// it of interim responses.
pub(super) struct Counted {
    stream: Take<Stream>,
    traffic: Rc<Traffic>,
    /// Free again when the socket is closed, however that comes.
    _slot: Slot,
}

/// What is known about a stream by whoever does not have it.
#[derive(Default)]
pub(super) struct Traffic {
    read: Cell<u64>,
    /// Interim responses since a request was sent; none once its response has begun.
    interim: Cell<Option<u32>>,
    is_closed: Cell<bool>,
    /// Woken by the first byte, and by the end.
    waker: RefCell<Option<Waker>>,
    /// Who reads, of a stream that can be cut.
    reader: Option<RefCell<Option<Waker>>>,
    is_cut: Cell<bool>,
}

/// Interim responses (1xx) to one request that are taken for something else than an attack.
const MAX_INTERIM: u32 = 32;

/// Bytes that may come before a response's head is complete: interim responses and the head.
const MAX_INTERIM_BYTES: u64 = 128 * 1024;

/// What is read at once. What a client does not read stays here, and what it lies in with it.
const READ_BYTES: u64 = 16 * 1024;

impl Counted {
    pub(super) fn new(stream: Stream, slot: Slot) -> (Counted, Rc<Traffic>) {
        Counted::with(stream, slot, Traffic::default())
    }

    /// One that can be cut.
    pub(super) fn severable(stream: Stream, slot: Slot) -> (Counted, Rc<Traffic>) {
        Counted::with(
            stream,
            slot,
            Traffic { reader: Some(RefCell::default()), ..Traffic::default() },
        )
    }

    fn with(stream: Stream, slot: Slot, traffic: Traffic) -> (Counted, Rc<Traffic>) {
        let traffic = Rc::new(traffic);
        let stream = stream.take(READ_BYTES);
        (Counted { stream, traffic: Rc::clone(&traffic), _slot: slot }, traffic)
    }
}

impl Drop for Counted {
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

    /// Has whoever reads find the stream broken.
    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        if let Some(reader) = self.reader.as_ref().and_then(RefCell::take) {
            reader.wake();
        }
    }

    /// A request is about to be sent.
    pub(super) fn await_head(&self) {
        self.interim.set(Some(0));
    }

    /// Whether so much came before the response's head, or in its place, that nobody needs to wait
    /// for it: more than was `read_before`.
    pub(super) fn is_storm(&self, read_before: u64) -> bool {
        let interim = self.interim.get();
        interim.is_some_and(|interim| {
            interim > MAX_INTERIM || self.read.get() - read_before > MAX_INTERIM_BYTES
        })
    }

    /// Counts the status lines of interim responses. hyper reads on for as long as they come.
    fn count_interim(&self, bytes: &[u8], mut interim: u32) {
        const VERSION: &[u8] = b"HTTP/1.";
        for at in memchr::memmem::find_iter(bytes, VERSION) {
            match bytes.get(at + VERSION.len() + 2) {
                Some(b'1') => interim += 1,
                Some(_) if interim <= MAX_INTERIM => return self.interim.set(None),
                _ => {}
            }
        }
        self.interim.set(Some(interim));
    }

    fn count(&self, bytes: &[u8]) {
        if let Some(interim) = self.interim.get() {
            self.count_interim(bytes, interim);
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

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(reader) = &self.traffic.reader {
            if self.traffic.is_cut.get() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            let mut reader = reader.borrow_mut();
            if !reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *reader = Some(context.waker().clone());
            }
        }
        let before = buffer.filled().len();
        self.stream.set_limit(READ_BYTES);
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.traffic.count(buffer.filled().get(before..).unwrap_or_default());
        polled
    }
}

impl AsyncWrite for Counted {
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
