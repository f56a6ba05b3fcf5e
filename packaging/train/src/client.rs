//! The clients: so many connections at once, each with so many requests at once.

use std::{cell::Cell, net::Ipv4Addr, sync::Arc};

use anyhow::ensure;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
    header,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    program::{HOST, Program},
    workload::{Kind, Protocol, Workload},
};

/// What a browser or an SDK sends, besides `Host` and its token or cookie.
const BROWSER: [(&str, &str); 17] = [
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 \
         Safari/537.36",
    ),
    ("accept", "application/json, text/plain, */*"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9,de;q=0.7"),
    ("cache-control", "no-cache"),
    ("origin", "https://app.train.test"),
    ("referer", "https://app.train.test/projects/4711/items?sort=updated"),
    ("priority", "u=1, i"),
    ("sec-ch-ua", "\"Chromium\";v=\"130\", \"Google Chrome\";v=\"130\", \"Not?A_Brand\";v=\"99\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("sec-fetch-dest", "empty"),
    ("sec-fetch-mode", "cors"),
    ("sec-fetch-site", "same-site"),
    ("x-client-name", "train-sdk-js"),
    ("x-client-version", "4.18.2"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
];

/// Bytes of a browser's cookies, and of a body.
const COOKIE_BYTES: usize = 400;
static BODY: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// The requests of a workload that are still to be sent.
struct Requests<'w> {
    workload: &'w Workload,
    tokens: &'w [String],
    next: Cell<usize>,
}

struct NumberedRequest {
    number: usize,
    request: Request<Full<Bytes>>,
}

impl Requests<'_> {
    fn are_left(&self) -> bool {
        self.next.get() < self.workload.requests
    }

    /// The next one; none: all were sent.
    fn next(&self) -> Option<NumberedRequest> {
        if !self.are_left() {
            return None;
        }
        let number = self.next.replace(self.next.get() + 1);
        let token = self.tokens.get(number % self.tokens.len().max(1));
        Some(NumberedRequest { number, request: request(self.workload, token) })
    }
}

/// A request. Its target has the form of HTTP/2 where that is spoken.
fn request(workload: &Workload, token: Option<&String>) -> Request<Full<Bytes>> {
    let (method, path, body): (_, _, &'static [u8]) = match workload.kind {
        Kind::Small => (Method::GET, "/", &[]),
        Kind::Browser => (Method::GET, "/v1/projects/4711/items?sort=updated&limit=50", &[]),
        Kind::Post => (Method::POST, "/upload", &BODY),
    };
    let mut builder = Request::builder().method(method);
    builder = match workload.protocol {
        Protocol::Http2 => builder.uri(format!("https://{HOST}{path}")),
        _ => builder.uri(path).header(header::HOST, HOST),
    };
    if workload.kind == Kind::Browser {
        for (name, value) in BROWSER {
            builder = builder.header(name, value);
        }
        builder = builder.header(header::COOKIE, format!("session={}", "0".repeat(COOKIE_BYTES)));
    }
    if let Some(token) = token {
        builder = builder.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Protocol::Handshakes { .. } = workload.protocol {
        builder = builder.header(header::CONNECTION, "close");
    }
    builder.body(Full::new(Bytes::from_static(body))).expect("a request of constants is sound")
}

/// Sends all requests of a workload.
///
/// # Errors
/// A connection breaks, or a reply has another status than it should have.
pub(crate) async fn send_all(program: &Program, workload: &Workload) -> anyhow::Result<()> {
    let requests = Requests { workload, tokens: &program.tokens, next: Cell::new(0) };
    let tls = program.certificate.clone().map(|certificate| connector(certificate, workload));
    let connections =
        (0..workload.connections).map(|_| use_connections(program.port, tls.as_ref(), &requests));
    try_join_all(connections).await?;
    Ok(())
}

/// Offers a client's part of TLS to a program with this certificate.
fn connector(certificate: CertificateDer<'static>, workload: &Workload) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it was made a moment ago");
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let protocol = if workload.protocol == Protocol::Http2 { "h2" } else { "http/1.1" };
    config.alpn_protocols = vec![protocol.into()];
    if workload.protocol == (Protocol::Handshakes { resumed: false }) {
        config.resumption = Resumption::disabled();
    }
    TlsConnector::from(Arc::new(config))
}

/// One connection, or one after the other where each request has its own.
async fn use_connections(
    port: u16,
    tls: Option<&TlsConnector>,
    requests: &Requests<'_>,
) -> anyhow::Result<()> {
    while requests.are_left() {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        match tls {
            None => use_connection(stream, requests).await?,
            Some(tls) => {
                let name = ServerName::try_from(HOST)?;
                use_connection(tls.connect(name, stream).await?, requests).await?;
            }
        }
    }
    Ok(())
}

async fn use_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    requests: &Requests<'_>,
) -> anyhow::Result<()> {
    let stream = TokioIo::new(stream);
    if requests.workload.protocol == Protocol::Http2 {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        let connection = tokio::spawn(connection);
        let streams = (0..requests.workload.streams).map(|_| {
            let mut sender = sender.clone();
            async move {
                while let Some(next) = requests.next() {
                    check(next.number, sender.send_request(next.request).await?, requests).await?;
                }
                anyhow::Ok(())
            }
        });
        try_join_all(streams).await?;
        drop(sender);
        return Ok(connection.await??);
    }
    let (mut sender, connection) = http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    while let Some(next) = requests.next() {
        check(next.number, sender.send_request(next.request).await?, requests).await?;
        if let Protocol::Handshakes { .. } = requests.workload.protocol {
            break;
        }
    }
    drop(sender);
    Ok(connection.await??)
}

/// Reads a reply, which must be as the workload says once its user is known.
async fn check(
    number: usize,
    reply: Response<Incoming>,
    requests: &Requests<'_>,
) -> anyhow::Result<()> {
    let (expected, status) = (requests.workload.status, reply.status());
    let is_known = number >= 2 * requests.tokens.len();
    ensure!(!is_known || status == expected, "request {number} has status {status}");
    reply.into_body().collect().await?;
    Ok(())
}
