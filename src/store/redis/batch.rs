//! Calls that leave for a server in one write, and the hand-over of their replies.

use std::{cell::OnceCell, rc::Rc};

use redis::{Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::sync::oneshot;

use super::node::{CallError, Node};

/// A call to be made.
pub(super) struct Request {
    pub(super) command: Cmd,
    /// Whether it follows `ASKING`: its slot is being moved to this server.
    pub(super) is_asking: bool,
    /// What is done with the reply if it comes when nobody waits for it any more.
    pub(super) orphan: Option<Rc<Orphan>>,
}

/// What is done with a reply, or with the news that none will come, when nobody waits for it any
/// more. Whoever stops waiting fills it in.
pub(in crate::store) type Orphan = OnceCell<Box<dyn Fn(Result<Value, CallError>)>>;

impl From<Cmd> for Request {
    fn from(command: Cmd) -> Self {
        Request { command, is_asking: false, orphan: None }
    }
}

/// A call on its way.
pub(super) struct Queued {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Result<Value, CallError>>,
}

impl Queued {
    /// Hands out what came of it.
    pub(super) fn finish(self, result: Result<Value, CallError>) {
        if let Err(result) = self.reply.send(result)
            && let Some(adopt) = self.request.orphan.as_ref().and_then(|orphan| orphan.get())
        {
            adopt(result);
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
                Some(value) => Ok(value),
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
