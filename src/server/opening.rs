//! From an accepted socket to a client that speaks a known protocol: the PROXY header, the TLS
//! handshake, the first bytes. Each has its deadline; a connection that misses one is closed.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use bytes::BufMut;
use http::HeaderValue;
use rustls::{CertificateError, HandshakeKind, ProtocolVersion, ServerConnection};
use tokio::io::AsyncReadExt;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tollgate_clock::deadline::Deadline;
use tollgate_gate::Shared;
use tollgate_identity::canonical;
use tollgate_settings::{
    ALPN_HTTP2, CertificateChoice, CurrentTls, Epoch, HandshakeConfig, Protocols,
};
use tollgate_upstream::downstream::{
    ClientChain, ConnectionPermit, Fault, Handshake, HandshakeFailure, NotAdmitted, NotGood, Peer,
};
use tollgate_wire::proxy_protocol::{self, HeaderError, MAX_BYTES, Source};

use super::{
    listener::{Accepted, AcceptedStream},
    socket::Protocol,
    stream::{Stream, Transport},
};

/// A connection that is ready for requests.
pub(super) struct OpenConnection {
    pub(super) stream: Stream,
    pub(super) protocol: Protocol,
    pub(super) peer: Peer,
}

/// How a client that knows that this server speaks HTTP/2 begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Why a connection ended before its first request.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpeningError {
    #[error("the client took too long over its {0}")]
    TooSlow(Opening),
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("the client left")]
    Left,
    #[error("a PROXY header from a peer that is not trusted")]
    UntrustedBalancer,
    #[error(transparent)]
    ProxyHeader(#[from] HeaderError),
    #[error(transparent)]
    Certificate(#[from] NotGood),
    #[error("the client does not speak a protocol of this listener")]
    NoCommonProtocol,
    #[error("no TLS handshake: {0}")]
    Handshake(#[source] io::Error),
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// What a client begins with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opening {
    ProxyHeader,
    Handshake,
    FirstBytes,
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Opening::ProxyHeader => "PROXY header",
            Opening::Handshake => "handshake",
            Opening::FirstBytes => "first bytes",
        })
    }
}

impl OpeningError {
    /// What TLS says.
    fn of_tls(error: rustls::Error) -> OpeningError {
        OpeningError::Handshake(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Why a client's certificate was not taken, if that has to do with revocation: an operator
    /// wants to know it, and most of all that a list is out of date.
    pub(super) fn revocation(&self) -> Option<&rustls::Error> {
        use CertificateError::{
            ExpiredRevocationList, ExpiredRevocationListContext, Revoked, UnknownRevocationStatus,
        };
        let OpeningError::Handshake(error) = self else { return None };
        let error = error.get_ref()?.downcast_ref()?;
        let is_about_it = matches!(
            error,
            rustls::Error::InvalidCertRevocationList(_)
                | rustls::Error::InvalidCertificate(
                    Revoked
                        | UnknownRevocationStatus
                        | ExpiredRevocationList
                        | ExpiredRevocationListContext { .. }
                )
        );
        is_about_it.then_some(error)
    }

    /// The failed handshake that it is counted as, if it is one.
    pub(super) fn failed_handshake(&self) -> Option<HandshakeFailure> {
        match self {
            OpeningError::TooSlow(Opening::Handshake) => Some(HandshakeFailure::Timeout),
            OpeningError::Certificate(_) => Some(HandshakeFailure::ClientCertificate),
            OpeningError::Handshake(error) => {
                let error = error.get_ref().and_then(|error| error.downcast_ref());
                Some(error.map_or(HandshakeFailure::Other, HandshakeFailure::of))
            }
            _ => None,
        }
    }

    /// The fault that it is counted as, if any: a client that just leaves is at no fault.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self {
            OpeningError::TooSlow(Opening::FirstBytes) => Some(Fault::SlowHead),
            OpeningError::TooSlow(Opening::ProxyHeader)
            | OpeningError::UntrustedBalancer
            | OpeningError::ProxyHeader(_) => Some(Fault::ProxyHeader),
            OpeningError::TooSlow(Opening::Handshake)
            | OpeningError::Handshake(_)
            | OpeningError::Certificate(_) => Some(Fault::Handshake),
            OpeningError::NotAdmitted(_)
            | OpeningError::Left
            | OpeningError::NoCommonProtocol
            | OpeningError::Stream(_) => None,
        }
    }
}

/// Opens a connection. What `deadline` is set to at the end is for what comes next.
pub(super) async fn open(
    accepted: Accepted,
    permit: &mut ConnectionPermit,
    shared: &Shared,
    deadline: &Deadline,
) -> Result<OpenConnection, OpeningError> {
    let Accepted { stream, listener } = accepted;
    let (mut address, mut is_trusted) = match &stream {
        AcceptedStream::Tcp(_, address) => {
            let address = canonical(address.ip());
            (address, shared.trusted_proxies.contains(address))
        }
        AcceptedStream::Unix(_) => (LOCAL_PEER, listener.trusts_local_peers),
    };
    let own_address = match &stream {
        AcceptedStream::Tcp(stream, _) if listener.asked.is_some() => stream.local_addr().ok(),
        AcceptedStream::Tcp(..) | AcceptedStream::Unix(_) => None,
    };
    let own_address = own_address.map(|own| own.ip());
    let mut transport = Transport::adopt(stream)?;
    // A PROXY header and a handshake share it: both are over before a request is begun.
    deadline.set(shared.timeouts.tls_handshake);
    if let Some(balancers) = &listener.proxy_protocol {
        if !balancers.contains(address) {
            return Err(OpeningError::UntrustedBalancer);
        }
        let reading = Box::pin(read_proxy_header(&mut transport));
        if let Source::Address(client) = within(deadline, Opening::ProxyHeader, reading).await? {
            (address, is_trusted) = (client, shared.trusted_proxies.contains(client));
        }
        permit.name(address)?;
    }
    let mut client_chain = None;
    let mut certificate_choice = None;
    let (stream, protocol) = match &listener.tls {
        None => {
            deadline.set(shared.timeouts.head);
            let detecting = detect(&mut transport, listener.protocols);
            let protocol = within(deadline, Opening::FirstBytes, detecting).await?;
            (Stream::Plain(transport), protocol)
        }
        Some(tls) => {
            // On the heap, as it would be a part of every connection's task otherwise.
            let handshake = Box::pin(shake_hands(transport, tls, listener.protocols));
            let TlsClient { stream, protocol, epoch, choice } =
                within(deadline, Opening::Handshake, handshake).await?;
            certificate_choice = choice.filter(|_| !is_trusted);
            deadline.set(shared.timeouts.head);
            client_chain = shown_chain(stream.get_ref().1, tls, epoch, shared)?;
            (Stream::Tls(stream), protocol)
        }
    };
    let address_value =
        HeaderValue::try_from(address.to_string()).map_err(|_| OpeningError::Left)?;
    let peer = Peer {
        address,
        address_value,
        is_trusted,
        client_chain,
        certificate_choice,
        own_address,
        listener,
    };
    Ok(OpenConnection { stream, protocol, peer })
}

/// Counts a handshake, and checks the certificates that the client has sent in it, if any.
fn shown_chain(
    connection: &ServerConnection,
    tls: &CurrentTls,
    epoch: Epoch,
    shared: &Shared,
) -> Result<Option<Arc<ClientChain>>, OpeningError> {
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let client_chain = match connection.peer_certificates() {
        None => None,
        Some(chain) => {
            let now = shared.clock.now();
            if is_resumed {
                // It was checked when the session began.
                tls.check(chain, now).map_err(OpeningError::of_tls)?;
            }
            let chain = ClientChain::read(chain, tls, epoch, now).ok_or(NotGood)?;
            Some(Arc::new(chain))
        }
    };
    let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
    shared.admission.handshakes().count(Handshake::Done { is_tls13, is_resumed });
    Ok(client_chain)
}

/// The client address that limits use for connections to a Unix socket.
const LOCAL_PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Waits until `deadline` at most, and while the worker drains as long as for any next request.
async fn within<T>(
    deadline: &Deadline,
    opening: Opening,
    opened: impl Future<Output = Result<T, OpeningError>>,
) -> Result<T, OpeningError> {
    let mut opened = pin!(opened);
    let mut is_draining = false;
    poll_fn(|context| {
        if let Poll::Ready(opened) = opened.as_mut().poll(context) {
            return Poll::Ready(opened);
        }
        if let Some(linger) = deadline.ticker().linger()
            && !std::mem::replace(&mut is_draining, true)
        {
            deadline.set_at_most(linger);
        }
        match deadline.poll_passed(context) {
            true => Poll::Ready(Err(OpeningError::TooSlow(opening))),
            false => Poll::Pending,
        }
    })
    .await
}

/// Room for a header of version 1, and for most of version 2.
const USUAL_HEADER: usize = 256;

/// Reads the PROXY header. What follows it is read again.
async fn read_proxy_header(transport: &mut Transport) -> Result<Source, OpeningError> {
    let mut bytes = Vec::with_capacity(USUAL_HEADER);
    loop {
        // Larger than any expected header: a longer one is refused as none.
        if transport.read_buf(&mut (&mut bytes).limit(MAX_BYTES)).await? == 0 {
            return Err(OpeningError::Left);
        }
        if let Some(header) = proxy_protocol::parse(&bytes)? {
            transport.unread(bytes.get(header.length..).unwrap_or_default());
            return Ok(header.source);
        }
    }
}

/// Reads as many bytes as it takes to recognize the protocol, and puts them back.
async fn detect(transport: &mut Transport, protocols: Protocols) -> Result<Protocol, OpeningError> {
    let mut start = [0; PREFACE.len()];
    let mut filled = 0;
    let spoken = loop {
        let Some(rest) = start.get_mut(filled..) else { break Protocol::Http2 };
        let read = transport.read(rest).await?;
        if read == 0 {
            return Err(OpeningError::Left);
        }
        filled += read;
        match start.get(..filled) {
            Some(PREFACE) => break Protocol::Http2,
            Some(begun) if PREFACE.starts_with(begun) => {}
            _ => break Protocol::Http1,
        }
    };
    transport.unread(start.get(..filled).unwrap_or_default());
    match (spoken, protocols) {
        (Protocol::Http1, Protocols::Http2) => Err(OpeningError::NoCommonProtocol),
        // It reads as a request of a version that is refused with an answer.
        (Protocol::Http2, Protocols::Http1) => Ok(Protocol::Http1),
        (spoken, _) => Ok(spoken),
    }
}

/// A client after its TLS handshake.
struct TlsClient {
    stream: Box<TlsStream<Transport>>,
    protocol: Protocol,
    /// Of the rules by which its certificate was checked.
    epoch: Epoch,
    /// None: the listener has one certificate.
    choice: Option<Arc<CertificateChoice>>,
}

/// TLS, and the protocol that was agreed on.
async fn shake_hands(
    transport: Transport,
    tls: &CurrentTls,
    protocols: Protocols,
) -> Result<TlsClient, OpeningError> {
    let HandshakeConfig { config, epoch, choice } = tls.handshake();
    // What is no TLS, or not in this way, comes as bad data; any other error is of the socket.
    let accepted = TlsAcceptor::from(config).accept(transport).await;
    let stream = accepted.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => OpeningError::Handshake(error),
        _ => OpeningError::Stream(error),
    })?;
    let protocol = match stream.get_ref().1.alpn_protocol() {
        //= rfc9113#section-3.3
        //# HTTP/2 connections over TLS MUST use protocol negotiation in TLS
        Some(ALPN_HTTP2) => Protocol::Http2,
        // Without that extension, HTTP/1.1 is meant (RFC 9113 section 3.2).
        None if !protocols.has_http1() => return Err(OpeningError::NoCommonProtocol),
        _ => Protocol::Http1,
    };
    Ok(TlsClient { stream: Box::new(stream), protocol, epoch, choice })
}
