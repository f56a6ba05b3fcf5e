//! Connections that rest, tick by tick: each test is run without TLS and with it.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, spawn_local, yield_now},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tollgate_clock::{
    Clock,
    deadline::{DrainTimes, Ticker},
};
use tollgate_gate::{Gate, Shared};
use tollgate_settings::{ListenAddress, ListenerSettings};
use tollgate_upstream::{Upstreams, downstream::Peer};

use super::*;
use crate::server::{
    listener::AcceptedStream,
    stream::{Stream, Transport},
};

trait Pipe: AsyncRead + AsyncWrite + Unpin {}

impl<P: AsyncRead + AsyncWrite + Unpin> Pipe for P {}

/// A connection, from both ends, and the clock of its deadlines.
struct Kept {
    client: Box<dyn Pipe>,
    ticker: Rc<Ticker>,
    serving: JoinHandle<()>,
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Runs a test with a connection on which nothing was sent, without TLS and with it.
fn for_each_transport(test: impl AsyncFn(Kept)) {
    for has_tls in [false, true] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(Default::default()).unwrap();
        runtime.block_on(async { test(Kept::open(has_tls).await).await });
    }
}

impl Kept {
    async fn open(has_tls: bool) -> Kept {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        let server = AcceptedStream::Tcp(server.into_std().unwrap(), peer);
        let transport = Transport::adopt(server).unwrap();
        let (client, stream): (Box<dyn Pipe>, _) = match has_tls {
            false => (Box::new(client), Stream::Plain(transport)),
            true => {
                let (connector, acceptor) = tls();
                let name = ServerName::try_from("a").unwrap();
                let (client, server) =
                    tokio::join!(connector.connect(name, client), acceptor.accept(transport));
                (Box::new(client.unwrap()), Stream::Tls(Box::new(server.unwrap())))
            }
        };
        let ticker = Rc::new(Ticker::new(Duration::MAX, None));
        let shared = Arc::new(Shared::offline(None, Clock::System));
        let upstreams = Upstreams::new(Rc::new(Ticker::new(Duration::MAX, None)));
        let listener = ListenerSettings::plain(ListenAddress::Tcp(address));
        let exchange = Rc::new(Exchange {
            gate: Rc::new(Gate::new(0, shared, upstreams, None)),
            peer: Rc::new(Peer {
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                address_value: HeaderValue::from_static("127.0.0.1"),
                is_trusted: false,
                client_chain: None,
                certificate_choice: None,
                own_address: None,
                listener: Arc::new(listener),
            }),
            served: Rc::default(),
            in_flight: Rc::default(),
            tunnel: Default::default(),
        });
        let deadline = ticker.deadline();
        let serving = spawn_local(serve(Socket::new(stream), exchange, deadline));
        Kept { client, ticker, serving }
    }

    async fn write(&mut self, bytes: &str) {
        self.client.write_all(bytes.as_bytes()).await.unwrap();
        self.client.flush().await.unwrap();
    }

    /// Reads one answer. Returns its head.
    async fn read(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.client.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let (_, rest) = head.split_once("content-length: ").unwrap();
        let (length, _) = rest.split_once('\r').unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.client.read_exact(&mut body).await.unwrap();
        head
    }

    async fn ask(&mut self) -> String {
        self.write(GET).await;
        self.read().await
    }

    async fn tick(&self) {
        self.ticker.tick();
        self.run().await;
    }

    async fn drain(&self, linger: Duration) {
        self.ticker.drain(DrainTimes { linger, tunnels: Duration::ZERO });
        self.run().await;
    }

    /// Lets the connection do what it is woken for: no other task may be ready.
    async fn run(&self) {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// Whether the connection is without an engine, which has a deadline of its own.
    fn is_resting(&self) -> bool {
        self.ticker.deadlines() == 1
    }

    /// Lets ticks pass until the connection rests.
    async fn rest(&self) {
        for _ in 0..10 {
            self.tick().await;
            if self.is_resting() {
                return;
            }
        }
        panic!("it does not rest");
    }

    /// Waits until the server closes, which sends no more.
    async fn assert_closed(mut self) {
        let read = self.client.read(&mut [0]).await;
        // At a deadline a connection ends without a word of TLS.
        let read = read.or_else(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Ok(0),
            _ => Err(error),
        });
        assert_eq!(read.unwrap(), 0);
        drop(self.client);
        self.serving.await.unwrap();
    }
}

fn tls() -> (TlsConnector, TlsAcceptor) {
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(provider());
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider());
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    (Arc::new(client).into(), Arc::new(server).into())
}

#[test]
fn connection_that_rests_serves_the_next_request() {
    for_each_transport(async |mut kept| {
        for _ in 0..3 {
            assert!(kept.ask().await.starts_with("HTTP/1.1 404 "));
            assert!(!kept.is_resting());
            kept.rest().await;
        }
        // Two at once, and one in two parts.
        kept.write(&GET.repeat(2)).await;
        kept.read().await;
        kept.read().await;
        kept.rest().await;
        kept.write("GET / HTTP/1.1\r\nho").await;
        kept.write("st: a\r\n\r\n").await;
        kept.read().await;
        // A refusal comes at its place.
        kept.rest().await;
        kept.write(&[GET, "GET / HTTP/1.1\r\nhost : a\r\n\r\n"].concat()).await;
        assert!(kept.read().await.starts_with("HTTP/1.1 404 "));
        assert!(kept.read().await.starts_with("HTTP/1.1 400 "));
        kept.assert_closed().await;
    });
}

#[test]
fn connection_with_half_a_head_does_not_rest() {
    for_each_transport(async |mut kept| {
        kept.ask().await;
        kept.rest().await;
        kept.write("GET / HTTP/1.1\r\n").await;
        while kept.is_resting() {
            yield_now().await;
        }
        for _ in 0..10 {
            kept.tick().await;
        }
        assert!(!kept.is_resting());
        kept.write("host: a\r\n\r\n").await;
        kept.read().await;
    });
}

#[test]
fn connection_that_rests_is_closed_at_its_deadline() {
    for_each_transport(async |mut kept| {
        kept.ask().await;
        let idle_since = kept.ticker.now();
        kept.rest().await;
        while !kept.serving.is_finished() {
            kept.tick().await;
        }
        let kept_for = TICK * (kept.ticker.now() - idle_since - 1);
        assert_eq!(kept_for, tollgate_settings::Timeouts::default().keep_alive);
        kept.assert_closed().await;
    });
}

#[test]
fn connection_that_rests_is_closed_by_a_drain() {
    for_each_transport(async |mut kept| {
        kept.ask().await;
        kept.rest().await;
        kept.drain(Duration::ZERO).await;
        kept.assert_closed().await;
    });
}

#[test]
fn connection_that_rests_lingers_in_a_drain() {
    const LINGER: Duration = Duration::from_secs(1);
    for_each_transport(async |mut kept| {
        kept.ask().await;
        kept.rest().await;
        kept.drain(LINGER).await;
        kept.rest().await;
        assert!(kept.ask().await.contains("\r\nconnection: close\r\n"));
        kept.assert_closed().await;
    });
    for_each_transport(async |mut kept| {
        kept.ask().await;
        kept.rest().await;
        kept.drain(LINGER).await;
        let drains_since = kept.ticker.now();
        while !kept.serving.is_finished() {
            kept.tick().await;
        }
        assert_eq!(TICK * (kept.ticker.now() - drains_since - 1), LINGER);
        kept.assert_closed().await;
    });
}

#[test]
fn connection_that_rests_ends_when_its_client_does() {
    for_each_transport(async |mut kept| {
        kept.ask().await;
        kept.rest().await;
        drop(kept.client);
        kept.serving.await.unwrap();
    });
    for_each_transport(async |mut kept| {
        kept.ask().await;
        kept.rest().await;
        kept.client.shutdown().await.unwrap();
        kept.assert_closed().await;
    });
}
