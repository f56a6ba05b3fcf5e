//! One Redis server, as one worker uses it: a connection that all requests of the worker share,
//! kept up in the background.
//!
//! Calls queue up while the worker's other tasks run, and leave together in one write: many
//! requests in flight share a round trip, and with little traffic no call waits for others. A call
//! is handed to the connection once. If its reply is lost, it is not known whether it was executed,
//! and it is not sent again.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures_util::future::Either;
use redis::{Cmd, Value};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use tollgate_observe::trace::{ServerAddress, is_recording_calls};
use tollgate_settings::{RedisAddress, RedisSettings};

use super::{
    call::{CallError, QueuedCall, RedisCall, ReplyFuture},
    server::{CallTimes, Server},
    skew::ServerClock,
    traced_call::TracedCall,
    transport::Transport,
};

/// Most calls that wait for a connection or for a reply: a bound on memory, and on the wait of the
/// last one.
const MAX_CALLS: usize = 4096;

/// After this time in doubt a server counts as away. It is also the pause between probes, and the
/// time for which requests do not wait again for a server that could not serve.
pub(super) const DOUBT_LIMIT: Duration = Duration::from_millis(300);

/// How long requests wait for a server that is in doubt to answer a probe: a part of what a
/// decision may take, and at most this long. Later requests do not wait at all. So a server that
/// only paused decides all requests but the one that has waited in vain.
const GRACE_PART: u32 = 4;
const LONGEST_GRACE: Duration = Duration::from_millis(25);

/// After so many failures in a row of one worker, with a server that other workers reach, that is
/// logged.
const FAILURES_BEFORE_WARNING: u32 = 5;

/// A server.
pub(super) struct Node {
    pub(super) config: NodeConfig,
    /// How long its replies took on the connection of this worker.
    times: Arc<CallTimes>,
    /// Its address, for the spans of calls.
    address: Arc<ServerAddress>,
    /// Its state on the connection of this worker.
    reachability: Cell<Reachability>,
    queue: RefCell<VecDeque<QueuedCall>>,
    /// The number of calls in the queue or without a reply.
    calls: Cell<usize>,
    /// Notified when there is something in the queue.
    pub(super) queued: Notify,
    /// Notified when the server is in doubt.
    pub(super) doubted: Notify,
    /// Notified when it is known whether it can be reached.
    resolved: Notify,
    /// Notified when the connection is to be replaced.
    pub(super) reconnect_wanted: Notify,
    /// Whether a reply came since the last check.
    pub(super) had_reply: Cell<bool>,
    /// Whether it was ever reached.
    is_known: Cell<bool>,
    /// When a request last waited in vain for it to serve.
    last_unable: Cell<Option<Instant>>,
    /// The identity of the server that the latest connection leads to; zero: there was none yet.
    pub(super) server_id: Cell<u64>,
    /// Hashes of the scripts that were sent on this connection.
    scripts: RefCell<Vec<&'static str>>,
}

/// Whether a server can be reached on the connection of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reachability {
    /// It can, or that is not known yet.
    Open,
    /// It has not answered since this instant, and is being probed.
    Doubted(Instant),
    /// There is no connection, and the latest attempt to connect failed.
    Cut,
}

/// What a node is started with.
pub(super) struct NodeConfig {
    pub(super) address: RedisAddress,
    pub(super) settings: Arc<RedisSettings>,
    /// How connections to it are opened.
    pub(super) transport: Transport,
    /// The skew between this process' clock and the server's.
    pub(super) clock: Arc<ServerClock>,
    /// The first command on each connection.
    pub(super) greeting: Option<Cmd>,
    /// How long a decision may take.
    pub(super) decision_timeout: Duration,
    /// The server's health, shared by all workers.
    pub(super) server: Arc<Server>,
    /// Notified when the server may be down.
    pub(super) trouble: Rc<Notify>,
}

impl Node {
    /// A server without a connection yet.
    pub(super) fn new(config: NodeConfig) -> Node {
        let host = config.address.host.as_str().into();
        Node {
            times: config.server.calls.take(),
            address: Arc::new(ServerAddress { host, port: config.address.port }),
            config,
            // Calls may wait for the first connection, since it is not known yet whether it will
            // succeed.
            reachability: Cell::new(Reachability::Open),
            queue: RefCell::default(),
            calls: Cell::new(0),
            queued: Notify::new(),
            doubted: Notify::new(),
            resolved: Notify::new(),
            reconnect_wanted: Notify::new(),
            had_reply: Cell::new(false),
            is_known: Cell::new(false),
            last_unable: Cell::new(None),
            server_id: Cell::new(0),
            scripts: RefCell::default(),
        }
    }

    /// Its address.
    pub(super) fn address(&self) -> &RedisAddress {
        &self.config.address
    }

    /// Whether it counts as away: no worker has had a reply for a while. One that has only paused
    /// does not.
    pub(super) fn is_away(&self) -> bool {
        let is_cut_off = match self.reachability.get() {
            Reachability::Open => false,
            Reachability::Doubted(since) => since.elapsed() >= DOUBT_LIMIT,
            Reachability::Cut => true,
        };
        is_cut_off || self.config.server.is_away_or_doubted_for(DOUBT_LIMIT)
    }

    /// Whether it may be away, so that no request should wait for it.
    pub(super) fn is_doubted(&self) -> bool {
        if self.config.server.is_doubted() {
            self.doubt_connection();
        }
        self.reachability.get() != Reachability::Open
    }

    fn doubt_connection(&self) {
        if self.reachability.get() == Reachability::Open {
            self.reachability.set(Reachability::Doubted(Instant::now()));
            self.doubted.notify_one();
        }
    }

    /// It has not answered in time: it is in doubt for all workers until it does.
    pub(super) fn doubt(&self) {
        // Another timeout on a connection in doubt is no news.
        if self.reachability.get() == Reachability::Open {
            self.doubt_connection();
            self.config.server.doubt();
            self.fail_queued();
            self.config.trouble.notify_one();
        }
    }

    /// Whether it answers within the short time that requests wait for a server in doubt.
    async fn recovers_within_grace(&self, deadline: Instant) -> bool {
        let Reachability::Doubted(since) = self.reachability.get() else { return false };
        let grace = LONGEST_GRACE.min(self.config.decision_timeout / GRACE_PART);
        let until = deadline.min(since + grace);
        let resolved = async {
            while matches!(self.reachability.get(), Reachability::Doubted(_)) {
                self.resolved.notified().await;
            }
        };
        timeout_at(until, resolved).await.is_ok() && !self.is_doubted()
    }

    /// Whether a server that cannot serve for the moment may be able to soon: no request has just
    /// waited for that in vain.
    pub(super) fn may_recover_soon(&self) -> bool {
        self.last_unable.get().is_none_or(|at| at.elapsed() >= DOUBT_LIMIT)
    }

    /// A request has waited in vain for it to serve.
    pub(super) fn note_unable(&self) {
        if self.may_recover_soon() {
            self.last_unable.set(Some(Instant::now()));
        }
    }

    /// Whether it is known to be reachable, or to be away.
    pub(super) fn is_settled(&self) -> bool {
        self.is_known.get() || self.reachability.get() == Reachability::Cut
    }

    /// How many calls wait for a connection or a reply.
    pub(super) fn calls(&self) -> usize {
        self.calls.get()
    }

    /// Whether a reply is still pending.
    pub(super) fn is_busy(&self) -> bool {
        self.calls() > 0
    }

    /// Executes a command for a request that waits.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) fn call(
        &self,
        request: impl Into<RedisCall>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Value, CallError>> {
        let request = request.into();
        if !self.is_doubted() {
            return Either::Left(self.send(request, deadline));
        }
        Either::Right(Box::pin(async move {
            match self.recovers_within_grace(deadline).await {
                true => self.send(request, deadline).await,
                false => Err(CallError::Away),
            }
        }))
    }

    /// Executes a command that no request waits for: a server in doubt is given all the time there
    /// is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn call_patiently(
        &self,
        request: impl Into<RedisCall>,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        if self.reachability.get() == Reachability::Cut {
            return Err(CallError::Away);
        }
        self.send(request.into(), deadline).await
    }

    /// Puts a call into the queue at once, so that the future of its reply need not hold it.
    fn send(
        &self,
        request: RedisCall,
        deadline: Instant,
    ) -> impl Future<Output = Result<Value, CallError>> {
        let called = Instant::now();
        let is_charge = request.late_reply.is_some();
        let traced = is_recording_calls().then(|| TracedCall::of(&request, &self.address));
        let has_room = self.calls.get() < MAX_CALLS;
        let reply = has_room.then(|| self.enqueue(request));
        async move {
            let Some(reply) = reply else { return Err(CallError::Busy) };
            let result = match timeout_at(deadline, reply).await {
                Ok(Ok(result)) => {
                    self.times.0.record(called.elapsed());
                    result
                }
                Ok(Err(_dropped)) => Err(CallError::Lost),
                Err(_elapsed) => {
                    self.note_timeout(called, deadline, is_charge);
                    Err(CallError::Timeout)
                }
            };
            if let Some(traced) = traced {
                traced.end(called, result.as_ref().err());
            }
            result
        }
    }

    /// A call that was made at `called` got no reply before its deadline.
    fn note_timeout(&self, called: Instant, deadline: Instant, is_charge: bool) {
        // A call that had little time says little about the server. Neither does a thread that was
        // too busy to look: the reply may have come.
        let is_busy = deadline.elapsed() >= self.config.decision_timeout / 2;
        if called.elapsed() >= self.config.decision_timeout / 2 && !is_busy {
            // Probes in the background determine whether it is more than a pause.
            if is_charge && self.reachability.get() == Reachability::Open {
                self.config.server.count_unanswered_charge();
            }
            self.doubt();
        }
    }

    fn enqueue(&self, request: RedisCall) -> ReplyFuture {
        let (queued, reply) = QueuedCall::new(request);
        self.queue.borrow_mut().push_back(queued);
        self.calls.set(self.calls.get() + 1);
        self.queued.notify_one();
        reply
    }

    /// Whether a script, by its hash, is sent on this connection for the first time. It is sent
    /// whole then, and so takes effect in the order of the calls: an adjustment is executed before
    /// the next request's charge.
    pub(super) fn is_first_use(&self, sha: &'static str) -> bool {
        let mut scripts = self.scripts.borrow_mut();
        let is_new = !scripts.contains(&sha);
        if is_new {
            scripts.push(sha);
        }
        is_new
    }

    /// There is a new connection to the server with this identity, which may not have the scripts.
    pub(super) fn connected_to(&self, server: u64) {
        self.server_id.set(server);
        self.scripts.borrow_mut().clear();
    }

    /// It cannot be reached, now for so many times in a row: no call waits for it until it can.
    pub(super) fn mark_unreachable(&self, reason: &dyn fmt::Display, times: u32) {
        self.reachability.set(Reachability::Cut);
        // After the first failures, other workers may not have noticed yet.
        if self.config.server.note_unreachable(reason) && times == FAILURES_BEFORE_WARNING {
            tracing::warn!(server = %self.config.address, %reason, "only some workers can connect to redis");
        }
        self.resolved.notify_waiters();
        self.fail_queued();
        self.config.trouble.notify_one();
    }

    /// It is known to answer.
    pub(super) fn mark_reachable(&self) {
        self.is_known.set(true);
        self.reachability.set(Reachability::Open);
        self.config.server.note_answer();
        self.resolved.notify_waiters();
    }

    /// Its connection broke, which may mean nothing.
    pub(super) fn connection_broke(&self, error: &dyn fmt::Display) {
        tracing::debug!(server = %self.config.address, %error, "redis connection broke");
        self.config.trouble.notify_one();
    }

    /// Ends the wait of all calls that were not sent.
    fn fail_queued(&self) {
        for queued in self.queue.take() {
            self.finish(queued, Err(CallError::Away));
        }
    }

    /// Hands out the result of a call.
    pub(super) fn finish(&self, queued: QueuedCall, result: Result<Value, CallError>) {
        self.calls.set(self.calls.get().saturating_sub(1));
        queued.finish(result);
    }

    /// Takes all queued calls that are still waited for, and are meant for this server.
    pub(super) fn take_queued(&self) -> Vec<QueuedCall> {
        let mut calls = Vec::with_capacity(self.queue.borrow().len());
        for queued in self.queue.take() {
            if queued.reply.is_closed() {
                self.finish(queued, Err(CallError::Timeout));
            } else if queued.request.server.is_some_and(|server| server != self.server_id.get()) {
                self.finish(queued, Err(CallError::Away));
            } else {
                calls.push(queued);
            }
        }
        calls
    }
}
