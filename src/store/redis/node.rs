//! One Redis server, as one worker sees it: a connection that all requests of the worker share, kept
//! up in the background.
//!
//! Calls queue up while the worker's other tasks run, and leave together in one write: many requests
//! in flight share a round trip, and a quiet proxy waits for nobody. A call is handed to the
//! connection once. If its reply is lost, whether it was executed is not known, and it is not sent
//! again.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    convert::Infallible,
    fmt,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisError, ServerError, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{Instant, interval_at, sleep, timeout, timeout_at},
};

use super::{
    batch::{Batch, Queued, Request},
    breaker::Breaker,
};
use crate::settings::{Endpoint, RedisSettings};

/// Calls that wait for a connection or for a reply, at most: a bound on memory, and on the wait that
/// the last of them has.
const MAX_CALLS: usize = 4096;

/// How long connecting may take, its handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server that is asked whether it is there may take. Nobody waits for that: requests
/// have deadlines, and while it is in doubt they do not wait at all.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a server that is not asked for anything is asked whether it is there.
const QUIET: Duration = Duration::from_secs(1);

/// How long nobody waits for a server to be able to serve after somebody has in vain.
const IMPATIENCE: Duration = Duration::from_millis(300);

/// Time between two attempts to reach a server that is away: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_millis(800);

/// Why a call has no result.
#[derive(Clone, Debug)]
pub(super) enum CallError {
    /// It was not sent: the server is away.
    Away,
    /// It was not sent: too many are waiting.
    Busy,
    /// No reply came in time. If it was sent, it may have been executed.
    Timeout,
    /// The connection broke before the reply came: it may have been executed.
    Lost,
    /// The server answered with an error, and did not execute it.
    Refused(ServerError),
}

/// A server.
pub(super) struct Node {
    endpoint: Endpoint,
    settings: Arc<RedisSettings>,
    /// Said first on each connection: what a replica of a cluster needs before it may be read.
    greeting: Option<Cmd>,
    /// How long a decision may take.
    patience: Duration,
    breaker: Breaker,
    queue: RefCell<VecDeque<Queued>>,
    /// Calls in the queue, and those whose reply is awaited.
    calls: Cell<usize>,
    /// There is something in the queue.
    queued: Notify,
    /// The breaker has opened.
    doubted: Notify,
    /// Another connection is wanted in place of the one that there is.
    renewed: Notify,
    /// Whether a reply came since this was last looked at.
    was_heard: Cell<bool>,
    /// Told when the server may have gone.
    trouble: Rc<Notify>,
    /// Whether it was said that it is away.
    is_known_away: Cell<bool>,
    /// Whether it was ever known to be there.
    is_known: Cell<bool>,
    /// When somebody last waited in vain for it to serve.
    gave_up: Cell<Option<Instant>>,
}

/// What a node is started with.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    pub(super) settings: Arc<RedisSettings>,
    /// What is said first on each connection.
    pub(super) greeting: Option<Cmd>,
    /// How long a decision may take.
    pub(super) patience: Duration,
    /// Notified when the server may have gone.
    pub(super) trouble: Rc<Notify>,
}

impl Node {
    /// A server whose connection is kept up by a task of this thread, for as long as the node lives.
    pub(super) fn start(plan: Plan) -> Rc<Node> {
        let Plan { endpoint, settings, greeting, patience, trouble } = plan;
        let node = Rc::new(Node {
            endpoint,
            settings,
            greeting,
            patience,
            // Calls may wait for the first connection: whether it will come is not known yet.
            breaker: Breaker::default(),
            queue: RefCell::default(),
            calls: Cell::new(0),
            queued: Notify::new(),
            doubted: Notify::new(),
            renewed: Notify::new(),
            was_heard: Cell::new(false),
            trouble,
            is_known_away: Cell::new(false),
            is_known: Cell::new(false),
            gave_up: Cell::new(None),
        });
        tokio::task::spawn_local(keep_up(Rc::downgrade(&node)));
        node
    }

    /// Its address.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether it counts as away.
    pub(super) fn is_away(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether a server that cannot serve for the moment may be able to soon. One that nobody waited
    /// for in vain just now may.
    pub(super) fn is_worth_waiting_for(&self) -> bool {
        self.gave_up.get().is_none_or(|at| at.elapsed() >= IMPATIENCE)
    }

    /// Somebody has waited for it to serve, in vain.
    pub(super) fn give_up(&self) {
        if self.is_worth_waiting_for() {
            self.gave_up.set(Some(Instant::now()));
        }
    }

    /// Has it connect anew: the name may lead to another server by now.
    pub(super) fn renew(&self) {
        self.renewed.notify_one();
    }

    /// Whether it is known to be there, or to be away.
    pub(super) fn is_settled(&self) -> bool {
        self.is_known.get() || self.is_known_away.get()
    }

    /// Whether a reply is still awaited.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.get() > 0
    }

    /// Has it execute a command.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn call(
        self: &Rc<Self>,
        request: impl Into<Request>,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        if self.breaker.is_open() {
            return Err(CallError::Away);
        }
        if self.calls.get() >= MAX_CALLS {
            return Err(CallError::Busy);
        }
        let called = Instant::now();
        let (sender, reply) = oneshot::channel();
        self.enqueue(Queued { request: request.into(), reply: sender });
        match timeout_at(deadline, reply).await {
            Ok(Ok(result)) => result,
            Ok(Err(_dropped)) => Err(CallError::Lost),
            Err(_elapsed) => {
                // What had little time left says little about the server.
                let had_time = called.elapsed() >= self.patience / 2;
                if had_time && self.breaker.fail() {
                    // Whether it is more than a pause is found out in the background.
                    self.fail_queued();
                    self.doubted.notify_one();
                    self.trouble.notify_one();
                }
                Err(CallError::Timeout)
            }
        }
    }

    fn enqueue(&self, queued: Queued) {
        self.queue.borrow_mut().push_back(queued);
        self.calls.set(self.calls.get() + 1);
        self.queued.notify_one();
    }

    /// It is known not to answer: no call waits for it until it does.
    fn go_away(&self, reason: &dyn fmt::Display) {
        if !self.is_known_away.replace(true) {
            tracing::warn!(server = %self.endpoint, %reason, "redis is away");
        }
        self.breaker.trip();
        self.fail_queued();
        self.trouble.notify_one();
    }

    /// It is known to answer.
    fn come_back(&self) {
        self.is_known.set(true);
        if self.is_known_away.replace(false) {
            tracing::info!(server = %self.endpoint, "redis is back");
        }
        self.breaker.close();
    }

    /// Its connection broke, which may mean nothing.
    fn lose(&self, error: &dyn fmt::Display) {
        tracing::debug!(server = %self.endpoint, %error, "redis connection broke");
        self.trouble.notify_one();
    }

    /// Ends the wait of all calls that were not sent.
    fn fail_queued(&self) {
        for queued in self.queue.take() {
            self.finish(queued, Err(CallError::Away));
        }
    }

    /// Hands out what came of a call; true if somebody waited for that.
    pub(super) fn finish(&self, queued: Queued, result: Result<Value, CallError>) -> bool {
        self.calls.set(self.calls.get().saturating_sub(1));
        queued.finish(result)
    }

    /// Replies came, and perhaps in time for somebody.
    pub(super) fn hear(&self, is_in_time: bool) {
        self.was_heard.set(true);
        if is_in_time {
            self.breaker.succeed();
        }
    }

    /// All that is queued and still waited for.
    fn take_batch(self: &Rc<Self>) -> Option<Batch> {
        let mut batch = Batch { node: Rc::clone(self), calls: Vec::new() };
        batch.calls.reserve(self.queue.borrow().len());
        for queued in self.queue.take() {
            if queued.reply.is_closed() {
                self.finish(queued, Err(CallError::Timeout));
            } else {
                batch.calls.push(queued);
            }
        }
        (!batch.calls.is_empty()).then_some(batch)
    }
}

/// Connects, serves, and connects again when the connection breaks, until the node is dropped.
async fn keep_up(node: Weak<Node>) {
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
    if let Some(node) = node.upgrade() {
        node.come_back();
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
            _ = node.renewed.notified(), if connected.elapsed() >= QUIET => return,
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
