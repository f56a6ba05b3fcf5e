//! A client's connection as bytes, with TLS or without.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustls::HandshakeKind;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    downstream::{Handshake, HandshakeFailure, Handshakes},
    gate::Gate,
    settings::CurrentTls,
};

/// What a client's bytes come by.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How often it is looked whether a client has gone that has sent more.
const GONE_PAUSE: Duration = Duration::from_millis(250);

impl Stream {
    /// Sends what the system takes at once. With TLS that is nothing: what is encrypted has to be
    /// sent whole.
    ///
    /// # Errors
    /// Those of the socket.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => match socket.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                sent => sent,
            },
            Stream::Tls(_) => Ok(0),
        }
    }

    /// Returns when the client has gone; never, as long as it may still read.
    pub(super) async fn gone(&self) -> io::Error {
        let socket = match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        loop {
            match socket.ready(Interest::READABLE).await {
                Ok(ready) if ready.is_read_closed() => {
                    return io::ErrorKind::ConnectionAborted.into();
                }
                // It sends on.
                Ok(_) => sleep(GONE_PAUSE).await,
                Err(error) => return error,
            }
        }
    }
}

/// The handshake with a client, if the listener has TLS. None: it failed, and was counted.
pub(super) async fn open(
    socket: TcpStream,
    tls: Option<&CurrentTls>,
    gate: &Gate,
) -> Option<Stream> {
    let Some(tls) = tls else { return Some(Stream::Plain(socket)) };
    let shared = gate.shared();
    let handshakes = shared.admission.handshakes();
    let (config, _) = tls.config();
    let accepting = TlsAcceptor::from(config).accept(socket);
    let stream = match timeout(shared.timeouts.tls_handshake, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return failed(handshakes, &error),
        Err(_) => {
            handshakes.count(Handshake::Failed(HandshakeFailure::Timeout));
            return None;
        }
    };
    let connection = stream.get_ref().1;
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    if let Some(chain) = connection.peer_certificates().filter(|_| is_resumed)
        // It was checked when the session began.
        && tls.check(chain, shared.clock.now()).is_err()
    {
        handshakes.count(Handshake::Failed(HandshakeFailure::ClientCertificate));
        return None;
    }
    let is_tls13 = connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    handshakes.count(Handshake::Done { is_tls13, is_resumed });
    Some(Stream::Tls(Box::new(stream)))
}

/// Counts a failed handshake; a client that just leaves has not failed.
fn failed(handshakes: &Handshakes, error: &io::Error) -> Option<Stream> {
    if error.kind() == io::ErrorKind::InvalidData {
        let error = error.get_ref().and_then(|error| error.downcast_ref());
        let reason = error.map_or(HandshakeFailure::Other, HandshakeFailure::of);
        handshakes.count(Handshake::Failed(reason));
    }
    tracing::debug!(%error, "decisions: no TLS handshake");
    None
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
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
            Stream::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
