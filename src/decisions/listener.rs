//! The thread of a listener: it accepts, serves and drains.

use std::{
    cell::RefCell, io, net::SocketAddr, rc::Rc, sync::Arc, thread::JoinHandle, time::Duration,
};

use aws_lc_rs::rand;
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tollgate_clock::{Throttle, deadline::Ticker};
use tollgate_gate::{Gate, Shared};
use tollgate_identity::canonical;
use tollgate_observe::{access_log::AccessLog, metrics::CommandTotals};
use tollgate_settings::{DecisionSettings, Limits, Timeouts};
use tollgate_upstream::{
    Upstreams,
    downstream::{Admission, ConnectionPermit},
};

use super::{
    Engine,
    connection::{Bench, Desk, serve},
    stream::open,
};

/// A listener at work, until it is drained.
pub struct DecisionListener {
    address: SocketAddr,
    draining: watch::Sender<bool>,
    /// Set: what is left is cut then.
    stop: watch::Sender<Option<Instant>>,
    thread: JoinHandle<usize>,
}

/// Under what number, of what is shared, and in which log a listener's commands are accounting.
pub struct Accounting {
    /// A number that no worker has.
    pub worker: usize,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// None: there is no access log.
    pub log: Option<AccessLog>,
}

/// What was left when a listener ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had not ended in time and were cut.
    pub cut: usize,
}

/// How long accepting pauses when the process has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often some of what is remembered is swept.
const TICK: Duration = Duration::from_millis(100);

/// How often it is logged that somebody came who may not ask.
const STRANGERS_PAUSE: Duration = Duration::from_secs(10);

const NOT_AN_ASKER: &[u8] =
    b"-DENIED this address may not ask: `askers` in the settings names who \
                              may\r\n";

impl DecisionListener {
    /// Serves at a socket that is bound already and does not block, in a thread of its own.
    ///
    /// # Errors
    /// What the system says: there are no descriptors, threads or random numbers.
    pub fn start(
        listener: std::net::TcpListener,
        settings: &DecisionSettings,
        accounting: Accounting,
    ) -> io::Result<DecisionListener> {
        let Accounting { worker, shared, log } = accounting;
        let clock = shared.clock.clone();
        let address = listener.local_addr()?;
        let mut secret = [0; 16];
        rand::fill(&mut secret).map_err(|_| io::Error::other("no random numbers"))?;
        let password = settings.password.as_ref().map(|password| password.reveal());
        let engine = Engine::new(secret, settings.max_keys, password, clock.now());
        let (draining, is_draining) = watch::channel(false);
        let (stop, is_stopped) = watch::channel(None);
        let reception = Reception {
            settings: settings.clone(),
            admission: Admission::new(&Limits {
                connections: settings.connections,
                connections_per_address: settings.connections_per_address,
                ..Limits::default()
            }),
            is_draining,
            is_stopped,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let name = format!("decisions-{}", address.port());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let begin = || {
                let Timeouts { request_body, request_body_rate, .. } = shared.timeouts;
                // Nothing is forwarded from here.
                let upstreams =
                    Upstreams::new(Rc::new(Ticker::new(request_body, request_body_rate)));
                let gate =
                    Gate::new(worker, shared, upstreams, log.as_ref().map(AccessLog::buffer));
                Rc::new(Desk { bench: RefCell::new(Bench::new(engine)), gate, clock })
            };
            let cut = runtime.block_on(reception.run(listener, begin));
            runtime.shutdown_background();
            cut
        })?;
        Ok(DecisionListener { address, draining, stop, thread })
    }

    /// Where it is, with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, and closes connections as soon as what has come is replied to.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Drains, waits until all connections have ended, for at most `time`, and cuts the others.
    pub fn finish(self, time: Duration) -> Drained {
        self.drain();
        self.stop.send_replace(Some(Instant::now() + time));
        // Its panic was logged by the hook.
        Drained { cut: self.thread.join().unwrap_or_default() }
    }
}

/// Who may come in, and until when.
struct Reception {
    settings: DecisionSettings,
    admission: Arc<Admission>,
    is_draining: watch::Receiver<bool>,
    is_stopped: watch::Receiver<Option<Instant>>,
}

impl Reception {
    /// Returns how many connections were cut.
    async fn run(
        mut self,
        listener: std::net::TcpListener,
        begin: impl FnOnce() -> Rc<Desk>,
    ) -> usize {
        let serving = tokio::task::LocalSet::new();
        let cut = serving.run_until(async {
            let desk = begin();
            desk.gate.ready().await;
            let mut connections = JoinSet::new();
            let accepting = self.accept(listener, &desk, &mut connections);
            if let Err(error) = accepting.await {
                tracing::error!(%error, "decisions listener cannot start");
            }
            let cut = self.drain(connections).await;
            desk.gate.finish().await;
            cut
        });
        cut.await
    }

    /// Until it is to drain.
    async fn accept(
        &mut self,
        listener: std::net::TcpListener,
        desk: &Rc<Desk>,
        connections: &mut JoinSet<()>,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let strangers = Throttle::new(STRANGERS_PAUSE);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut draining = self.is_draining.clone();
        let mut id = 0;
        let mut published = CommandTotals::default();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        let Some(permit) = self.admit(&stream, address, &strangers, desk) else {
                            continue;
                        };
                        id += 1;
                        let desk = Rc::clone(desk);
                        let is_draining = self.is_draining.clone();
                        let tls = self.settings.listener.tls.clone();
                        connections.spawn_local(async move {
                            if let Some(client) = open(stream, tls, &desk.gate).await {
                                serve((client, address.ip()), id, desk, is_draining).await;
                            }
                            drop(permit);
                        });
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                _ = ticks.tick() => {
                    let now = desk.clock.now();
                    desk.bench.borrow_mut().engine.tick(now);
                    desk.publish(&mut published);
                    desk.gate.tick();
                }
                // What has ended is forgotten.
                Some(_) = connections.join_next() => {}
                _ = draining.wait_for(|is_draining| *is_draining) => return Ok(()),
            }
        }
    }

    /// None: the connection is closed.
    fn admit(
        &self,
        stream: &TcpStream,
        address: SocketAddr,
        strangers: &Throttle,
        desk: &Desk,
    ) -> Option<ConnectionPermit> {
        let address = canonical(address.ip());
        if !self.settings.askers.contains(address) {
            if self.settings.listener.tls.is_none() {
                // Tokio does not know yet that the socket can be written to.
                let _ = SockRef::from(stream).send(NOT_AN_ASKER);
            }
            if strangers.take(desk.clock.now()) {
                tracing::warn!(%address, "decisions: closed a connection of an address that may not ask");
            }
            return None;
        }
        let permit = self.admission.admit(Some(address)).ok()?;
        // Small replies are sent at once.
        let _ = stream.set_nodelay(true);
        Some(permit)
    }

    /// Until all have ended, or have had their time.
    async fn drain(&mut self, mut connections: JoinSet<()>) -> usize {
        let all_ended = async { while connections.join_next().await.is_some() {} };
        let mut stopped = self.is_stopped.clone();
        let is_late = async {
            // Else nobody waits for the connections any more.
            if let Ok(Some(at)) = stopped.wait_for(Option::is_some).await.map(|at| *at) {
                tokio::time::sleep_until(at).await;
            }
        };
        tokio::select! {
            () = all_ended => 0,
            () = is_late => connections.len(),
        }
    }
}
