//! An upstream's body on its way to the client.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tollgate_clock::deadline::Deadline;

use super::trailers::{is_of_a_head, with_trailers};
use crate::{
    ExchangeError, Load, UpstreamBodyError, downstream::CutOff, http1, pool::http2,
    unread::ClientTurn,
};

/// What is held of a response that has ended, and is not counted.
const LITTLE: u64 = 4 * 1024;

/// An upstream's body on its way to the client. It gives back what it comes from at its end.
pub struct UpstreamBody {
    source: Source,
    /// The server's request, counted until the body has ended.
    load: Option<Load>,
    /// Whether more of the client's body was awaited when the response began.
    pub(crate) awaited_client: bool,
    idle_timeout: Duration,
    /// What it is about to break off with, once what has come before is on its way.
    broken: Option<UpstreamBodyError>,
    /// Whether what was read waits for the client; none: nobody counts that.
    turn: Option<ClientTurn>,
}

/// What a body comes from.
pub(crate) enum Source {
    /// A connection, which the body drives.
    Http1(Box<http1::Connection>),
    /// A stream of a connection, which drives itself.
    Http2(Incoming, http2::OpenStream),
    /// There is no more to come.
    Ended,
    /// The body broke off.
    Broken,
}

impl Source {
    fn deadline(&self) -> Option<&Deadline> {
        match self {
            Source::Http1(connection) => Some(&connection.deadline),
            Source::Http2(_, stream) => Some(&stream.deadline),
            Source::Ended | Source::Broken => None,
        }
    }

    /// Whether more of the client's body is awaited.
    pub(crate) fn awaits_client(&self) -> bool {
        match self {
            Source::Http1(connection) => connection.awaits_client(),
            Source::Http2(_, stream) => stream.awaits_client(),
            Source::Ended | Source::Broken => false,
        }
    }

    /// Whether the client has broken off its own body.
    fn client_has_failed(&self) -> bool {
        match self {
            Source::Http1(connection) => connection.client_has_failed(),
            Source::Http2(_, stream) => stream.client_has_failed(),
            Source::Ended | Source::Broken => false,
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Source::Http1(connection) => connection.is_body_over(),
            Source::Http2(incoming, _) => incoming.is_end_stream(),
            Source::Ended => true,
            Source::Broken => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Source::Http1(connection) => connection.size_hint(),
            Source::Http2(incoming, _) => incoming.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
            Source::Broken => SizeHint::default(),
        }
    }

    /// Bytes that may have come and were not taken yet.
    fn max_held(&self) -> u64 {
        let room = match self {
            Source::Http1(_) => http1::MAX_READ_BYTES as u64,
            Source::Http2(..) => u64::from(http2::STREAM_WINDOW),
            Source::Ended | Source::Broken => return 0,
        };
        self.size_hint().exact().map_or(room, |rest| rest.min(room))
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        match self {
            Source::Http1(connection) => connection.poll_frame(context),
            Source::Http2(incoming, _) => {
                let polled = Pin::new(incoming).poll_frame(context);
                polled.map_err(|error| ExchangeError::Http2(error).into())
            }
            Source::Ended | Source::Broken => Poll::Ready(None),
        }
    }
}

impl UpstreamBody {
    pub(crate) fn new(
        source: Source,
        load: Load,
        idle_timeout: Duration,
        turn: Option<ClientTurn>,
    ) -> UpstreamBody {
        if let Some(deadline) = source.deadline() {
            deadline.set(idle_timeout);
        }
        let awaited_client = source.awaits_client();
        let load = Some(load);
        let broken = None;
        let mut body = UpstreamBody { source, load, awaited_client, idle_timeout, broken, turn };
        body.finish_at_end();
        body
    }

    /// It waits for its client, which was given so many bytes last, and may be broken off for that.
    pub fn wait_for_client(&mut self, given: usize, cut_off: &Arc<CutOff>, context: &Context<'_>) {
        let held = self.source.max_held().saturating_add(given as u64);
        // The last bytes are not worth counting if they are few.
        let is_little = self.source.is_over() && held < LITTLE;
        if let Some(turn) = self.turn.as_mut().filter(|_| !is_little) {
            turn.begin(held, cut_off, context);
        }
    }

    fn finish_at_end(&mut self) {
        if self.source.is_over() {
            self.finish();
        }
    }

    /// Gives back what can be used again.
    fn finish(&mut self) {
        self.load = None;
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
        // likes; and a client that breaks off its own body, or is too slow for the server, breaks
        // the exchange.
        let is_quiet = matches!(error, UpstreamBodyError::Timeout)
            && self.source.size_hint().exact().is_none();
        let is_clients_fault = self.source.client_has_failed() || self.source.awaits_client();
        let is_servers_fault = !is_quiet && !is_clients_fault;
        //= rfc9112#section-8
        //# A client that receives an incomplete response message, which can occur when a connection
        //# is closed prematurely or when decoding a supposedly chunked transfer coding fails, MUST
        //# record the message as incomplete
        self.source = Source::Broken;
        if let Some(load) = self.load.take().filter(|_| is_servers_fault) {
            load.member().fail();
        }
        self.broken = Some(error);
        context.waker().wake_by_ref();
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
        if let Some(turn) = &mut body.turn {
            turn.end();
        }
        if let Some(error) = body.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let frame = match body.source.poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => {
                body.break_off(error, context);
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
        self.source.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}
