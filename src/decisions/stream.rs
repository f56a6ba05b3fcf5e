//! A client's connection as bytes, with TLS or without.

use std::{io, time::Duration};

use rustls::HandshakeKind;
use tokio::{
    io::Interest,
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::either::Either;
use tollgate_gate::Gate;
use tollgate_settings::CurrentTls;
use tollgate_upstream::downstream::{Handshake, HandshakeFailure, Handshakes};

/// What a client's bytes come by: the left one as it is, the right one in TLS.
pub(super) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// How often it is looked whether a client has gone that has sent more.
const GONE_PAUSE: Duration = Duration::from_millis(250);

/// Sends what the system takes at once. With TLS that is nothing: what is encrypted has to be sent
/// whole.
///
/// # Errors
/// Those of the socket.
pub(super) fn try_write(stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    match stream {
        Either::Left(socket) => match socket.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        },
        Either::Right(_) => Ok(0),
    }
}

/// Returns when the client has gone; never, as long as it may still read.
pub(super) async fn gone(stream: &Stream) -> io::Error {
    let socket = match stream {
        Either::Left(socket) => socket,
        Either::Right(stream) => stream.get_ref().0,
    };
    loop {
        match socket.ready(Interest::READABLE).await {
            Ok(ready) if ready.is_read_closed() => return io::ErrorKind::ConnectionAborted.into(),
            // It sends on.
            Ok(_) => sleep(GONE_PAUSE).await,
            Err(error) => return error,
        }
    }
}

/// The handshake with a client, if the listener has TLS. None: it failed, and was counted.
pub(super) async fn open(
    socket: TcpStream,
    tls: Option<&CurrentTls>,
    gate: &Gate,
) -> Option<Stream> {
    let Some(tls) = tls else { return Some(Either::Left(socket)) };
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
    Some(Either::Right(Box::new(stream)))
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
