//! Keeps the connection to a server up: connects, sends what is queued, finds out whether the server
//! is still there, and connects again. Nobody waits for any of it.

use std::{convert::Infallible, pin::pin, rc::Weak, sync::Arc, time::Duration};

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
    identity,
    node::{IMPATIENCE, Node},
    servers::Line,
};

/// How long connecting may take, its handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server that is asked whether it is there may take. Nobody waits for that: requests
/// have deadlines, and while it is in doubt they do not wait at all.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a server that is not asked for anything is asked whether it is there.
const QUIET: Duration = Duration::from_secs(1);

/// Time between two attempts to reach a server that is away: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(800);

/// Connects, serves, and connects again when the connection breaks, until the node is dropped.
pub(super) async fn keep_up(node: Weak<Node>) {
    let mut failures = 0;
    let mut returns = None;
    loop {
        if failures > 0 {
            let Some(server) = node.upgrade().map(|node| Arc::clone(&node.server)) else { return };
            let returns = returns.unwrap_or_else(|| server.returns());
            // When another worker has found it, so can this one.
            let _ = timeout(jittered(pause_after(failures)), server.returned_since(returns)).await;
        }
        let Some(strong) = node.upgrade() else { return };
        returns = Some(strong.server.returns());
        let connecting = strong.connect().await;
        drop(strong);
        failures += 1;
        let failure = match connecting {
            Ok(line) => {
                let connected = Instant::now();
                let failure = serve(&node, line).await;
                // A connection that breaks is made again at once, one that never holds is not.
                if connected.elapsed() >= QUIET {
                    failures = 0;
                }
                returns = None;
                failure
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failure {
            let Some(strong) = node.upgrade() else { return };
            strong.go_away(&error, failures);
        }
    }
}

/// How long to wait after so many attempts in a row that failed.
fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LAST_PAUSE)
}

/// A connection, and what tells that it is closed.
struct Connection {
    connection: MultiplexedConnection,
    /// Notified when it is closed, even while nothing is sent: RESP3 brings that along.
    closed: Arc<Notify>,
    line: Line,
    /// Which server it leads to.
    server: u64,
}

/// Sends what is queued for as long as the connection lasts and the server answers on it. Tells what
/// it did to the question whether it is there; none: it was not asked, and need not have gone.
async fn serve(
    node: &Weak<Node>,
    Connection { connection, closed, line: _line, server }: Connection,
) -> Option<RedisError> {
    // With it go all batches: whoever waits for a reply on this connection hears that it is lost.
    let mut flights = JoinSet::new();
    let connected = Instant::now();
    let mut checks = interval_at(connected + QUIET, QUIET);
    let mut measuring = JoinSet::new();
    if let Some(node) = node.upgrade() {
        node.meet(server);
        node.server.trusted().await;
        node.come_back();
        measuring.spawn_local(Arc::clone(&node.clock).keep_measuring(connection.clone()));
    }
    loop {
        // Between two looks at it, a node that nobody uses any more is dropped.
        let node = node.upgrade()?;
        let changed = node.server.changed();
        if node.is_doubted() {
            match node.probe(&connection).await {
                Ok(()) => node.come_back(),
                Err(error) => return Some(error),
            }
        }
        if let Some(batch) = node.take_batch() {
            flights.spawn_local(batch.fly(connection.clone()));
        }
        let is_quiet = tokio::select! {
            biased;
            Some(flight) = flights.join_next() => match flight {
                Ok(Ok(())) => false,
                Ok(Err(error)) => {
                    node.lose(&error);
                    return None;
                }
                Err(_panicked) => return None,
            },
            _ = node.queued.notified() => false,
            _ = node.doubted.notified() => false,
            () = changed => false,
            _ = closed.notified() => {
                node.lose(&"it was closed");
                return None;
            }
            // A young connection leads where the name does: another one would be alike.
            _ = node.renewed.notified(), if connected.elapsed() >= QUIET => {
                // What is on its way has been executed, or will be told that it was not.
                let _ = timeout(PROBE_TIMEOUT, flights.join_all()).await;
                return None;
            }
            _ = checks.tick() => !node.was_heard.replace(false),
        };
        if is_quiet {
            match node.probe(&connection).await {
                Ok(()) => node.come_back(),
                Err(error) => return Some(error),
            }
        }
    }
}

impl Node {
    /// Asks until the server answers as soon as a decision needs it to. One that does not is in doubt
    /// from then on: no request has to find that out.
    ///
    /// # Errors
    /// It does not answer, or is not ready.
    async fn probe(&self, connection: &MultiplexedConnection) -> Result<(), RedisError> {
        let mut pause = Duration::ZERO;
        loop {
            let mut answer = pin!(is_ready(connection.clone()));
            if let Ok(answer) = timeout(self.patience, &mut answer).await {
                answer?;
                self.server.trusted().await;
                return Ok(());
            }
            self.doubt();
            answer.await?;
            // It may have paused only this once.
            if !pause.is_zero() {
                self.server.be_late();
            }
            sleep(pause).await;
            pause = IMPATIENCE;
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
            // Deadlines are each call's own.
            .set_response_timeout(None);
        let connecting = async {
            let client = self.settings.access.client(&self.endpoint)?;
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&config).await?;
            if let Some(greeting) = &self.greeting {
                connection.send_packed_command(greeting).await?.extract_error()?;
            }
            is_ready(connection.clone()).await?;
            // Whose time counts is known before anything is decided.
            let mut same = connection.clone();
            let measuring = self.clock.measure(&mut same);
            let (measured, server) = join!(measuring, identity::name(&connection));
            measured?;
            Ok(Connection { connection, closed, line: Line::new(&self.server), server })
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(result) => result,
            Err(elapsed) => Err(std::io::Error::from(elapsed).into()),
        }
    }
}

/// Whether the server is ready to serve: one that is loading its data, or has lost its primary, says
/// that it is not. One that does not let us ask is.
async fn is_ready(mut connection: MultiplexedConnection) -> Result<(), RedisError> {
    let ping = redis::cmd("PING");
    match timeout(PROBE_TIMEOUT, connection.send_packed_command(&ping)).await {
        Ok(Ok(Value::ServerError(error))) if error.code() != "NOPERM" => Err(error.into()),
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) => Ok(()),
        Err(elapsed) => Err(std::io::Error::from(elapsed).into()),
    }
}

/// `pause`, give or take a quarter: workers do not come all at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [128];
    // Without randomness they do.
    let _ = aws_lc_rs::rand::fill(&mut byte);
    let [byte] = byte;
    pause * 3 / 4 + pause / 2 * u32::from(byte) / 255
}
