//! The record of a call, if the trace of the request that waits for it may be exported.

use std::{borrow::Cow, sync::Arc};

use redis::Arg;
use tokio::time::Instant;
use tollgate_observe::trace::{ServerAddress, StoreCall, record_call};

use super::call::{CallError, RedisCall};

/// A call that a request waits for.
pub(super) struct TracedCall {
    operation: Cow<'static, str>,
    server: Arc<ServerAddress>,
}

impl TracedCall {
    pub(super) fn of(call: &RedisCall, server: &Arc<ServerAddress>) -> TracedCall {
        let operation = match call.command.args_iter().next() {
            Some(Arg::Simple(b"EVALSHA")) => "EVALSHA".into(),
            Some(Arg::Simple(b"EVAL")) => "EVAL".into(),
            Some(Arg::Simple(other)) => String::from_utf8_lossy(other).into_owned().into(),
            _ => "_OTHER".into(),
        };
        TracedCall { operation, server: Arc::clone(server) }
    }

    /// The call was made at `called`, and is over: with a reply, or with this error.
    pub(super) fn end(self, called: Instant, error: Option<&CallError>) {
        let TracedCall { operation, server } = self;
        let error = error.map(|error| match error {
            CallError::Away => "away".into(),
            CallError::Busy => "busy".into(),
            CallError::Timeout => "timeout".into(),
            CallError::Lost => "connection_lost".into(),
            CallError::Refused(error) => Cow::Owned(error.code().to_owned()),
        });
        let begun = called.into_std();
        let ended = Instant::now().into_std();
        record_call(|| StoreCall { operation, server, begun, ended, error });
    }
}
