//! A worker: one thread, one runtime, its share of the connections.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};
use tollgate_clock::deadline::{DrainTimes, TICK, Ticker};
use tollgate_gate::{Gate, Shared};
use tollgate_observe::access_log::AccessLog;
use tollgate_settings::Timeouts;
use tollgate_upstream::{
    Upstreams,
    downstream::{ConnectionPermit, Fault},
};

use super::{connection, listener::Accepted};

/// The acceptor's end of a worker.
pub(super) struct Worker {
    sender: mpsc::UnboundedSender<Command>,
    connections: Arc<AtomicUsize>,
    stopped: oneshot::Receiver<()>,
}

enum Command {
    Serve(Accepted, ConnectionPermit),
    Drain(DrainTimes),
    Stop,
    #[cfg(test)]
    Panic,
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
        let (sender, commands) = mpsc::unbounded_channel();
        let (stopping, stopped) = oneshot::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let mut inbox = Inbox { commands, connections: Arc::clone(&connections), drain: None };
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            let mut serve_until_stopped = || loop {
                match runtime_builder() {
                    Ok(runtime) => {
                        let shared = Arc::clone(&shared);
                        runtime.block_on(serve(index, &mut inbox, shared, log.as_ref()));
                        // Does not wait for name lookups that still run on threads of their own.
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
            let mut begun = Instant::now();
            while catch_unwind(AssertUnwindSafe(&mut serve_until_stopped)).is_err() {
                shared.admission.faults().count(Fault::ConnectionPanic);
                if begun.elapsed() < START_PAUSE {
                    // It may be the beginning that panics, each time.
                    std::thread::park_timeout(START_PAUSE);
                }
                begun = Instant::now();
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
    pub(super) fn hand_over(&self, accepted: Accepted, permit: ConnectionPermit) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(Command::Serve(accepted, permit)).is_err() {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Has it finish requests in flight and close what is idle when its `times` are over.
    pub(super) fn drain(&self, times: DrainTimes) {
        let _ = self.sender.send(Command::Drain(times));
    }

    /// Waits until it drains and has no connections left. Not to be called again then.
    pub(super) async fn finished(&mut self) {
        let _ = (&mut self.stopped).await;
    }

    /// Ends it at once. Returns how many connections were cut.
    pub(super) async fn stop(self) -> usize {
        let cut = self.connections();
        let _ = self.sender.send(Command::Stop);
        let _ = self.stopped.await;
        cut
    }
}

/// The worker's end.
struct Inbox {
    commands: mpsc::UnboundedReceiver<Command>,
    connections: Arc<AtomicUsize>,
    /// Set once it is to drain, and kept if it begins anew after that.
    drain: Option<DrainTimes>,
}

/// How long a worker pauses that could not be started, or has panicked as soon as it was.
const START_PAUSE: Duration = Duration::from_millis(500);

impl Inbox {
    /// Closes the connections that came while the worker could not serve them. Returns whether the
    /// worker is to stop.
    fn turn_away(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Serve(..)) => drop(ConnectionCount(Arc::clone(&self.connections))),
                Ok(Command::Drain(_) | Command::Stop) => return true,
                #[cfg(test)]
                Ok(Command::Panic) => {}
                Err(mpsc::error::TryRecvError::Disconnected) => return true,
                Err(mpsc::error::TryRecvError::Empty) => return false,
            }
        }
    }
}

/// Decrements the worker's count when its connection ends, also by a panic.
struct ConnectionCount(Arc<AtomicUsize>);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn serve(index: usize, inbox: &mut Inbox, shared: Arc<Shared>, log: Option<&AccessLog>) {
    let Inbox { commands, connections, drain: kept } = inbox;
    let Timeouts { request_body, request_body_rate, .. } = shared.timeouts;
    let ticker = Rc::new(Ticker::new(request_body, request_body_rate));
    if let Some(times) = *kept {
        ticker.drain(times);
    }
    let upstreams = Upstreams::new(Rc::clone(&ticker));
    let gate = Rc::new(Gate::new(index, shared, upstreams, log.map(AccessLog::buffer)));
    gate.ready().await;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Serve(accepted, permit)) => {
                    let counted = ConnectionCount(Arc::clone(connections));
                    let gate = Rc::clone(&gate);
                    let ticker = Rc::clone(&ticker);
                    tokio::task::spawn_local(async move {
                        connection::serve(accepted, permit, gate, ticker).await;
                        drop(counted);
                    });
                }
                Some(Command::Drain(times)) => {
                    *kept = Some(times);
                    ticker.drain(times);
                }
                Some(Command::Stop) | None => break,
                #[cfg(test)]
                Some(Command::Panic) => panic!("as the test wants it"),
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

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{Ipv4Addr, TcpListener, TcpStream},
    };

    use tollgate_clock::Clock;
    use tollgate_settings::{ListenAddress, ListenerSettings};

    use super::*;
    use crate::server::listener::AcceptedStream;

    /// Where clients connect to that are handed to a worker.
    struct Acceptor {
        socket: TcpListener,
        listener: Arc<ListenerSettings>,
        shared: Arc<Shared>,
    }

    impl Acceptor {
        fn new() -> Acceptor {
            let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = ListenAddress::Tcp(socket.local_addr().unwrap());
            let listener = Arc::new(ListenerSettings::plain(address));
            Acceptor { socket, listener, shared: Arc::new(Shared::offline(None, Clock::System)) }
        }

        /// A client that `worker` is given.
        fn connect(&self, worker: &Worker) -> TcpStream {
            const PATIENCE: Duration = Duration::from_secs(60);
            let client = TcpStream::connect(self.socket.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let (stream, address) = self.socket.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = AcceptedStream::Tcp(stream, address);
            let accepted = Accepted { stream, listener: Arc::clone(&self.listener) };
            worker.hand_over(accepted, self.shared.admission.admit(None).unwrap());
            client
        }
    }

    /// Its whole answer to a last request.
    fn ask(client: &mut TcpStream) -> String {
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[tokio::test]
    async fn worker_that_panics_starts_anew_and_takes_what_it_is_handed() {
        let acceptor = Acceptor::new();
        let mut worker = Worker::start(0, Arc::clone(&acceptor.shared), None).unwrap();
        assert!(ask(&mut acceptor.connect(&worker)).starts_with("HTTP/1.1 404 "));
        for times in 1..=2 {
            let mut before = acceptor.connect(&worker);
            worker.sender.send(Command::Panic).unwrap();
            // It was handed over before the worker is back.
            let mut after = acceptor.connect(&worker);
            assert!(ask(&mut after).starts_with("HTTP/1.1 404 "));
            // Connections of before end with what served them, and their places are free.
            assert_eq!(before.read(&mut [0]).unwrap_or(0), 0);
            assert_eq!(acceptor.shared.admission.faults().total(Fault::ConnectionPanic), times);
        }
        let times = DrainTimes { linger: Duration::ZERO, tunnels: Duration::ZERO };
        worker.drain(times);
        worker.finished().await;
        assert_eq!((worker.connections(), acceptor.shared.admission.connections()), (0, 0));
    }
}
