//! A worker: one thread, one runtime, its share of the connections.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

use super::{Fault, Place, connection, listener::Accepted};
use crate::{
    access_log::AccessLog,
    deadline::{Leave, TICK, Ticker},
    gate::{Gate, Shared},
    upstream::Upstreams,
};

/// The acceptor's end of a worker.
pub(super) struct Worker {
    sender: mpsc::UnboundedSender<Order>,
    connections: Arc<AtomicUsize>,
    stopped: oneshot::Receiver<()>,
}

enum Order {
    Serve(Accepted, Place),
    Drain(Leave),
    Stop,
}

impl Worker {
    /// Starts a thread that serves what is handed over.
    pub(super) fn start(
        index: usize,
        shared: Arc<Shared>,
        log: Option<AccessLog>,
    ) -> io::Result<Worker> {
        let runtime_builder = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(Default::default())
        };
        let (sender, orders) = mpsc::unbounded_channel();
        let (stopping, stopped) = oneshot::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let mut inbox = Inbox { orders, connections: Arc::clone(&connections), leave: None };
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            let mut serve_until_stopped = || loop {
                match runtime_builder() {
                    Ok(runtime) => {
                        let shared = Arc::clone(&shared);
                        runtime.block_on(serve(&mut inbox, shared, log.as_ref()));
                        // Names that are still looked up, on threads of their own, hold up nobody.
                        return runtime.shutdown_background();
                    }
                    // Most likely no descriptors are left.
                    Err(error) => tracing::error!(%error, "worker cannot start yet"),
                }
                std::thread::park_timeout(START_PAUSE);
                if inbox.turn_away() {
                    return;
                }
            };
            // What panics outside of all connections takes these with it, and nothing else: the
            // worker begins anew and goes on with what it is handed.
            while catch_unwind(AssertUnwindSafe(&mut serve_until_stopped)).is_err() {
                shared.admission.faults().count(Fault::ConnectionPanic);
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
    pub(super) fn hand_over(&self, accepted: Accepted, place: Place) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(Order::Serve(accepted, place)).is_err() {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Has it finish requests in flight and close what is idle when its `leave` is over.
    pub(super) fn drain(&self, leave: Leave) {
        let _ = self.sender.send(Order::Drain(leave));
    }

    /// Waits until it drains and has no connections left. Not to be called again then.
    pub(super) async fn finished(&mut self) {
        let _ = (&mut self.stopped).await;
    }

    /// Ends it at once. Returns how many connections were cut.
    pub(super) async fn stop(self) -> usize {
        let cut = self.connections();
        let _ = self.sender.send(Order::Stop);
        let _ = self.stopped.await;
        cut
    }
}

/// The worker's end.
struct Inbox {
    orders: mpsc::UnboundedReceiver<Order>,
    connections: Arc<AtomicUsize>,
    /// Set once it is to drain, and kept if it begins anew after that.
    leave: Option<Leave>,
}

/// How long a worker pauses that could not be started.
const START_PAUSE: Duration = Duration::from_millis(500);

impl Inbox {
    /// Closes the connections that have come while nobody could serve them; whether no more are to
    /// come.
    fn turn_away(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Serve(..)) => drop(Counted(Arc::clone(&self.connections))),
                Ok(Order::Drain(_) | Order::Stop) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return true,
                Err(mpsc::error::TryRecvError::Empty) => return false,
            }
        }
    }
}

/// Takes one off the worker's count when its connection ends, however it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(inbox: &mut Inbox, shared: Arc<Shared>, log: Option<&AccessLog>) {
    let Inbox { orders, connections, leave: kept } = inbox;
    let ticker = Rc::new(Ticker::new(&shared.timeouts));
    if let Some(leave) = *kept {
        ticker.drain(leave);
    }
    let gate =
        Rc::new(Gate::new(shared, Upstreams::new(Rc::clone(&ticker)), log.map(AccessLog::buffer)));
    gate.ready().await;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Serve(accepted, place)) => {
                    let counted = Counted(Arc::clone(connections));
                    let (gate, ticker) = (Rc::clone(&gate), Rc::clone(&ticker));
                    tokio::task::spawn_local(async move {
                        connection::serve((accepted, place), gate, ticker).await;
                        drop(counted);
                    });
                }
                Some(Order::Drain(leave)) => {
                    *kept = Some(leave);
                    ticker.drain(leave);
                }
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
