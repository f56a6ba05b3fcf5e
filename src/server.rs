//! Listeners, workers and connections.
//!
//! One thread accepts and hands each connection to the worker that has the fewest. A worker is a
//! single-threaded runtime with its own upstream connections: what belongs to a connection stays on
//! one core, and nothing on a request's way is shared but the store and the token cache.
//!
//! The acceptor keeps counts and one listening socket, rather than a socket a worker by
//! `SO_REUSEPORT`: connections are spread evenly even when they are few, and starting the program
//! twice on one port fails instead of splitting the traffic in silence.

mod connection;
mod framing;
mod socket;
mod worker;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;
use tokio::net::TcpListener;

use self::worker::Worker;
use crate::{access_log::AccessLog, gate::Shared};

pub use self::{
    connection::InFlight,
    framing::{HeadLimits, Violation, ViolationKind},
};

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address; never an IPv4 address in the guise of IPv6.
    pub address: IpAddr,
    /// The address as a header value, made once.
    pub address_value: HeaderValue,
    /// Whether it is a trusted proxy.
    pub is_trusted: bool,
}

/// What a server is started with.
pub struct Server {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// Bound sockets.
    pub listeners: Vec<std::net::TcpListener>,
    /// Worker threads, at least one.
    pub workers: usize,
    /// Where lines about requests go.
    pub access_log: Option<AccessLog>,
    /// How long requests in flight may take once `shutdown` is ready.
    pub drain: Duration,
}

/// What was left when a server stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that had not finished within the grace period and were cut.
    pub cut: usize,
}

/// How long accepting pauses when the process has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Server {
    /// Binds a socket.
    ///
    /// # Errors
    /// What the system says: the address is in use, or not this machine's.
    pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Serves until `shutdown` is ready, then stops accepting, lets requests in flight finish within
    /// the grace period, and returns.
    ///
    /// # Errors
    /// A worker or a listener that cannot be started.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<Stopped> {
        let workers = (0..self.workers.max(1))
            .map(|index| {
                let log = self.access_log.as_ref().map(AccessLog::buffer);
                Worker::start(index, Arc::clone(&self.shared), log)
            })
            .collect::<io::Result<Vec<Worker>>>()?;
        drop(self.access_log);

        let accepting = tokio::task::LocalSet::new();
        let workers = std::rc::Rc::new(workers);
        for listener in self.listeners {
            let listener = TcpListener::from_std(listener)?;
            accepting.spawn_local(accept(listener, std::rc::Rc::clone(&workers)));
        }
        accepting.run_until(shutdown).await;
        // Dropping the tasks closes the listening sockets.
        drop(accepting);

        tracing::info!("draining");
        let mut cut = 0;
        let deadline = tokio::time::Instant::now() + self.drain;
        if let Ok(workers) = std::rc::Rc::try_unwrap(workers) {
            for worker in &workers {
                worker.drain();
            }
            for worker in workers {
                cut += worker.join(deadline).await;
            }
        }
        Ok(Stopped { cut })
    }
}

/// Accepts for as long as it is polled.
async fn accept(listener: TcpListener, workers: std::rc::Rc<Vec<Worker>>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let fewest = workers.iter().min_by_key(|worker| worker.connections());
                if let (Some(worker), Ok(stream)) = (fewest, stream.into_std()) {
                    worker.hand_over(stream, address);
                }
            }
            // The connection was gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Most likely no descriptors are left: trying again at once would only burn the
                // time in which some might be closed.
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
