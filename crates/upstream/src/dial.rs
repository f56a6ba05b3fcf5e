//! Making connections to servers: TCP, and TLS if the policy says so.

use std::{io, sync::Arc};

use rustix::io::Errno;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tollgate_policy::{Protocol, Transport, Upstream, UpstreamTls};

use super::{Member, Stream, UpstreamError, secure_stream::SecureStream};

/// Makes connections to the servers of one upstream.
///
/// What TLS needs is made once, not for each connection; sessions are resumed, since all copies of
/// a configuration share what they remember of servers.
pub(super) struct Dialer {
    tls: Option<Tls>,
}

struct Tls {
    server_name: Option<ServerName<'static>>,
    /// Both, since upgrades take HTTP/1.1 wherever they go.
    http1: TlsConnector,
    http2: TlsConnector,
}

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

impl Dialer {
    pub(super) fn new(upstream: &Upstream) -> Dialer {
        let tls = match &upstream.transport {
            Transport::Plain => None,
            Transport::Tls(tls) => Some(Tls {
                server_name: tls.server_name.clone(),
                http1: connector(tls, Protocol::Http1),
                http2: connector(tls, Protocol::Http2),
            }),
        };
        Dialer { tls }
    }

    /// A new connection to `member` for `protocol`, all within the time that the policy gives.
    pub(super) async fn dial(
        &self,
        member: &Member,
        protocol: Protocol,
        upstream: &Upstream,
    ) -> Result<Stream, UpstreamError> {
        let dialing = async {
            let stream = TcpStream::connect(member.address).await?;
            stream.set_nodelay(true)?;
            Ok(match &self.tls {
                None => Stream::Plain(stream),
                //= rfc9110#section-4.2.2
                //# A client MUST ensure that its HTTP requests for an "https" resource are secured,
                //# prior to being communicated
                Some(tls) => tls.secure(stream, member, protocol).await?,
            })
        };
        timeout(upstream.connect_timeout, dialing)
            .await
            .unwrap_or(Err(UpstreamError::ConnectTimeout))
    }
}

impl Tls {
    async fn secure(
        &self,
        stream: TcpStream,
        member: &Member,
        protocol: Protocol,
    ) -> Result<Stream, UpstreamError> {
        let failed = |error| UpstreamError::Tls { server: member.server.to_string(), error };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(&*member.server.host)
                .map_err(|error| failed(io::Error::other(error)))?
                .to_owned(),
        };
        let connector = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        //= rfc9110#section-4.3.4
        //# a client MUST verify that the service's identity is an acceptable match for the URI's
        //# origin server
        //= rfc9113#section-9.2
        //# clients MUST send the server_name TLS extension
        let stream = SecureStream::new(connector.connect(name, stream).await.map_err(failed)?);
        // A server that does not choose h2 would not understand it (RFC 9113 section 3.2).
        //= rfc9113#section-3.3
        //# HTTP/2 connections over TLS MUST use protocol negotiation in TLS
        if protocol == Protocol::Http2 && stream.alpn_protocol() != Some(HTTP2) {
            return Err(failed(io::Error::other("it does not choose h2 by ALPN")));
        }
        Ok(Stream::Tls(Box::new(stream)))
    }
}

fn connector(tls: &UpstreamTls, protocol: Protocol) -> TlsConnector {
    let mut config = ClientConfig::clone(&tls.config);
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![HTTP1.to_vec()],
        Protocol::Http2 => vec![HTTP2.to_vec()],
    };
    TlsConnector::from(Arc::new(config))
}

impl From<io::Error> for UpstreamError {
    fn from(error: io::Error) -> UpstreamError {
        match error.kind() {
            io::ErrorKind::TimedOut => UpstreamError::ConnectTimeout,
            _ if is_exhaustion(&error) => UpstreamError::Exhausted(error),
            _ => UpstreamError::Connect(error),
        }
    }
}

/// Whether it is this machine that has too little of something, which says nothing about the
/// server.
fn is_exhaustion(error: &io::Error) -> bool {
    const EXHAUSTED: [Errno; 5] =
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    EXHAUSTED.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
