//! A client's body on its way to the upstream, and its state, which the code that waits for the
//! response reads.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tollgate_clock::deadline::{Arrears, Deadline, Ticker};
use tollgate_policy::{OwnHeaders, Upstream};
use tollgate_wire::head_limits::check_trailers;

use super::{
    ahead::Ahead,
    trailers::{may_be_a_trailer, with_trailers},
};
use crate::{
    RequestBodyError, UpstreamError,
    downstream::{Interim, Pace},
};

/// A client's body, as it comes.
pub struct ClientBody {
    /// The body.
    pub incoming: Incoming,
    /// What was read of it before.
    pub ahead: Ahead,
    /// Bytes that it may have; none: any number.
    pub max_bytes: Option<u64>,
    /// Counts the bytes received; none: they are not needed.
    pub received: Option<Rc<Cell<u64>>>,
    /// Set when the request is first sent; none: that is not needed.
    pub sent: Option<Rc<Cell<bool>>>,
    /// Gets the trailers of HTTP/2 counted; none: they were measured as they came in.
    pub pace: Option<Rc<Pace>>,
    /// It is a conversation: no average rate is required.
    pub may_be_slow: bool,
    /// Where interim responses go; none: the client gets none.
    pub interim: Option<Rc<Interim>>,
}

impl ClientBody {
    /// A body of HTTP/2.
    pub fn at_pace(incoming: Incoming, pace: &Rc<Pace>) -> Self {
        ClientBody { pace: Some(Rc::clone(pace)), ..incoming.into() }
    }
}

impl ClientBody {
    /// Reads it until more than `max_bytes` have come, or all, for as long as `time`. Returns
    /// whether that is all. It is passed on as if nothing had been read.
    ///
    /// # Errors
    /// [`UpstreamError`]: the client has broken it off, or is too slow.
    pub async fn read_ahead(
        &mut self,
        max_bytes: u64,
        time: Duration,
        ticker: &Rc<Ticker>,
    ) -> Result<bool, UpstreamError> {
        self.ahead.read(&mut self.incoming, max_bytes, time, ticker).await
    }

    /// What was read ahead.
    pub fn ahead(&self) -> &[u8] {
        self.ahead.whole()
    }

    /// Puts other bytes in the place of what was read ahead, which is all of the body.
    pub fn replace_ahead(&mut self, data: &[u8]) {
        self.ahead.replace(data);
    }

    /// Whether it has nothing to pass on.
    pub fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.incoming.is_end_stream()
    }
}

impl From<Incoming> for ClientBody {
    fn from(incoming: Incoming) -> Self {
        ClientBody {
            incoming,
            ahead: Ahead::default(),
            max_bytes: None,
            received: None,
            sent: None,
            pace: None,
            may_be_slow: false,
            interim: None,
        }
    }
}

/// A client's body on its way to the upstream.
pub struct RequestBody {
    source: ClientStream,
    /// Set when the request is first sent; none: that is not needed.
    sent: Option<Rc<Cell<bool>>>,
    lateness: Lateness,
    timing: Option<Timing>,
    state: Rc<BodyState>,
    /// It is read by another task than the one that waits for the response.
    is_streamed: bool,
}

/// How far a client is behind with its body.
#[derive(Default)]
struct Lateness {
    arrears: Arrears,
    /// The tick since which the next frame is awaited.
    since: u32,
}

impl Lateness {
    /// Begins to wait for a frame. Returns how long that may take, and whether that is less than
    /// the timeout of a pause.
    fn begin_to_wait(&mut self, ticker: &Ticker, may_be_slow: bool) -> (Duration, bool) {
        self.since = ticker.now();
        let pause = ticker.patience();
        let rate = ticker.body_rate().filter(|_| !may_be_slow);
        let left = rate.map_or(pause, |rate| self.arrears.left(rate));
        (left.min(pause), left < pause)
    }

    /// It has come, with so many bytes.
    fn end_to_wait(&mut self, ticker: &Ticker, bytes: usize) {
        if let Some(rate) = ticker.body_rate() {
            self.arrears.wait(ticker.now().saturating_sub(self.since), rate);
            self.arrears.pay(bytes as u64);
        }
    }
}

/// Bytes of a body in what has come of it.
fn frame_bytes<E>(frame: &Option<Result<Frame<Bytes>, E>>) -> usize {
    let frame = frame.as_ref().and_then(|frame| frame.as_ref().ok());
    frame.and_then(Frame::data_ref).map_or(0, Bytes::len)
}

/// The deadline of the exchange that a body is part of.
pub(crate) struct Timing {
    /// Shared with the exchange.
    pub(crate) deadline: Rc<Deadline>,
    /// How long the upstream may take once the client is done, or to take a frame.
    pub(crate) response_timeout: Duration,
    /// How long it may take for a frame once it has answered.
    pub(crate) idle_timeout: Duration,
}

impl Timing {
    pub(crate) fn new(deadline: &Rc<Deadline>, upstream: &Upstream) -> Timing {
        let Upstream { response_timeout, idle_timeout, .. } = *upstream;
        Timing { deadline: Rc::clone(deadline), response_timeout, idle_timeout }
    }
}

/// The state of a request's body, to find out which side caused a failure.
#[derive(Debug, Default)]
pub(crate) struct BodyState {
    waiting: Cell<bool>,
    /// The client has less time for the next frame than a pause may take.
    is_behind: Cell<bool>,
    failed: Cell<bool>,
    too_large: Cell<bool>,
    answered: Cell<bool>,
    abandoned: Cell<bool>,
    begun: Cell<bool>,
    /// The task that reads the body, if it is not the one that handles the request.
    reader: RefCell<Option<Waker>>,
    /// A body of which nothing was read when its reader gave it up.
    unread: RefCell<Option<ClientStream>>,
}

/// What comes from the client, and how it is taken.
#[derive(Debug, Default)]
struct ClientStream {
    /// None: there is no body.
    incoming: Option<Incoming>,
    /// What comes before that.
    ahead: Ahead,
    /// Bytes that may still come.
    room: u64,
    /// Bytes that have come; none: they are not needed.
    received: Option<Rc<Cell<u64>>>,
    pace: Option<Rc<Pace>>,
    /// No average rate is required.
    may_be_slow: bool,
    /// Fields that trailers may not set; none: trailers are dropped.
    own: Option<Arc<OwnHeaders>>,
}

impl BodyState {
    /// Whether the next frame is awaited from the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    /// What it is when time is up: whose fault that is, and why.
    pub(crate) fn timeout(&self) -> UpstreamError {
        match (self.waiting.get(), self.is_behind.get()) {
            (true, true) => UpstreamError::RequestBodyTooSlow,
            (true, false) => UpstreamError::RequestBodyTimeout,
            (false, _) => UpstreamError::ResponseTimeout,
        }
    }

    /// The response has begun: from here on its body sets the deadline.
    pub(crate) fn set_answered(&self) {
        self.answered.set(true);
    }

    /// The client broke it off, or sent too much.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Whose fault it is that the exchange has failed with this error.
    pub(crate) fn blame(&self, error: hyper::Error) -> UpstreamError {
        match (self.too_large.get(), self.failed.get()) {
            (true, _) => UpstreamError::RequestBodyTooLarge,
            (false, true) => UpstreamError::RequestBody(error.into()),
            (false, false) => UpstreamError::Exchange(error.into()),
        }
    }

    /// Stops reading: the exchange does not need the rest.
    pub(crate) fn abandon(&self) {
        self.abandoned.set(true);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl RequestBody {
    /// The client's body.
    pub(crate) fn new(body: ClientBody, upstream: &Upstream) -> Self {
        let is_empty = body.is_empty();
        let ClientBody {
            incoming,
            ahead,
            max_bytes,
            received,
            sent,
            pace,
            may_be_slow,
            interim: _,
        } = body;
        let room = max_bytes.unwrap_or(u64::MAX);
        // Only trailers are looked at for them.
        let own = match is_empty {
            true => None,
            false => Some(Arc::clone(&upstream.own_headers)),
        };
        let incoming = Some(incoming);
        let source = ClientStream { incoming, ahead, room, received, pace, may_be_slow, own };
        RequestBody::of(source, sent)
    }

    /// No body.
    pub(crate) fn empty() -> Self {
        RequestBody::of(ClientStream::default(), None)
    }

    /// A body again of which nothing was read.
    pub(crate) fn unread(state: &BodyState) -> Option<Self> {
        Some(RequestBody::of(state.unread.take()?, None))
    }

    fn of(source: ClientStream, sent: Option<Rc<Cell<bool>>>) -> Self {
        RequestBody {
            source,
            sent,
            lateness: Lateness::default(),
            timing: None,
            state: Rc::default(),
            is_streamed: false,
        }
    }

    /// Sets the deadline of this exchange anew with each frame.
    pub(crate) fn attach(&mut self, timing: Timing) {
        if let Some(sent) = self.sent.take() {
            sent.set(true);
        }
        self.timing = Some(timing);
    }

    /// The same for an exchange that another task drives.
    pub(crate) fn attach_stream(&mut self, timing: Timing) -> Rc<BodyState> {
        self.attach(timing);
        self.is_streamed = true;
        self.state()
    }

    pub(crate) fn state(&self) -> Rc<BodyState> {
        Rc::clone(&self.state)
    }

    /// Sets the deadline for what is awaited now.
    fn set_deadline<E>(
        &mut self,
        polled: &Poll<Option<Result<Frame<Bytes>, E>>>,
        was_waiting: bool,
    ) {
        let Some(timing) = &self.timing else { return };
        match polled {
            // The response's body has the deadline from then on, and this is progress too.
            Poll::Ready(_) if self.state.answered.get() => {
                timing.deadline.set(timing.idle_timeout);
            }
            Poll::Ready(frame) => {
                timing.deadline.set(timing.response_timeout);
                if was_waiting {
                    self.lateness.end_to_wait(timing.deadline.ticker(), frame_bytes(frame));
                }
            }
            Poll::Pending if !was_waiting && !self.state.answered.get() => {
                let ticker = timing.deadline.ticker();
                let may_be_slow = self.source.may_be_slow;
                let (time, is_behind) = self.lateness.begin_to_wait(ticker, may_be_slow);
                timing.deadline.set(time);
                self.state.is_behind.set(is_behind);
            }
            Poll::Pending => {}
        }
    }

    /// Counts what has come; false if it is too much.
    fn takes(&mut self, frame: &Frame<Bytes>) -> bool {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        if let Some(received) = &self.source.received {
            received.set(received.get() + bytes);
        }
        let Some(room) = self.source.room.checked_sub(bytes) else { return false };
        self.source.room = room;
        match (&self.source.pace, frame.trailers_ref()) {
            (Some(pace), Some(trailers)) => pace.take_trailers(trailers),
            _ => true,
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if self.is_streamed && !self.state.begun.get() {
            *self.state.unread.borrow_mut() = Some(std::mem::take(&mut self.source));
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
        let Some(incoming) = &mut body.source.incoming else { return Poll::Ready(None) };
        let polled = match body.source.ahead.next() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(incoming).poll_frame(context),
        };
        let was_waiting = body.state.waiting.replace(polled.is_pending());
        body.set_deadline(&polled, was_waiting);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && !body.takes(frame)
        {
            body.state.failed.set(true);
            body.state.too_large.set(true);
            return Poll::Ready(Some(Err(RequestBodyError::TooLarge)));
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(Err(violation)) = frame.trailers_ref().map(check_trailers)
        {
            body.state.failed.set(true);
            return Poll::Ready(Some(Err(violation.into())));
        }
        match polled {
            Poll::Ready(Some(Err(_))) => body.state.failed.set(true),
            Poll::Ready(_) => body.state.begun.set(true),
            Poll::Pending => {}
        }
        let own = body.source.own.as_deref();
        let goes_on = |name: &HeaderName| own.is_some_and(|own| may_be_a_trailer(name, own));
        let passed_on = |frame| with_trailers(frame, goes_on);
        polled.map(|frame| frame.map(|frame| frame.map(passed_on).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.source.ahead.is_empty()
            && self.source.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let coming = self.source.incoming.as_ref();
        let hint = coming.map_or(SizeHint::with_exact(0), Incoming::size_hint);
        match (self.source.ahead.is_empty(), hint.exact()) {
            (true, _) => hint,
            (false, Some(rest)) => SizeHint::with_exact(self.source.ahead.bytes() + rest),
            (false, None) => SizeHint::default(),
        }
    }
}
