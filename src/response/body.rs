//! A response's body: made here, or on its way from the upstream.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    access_log::Tail,
    gate::HeldLeases,
    server::InFlight,
    upstream::{UpstreamBody, UpstreamBodyError},
};

/// A response's body, and what is left to do once it has ended.
pub struct Body {
    content: Content,
    /// The access log's line.
    tail: Option<Tail>,
    /// What the request holds of limits on requests in flight.
    leases: Option<HeldLeases>,
    /// Trailers that are not for the client.
    hidden: Vec<HeaderName>,
    /// Counts the request until the body has ended or was given up.
    in_flight: Option<InFlight>,
}

enum Content {
    Full(Option<Bytes>),
    Upstream(Box<UpstreamBody>),
    Ended,
}

impl Body {
    /// A body made here.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::new(Content::Full(Some(bytes.into())))
    }

    /// No body.
    pub fn empty() -> Self {
        Body::new(Content::Ended)
    }

    /// A body on its way from the upstream.
    pub fn upstream(body: UpstreamBody) -> Self {
        Body::new(Content::Upstream(Box::new(body)))
    }

    fn new(content: Content) -> Self {
        Body { content, tail: None, leases: None, hidden: Vec::new(), in_flight: None }
    }

    /// With a log line to finish at its end.
    #[must_use]
    pub fn with_tail(mut self, tail: Option<Tail>) -> Self {
        self.tail = tail;
        self
    }

    /// Keeps a field from the client that its upstream may send as a trailer.
    pub fn hide_trailer(&mut self, name: &HeaderName) {
        self.hidden.push(name.clone());
    }

    /// With leases to hold until its end.
    #[must_use]
    pub fn with_leases(mut self, leases: Option<HeldLeases>) -> Self {
        self.leases = leases;
        self
    }

    /// With a count to be kept until its end.
    #[must_use]
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.in_flight = Some(in_flight);
        self
    }

    fn end(&mut self) {
        self.content = Content::Ended;
        self.leases = None;
        self.in_flight = None;
        if let Some(tail) = self.tail.take() {
            tail.end(true);
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // A body made here that was not asked for is the answer to a HEAD request.
        let is_complete = self.is_end_stream() || matches!(self.content, Content::Full(_));
        if let Some(tail) = self.tail.take() {
            tail.end(is_complete);
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let body = self.get_mut();
        let polled = match &mut body.content {
            Content::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Upstream(upstream) => Pin::new(upstream).poll_frame(context),
            Content::Ended => Poll::Ready(None),
        };
        if matches!(polled, Poll::Ready(None)) {
            body.end();
        }
        if body.hidden.is_empty() {
            return polled;
        }
        polled.map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                for name in &body.hidden {
                    trailers.remove(name);
                }
            }
            frame
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Full(bytes) => bytes.is_none(),
            Content::Upstream(body) => body.is_end_stream(),
            Content::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Content::Upstream(body) => body.size_hint(),
            Content::Full(None) | Content::Ended => SizeHint::with_exact(0),
        }
    }
}
