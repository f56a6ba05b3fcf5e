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
mod engine_socket;
pub mod handover;
mod listener;
mod opening;
mod socket;
mod stream;
mod tunnel;
mod websocket;
mod worker;
mod write_buffer;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tollgate_clock::deadline::{self, DrainTimes};
use tollgate_gate::Shared;
use tollgate_observe::access_log::AccessLog;
use tollgate_upstream::downstream::{Admission, Fault};

use self::{listener::Acceptor, worker::Worker};

pub use self::listener::{Listener, ListenerSocket};
pub(crate) use self::{
    listener::{Accepted, AcceptedStream},
    stream::Transport,
};

/// What a server is started with.
pub struct Server {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// Where clients come in.
    pub listeners: Vec<Listener>,
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

/// How long accepting goes on once it is to end.
const LAST_CALL: Duration = Duration::from_millis(5);

/// Clients that send one request after the other have sent one by then.
const MAX_LINGER: Duration = Duration::from_secs(1);

/// Who is in the middle of something in a tunnel has brought it to an end by then.
const MAX_TUNNEL: Duration = Duration::from_secs(5);

impl Server {
    /// Binds a socket that asks nothing of clients.
    ///
    /// # Errors
    /// What the system says: the address is in use, or not this machine's.
    pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
        listener::bind_tcp(address)
    }

    /// Serves until `shutdown` is ready, then stops accepting, lets requests in flight finish
    /// within the grace period, and returns.
    ///
    /// # Errors
    /// A worker or a listener that cannot be started.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<Stopped> {
        self.run_until(shutdown, std::future::pending()).await
    }

    /// Like [`run`](Self::run), and cuts what is in flight as soon as `hurry` is ready.
    ///
    /// # Errors
    /// A worker or a listener that cannot be started.
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> io::Result<Stopped> {
        let workers = (0..self.workers.max(1))
            .map(|index| Worker::start(index, Arc::clone(&self.shared), self.access_log.clone()))
            .collect::<io::Result<Vec<Worker>>>()?;
        drop(self.access_log);

        let admission = Arc::clone(&self.shared.admission);
        let accepting = tokio::task::LocalSet::new();
        let workers = std::rc::Rc::new(workers);
        for listener in self.listeners {
            let workers = std::rc::Rc::clone(&workers);
            accepting.spawn_local(accept(listener.adopt()?, workers, Arc::clone(&admission)));
        }
        accepting.run_until(shutdown).await;
        // Connections that wait to be accepted would be reset when the sockets close.
        accepting.run_until(tokio::time::sleep(LAST_CALL)).await;
        // Dropping the tasks closes the listening sockets.
        drop(accepting);

        tracing::info!("draining");
        let cut = match std::rc::Rc::try_unwrap(workers) {
            Ok(workers) => drain(workers, self.drain, hurry).await,
            Err(_) => 0,
        };
        Ok(Stopped { cut })
    }
}

/// Ends the workers when they are done, or when their time is over. Returns how many connections
/// were cut.
async fn drain(workers: Vec<Worker>, time: Duration, hurry: impl Future<Output = ()>) -> usize {
    for worker in &workers {
        worker.drain(drain_times(time));
    }
    let mut late = std::pin::pin!(tokio::time::timeout(time, hurry));
    let mut is_late = false;
    let mut cut = 0;
    for mut worker in workers {
        if !is_late {
            tokio::select! {
                () = worker.finished() => continue,
                _ = &mut late => is_late = true,
            }
        }
        cut += worker.stop().await;
    }
    cut
}

/// The times that a drain of this length has for connections that would go on. A client may have
/// sent its next request already; it is served, with `Connection: close`.
fn drain_times(drain: Duration) -> DrainTimes {
    let at_least_a_tick =
        |part: Duration| if part < deadline::TICK { Duration::ZERO } else { part };
    DrainTimes {
        linger: at_least_a_tick(drain / 4).min(MAX_LINGER),
        tunnels: at_least_a_tick(drain / 3).min(MAX_TUNNEL),
    }
}

/// Accepts for as long as it is polled.
async fn accept(acceptor: Acceptor, workers: std::rc::Rc<Vec<Worker>>, admission: Arc<Admission>) {
    loop {
        match acceptor.accept().await {
            Ok(accepted) => {
                // Closed at once: a connection over the bounds costs no more than that.
                let Ok(permit) = admission.admit(accepted.client()) else { continue };
                let fewest = workers.iter().min_by_key(|worker| worker.connections());
                if let Some(worker) = fewest {
                    worker.hand_over(accepted, permit);
                }
            }
            // The connection was gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Most likely no descriptors are left: trying again at once would only burn the
                // time in which some might be closed.
                tracing::debug!(%error, "cannot accept");
                admission.faults().count(Fault::Accept);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
