//! A client's connection as bytes: a socket of either kind, with TLS or without.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

use super::listener::AcceptedStream;

/// What a client's bytes come by.
pub(super) enum Stream {
    Plain(Transport),
    Tls(Box<TlsStream<Transport>>),
}

/// A socket, and what was read from it too early: that comes first.
pub(crate) struct Transport {
    socket: TransportSocket,
    replay: Vec<u8>,
}

enum TransportSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What the system takes of what cannot be sent yet: for clients that read slowly it would buffer
/// megabytes each.
const UNSENT_BYTES: u32 = 128 * 1024;

/// The most bytes that are gathered from several slices into one: to copy a head and a small body
/// costs less than to have the system walk over both.
const GATHERED_BYTES: usize = 4 * 1024;

impl Transport {
    /// Makes an accepted socket this runtime's own.
    pub(crate) fn adopt(stream: AcceptedStream) -> io::Result<Transport> {
        let socket = match stream {
            AcceptedStream::Tcp(stream, _) => {
                let stream = TcpStream::from_std(stream)?;
                stream.set_nodelay(true)?;
                // A system that does not know it has no other harm from that than memory.
                let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
                TransportSocket::Tcp(stream)
            }
            AcceptedStream::Unix(stream) => TransportSocket::Unix(UnixStream::from_std(stream)?),
        };
        Ok(Transport { socket, replay: Vec::new() })
    }

    /// Has these bytes read again, before all that follow.
    pub(super) fn unread(&mut self, bytes: &[u8]) {
        self.replay.splice(..0, bytes.iter().copied());
    }

    /// Ready when a read would not wait, be it for bytes, the end or an error.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.replay.is_empty() {
            return Poll::Ready(());
        }
        match &self.socket {
            TransportSocket::Tcp(socket) => socket.poll_read_ready(context).map(drop),
            TransportSocket::Unix(socket) => socket.poll_read_ready(context).map(drop),
        }
    }

    fn take_replay(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.replay.len().min(buffer.remaining());
        buffer.put_slice(self.replay.get(..length).unwrap_or_default());
        self.replay.drain(..length);
        if self.replay.is_empty() {
            self.replay = Vec::new();
        }
    }
}

impl Stream {
    /// Ready when more has come, be it bytes, the end or an error. All that came before has to be
    /// read: what TLS has decrypted already is not seen here.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Stream::Plain(transport) => transport.poll_readable(context),
            Stream::Tls(stream) => stream.get_ref().0.poll_readable(context),
        }
    }
}

/// Does the same with whatever a stream turns out to be.
macro_rules! each {
    ($stream:expr, $kind:ident::{$($variant:ident),+}, $pinned:ident => $call:expr) => {
        match $stream { $($kind::$variant(stream) => { let $pinned = Pin::new(stream); $call })+ }
    };
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let transport = self.get_mut();
        if !transport.replay.is_empty() {
            transport.take_replay(buffer);
            // What comes right behind is read with it: a head in one piece is checked in one.
            if transport.replay.is_empty() && buffer.remaining() > 0 {
                let _ = each!(&mut transport.socket, TransportSocket::{Tcp, Unix}, socket => socket.poll_read(context, buffer));
            }
            return Poll::Ready(Ok(()));
        }
        each!(&mut transport.socket, TransportSocket::{Tcp, Unix}, socket => socket.poll_read(context, buffer))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(&mut self.get_mut().socket, TransportSocket::{Tcp, Unix}, socket => socket.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let transport = self.get_mut();
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if bytes <= GATHERED_BYTES {
            let mut room = [const { MaybeUninit::uninit() }; GATHERED_BYTES];
            let mut gathered = ReadBuf::uninit(&mut room);
            slices.iter().for_each(|slice| gathered.put_slice(slice));
            return Pin::new(transport).poll_write(context, gathered.filled());
        }
        each!(&mut transport.socket, TransportSocket::{Tcp, Unix}, socket => socket.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing of ours is between a write and the system.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.get_mut().socket, TransportSocket::{Tcp, Unix}, socket => socket.poll_shutdown(context))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), Stream::{Plain, Tls}, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), Stream::{Plain, Tls}, stream => stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), Stream::{Plain, Tls}, stream => stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), Stream::{Plain, Tls}, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), Stream::{Plain, Tls}, stream => stream.poll_shutdown(context))
    }
}
