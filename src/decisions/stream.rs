//! A client's connection as bytes, with TLS or without.

use std::{io, sync::Arc, time::Duration};

use rustls::HandshakeKind;
use tokio::{
    io::Interest,
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::either::Either;
use tollgate_clock::Timestamp;
use tollgate_gate::Gate;
use tollgate_settings::CurrentTls;
use tollgate_upstream::downstream::{ClientChain, Handshake, HandshakeFailure, Handshakes};

/// What a client's bytes come by: the left one as it is, the right one in TLS.
pub(super) type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A client that commands may come from.
pub(super) struct OpenClient {
    pub(super) stream: Stream,
    /// Who it has shown itself to be, if the listener asks for certificates.
    pub(super) shown: Option<Box<Shown>>,
}

/// A certificate that a client has shown, and the rules by which it is good.
pub(super) struct Shown {
    chain: ClientChain,
    tls: Arc<CurrentTls>,
}

impl Shown {
    /// Whether it is good by the rules that are in force at `now`.
    pub(super) fn is_good(&self, now: Timestamp) -> bool {
        self.chain.is_good(&self.tls, now)
    }
}

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
    tls: Option<Arc<CurrentTls>>,
    gate: &Gate,
) -> Option<OpenClient> {
    let Some(tls) = tls else {
        return Some(OpenClient { stream: Either::Left(socket), shown: None });
    };
    let shared = gate.shared();
    let handshakes = shared.admission.handshakes();
    let (config, epoch) = tls.config();
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
    let now = shared.clock.now();
    let mut shown = None;
    if let Some(chain) = connection.peer_certificates() {
        // It was checked when a session that is resumed began.
        let is_good = !is_resumed || tls.check(chain, now).is_ok();
        let read = is_good.then(|| ClientChain::read(chain, &tls, epoch, now)).flatten();
        let Some(chain) = read else {
            handshakes.count(Handshake::Failed(HandshakeFailure::ClientCertificate));
            return None;
        };
        shown = Some(Box::new(Shown { chain, tls: Arc::clone(&tls) }));
    }
    let is_tls13 = connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    handshakes.count(Handshake::Done { is_tls13, is_resumed });
    Some(OpenClient { stream: Either::Right(Box::new(stream)), shown })
}

/// Counts a failed handshake; a client that just leaves has not failed.
fn failed(handshakes: &Handshakes, error: &io::Error) -> Option<OpenClient> {
    if error.kind() == io::ErrorKind::InvalidData {
        let error = error.get_ref().and_then(|error| error.downcast_ref());
        let reason = error.map_or(HandshakeFailure::Other, HandshakeFailure::of);
        handshakes.count(Handshake::Failed(reason));
    }
    tracing::debug!(%error, "decisions: no TLS handshake");
    None
}
