//! Bodies on their way through: frames as they come, back-pressure by not asking for more, and a
//! deadline that starts anew with each frame.

use std::{
    cell::Cell,
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
    headers::{is_dropped_from_request, is_reserved},
    pool::Connection,
};
use crate::{deadline::Deadline, policy::Upstream};

/// A client's body on its way to the upstream.
pub struct RequestBody {
    incoming: Option<Incoming>,
    timing: Option<Timing>,
    /// Headers that only this proxy writes, by the policy; none: there are no such.
    own: Option<Arc<[HeaderName]>>,
    state: Rc<BodyState>,
}

/// The deadline of the exchange that a body is part of.
pub(super) struct Timing {
    /// Shared with the connection.
    pub(super) deadline: Rc<Deadline>,
    /// How long the upstream may take once the client is done, or to take a frame.
    pub(super) response_timeout: Duration,
}

/// What a request's body is doing, for telling whose fault a failure is.
#[derive(Debug, Default)]
pub(super) struct BodyState {
    waiting: Cell<bool>,
    failed: Cell<bool>,
    answered: Cell<bool>,
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

    /// The client broke it off.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }
}

/// How long a client's body may make no progress.
const REQUEST_IDLE: Duration = Duration::from_secs(30);

impl RequestBody {
    /// The client's body, setting the deadline anew with each frame.
    pub(super) fn new(incoming: Incoming, timing: Timing, upstream: &Upstream) -> Self {
        let (incoming, timing) = (Some(incoming), Some(timing));
        RequestBody { incoming, timing, own: upstream.own_headers.clone(), state: Rc::default() }
    }

    /// No body.
    pub(super) fn empty() -> Self {
        RequestBody { incoming: None, timing: None, own: None, state: Rc::default() }
    }

    /// Goes on with another connection.
    pub(super) fn attach(&mut self, timing: Timing) {
        self.timing = Some(timing);
    }

    pub(super) fn state(&self) -> Rc<BodyState> {
        Rc::clone(&self.state)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = self.get_mut();
        let Some(incoming) = &mut body.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(incoming).poll_frame(context);
        let was_waiting = body.state.waiting.replace(polled.is_pending());
        if let Some(timing) = body.timing.as_ref().filter(|_| !body.state.answered.get()) {
            match polled {
                Poll::Ready(_) => timing.deadline.set(timing.response_timeout),
                Poll::Pending if !was_waiting => timing.deadline.set(REQUEST_IDLE),
                Poll::Pending => {}
            }
        }
        if let Poll::Ready(Some(Err(_))) = polled {
            body.state.failed.set(true);
        }
        let own = body.own.as_deref().unwrap_or_default();
        let goes_on = |name: &HeaderName| is_told_at_the_end(name) && !own.contains(name);
        polled.map(|frame| frame.map(|frame| frame.map(|frame| with_trailers(frame, goes_on))))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}

/// An upstream's body on its way to the client. It drives the connection that it comes from, and
/// gives it back at its end.
pub struct UpstreamBody {
    incoming: Incoming,
    connection: Option<Connection>,
    idle_timeout: Duration,
}

/// Why an upstream's body broke off.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// Nothing came, or the client read nothing, for too long.
    #[error("response body made no progress")]
    Timeout,
}

impl UpstreamBody {
    pub(super) fn new(incoming: Incoming, connection: Connection, idle_timeout: Duration) -> Self {
        connection.deadline.set(idle_timeout);
        let mut body = UpstreamBody { incoming, connection: Some(connection), idle_timeout };
        body.release_at_end();
        body
    }

    fn release_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(connection) = self.connection.take()
        {
            connection.release();
        }
    }

    /// The next frame, driving the connection if it is not there yet.
    fn poll_incoming(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // The frame is produced by the connection, in this task: see `exchange`.
        let mut without_waker = Context::from_waker(Waker::noop());
        let polled = Pin::new(&mut self.incoming).poll_frame(&mut without_waker);
        let (Poll::Pending, Some(connection)) = (&polled, &mut self.connection) else {
            return polled;
        };
        if connection.poll_drive(context).is_ready() {
            self.connection = None;
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
        let polled = body.poll_incoming(context);
        match &polled {
            Poll::Pending => {
                let passed = |connection: &Connection| connection.deadline.poll_passed(context);
                if body.connection.as_ref().is_some_and(passed) {
                    body.connection = None;
                    return Poll::Ready(Some(Err(UpstreamBodyError::Timeout)));
                }
                return Poll::Pending;
            }
            Poll::Ready(None) => {
                if let Some(connection) = body.connection.take() {
                    connection.release();
                }
            }
            Poll::Ready(Some(Err(_))) => body.connection = None,
            Poll::Ready(Some(Ok(_))) => {
                if let Some(connection) = &body.connection {
                    connection.deadline.set(body.idle_timeout);
                }
                body.release_at_end();
            }
        }
        polled.map(|frame| {
            let with_trailers = |frame| with_trailers(frame, |name| !is_of_a_head(name));
            frame.map(|frame| frame.map(with_trailers).map_err(Into::into))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
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
