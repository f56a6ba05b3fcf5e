//! An upstream's body on its way to the client.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::trailers::{is_of_a_head, with_trailers};
use crate::{
    deadline::Deadline,
    upstream::{
        Loaded, UpstreamBodyError,
        pool::{http1, http2},
    },
};

/// An upstream's body on its way to the client. It gives back what it comes from at its end.
pub struct UpstreamBody {
    incoming: Incoming,
    source: Source,
    /// The server's request, counted until the body has ended.
    loaded: Option<Loaded>,
    idle_timeout: Duration,
    /// The connection has ended because the client has broken off its own body.
    client_has_failed: bool,
    /// What it is about to break off with, once what has come before is on its way.
    broken: Option<UpstreamBodyError>,
}

/// What a body comes from.
pub(in crate::upstream) enum Source {
    /// A connection, which the body drives.
    Http1(http1::Connection),
    /// A stream of a connection, which drives itself.
    Http2(http2::OpenStream),
    /// There is no more to come.
    Ended,
}

impl Source {
    fn deadline(&self) -> Option<&Deadline> {
        match self {
            Source::Http1(connection) => Some(&connection.deadline),
            Source::Http2(stream) => Some(&stream.deadline),
            Source::Ended => None,
        }
    }

    /// Whether the client has broken off its own body.
    fn client_has_failed(&self) -> bool {
        match self {
            Source::Http1(connection) => connection.client_has_failed(),
            Source::Http2(stream) => stream.client_has_failed(),
            Source::Ended => false,
        }
    }
}

impl UpstreamBody {
    pub(in crate::upstream) fn new(
        incoming: Incoming,
        source: Source,
        loaded: Loaded,
        idle_timeout: Duration,
    ) -> Self {
        if let Some(deadline) = source.deadline() {
            deadline.set(idle_timeout);
        }
        let loaded = Some(loaded);
        let mut body = UpstreamBody {
            incoming,
            source,
            loaded,
            idle_timeout,
            client_has_failed: false,
            broken: None,
        };
        body.finish_at_end();
        body
    }

    fn finish_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.finish();
        }
    }

    /// Gives back what can be used again.
    fn finish(&mut self) {
        self.loaded = None;
        if let Source::Http1(connection) = mem::replace(&mut self.source, Source::Ended) {
            connection.release();
        }
    }

    /// Closes what cannot: the server has failed in the middle of its answer.
    ///
    /// The server part drops what it has not sent yet when it gets the error. So the error is
    /// returned at the next poll only: by then the client has the head and the body so far.
    fn break_off(&mut self, error: UpstreamBodyError, context: &Context<'_>) {
        // A body of unknown length, such as a stream of events, may be quiet for as long as it
        // likes; and a client that breaks off its own body breaks the exchange.
        let is_quiet = matches!(error, UpstreamBodyError::Timeout)
            && self.incoming.size_hint().exact().is_none();
        let is_clients_fault = self.client_has_failed || self.source.client_has_failed();
        let is_servers_fault = !is_quiet && !is_clients_fault;
        self.source = Source::Ended;
        if let Some(loaded) = self.loaded.take().filter(|_| is_servers_fault) {
            loaded.endpoint().fail();
        }
        self.broken = Some(error);
        context.waker().wake_by_ref();
    }

    /// The next frame, driving the connection if it is not there yet.
    fn poll_incoming(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Source::Http2(_) = self.source {
            return Pin::new(&mut self.incoming).poll_frame(context);
        }
        // The frame is produced by the connection, in this task: see `http1::Connection::exchange`.
        let mut without_waker = Context::from_waker(Waker::noop());
        let polled = Pin::new(&mut self.incoming).poll_frame(&mut without_waker);
        let (Poll::Pending, Source::Http1(connection)) = (&polled, &mut self.source) else {
            return polled;
        };
        if connection.poll_drive(context).is_ready() {
            self.client_has_failed = connection.client_has_failed();
            self.source = Source::Ended;
        }
        Pin::new(&mut self.incoming).poll_frame(&mut without_waker)
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let body = self.get_mut();
        if let Some(error) = body.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match body.poll_incoming(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => {
                body.break_off(error.into(), context);
                return Poll::Pending;
            }
            Poll::Ready(None) => {
                body.finish();
                return Poll::Ready(None);
            }
            Poll::Pending => {
                if body.source.deadline().is_some_and(|deadline| deadline.poll_passed(context)) {
                    body.break_off(UpstreamBodyError::Timeout, context);
                }
                return Poll::Pending;
            }
        };
        if let Some(deadline) = body.source.deadline() {
            deadline.set(body.idle_timeout);
        }
        // Nothing comes after trailers.
        if frame.is_trailers() {
            body.finish();
        }
        body.finish_at_end();
        Poll::Ready(Some(Ok(with_trailers(frame, |name| !is_of_a_head(name)))))
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
