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
    servers::Server,
    skew::ServerClock,
    upkeep,
};
use crate::settings::{Endpoint, RedisSettings};

/// Calls that wait for a connection or for a reply, at most: a bound on memory, and on the wait that
/// the last of them has.
const MAX_CALLS: usize = 4096;

/// How long nobody waits for a server to be able to serve after somebody has in vain.
pub(super) const IMPATIENCE: Duration = Duration::from_millis(300);

/// How long requests wait for a server to turn out to be there, once it is in doubt: a part of what a
/// decision may take, and no longer than this. After that nobody waits until it is known. So a server
/// that only paused decides about all requests but the one that has waited in vain.
const GRACE_PART: u32 = 4;
const LONGEST_GRACE: Duration = Duration::from_millis(25);

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

/// A worker that so often in a row cannot reach a server which others can is told of.
const TELLING_TIMES: u32 = 5;

/// A server.
pub(super) struct Node {
    pub(super) endpoint: Endpoint,
    pub(super) settings: Arc<RedisSettings>,
    /// This process' clock beside the server's.
    pub(super) clock: Arc<ServerClock>,
    /// Said first on each connection: what a replica of a cluster needs before it may be read.
    pub(super) greeting: Option<Cmd>,
    /// How long a decision may take.
    pub(super) patience: Duration,
    /// How it is, as all workers know it.
    pub(super) server: Arc<Server>,
    /// How it is on the connection of this worker.
    reach: Cell<Reach>,
    queue: RefCell<VecDeque<Queued>>,
    /// Calls in the queue, and those whose reply is awaited.
    calls: Cell<usize>,
    /// There is something in the queue.
    pub(super) queued: Notify,
    /// The server is in doubt.
    pub(super) doubted: Notify,
    /// It turned out whether it is there.
    resolved: Notify,
    /// Another connection is wanted in place of the one that there is.
    pub(super) renewed: Notify,
    /// Whether a reply came since this was last looked at.
    pub(super) was_heard: Cell<bool>,
    /// Told when the server may have gone.
    trouble: Rc<Notify>,
    /// Whether it was ever known to be there.
    is_known: Cell<bool>,
    /// When somebody last waited in vain for it to serve.
    gave_up: Cell<Option<Instant>>,
    /// Which server the latest connection leads to; zero: there was none yet.
    met: Cell<u64>,
    /// Hashes of the scripts that were sent on this connection.
    scripts: RefCell<Vec<&'static str>>,
}

/// Whether a server can be reached on the connection of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It can, or that is not known yet.
    Open,
    /// It has not answered, since this instant at least, and is asked whether it is there.
    Doubted(Instant),
    /// There is no connection, and the latest attempt to have one failed.
    Cut,
}

/// What a node is started with.
pub(super) struct Plan {
    pub(super) endpoint: Endpoint,
    pub(super) settings: Arc<RedisSettings>,
    /// This process' clock beside the server's.
    pub(super) clock: Arc<ServerClock>,
    /// What is said first on each connection.
    pub(super) greeting: Option<Cmd>,
    /// How long a decision may take.
    pub(super) patience: Duration,
    /// How the server is, as all workers know it.
    pub(super) server: Arc<Server>,
    /// Notified when the server may have gone.
    pub(super) trouble: Rc<Notify>,
}

impl Node {
    /// A server whose connection is kept up by a task of this thread, for as long as the node lives.
    pub(super) fn start(plan: Plan) -> Rc<Node> {
        let Plan { endpoint, settings, clock, greeting, patience, server, trouble } = plan;
        let node = Rc::new(Node {
            endpoint,
            settings,
            clock,
            greeting,
            patience,
            server,
            // Calls may wait for the first connection: whether it will come is not known yet.
            reach: Cell::new(Reach::Open),
            queue: RefCell::default(),
            calls: Cell::new(0),
            queued: Notify::new(),
            doubted: Notify::new(),
            resolved: Notify::new(),
            renewed: Notify::new(),
            was_heard: Cell::new(false),
            trouble,
            is_known: Cell::new(false),
            gave_up: Cell::new(None),
            met: Cell::new(0),
            scripts: RefCell::default(),
        });
        tokio::task::spawn_local(upkeep::keep_up(Rc::downgrade(&node)));
        node
    }

    /// Its address.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether it counts as away: nobody has heard of it for a while. One that has only paused is not.
    pub(super) fn is_away(&self) -> bool {
        let is_cut_off = match self.reach.get() {
            Reach::Open => false,
            Reach::Doubted(since) => since.elapsed() >= IMPATIENCE,
            Reach::Cut => true,
        };
        is_cut_off || self.server.is_away_or_doubted_for(IMPATIENCE)
    }

    /// Whether it may be away, so that nobody should wait for it.
    pub(super) fn is_doubted(&self) -> bool {
        if self.server.is_doubted() {
            self.doubt_reach();
        }
        self.reach.get() != Reach::Open
    }

    fn doubt_reach(&self) {
        if self.reach.get() == Reach::Open {
            self.reach.set(Reach::Doubted(Instant::now()));
            self.doubted.notify_one();
        }
    }

    /// It has not answered in time: it is in doubt, for all workers, until it does.
    pub(super) fn doubt(&self) {
        // One that still waits on a connection in doubt finds out nothing new.
        if self.reach.get() == Reach::Open {
            self.doubt_reach();
            self.server.doubt();
            self.fail_queued();
            self.trouble.notify_one();
        }
    }

    /// Whether it turns out to be there in the little time that is left to wait for that.
    async fn is_found(&self, deadline: Instant) -> bool {
        let Reach::Doubted(since) = self.reach.get() else { return false };
        let grace = LONGEST_GRACE.min(self.patience / GRACE_PART);
        let until = deadline.min(since + grace);
        let resolved = async {
            while matches!(self.reach.get(), Reach::Doubted(_)) {
                self.resolved.notified().await;
            }
        };
        timeout_at(until, resolved).await.is_ok() && !self.is_doubted()
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
        self.is_known.get() || self.reach.get() == Reach::Cut
    }

    /// Whether a reply is still awaited.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.get() > 0
    }

    /// Has it execute a command, for a request that waits.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn call(
        &self,
        request: impl Into<Request>,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        if self.is_doubted() && !self.is_found(deadline).await {
            return Err(CallError::Away);
        }
        self.send(request.into(), deadline).await
    }

    /// The same for what nobody waits for: a server that is in doubt is given all the time there is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn call_patiently(
        &self,
        request: impl Into<Request>,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        if self.reach.get() == Reach::Cut {
            return Err(CallError::Away);
        }
        self.send(request.into(), deadline).await
    }

    async fn send(&self, request: Request, deadline: Instant) -> Result<Value, CallError> {
        if self.calls.get() >= MAX_CALLS {
            return Err(CallError::Busy);
        }
        let called = Instant::now();
        let is_charge = request.orphan.is_some();
        let (queued, reply) = Queued::new(request);
        self.enqueue(queued);
        match timeout_at(deadline, reply).await {
            Ok(Ok(result)) => result,
            Ok(Err(_dropped)) => Err(CallError::Lost),
            Err(_elapsed) => {
                // What had little time left says little about the server, and so does what this
                // thread had no time to look at: the reply may be there.
                let is_busy = deadline.elapsed() >= self.patience / 2;
                if called.elapsed() >= self.patience / 2 && !is_busy {
                    // Whether it is more than a pause is found out in the background.
                    if is_charge && self.reach.get() == Reach::Open {
                        self.server.count_vain();
                    }
                    self.doubt();
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

    /// There is a new connection to this server, which perhaps knows no scripts.
    pub(super) fn meet(&self, server: u64) {
        self.met.set(server);
        self.scripts.borrow_mut().clear();
    }

    /// Which server the latest connection leads to; zero: there was none yet.
    pub(super) fn met(&self) -> u64 {
        self.met.get()
    }

    /// It cannot be reached, now for so many times in a row: no call waits for it until it can.
    pub(super) fn go_away(&self, reason: &dyn fmt::Display, times: u32) {
        self.reach.set(Reach::Cut);
        // At first, others may not have noticed yet.
        if self.server.miss(reason) && times == TELLING_TIMES {
            tracing::warn!(server = %self.endpoint, %reason, "redis lets only some workers in");
        }
        self.resolved.notify_waiters();
        self.fail_queued();
        self.trouble.notify_one();
    }

    /// It is known to answer.
    pub(super) fn come_back(&self) {
        self.is_known.set(true);
        self.reach.set(Reach::Open);
        self.server.answer();
        self.resolved.notify_waiters();
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

    /// Hands out what came of a call.
    pub(super) fn finish(&self, queued: Queued, result: Result<Value, CallError>) {
        self.calls.set(self.calls.get().saturating_sub(1));
        queued.finish(result);
    }

    /// Replies came.
    pub(super) fn hear(&self) {
        self.was_heard.set(true);
    }

    /// All that is queued, still waited for, and meant for this server.
    pub(super) fn take_batch(self: &Rc<Self>) -> Option<Batch> {
        let mut batch = Batch { node: Rc::clone(self), calls: Vec::new() };
        batch.calls.reserve(self.queue.borrow().len());
        for queued in self.queue.take() {
            if queued.reply.is_closed() {
                self.finish(queued, Err(CallError::Timeout));
            } else if queued.request.server.is_some_and(|server| server != self.met.get()) {
                self.finish(queued, Err(CallError::Away));
            } else {
                batch.calls.push(queued);
            }
        }
        (!batch.calls.is_empty()).then_some(batch)
    }
}
