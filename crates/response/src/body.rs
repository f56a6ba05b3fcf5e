//! A response's body: made here, or on its way from the upstream.

use std::{
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body as HttpBody, Frame, SizeHint};
use smallvec::SmallVec;
use tollgate_observe::access_log::FinalCost;
use tollgate_store::HeldLeases;
use tollgate_upstream::{
    DeclinedBody, Switched, UpstreamBody, UpstreamBodyError,
    downstream::{InFlight, Pace, Writing},
};

use super::{Account, grpc::grpc_status};

/// A tunnel that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedTunnel {
    /// Both sides have closed it in order.
    pub is_complete: bool,
    /// Bytes to the upstream.
    pub bytes_up: u64,
    /// Bytes to the client.
    pub bytes_down: u64,
}

/// What the requests' charges have come to once a response has ended.
pub type FinalCosts = SmallVec<[FinalCost; 1]>;

/// Follows the body of a response for what it says.
pub trait BodyTap {
    /// The next piece of it has come.
    fn read(&mut self, data: &[u8]);

    /// It has ended. Returns what the request has cost.
    fn end(self: Box<Self>) -> FinalCosts;

    /// The client has gone, and there may be more of the body. The request counts as in flight as
    /// long as the leases are held.
    fn leave(self: Box<Self>, rest: Box<UpstreamBody>, leases: Option<HeldLeases>);
}

/// A response's body, and what is to be done once it has ended.
pub struct Body {
    content: Content,
    /// Follows it; none: nothing in it is of interest.
    tap: Option<Box<dyn BodyTap>>,
    /// What is written down at the end.
    account: Option<Box<Account>>,
    /// The request's leases on limits of requests in flight.
    leases: Option<HeldLeases>,
    /// Trailers that are not for the client.
    hidden: Vec<HeaderName>,
    /// Counts the request until the body has ended or was given up.
    in_flight: Option<InFlight>,
    /// Of an HTTP/2 stream, which sends a body in small parts.
    paced: Option<Box<Paced>>,
    /// Of an HTTP/1 connection: whether its client reads what is written.
    writing: Option<Rc<Writing>>,
}

/// A body that is sent in small parts.
struct Paced {
    pace: Rc<Pace>,
    /// What is left of the latest frame.
    rest: Bytes,
}

enum Content {
    Full(Option<Bytes>),
    /// A message of a call of gRPC, and its status.
    Call(Option<Bytes>, Option<HeaderMap>),
    Upstream(Box<UpstreamBody>),
    /// Of a server that has declined to switch to another protocol.
    Declined(Box<DeclinedBody>),
    /// What the connection becomes a tunnel to, until it was taken out for that.
    Switched(Option<Box<Switched>>),
    Ended,
}

impl Body {
    /// A body made here.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Body::new(Content::Full(Some(bytes.into())))
    }

    /// A message of a call of gRPC made here, and its status in trailers.
    pub fn call(message: Bytes, trailers: HeaderMap) -> Self {
        Body::new(Content::Call(Some(message), Some(trailers)))
    }

    /// The whole body, if it is known and was not sent yet.
    pub fn as_full(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Full(body) => body.as_ref(),
            Content::Call(..)
            | Content::Upstream(_)
            | Content::Declined(_)
            | Content::Switched(_)
            | Content::Ended => None,
        }
    }

    /// No body.
    pub fn empty() -> Self {
        Body::new(Content::Ended)
    }

    /// A body on its way from the upstream.
    pub fn upstream(body: UpstreamBody) -> Self {
        Body::new(Content::Upstream(Box::new(body)))
    }

    /// A body on its way from a server that has declined to switch to another protocol.
    pub fn declined(body: DeclinedBody) -> Self {
        Body::new(Content::Declined(Box::new(body)))
    }

    /// No body: the connection becomes a tunnel to this server.
    pub fn switched(server: Switched) -> Self {
        Body::new(Content::Switched(Some(Box::new(server))))
    }

    /// The server that the connection becomes a tunnel to.
    pub fn take_switched(&mut self) -> Option<Switched> {
        match &mut self.content {
            Content::Switched(server) => server.take().map(|server| *server),
            _ => None,
        }
    }

    /// The tunnel that the connection has become has ended.
    pub fn end_tunnel(mut self, tunnel: EndedTunnel) {
        let account = self.account.as_mut();
        if let Some(tail) = account.and_then(|account| account.tail_mut()) {
            tail.add_tunnel(tunnel.bytes_up, tunnel.bytes_down);
        }
        if tunnel.is_complete {
            self.end();
        }
    }

    fn new(content: Content) -> Self {
        Body {
            content,
            tap: None,
            account: None,
            leases: None,
            hidden: Vec::new(),
            in_flight: None,
            paced: None,
            writing: None,
        }
    }

    /// Has it end the request's account at its end, if there is one.
    pub fn set_account(&mut self, account: Option<Account>) {
        self.account = account.map(Box::new);
    }

    /// Has it be followed.
    pub fn set_tap(&mut self, tap: Option<Box<dyn BodyTap>>) {
        self.tap = tap;
    }

    /// What comes from the upstream, if it does.
    pub fn take_upstream(&mut self) -> Option<Box<UpstreamBody>> {
        match mem::replace(&mut self.content, Content::Ended) {
            Content::Upstream(body) => Some(body),
            other => {
                self.content = other;
                None
            }
        }
    }

    /// Keeps a field from the client that its upstream may send as a trailer.
    pub fn hide_trailer(&mut self, name: &HeaderName) {
        self.hidden.push(name.clone());
    }

    /// Has it hold leases until its end.
    pub fn set_leases(&mut self, leases: Option<HeldLeases>) {
        self.leases = leases;
    }

    /// Has it hold a count until its end.
    pub fn set_in_flight(&mut self, in_flight: InFlight) {
        self.in_flight = Some(in_flight);
    }

    /// Has it go at the pace of a stream's client, in parts no larger than a stream may buffer.
    pub fn set_pace(&mut self, pace: Rc<Pace>) {
        self.paced = Some(Box::new(Paced { pace, rest: Bytes::new() }));
    }

    /// Has it go to a client that gets no more while it does not read what was written: the
    /// protocol engine would buffer a good deal for it.
    pub fn set_writing(&mut self, writing: Rc<Writing>) {
        self.writing = Some(writing);
    }

    fn end(&mut self) {
        if let Some(paced) = self.paced.take() {
            paced.pace.end();
        }
        self.content = Content::Ended;
        self.leases = None;
        self.in_flight = None;
        let costs = self.tap.take().map(|tap| tap.end());
        if let Some(mut account) = self.account.take() {
            if let (Some(costs), Some(tail)) = (costs, account.tail_mut()) {
                tail.settle(&costs);
            }
            account.end(true);
        }
    }
}

impl Body {
    fn poll_content(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let polled = match &mut self.content {
            Content::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Call(message, trailers) => {
                let message = message.take().map(Frame::data);
                let frame = message.or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
            Content::Upstream(upstream) => Pin::new(upstream).poll_frame(context),
            Content::Declined(declined) => Pin::new(declined).poll_frame(context),
            Content::Switched(_) | Content::Ended => Poll::Ready(None),
        };
        match &polled {
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(account), Some(data)) = (&mut self.account, frame.data_ref()) {
                    account.count_sent(data.len());
                }
                if let (Some(tap), Some(data)) = (&mut self.tap, frame.data_ref()) {
                    tap.read(data);
                }
            }
            Poll::Ready(Some(Err(_))) => {}
            Poll::Pending => {
                if let Some(paced) = &self.paced {
                    paced.pace.ask();
                }
            }
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
        {
            let account = self.account.as_mut();
            if let Some(tail) = account.and_then(|account| account.tail_mut())
                && let Some(status) = grpc_status(trailers)
            {
                tail.add_grpc_status(status, None);
            }
            // Nothing comes after them.
            self.end();
        }
        if self.hidden.is_empty() {
            return polled;
        }
        polled.map_ok(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                for name in &self.hidden {
                    trailers.remove(name);
                }
            }
            frame
        })
    }

    /// Until the next poll it is the client's turn, which was given so many bytes.
    fn wait_for_client(&mut self, given: usize, context: &Context<'_>) {
        let Content::Upstream(upstream) = &mut self.content else { return };
        if let Some(paced) = &self.paced {
            upstream.wait_for_client(given, paced.pace.cut_off(), context);
        } else if let Some(writing) = &self.writing {
            upstream.wait_for_client(given, writing.cut_off(), context);
        }
    }

    /// Bytes of the latest frame that were not polled for yet.
    fn rest(&self) -> usize {
        self.paced.as_ref().map_or(0, |paced| paced.rest.len())
    }
}

impl Paced {
    fn first_part(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(data) => {
                self.rest = data;
                // An empty frame is one part.
                self.next_part().unwrap_or_else(|| Frame::data(Bytes::new()))
            }
            Err(trailers) => trailers,
        }
    }

    fn next_part(&mut self) -> Option<Frame<Bytes>> {
        if self.rest.is_empty() {
            return None;
        }
        let part = self.rest.split_to(self.rest.len().min(self.pace.part_bytes()));
        self.pace.give(part.len());
        Some(Frame::data(part))
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // A body made here that was never polled belongs to the response to a HEAD request.
        let is_unpolled = matches!(self.content, Content::Full(_)) && self.rest() == 0;
        // The engine does not poll a body further once it knows that it has ended.
        if self.is_end_stream() || is_unpolled {
            self.end();
            return;
        }
        if let Some(tap) = self.tap.take()
            && let Some(rest) = self.take_upstream()
        {
            tap.leave(rest, self.leases.take());
        }
        if let Some(mut account) = self.account.take() {
            account.discount(self.rest());
            account.end(false);
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
        // The engine polls again when it has written something, in this same task.
        if body.writing.as_ref().is_some_and(|writing| writing.stalled().is_some()) {
            body.wait_for_client(0, context);
            return Poll::Pending;
        }
        if let Some(part) = body.paced.as_mut().and_then(|paced| paced.next_part()) {
            return Poll::Ready(Some(Ok(part)));
        }
        let polled = body.poll_content(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            body.wait_for_client(frame.data_ref().map_or(0, Bytes::len), context);
        }
        match &mut body.paced {
            Some(paced) => polled.map_ok(|frame| paced.first_part(frame)),
            None => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        if self.rest() > 0 {
            return false;
        }
        match &self.content {
            Content::Full(bytes) => bytes.is_none(),
            Content::Call(message, trailers) => message.is_none() && trailers.is_none(),
            Content::Upstream(body) => body.is_end_stream(),
            Content::Declined(body) => body.is_end_stream(),
            Content::Switched(_) => false,
            Content::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let hint = match &self.content {
            Content::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Content::Upstream(body) => body.size_hint(),
            Content::Declined(body) => body.size_hint(),
            Content::Call(..) => SizeHint::default(),
            Content::Full(None) | Content::Switched(_) | Content::Ended => SizeHint::with_exact(0),
        };
        match (self.rest() as u64, hint.exact()) {
            (0, _) => hint,
            (rest, Some(bytes)) => SizeHint::with_exact(rest + bytes),
            (_, None) => SizeHint::default(),
        }
    }
}
