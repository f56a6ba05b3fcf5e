//! Server-sent events, as an answer's body.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{Stream, stream::unfold};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// A body of events, which ends with the process or with who listens.
pub(in crate::admin) struct EventStream {
    pub(in crate::admin) body: EventBody,
    /// How many events were taken: a client that takes none any more is gone.
    pub(in crate::admin) progress: Progress,
}

/// Events as they come.
pub(in crate::admin) type EventBody =
    StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync>>>;

/// How many events were taken.
#[derive(Clone, Debug, Default)]
pub(in crate::admin) struct Progress(Arc<AtomicU64>);

impl Progress {
    /// So far.
    pub(in crate::admin) fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The event that there is, and then each that comes. A client that is slow misses some: of those
/// that it has not taken, there is only the latest.
pub(super) fn of(events: watch::Receiver<Bytes>, seat: OwnedSemaphorePermit) -> EventStream {
    let progress = Progress::default();
    let taken = progress.clone();
    let stream = unfold((events, seat, taken), async |(mut events, seat, taken)| {
        if taken.taken() > 0 {
            // It fails when there are no more.
            events.changed().await.ok()?;
        }
        let event = events.borrow_and_update().clone();
        taken.0.fetch_add(1, Ordering::Relaxed);
        Some((Ok(Frame::data(event)), (events, seat, taken)))
    });
    EventStream { body: StreamBody::new(Box::pin(stream)), progress }
}
