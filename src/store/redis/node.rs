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
    fmt,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use redis::{Cmd, ServerError, Value};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    batch::{Batch, Queued, Request},
    breaker::Breaker,
    upkeep,
};
use crate::settings::{Endpoint, RedisSettings};

/// Calls that wait for a connection or for a reply, at most: a bound on memory, and on the wait that
/// the last of them has.
const MAX_CALLS: usize = 4096;

/// How long nobody waits for a server to be able to serve after somebody has in vain.
pub(super) const IMPATIENCE: Duration = Duration::from_millis(300);

/// Why a call has no result.
#[derive(Clone, Debug)]
pub(in crate::store) enum CallError {
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
    pub(super) endpoint: Endpoint,
    pub(super) settings: Arc<RedisSettings>,
    /// Said first on each connection: what a replica of a cluster needs before it may be read.
    pub(super) greeting: Option<Cmd>,
    /// How long a decision may take.
    pub(super) patience: Duration,
    pub(super) breaker: Breaker,
    queue: RefCell<VecDeque<Queued>>,
    /// Calls in the queue, and those whose reply is awaited.
    calls: Cell<usize>,
    /// There is something in the queue.
    pub(super) queued: Notify,
    /// The breaker has opened.
    pub(super) doubted: Notify,
    /// Another connection is wanted in place of the one that there is.
    pub(super) renewed: Notify,
    /// Whether a reply came since this was last looked at.
    pub(super) was_heard: Cell<bool>,
    /// Told when the server may have gone.
    trouble: Rc<Notify>,
    /// Whether it was said that it is away.
    is_known_away: Cell<bool>,
    /// Whether it was ever known to be there.
    is_known: Cell<bool>,
    /// When somebody last waited in vain for it to serve.
    gave_up: Cell<Option<Instant>>,
    /// Hashes of the scripts that were sent on this connection.
    scripts: RefCell<Vec<&'static str>>,
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
            scripts: RefCell::default(),
        });
        tokio::task::spawn_local(upkeep::keep_up(Rc::downgrade(&node)));
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
        let (queued, reply) = Queued::new(request.into());
        self.enqueue(queued);
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

    /// Whether a script, by its hash, is not yet known on this connection; from now on it is. Sent
    /// whole the first time, it takes effect in the order of the calls: what a response puts right
    /// is there before the next request is decided.
    pub(super) fn introduce(&self, sha: &'static str) -> bool {
        let mut scripts = self.scripts.borrow_mut();
        let is_new = !scripts.contains(&sha);
        if is_new {
            scripts.push(sha);
        }
        is_new
    }

    /// There is a new connection, perhaps to a server that knows no scripts.
    pub(super) fn forget_scripts(&self) {
        self.scripts.borrow_mut().clear();
    }

    /// It is known not to answer: no call waits for it until it does.
    pub(super) fn go_away(&self, reason: &dyn fmt::Display) {
        if !self.is_known_away.replace(true) {
            tracing::warn!(server = %self.endpoint, %reason, "redis is away");
        }
        self.breaker.trip();
        self.fail_queued();
        self.trouble.notify_one();
    }

    /// It is known to answer.
    pub(super) fn come_back(&self) {
        self.is_known.set(true);
        if self.is_known_away.replace(false) {
            tracing::info!(server = %self.endpoint, "redis is back");
        }
        self.breaker.close();
    }

    /// Its connection broke, which may mean nothing.
    pub(super) fn lose(&self, error: &dyn fmt::Display) {
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
    pub(super) fn take_batch(self: &Rc<Self>) -> Option<Batch> {
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
