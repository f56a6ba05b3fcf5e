//! A worker: one thread, one runtime, its share of the connections.

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::HeaderValue;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval},
};

use super::{Peer, connection};
use crate::{
    access_log::LogBuffer,
    deadline::{TICK, Ticker},
    gate::{Gate, Shared},
    identity::canonical,
    upstream::Upstreams,
};

/// The acceptor's end of a worker.
pub(super) struct Worker {
    sender: mpsc::UnboundedSender<Order>,
    connections: Arc<AtomicUsize>,
    stopped: oneshot::Receiver<()>,
}

enum Order {
    Serve(std::net::TcpStream, SocketAddr),
    Drain,
    Stop,
}

impl Worker {
    /// Starts a thread that serves what is handed over.
    pub(super) fn start(
        index: usize,
        shared: Arc<Shared>,
        log: Option<LogBuffer>,
    ) -> io::Result<Worker> {
        let runtime_builder = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
        };
        let (sender, orders) = mpsc::unbounded_channel();
        let (stopping, stopped) = oneshot::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            match runtime_builder() {
                Ok(runtime) => {
                    runtime.block_on(serve(orders, shared, log, count));
                    // Names that are still looked up, on threads of their own, hold up nobody.
                    runtime.shutdown_background();
                }
                Err(error) => tracing::error!(%error, "worker cannot start"),
            }
            let _ = stopping.send(());
        })?;
        Ok(Worker { sender, connections, stopped })
    }

    /// Connections that it has.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Gives it a connection.
    pub(super) fn hand_over(&self, stream: std::net::TcpStream, address: SocketAddr) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let _ = self.sender.send(Order::Serve(stream, address));
    }

    /// Has it finish requests in flight and close what is idle.
    pub(super) fn drain(&self) {
        let _ = self.sender.send(Order::Drain);
    }

    /// Waits until it has no connections left, or until `deadline`, and ends it. Returns how many
    /// connections were cut.
    pub(super) async fn join(mut self, deadline: Instant) -> usize {
        let in_time = tokio::time::timeout_at(deadline, &mut self.stopped).await;
        if in_time.is_ok() {
            return 0;
        }
        let cut = self.connections();
        let _ = self.sender.send(Order::Stop);
        let _ = self.stopped.await;
        cut
    }
}

/// Takes one off the worker's count when its connection ends, however it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(
    mut orders: mpsc::UnboundedReceiver<Order>,
    shared: Arc<Shared>,
    log: Option<LogBuffer>,
    connections: Arc<AtomicUsize>,
) {
    let ticker = Rc::new(Ticker::default());
    let gate = Rc::new(Gate::new(shared, Upstreams::new(Rc::clone(&ticker)), log));
    gate.ready().await;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Serve(stream, address)) => {
                    let counted = Counted(Arc::clone(&connections));
                    let (gate, ticker) = (Rc::clone(&gate), Rc::clone(&ticker));
                    tokio::task::spawn_local(async move {
                        if let Some((stream, peer)) = adopt(stream, address, &gate) {
                            connection::serve(stream, peer, gate, ticker).await;
                        }
                        drop(counted);
                    });
                }
                Some(Order::Drain) => ticker.drain(),
                Some(Order::Stop) | None => break,
            },
            _ = ticks.tick() => {
                ticker.tick();
                gate.tick();
            }
        }
        if ticker.is_draining() && connections.load(Ordering::Relaxed) == 0 {
            break;
        }
    }
    // The buffer hands its last lines over when the gate is dropped; connections that are cut hold
    // on to the gate until the runtime is gone.
    gate.finish().await;
}

/// Makes an accepted socket this runtime's own.
fn adopt(
    stream: std::net::TcpStream,
    address: SocketAddr,
    gate: &Gate,
) -> Option<(TcpStream, Peer)> {
    let stream = TcpStream::from_std(stream).ok()?;
    stream.set_nodelay(true).ok()?;
    let address = canonical(address.ip());
    let peer = Peer {
        address,
        address_value: HeaderValue::from_str(&address.to_string()).ok()?,
        is_trusted: gate.shared().trusted_proxies.contains(address),
    };
    Some((stream, peer))
}
