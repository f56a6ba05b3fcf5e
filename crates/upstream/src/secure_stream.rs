//! A socket to a server in TLS. However it is closed, the server gets an alert first.

use std::{
    io::{self, Write},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A socket to a server, in TLS.
#[derive(Debug)]
pub struct SecureStream(TlsStream<TcpStream>);

impl SecureStream {
    pub(super) fn new(stream: TlsStream<TcpStream>) -> SecureStream {
        SecureStream(stream)
    }

    /// The protocol that the server has chosen.
    pub(super) fn alpn_protocol(&self) -> Option<&[u8]> {
        self.0.get_ref().1.alpn_protocol()
    }
}

/// Connections are dropped wherever one ends: unused, broken off, with a worker. So this is where
/// the alert goes out, as far as the socket has room for it at once. A socket without room has a
/// server that does not read: it would not see the alert in time, and nothing waits for it.
//= rfc9112#section-9.8
//# Clients MUST send a closure alert before closing the connection
impl Drop for SecureStream {
    fn drop(&mut self) {
        let (socket, connection) = self.0.get_mut();
        // It does nothing if the alert was sent before.
        connection.send_close_notify();
        let mut at_once = AtOnce(socket);
        while connection.wants_write() {
            if !connection.write_tls(&mut at_once).is_ok_and(|written| written > 0) {
                break;
            }
        }
    }
}

/// Writes what a socket takes without waiting.
struct AtOnce<'s>(&'s TcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for SecureStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
