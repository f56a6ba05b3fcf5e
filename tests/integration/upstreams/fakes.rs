//! Servers in TLS and in HTTP/2, each on a thread and a port of its own.

use std::{
    fs,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::Request;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    HandshakeKind, RootCertStore, ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer,
    server::WebPkiClientVerifier,
};
use socket2::SockRef;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_rustls::TlsAcceptor;

use crate::support::Signal;

/// An authority of its own, a server's certificate for some names, and a client's.
pub(super) struct Certificates {
    folder: TempDir,
    server: Arc<ServerConfig>,
    asking: Arc<ServerConfig>,
}

impl Certificates {
    /// With a server's certificate for these names.
    pub(super) fn of(names: &[&str]) -> Certificates {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), ca.pem()).unwrap();

        let client_key = KeyPair::generate().unwrap();
        let client = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let client = client.signed_by(&client_key, &issuer).unwrap();
        fs::write(folder.path().join("client.pem"), client.pem()).unwrap();
        fs::write(folder.path().join("client.key"), client_key.serialize_pem()).unwrap();

        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder = || {
            ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .unwrap()
        };
        let key = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = || vec![server.der().clone()];
        let plain = builder().with_no_client_auth().with_single_cert(chain(), key()).unwrap();
        let asking = builder()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain(), key())
            .unwrap();
        Certificates { folder, server: Arc::new(plain), asking: Arc::new(asking) }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// What a server shows, speaking these protocols.
    pub(super) fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        with_protocols(&self.server, protocols)
    }

    /// The same, for clients with a certificate only.
    pub(super) fn acceptor_of_known(&self, protocols: &[&str]) -> TlsAcceptor {
        with_protocols(&self.asking, protocols)
    }
}

fn with_protocols(config: &ServerConfig, protocols: &[&str]) -> TlsAcceptor {
    let mut config = config.clone();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// What a fake was asked.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) connections: AtomicUsize,
    /// Those of the connections in HTTP/2 that are over.
    pub(super) closed: AtomicUsize,
    pub(super) resumed: AtomicUsize,
    pub(super) requests: Mutex<Vec<Request<()>>>,
}

impl Seen {
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    pub(super) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(super) fn last(&self) -> Request<()> {
        let requests = self.requests.lock().unwrap();
        let last = requests.last().expect("it was asked for something");
        let mut request = Request::new(());
        *request.method_mut() = last.method().clone();
        *request.uri_mut() = last.uri().clone();
        *request.headers_mut() = last.headers().clone();
        request
    }
}

/// A server, stopped when it is dropped.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Serving = Pin<Box<dyn Future<Output = ()>>>;

impl Fake {
    fn start(serve: impl Fn(TcpStream, Arc<Seen>) -> Serving + Send + 'static) -> Fake {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let theirs = Arc::clone(&seen);
        let (stop, mut stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    tokio::select! {
                        _ = &mut stopped => return,
                        accepted = listener.accept() => {
                            let (stream, _) = accepted.unwrap();
                            theirs.connections.fetch_add(1, Ordering::SeqCst);
                            tokio::task::spawn_local(serve(stream, Arc::clone(&theirs)));
                        }
                    }
                }
            });
        });
        Fake { address, seen, stop: Some(stop), thread: Some(thread) }
    }

    /// Answers everything in HTTP/1.1 and TLS with 200 and `ok`, one request a connection.
    pub(super) fn tls(acceptor: TlsAcceptor) -> Fake {
        Fake::start(move |stream, seen| {
            let acceptor = acceptor.clone();
            Box::pin(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed) {
                    seen.resumed.fetch_add(1, Ordering::SeqCst);
                }
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                seen.requests.lock().unwrap().push(Request::new(()));
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            })
        })
    }

    /// Reads nothing of a request in HTTP/1.1 and TLS before `go` is open. Opens `accepted` when
    /// a connection is there, and answers with the length and the checksum of the body.
    pub(super) fn tls_that_waits(acceptor: TlsAcceptor, accepted: &Signal, go: &Signal) -> Fake {
        let (accepted, go) = (accepted.clone(), go.clone());
        Fake::start(move |stream, seen| {
            let (acceptor, accepted, go) = (acceptor.clone(), accepted.clone(), go.clone());
            Box::pin(async move {
                // Little room: the proxy has to wait for more.
                SockRef::from(&stream).set_recv_buffer_size(128 * 1024).unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                accepted.open();
                go.wait();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                seen.requests.lock().unwrap().push(Request::new(()));
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.unwrap().parse().unwrap()];
                stream.read_exact(&mut body).await.unwrap();
                let sum =
                    format!("{} {}", body.len(), crc16::State::<crc16::XMODEM>::calculate(&body));
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{sum}", sum.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                // The proxy closes it.
                let _ = stream.read_u8().await;
            })
        })
    }

    /// Speaks HTTP/2 and has `script` answer each request.
    pub(super) fn http2<F>(
        settings: &h2::server::Builder,
        script: impl Fn(Stream) -> F + Clone + Send + 'static,
    ) -> Fake
    where
        F: Future<Output = ()> + 'static,
    {
        let settings = settings.clone();
        Fake::start(move |stream, seen| {
            Box::pin(serve_http2(stream, seen, settings.clone(), script.clone()))
        })
    }

    /// The same in TLS.
    pub(super) fn http2_tls<F>(
        acceptor: TlsAcceptor,
        script: impl Fn(Stream) -> F + Clone + Send + 'static,
    ) -> Fake
    where
        F: Future<Output = ()> + 'static,
    {
        Fake::start(move |stream, seen| {
            let acceptor = acceptor.clone();
            let script = script.clone();
            Box::pin(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                serve_http2(stream, seen, h2::server::Builder::new(), script).await;
            })
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn https_url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// A request in HTTP/2, to be answered.
pub(super) struct Stream {
    pub(super) body: RecvStream,
    pub(super) respond: SendResponse<Bytes>,
    pub(super) path: String,
    /// Its number among all requests, from 1.
    pub(super) number: usize,
    /// Says that the connection is going away, once something is sent.
    pub(super) leave: Arc<tokio::sync::Notify>,
}

impl Stream {
    /// Answers with this status and body.
    pub(super) fn answer(mut self, status: u16, body: &'static str) {
        let head = http::Response::builder().status(status).body(()).unwrap();
        let mut sending = self.respond.send_response(head, false).unwrap();
        let _ = sending.send_data(Bytes::from_static(body.as_bytes()), true);
    }
}

async fn serve_http2<S, F>(
    stream: S,
    seen: Arc<Seen>,
    settings: h2::server::Builder,
    script: impl Fn(Stream) -> F,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()> + 'static,
{
    struct Closed(Arc<Seen>);

    impl Drop for Closed {
        fn drop(&mut self) {
            self.0.closed.fetch_add(1, Ordering::SeqCst);
        }
    }

    let Ok(mut connection) = settings.handshake::<_, Bytes>(stream).await else { return };
    let _closed = Closed(Arc::clone(&seen));
    let leave = Arc::new(tokio::sync::Notify::new());
    loop {
        tokio::select! {
            () = leave.notified() => connection.graceful_shutdown(),
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                let (head, body) = request.into_parts();
                let path = head.uri.path().to_owned();
                let mut requests = seen.requests.lock().unwrap();
                requests.push(Request::from_parts(head, ()));
                let number = requests.len();
                drop(requests);
                let leave = Arc::clone(&leave);
                tokio::task::spawn_local(script(Stream { body, respond, path, number, leave }));
            }
        }
    }
}
