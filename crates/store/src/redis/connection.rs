//! Keeps the connection to a server up: connects, sends queued calls, probes the server, and
//! reconnects, all in the background.

use std::{
    convert::Infallible,
    hash::{BuildHasher, Hasher, RandomState},
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, PushInfo, PushKind, RedisError, Value, aio::MultiplexedConnection,
};
use tokio::{
    join,
    sync::Notify,
    task::JoinSet,
    time::{Instant, interval_at, sleep, timeout},
};

use super::{
    batch::Batch,
    node::{DOUBT_LIMIT, Node, NodeConfig},
    server::OpenConnection,
    server_id,
    transport::Opened,
};

/// How long connecting may take, including the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a probe may take. No request waits for it: requests have deadlines, and do not wait for
/// a server in doubt.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a server without traffic is probed.
const QUIET: Duration = Duration::from_secs(1);

/// The first and the longest pause between two attempts to reach a server that is away.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(800);

/// A server whose connection a task of this thread keeps up, as long as the node lives.
pub(super) fn start(config: NodeConfig) -> Rc<Node> {
    let node = Rc::new(Node::new(config));
    tokio::task::spawn_local(keep_connected(Rc::downgrade(&node)));
    node
}

/// Connects, serves, and reconnects when the connection breaks, until the node is dropped.
async fn keep_connected(node: Weak<Node>) {
    let mut failures = 0;
    let mut recoveries = None;
    loop {
        if failures > 0 {
            let Some(server) = node.upgrade().map(|node| Arc::clone(&node.config.server)) else {
                return;
            };
            let recoveries = recoveries.unwrap_or_else(|| server.recoveries());
            // When another worker has reached it, so can this one.
            let _ =
                timeout(jittered(pause_after(failures)), server.recovered_since(recoveries)).await;
        }
        let Some(strong) = node.upgrade() else { return };
        recoveries = Some(strong.config.server.recoveries());
        let connecting = strong.connect().await;
        drop(strong);
        failures += 1;
        let failure = match connecting {
            Ok(connection) => {
                let connected = Instant::now();
                let failure = serve(&node, connection).await;
                // A connection that held for a while is replaced at once; one that never holds is
                // not.
                if connected.elapsed() >= QUIET {
                    failures = 0;
                }
                recoveries = None;
                failure
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failure {
            let Some(strong) = node.upgrade() else { return };
            strong.mark_unreachable(&error, failures);
        }
    }
}

/// How long to wait after so many failed attempts in a row.
fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LAST_PAUSE)
}

/// A connection, and the notification of its end.
struct Connection {
    connection: MultiplexedConnection,
    /// Reads and writes on its stream as long as this is held.
    driver: JoinSet<()>,
    /// Notified when it is closed, even while nothing is sent: RESP3 makes that possible.
    closed: Arc<Notify>,
    open: OpenConnection,
    /// The identity of the server that it leads to.
    server: u64,
}

/// Sends queued calls as long as the connection lasts and the server answers on it. Returns the
/// error of a failed probe; none if the connection ended otherwise, and the server may still be up.
async fn serve(
    node: &Weak<Node>,
    Connection { connection, driver: _driver, closed, open: _open, server }: Connection,
) -> Option<RedisError> {
    // Dropped with the connection, so that all calls on it end as lost.
    let mut batches = JoinSet::new();
    let connected = Instant::now();
    let mut checks = interval_at(connected + QUIET, QUIET);
    let mut measuring = JoinSet::new();
    if let Some(node) = node.upgrade() {
        node.connected_to(server);
        node.config.server.until_trusted().await;
        node.mark_reachable();
        measuring.spawn_local(Arc::clone(&node.config.clock).keep_measuring(connection.clone()));
    }
    loop {
        // Upgraded in each round, so that a node that is no longer used is dropped.
        let node = node.upgrade()?;
        let changed = node.config.server.changed();
        if node.is_doubted() {
            match node.probe(&connection).await {
                Ok(()) => node.mark_reachable(),
                Err(error) => return Some(error),
            }
        }
        if let Some(batch) = Batch::take(&node) {
            batches.spawn_local(batch.send(connection.clone()));
        }
        let is_quiet = tokio::select! {
            biased;
            Some(batch) = batches.join_next() => match batch {
                Ok(Ok(())) => false,
                Ok(Err(error)) => {
                    node.connection_broke(&error);
                    return None;
                }
                Err(_panicked) => return None,
            },
            _ = node.queued.notified() => false,
            _ = node.doubted.notified() => false,
            () = changed => false,
            _ = closed.notified() => {
                node.connection_broke(&"it was closed");
                return None;
            }
            // A new connection has just resolved the name: another one would lead to the same
            // server.
            _ = node.reconnect_wanted.notified(), if connected.elapsed() >= QUIET => {
                // Calls in flight were executed, or are about to be refused.
                let _ = timeout(PROBE_TIMEOUT, batches.join_all()).await;
                return None;
            }
            _ = checks.tick() => !node.had_reply.replace(false),
        };
        if is_quiet {
            match node.probe(&connection).await {
                Ok(()) => node.mark_reachable(),
                Err(error) => return Some(error),
            }
        }
    }
}

impl Node {
    /// Probes until the server responds as fast as a decision needs. A server that does not is
    /// marked as doubtful, so that no request has to wait for it first.
    ///
    /// # Errors
    /// It does not answer, or is not ready.
    async fn probe(&self, connection: &MultiplexedConnection) -> Result<(), RedisError> {
        let mut pause = Duration::ZERO;
        loop {
            let mut answer = pin!(is_ready(connection.clone()));
            if let Ok(answer) = timeout(self.config.decision_timeout, &mut answer).await {
                answer?;
                self.config.server.until_trusted().await;
                return Ok(());
            }
            self.doubt();
            answer.await?;
            // The first late answer may be a single pause.
            if !pause.is_zero() {
                self.config.server.note_late();
            }
            sleep(pause).await;
            pause = DOUBT_LIMIT;
        }
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        let closed = Arc::new(Notify::new());
        let closing = Arc::clone(&closed);
        let pushed = move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                closing.notify_one();
            }
            Ok::<(), Infallible>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_push_sender(pushed)
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            // Each call has its own deadline.
            .set_response_timeout(None);
        let connecting = async {
            let NodeConfig { address, settings, transport, .. } = &self.config;
            let Opened { mut connection, driver } =
                transport.open(address, &settings.access, config).await?;
            if let Some(greeting) = &self.config.greeting {
                connection.send_packed_command(greeting).await?.extract_error()?;
            }
            is_ready(connection.clone()).await?;
            // The clock in effect must be known before anything is decided.
            let mut same = connection.clone();
            let measuring = self.config.clock.measure(&mut same);
            let (measured, server) = join!(measuring, server_id::server_id(&connection));
            measured?;
            Ok(Connection {
                connection,
                driver,
                closed,
                open: OpenConnection::new(&self.config.server),
                server,
            })
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(result) => result,
            Err(elapsed) => Err(std::io::Error::from(elapsed).into()),
        }
    }
}

/// Whether the server is ready to serve: one that is loading its data, or has lost its primary,
/// replies that it is not. One that does not permit `PING` counts as ready.
async fn is_ready(mut connection: MultiplexedConnection) -> Result<(), RedisError> {
    let ping = redis::cmd("PING");
    match timeout(PROBE_TIMEOUT, connection.send_packed_command(&ping)).await {
        Ok(Ok(Value::ServerError(error))) if error.code() != "NOPERM" => Err(error.into()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) => Ok(()),
        Err(elapsed) => Err(std::io::Error::from(elapsed).into()),
    }
}

/// `pause`, plus or minus a quarter, so that workers do not all come at once.
fn jittered(pause: Duration) -> Duration {
    let [byte, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    pause * 3 / 4 + pause / 2 * u32::from(byte) / 255
}
