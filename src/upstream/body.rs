//! Bodies on their way through: frames as they come, back-pressure by not asking for more, and a
//! deadline that starts anew with each frame.

use std::{
    cell::{Cell, RefCell},
    mem,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    Loaded, UpstreamError,
    headers::{is_dropped_from_request, is_reserved},
    http1, http2,
};
use crate::{deadline::Deadline, policy::Upstream};

/// A client's body, as it comes.
pub struct ClientBody {
    /// The body.
    pub incoming: Incoming,
    /// Bytes that it may have; none: any number.
    pub max_bytes: Option<u64>,
}

/// A client's body on its way to the upstream.
pub struct RequestBody {
    incoming: Option<Incoming>,
    /// Bytes that may still come.
    room: u64,
    timing: Option<Timing>,
    /// Headers that only this proxy writes, by the policy; none: there are no such.
    own: Option<Arc<[HeaderName]>>,
    state: Rc<BodyState>,
    /// Somebody else reads it than waits for the response.
    is_streamed: bool,
}

/// The deadline of the exchange that a body is part of.
pub(super) struct Timing {
    /// Shared with the exchange.
    pub(super) deadline: Rc<Deadline>,
    /// How long the upstream may take once the client is done, or to take a frame.
    pub(super) response_timeout: Duration,
    /// How long it may take for a frame once it has answered.
    pub(super) idle_timeout: Duration,
}

impl Timing {
    pub(super) fn new(deadline: &Rc<Deadline>, upstream: &Upstream) -> Timing {
        let Upstream { response_timeout, idle_timeout, .. } = *upstream;
        Timing { deadline: Rc::clone(deadline), response_timeout, idle_timeout }
    }
}

/// What a request's body is doing, for telling whose fault a failure is.
#[derive(Debug, Default)]
pub(super) struct BodyState {
    waiting: Cell<bool>,
    failed: Cell<bool>,
    too_large: Cell<bool>,
    answered: Cell<bool>,
    abandoned: Cell<bool>,
    begun: Cell<bool>,
    /// Who reads it, if that is somebody else.
    reader: RefCell<Option<Waker>>,
    /// A body of which nothing was read when its reader gave it up.
    unread: RefCell<Option<Unread>>,
}

#[derive(Debug)]
struct Unread {
    incoming: Option<Incoming>,
    room: u64,
    own: Option<Arc<[HeaderName]>>,
}

impl BodyState {
    /// The client owes the next frame.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    /// The response has begun: from here on its body sets the deadline.
    pub(super) fn set_answered(&self) {
        self.answered.set(true);
    }

    /// The client broke it off, or sent too much.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Whose fault it is that the exchange has failed with this error.
    pub(super) fn blame(&self, error: hyper::Error) -> UpstreamError {
        match (self.too_large.get(), self.failed.get()) {
            (true, _) => UpstreamError::RequestBodyTooLarge,
            (false, true) => UpstreamError::RequestBody(error),
            (false, false) => UpstreamError::Exchange(error),
        }
    }

    /// Nobody needs the rest of it.
    pub(super) fn abandon(&self) {
        self.abandoned.set(true);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// Why a request's body breaks off.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// The client's connection failed, or what came is no body.
    #[error(transparent)]
    Client(#[from] hyper::Error),
    /// It is larger than its route takes.
    #[error("the body is too large")]
    TooLarge,
    /// The exchange that it was part of is over.
    #[error("nobody needs the rest of the body")]
    Abandoned,
}

impl RequestBody {
    /// The client's body.
    pub(super) fn new(body: ClientBody, upstream: &Upstream) -> Self {
        let ClientBody { incoming, max_bytes } = body;
        let room = max_bytes.unwrap_or(u64::MAX);
        // Only trailers are looked at for them.
        let own = match incoming.is_end_stream() {
            true => None,
            false => upstream.own_headers.clone(),
        };
        RequestBody::of(Some(incoming), room, own)
    }

    /// No body.
    pub(super) fn empty() -> Self {
        RequestBody::of(None, 0, None)
    }

    /// A body again of which nothing was read.
    pub(super) fn unread(state: &BodyState) -> Option<Self> {
        let unread = state.unread.take()?;
        Some(RequestBody::of(unread.incoming, unread.room, unread.own))
    }

    fn of(incoming: Option<Incoming>, room: u64, own: Option<Arc<[HeaderName]>>) -> Self {
        RequestBody { incoming, room, timing: None, own, state: Rc::default(), is_streamed: false }
    }

    /// Sets the deadline of this exchange anew with each frame.
    pub(super) fn attach(&mut self, timing: Timing) {
        self.timing = Some(timing);
    }

    /// The same for an exchange that is driven by somebody else.
    pub(super) fn attach_stream(&mut self, timing: Timing) -> Rc<BodyState> {
        self.attach(timing);
        self.is_streamed = true;
        self.state()
    }

    pub(super) fn state(&self) -> Rc<BodyState> {
        Rc::clone(&self.state)
    }

    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.is_streamed && !self.state.begun.get() {
            let (incoming, own) = (self.incoming.take(), self.own.take());
            *self.state.unread.borrow_mut() = Some(Unread { incoming, room: self.room, own });
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let body = self.get_mut();
        if body.is_streamed {
            if body.state.abandoned.get() {
                return Poll::Ready(Some(Err(RequestBodyError::Abandoned)));
            }
            *body.state.reader.borrow_mut() = Some(context.waker().clone());
        }
        let Some(incoming) = &mut body.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(incoming).poll_frame(context);
        let was_waiting = body.state.waiting.replace(polled.is_pending());
        if let Some(timing) = &body.timing {
            match polled {
                // The response's body has the deadline from then on, and this is progress too.
                Poll::Ready(_) if body.state.answered.get() => {
                    timing.deadline.set(timing.idle_timeout);
                }
                Poll::Ready(_) => timing.deadline.set(timing.response_timeout),
                Poll::Pending if !was_waiting && !body.state.answered.get() => {
                    timing.deadline.set(timing.deadline.ticker().patience());
                }
                Poll::Pending => {}
            }
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            match body.room.checked_sub(data.len() as u64) {
                Some(room) => body.room = room,
                None => {
                    body.state.failed.set(true);
                    body.state.too_large.set(true);
                    return Poll::Ready(Some(Err(RequestBodyError::TooLarge)));
                }
            }
        }
        match polled {
            Poll::Ready(Some(Err(_))) => body.state.failed.set(true),
            Poll::Ready(_) => body.state.begun.set(true),
            Poll::Pending => {}
        }
        let own = body.own.as_deref().unwrap_or_default();
        let goes_on = |name: &HeaderName| is_told_at_the_end(name) && !own.contains(name);
        let passed_on = |frame| with_trailers(frame, goes_on);
        polled.map(|frame| frame.map(|frame| frame.map(passed_on).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}

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
pub(super) enum Source {
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

/// Why an upstream's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// Nothing came for too long.
    #[error("response body made no progress")]
    Timeout,
}

impl UpstreamBody {
    pub(super) fn new(
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
    /// Whoever sends the body on drops what he has not sent yet when he hears of it. So he is asked
    /// to come again first: then the client has the head, and what there is of the body.
    fn break_off(&mut self, error: UpstreamBodyError, context: &Context<'_>) {
        // It may be quiet for as long as it likes while it owes nothing, as a stream of events; and a
        // client that breaks off what it sends breaks the exchange.
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

/// The trailers of a frame, if it has any, without those that may not go on.
fn with_trailers(frame: Frame<Bytes>, goes_on: impl Fn(&HeaderName) -> bool) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(keep(trailers, goes_on)),
        Err(frame) => frame,
    }
}

/// Whether a request's trailer goes on, as far as the policy says nothing about it: unless it would
/// not in the head.
///
/// Servers may merge trailers into the header (RFC 9110 section 6.5.1), where the gate has taken out
/// what passes for somebody else or leads elsewhere: addresses, hosts, credentials, limits.
fn is_told_at_the_end(name: &HeaderName) -> bool {
    !is_of_a_head(name) && !is_dropped_from_request(name.as_str(), None)
}

/// Whether a response's trailer ends here: no trailer says anything about framing, routing,
/// authentication or limits (RFC 9110 section 6.5.1). Whoever merges it into the header would be
/// misled.
fn is_of_a_head(name: &HeaderName) -> bool {
    const FORBIDDEN: [HeaderName; 16] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::HOST,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::WWW_AUTHENTICATE,
    ];
    FORBIDDEN.contains(name) || is_reserved(name.as_str())
}

fn keep(trailers: HeaderMap, goes_on: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(trailers.len());
    let mut last = None;
    for (name, value) in trailers {
        // Repeated fields come without their name after the first.
        if name.is_some() {
            last = name;
        }
        if let Some(name) = last.as_ref().filter(|name| goes_on(name)) {
            kept.append(name.clone(), value);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn trailers(names: &[&'static str]) -> HeaderMap {
        let field =
            |name: &&'static str| (HeaderName::from_static(name), HeaderValue::from_static("1"));
        names.iter().map(field).collect()
    }

    #[test]
    fn trailers_of_a_response_lose_what_belongs_in_a_head() {
        let names = ["grpc-status", "content-length", "x-ratelimit-limit", "x-tollgate-tier", "te"];
        let mut all = trailers(&names);
        all.append("grpc-status", HeaderValue::from_static("2"));
        let kept = keep(all, |name| !is_of_a_head(name));
        assert_eq!(kept.len(), 2);
        assert_eq!(kept.get_all("grpc-status").iter().count(), 2);
    }

    #[test]
    fn trailers_of_a_request_are_what_its_head_might_be() {
        let told = ["content-digest", "x-sum", "x-user-email"];
        for name in [
            "x_user_email",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-real-ip",
            "forwarded",
            "x-original-url",
            "x-request-id",
            "x-tollgate-subject",
            "authorization",
            "host",
            "content-length",
        ] {
            let kept = keep(trailers(&[&told[..], &[name]].concat()), is_told_at_the_end);
            let kept: Vec<&str> = kept.keys().map(HeaderName::as_str).collect();
            assert_eq!(kept, told, "{name}");
        }
    }
}
