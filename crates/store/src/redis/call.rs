//! A call to a server, and the delivery of its result.

use std::{
    cell::{Cell, OnceCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use redis::{Cmd, ServerError, Value};
use tokio::sync::oneshot::{self, error::RecvError};

/// A call to a server.
pub(super) struct RedisCall {
    pub(super) command: Cmd,
    /// Whether it follows `ASKING`: its slot is being moved to this server.
    pub(super) is_asking: bool,
    /// The identity of the server that it is for; none: any server.
    pub(super) server: Option<u64>,
    /// What happens to the reply if it comes when the caller no longer waits.
    pub(super) late_reply: Option<Rc<LateReply>>,
}

/// The result of a call.
pub(super) type CallResult = Result<Value, CallError>;

/// Handles a reply, or the news that none will come, after the caller has stopped waiting. The
/// caller sets the handler when it stops.
#[derive(Default)]
pub(crate) struct LateReply {
    handler: OnceCell<Box<dyn Fn(CallResult)>>,
    /// A result that came before the handler was set.
    unread: Cell<Option<CallResult>>,
}

impl LateReply {
    /// Sets the handler, and calls it with the result if that has come already. Called once.
    pub(crate) fn on_reply(&self, handler: impl Fn(CallResult) + 'static) {
        if let Some(result) = self.unread.take() {
            handler(result);
        }
        // It is called once, so the handler is not set yet.
        let _ = self.handler.set(Box::new(handler));
    }

    /// Delivers a result that the caller did not receive.
    fn deliver(&self, result: CallResult) {
        match self.handler.get() {
            Some(handler) => handler(result),
            None => self.unread.set(Some(result)),
        }
    }
}

impl From<Cmd> for RedisCall {
    fn from(command: Cmd) -> Self {
        RedisCall { command, is_asking: false, server: None, late_reply: None }
    }
}

/// A call in the queue or in flight.
pub(super) struct QueuedCall {
    pub(super) request: RedisCall,
    pub(super) reply: oneshot::Sender<CallResult>,
}

impl QueuedCall {
    /// A call, and the future of its reply.
    pub(super) fn new(request: RedisCall) -> (QueuedCall, ReplyFuture) {
        let (sender, receiver) = oneshot::channel();
        let reply = ReplyFuture { receiver, late_reply: request.late_reply.clone() };
        (QueuedCall { request, reply: sender }, reply)
    }

    /// Delivers the result.
    pub(super) fn finish(self, result: CallResult) {
        if let Err(result) = self.reply.send(result)
            && let Some(late_reply) = self.request.late_reply
        {
            late_reply.deliver(result);
        }
    }
}

/// The reply of a call. If this is dropped with a reply that was not read, because the client went
/// away at that moment, the late-reply handler gets it.
pub(super) struct ReplyFuture {
    receiver: oneshot::Receiver<CallResult>,
    late_reply: Option<Rc<LateReply>>,
}

impl Future for ReplyFuture {
    type Output = Result<CallResult, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context)
    }
}

impl Drop for ReplyFuture {
    fn drop(&mut self) {
        if let (Some(late_reply), Ok(result)) = (&self.late_reply, self.receiver.try_recv()) {
            late_reply.deliver(result);
        }
    }
}

/// Why a call has no result.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
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
