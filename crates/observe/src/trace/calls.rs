//! Calls of a Redis server that a request waits for: a client span for each.
//!
//! A call is made far below the request that waits for it, behind several decisions of the store
//! that have nothing to do with traces. So the record is no parameter but a value of the
//! request's task ([`recording_calls`]), and each call looks whether there is one.
//!
//! Several requests of a worker share a round trip to Redis. Each has its own call, and its own
//! waiting time.

use std::{borrow::Cow, cell::RefCell, future::Future, pin::pin, sync::Arc, time::Instant};

use smallvec::SmallVec;

use super::{
    IdSource, Parent,
    span::{Attribute, Kind, Span, Value},
    start_time::StartTime,
};

tokio::task_local! {
    /// The calls of the request that is being judged.
    static CALLS: RefCell<StoreCalls>;
}

/// The calls that a request has waited for.
pub(super) type StoreCalls = SmallVec<[StoreCall; 1]>;

/// Where a server is.
#[derive(Debug)]
pub struct ServerAddress {
    /// A name or an address.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
}

/// A call that a request has waited for.
#[derive(Debug)]
pub struct StoreCall {
    /// The command.
    pub operation: Cow<'static, str>,
    /// Where it was sent to.
    pub server: Arc<ServerAddress>,
    /// When it was put into the queue of its connection.
    pub begun: Instant,
    /// When its reply came, or was no longer waited for.
    pub ended: Instant,
    /// What went wrong: the code of an error reply, or a word.
    pub error: Option<Cow<'static, str>>,
}

/// Most calls of a request that are recorded.
const MAX_CALLS: usize = 32;

/// Records the calls that `work` makes in its own task.
pub(super) async fn recording_calls<W: Future>(work: W) -> (W::Output, StoreCalls) {
    let mut work = pin!(CALLS.scope(RefCell::default(), work));
    let output = work.as_mut().await;
    (output, work.take_value().map(RefCell::into_inner).unwrap_or_default())
}

/// Whether calls of this task are recorded.
pub fn is_recording_calls() -> bool {
    CALLS.try_with(|_| ()).is_ok()
}

/// Records a call of this task, if its calls are recorded.
pub fn record_call(call: impl FnOnce() -> StoreCall) {
    // Without a record, nobody asks for the call.
    let _ = CALLS.try_with(|calls| {
        let mut calls = calls.borrow_mut();
        if calls.len() < MAX_CALLS {
            calls.push(call());
        }
    });
}

/// The spans of these calls, of a request that has begun so.
pub(super) fn spans(
    calls: StoreCalls,
    parent: Parent,
    started: StartTime,
    ids: &IdSource,
) -> impl Iterator<Item = Span> {
    calls.into_iter().map(move |call| {
        let StoreCall { operation, server, begun, ended, error } = call;
        let mut attributes: Vec<Attribute> = vec![
            ("db.system.name", "redis".into()),
            ("db.operation.name", Value::Text(operation.clone())),
            ("server.address", Value::text(&server.host)),
            ("server.port", Value::number(server.port)),
        ];
        let is_error = error.is_some();
        if let Some(error) = error {
            attributes.push(("error.type", Value::Text(error)));
        }
        Span {
            trace_id: parent.trace_id,
            span_id: ids.span_id(),
            parent: Some(parent.span_id),
            has_remote_parent: false,
            state: None,
            name: operation,
            kind: Kind::Client,
            start: started.nanos(begun),
            end: started.nanos(ended),
            attributes,
            is_error,
        }
    })
}
