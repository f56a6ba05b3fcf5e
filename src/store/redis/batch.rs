//! Calls that leave for a server in one write, and the hand-over of their replies.

use std::{
    cell::{Cell, OnceCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use redis::{Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::sync::oneshot::{self, error::RecvError};

use super::node::{CallError, Node};

/// A call to be made.
pub(super) struct Request {
    pub(super) command: Cmd,
    /// Whether it follows `ASKING`: its slot is being moved to this server.
    pub(super) is_asking: bool,
    /// Which server it is for; none: whichever there is.
    pub(super) server: Option<u64>,
    /// What is done with the reply if it comes when nobody waits for it any more.
    pub(super) orphan: Option<Rc<Orphan>>,
}

/// What comes of a call.
pub(super) type CallResult = Result<Value, CallError>;

/// What is done with a reply, or with the news that none will come, when nobody waits for it any
/// more. Whoever stops waiting says what that is.
#[derive(Default)]
pub(in crate::store) struct Orphan {
    care: OnceCell<Box<dyn Fn(CallResult)>>,
    /// It came just before, and nobody has read it.
    unread: Cell<Option<CallResult>>,
}

impl Orphan {
    /// Has `care` taken of what comes, or has come already. Said once.
    pub(in crate::store) fn adopt(&self, care: impl Fn(CallResult) + 'static) {
        if let Some(result) = self.unread.take() {
            care(result);
        }
        // Nobody else has said what.
        let _ = self.care.set(Box::new(care));
    }

    /// Nobody has read this.
    fn leave(&self, result: CallResult) {
        match self.care.get() {
            Some(care) => care(result),
            None => self.unread.set(Some(result)),
        }
    }
}

impl From<Cmd> for Request {
    fn from(command: Cmd) -> Self {
        Request { command, is_asking: false, server: None, orphan: None }
    }
}

/// A call on its way.
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<CallResult>,
}

impl Queued {
    /// A call, and its reply.
    pub(super) fn new(request: Request) -> (Queued, Reply) {
        let (sender, receiver) = oneshot::channel();
        let reply = Reply { receiver, orphan: request.orphan.clone() };
        (Queued { request, reply: sender }, reply)
    }

    /// Hands out what came of it.
    pub(super) fn finish(self, result: CallResult) {
        if let Err(result) = self.reply.send(result)
            && let Some(orphan) = self.request.orphan
        {
            orphan.leave(result);
        }
    }
}

/// A reply that is waited for. If this is dropped when the reply is there and was not read, because
/// the client has gone in that very moment, it is the orphan's.
pub(super) struct Reply {
    receiver: oneshot::Receiver<CallResult>,
    orphan: Option<Rc<Orphan>>,
}

impl Future for Reply {
    type Output = Result<CallResult, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context)
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let (Some(orphan), Ok(result)) = (&self.orphan, self.receiver.try_recv()) {
            orphan.leave(result);
        }
    }
}

/// Calls that leave in one write. If it is dropped before the replies came, they are lost.
pub(super) struct Batch {
    pub(super) node: Rc<Node>,
    pub(super) calls: Vec<Queued>,
}

impl Batch {
    /// Sends it and hands out the replies.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn fly(
        mut self,
        mut connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let mut pipeline = Pipeline::with_capacity(self.calls.len());
        for Queued { request, .. } in &mut self.calls {
            if request.is_asking {
                pipeline.add_command(redis::cmd("ASKING"));
            }
            pipeline.add_command(std::mem::take(&mut request.command));
        }
        let count = pipeline.len();
        let mut replies = connection.send_packed_commands(&pipeline, 0, count).await?.into_iter();
        for queued in std::mem::take(&mut self.calls) {
            if queued.request.is_asking {
                replies.next();
            }
            let result = match replies.next() {
                Some(Value::ServerError(error)) => Err(CallError::Refused(error)),
                Some(value) => {
                    if queued.request.orphan.is_some() {
                        self.node.server.take();
                    }
                    Ok(value)
                }
                None => Err(CallError::Lost),
            };
            self.node.finish(queued, result);
        }
        self.node.hear();
        Ok(())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for queued in std::mem::take(&mut self.calls) {
            self.node.finish(queued, Err(CallError::Lost));
        }
    }
}
