//! Keeps the connection to a server up: connects, sends what is queued, finds out whether the server
//! is still there, and connects again. Nobody waits for any of it.

use std::{convert::Infallible, rc::Weak, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, PushInfo, PushKind, RedisError, Value, aio::MultiplexedConnection,
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, interval_at, sleep, timeout},
};

use super::node::{IMPATIENCE, Node};

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
    loop {
        if failures > 0 {
            sleep(jittered(pause_after(failures))).await;
        }
        let Some(strong) = node.upgrade() else { return };
        let connecting = strong.connect().await;
        drop(strong);
        failures += 1;
        match connecting {
            Ok(line) => {
                let connected = Instant::now();
                serve(&node, line).await;
                // A connection that breaks is made again at once, one that never holds is not.
                if connected.elapsed() >= QUIET {
                    failures = 0;
                }
            }
            Err(error) => {
                let Some(strong) = node.upgrade() else { return };
                strong.go_away(&error);
            }
        }
    }
}

/// How long to wait after so many attempts in a row that failed.
fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LAST_PAUSE)
}

/// A connection.
struct Line {
    connection: MultiplexedConnection,
    /// Notified when it is closed, even while nothing is sent: RESP3 brings that along.
    closed: Arc<Notify>,
}

/// Sends what is queued for as long as the connection lasts and the server answers on it.
async fn serve(node: &Weak<Node>, Line { connection, closed }: Line) {
    // With it go all batches: whoever waits for a reply on this connection hears that it is lost.
    let mut flights = JoinSet::new();
    let connected = Instant::now();
    let mut checks = interval_at(connected + QUIET, QUIET);
    let mut measuring = JoinSet::new();
    if let Some(node) = node.upgrade() {
        node.forget_scripts();
        node.come_back();
        measuring.spawn_local(Arc::clone(&node.clock).keep_measuring(connection.clone()));
    }
    loop {
        // Between two looks at it, a node that nobody uses any more is dropped.
        let Some(node) = node.upgrade() else { return };
        if !node.breaker.is_open()
            && let Some(batch) = node.take_batch()
        {
            flights.spawn_local(batch.fly(connection.clone()));
        }
        let is_in_doubt = tokio::select! {
            biased;
            Some(flight) = flights.join_next() => match flight {
                Ok(Ok(())) => false,
                Ok(Err(error)) => return node.lose(&error),
                Err(_panicked) => return,
            },
            _ = node.queued.notified() => false,
            _ = node.doubted.notified() => true,
            _ = closed.notified() => return node.lose(&"it was closed"),
            // A young connection leads where the name does: another one would be alike.
            _ = node.renewed.notified(), if connected.elapsed() >= QUIET => {
                // What is on its way has been executed, or will be told that it was not.
                let _ = timeout(PROBE_TIMEOUT, flights.join_all()).await;
                return;
            }
            _ = checks.tick() => !node.was_heard.replace(false),
        };
        if is_in_doubt {
            match node.probe(&connection).await {
                Ok(()) => node.come_back(),
                Err(error) => return node.go_away(&error),
            }
        }
    }
}

impl Node {
    /// Asks until the server answers as soon as a decision needs it to.
    ///
    /// # Errors
    /// It does not answer, or is not ready.
    async fn probe(&self, connection: &MultiplexedConnection) -> Result<(), RedisError> {
        loop {
            let asked = Instant::now();
            is_ready(connection.clone()).await?;
            // One that nobody waits for just now may take its time.
            if asked.elapsed() <= self.patience || !self.breaker.is_open() {
                return Ok(());
            }
            sleep(IMPATIENCE).await;
        }
    }

    async fn connect(&self) -> Result<Line, RedisError> {
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
            self.clock.measure(&mut connection).await?;
            Ok(Line { connection, closed })
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
