//! Calls that leave for a server in one write.

use std::rc::Rc;

use redis::{Pipeline, RedisError, Value, aio::MultiplexedConnection};

use super::{
    call::{CallError, QueuedCall},
    node::Node,
};

/// Calls that leave in one write. If it is dropped before the replies came, they are lost.
pub(super) struct Batch {
    node: Rc<Node>,
    calls: Vec<QueuedCall>,
}

impl Batch {
    /// The queued calls of a node; none if there are none.
    pub(super) fn take(node: &Rc<Node>) -> Option<Batch> {
        let calls = node.take_queued();
        (!calls.is_empty()).then(|| Batch { node: Rc::clone(node), calls })
    }

    /// Sends it and delivers the replies.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn send(
        mut self,
        mut connection: MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let mut pipeline = Pipeline::with_capacity(self.calls.len());
        for QueuedCall { request, .. } in &mut self.calls {
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
                    if queued.request.late_reply.is_some() {
                        self.node.config.server.note_charge_taken();
                    }
                    Ok(value)
                }
                None => Err(CallError::Lost),
            };
            self.node.finish(queued, result);
        }
        self.node.had_reply.set(true);
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
