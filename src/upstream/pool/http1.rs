//! One request over one HTTP/1.1 connection.
//!
//! A connection has no task of its own: the request that waits for its response drives it, and the
//! response's body drives it on until it is finished and the connection can be kept. That saves a
//! task switch each way, and dropping a request drops its connection with it.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request, Response};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;

use super::Pool;
use crate::{
    deadline::Deadline,
    policy::Upstream,
    upstream::{
        RequestBody, Stream, UpstreamError,
        body::{BodyState, Timing},
        failure::Failure,
        response_check::is_unsound,
        slots::Slot,
        stream::{MeteredStream, Traffic},
    },
};

/// Largest head of a response that hyper reads on for; see `is_unsound` for what is passed on.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_FIELDS: usize = 256;

/// What every connection in HTTP/1.1 to a server is made with.
pub(in crate::upstream) fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_FIELDS);
    builder
}

/// A connection in HTTP/1.1, used by one request at a time.
pub(in crate::upstream) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    driver: Pin<Box<http1::Connection<TokioIo<MeteredStream>, RequestBody>>>,
    traffic: Rc<Traffic>,
    pub(in crate::upstream) deadline: Rc<Deadline>,
    /// How long it may be kept unused.
    keep_alive: Cell<Duration>,
    /// What became of the body of the latest request.
    body: Option<Rc<BodyState>>,
    /// Not its owner: unused connections are the pool's.
    pool: Weak<Pool>,
}

impl Connection {
    /// Speaks HTTP/1.1 over a new stream.
    pub(in crate::upstream) async fn new(
        stream: Stream,
        slot: Slot,
        pool: &Rc<Pool>,
    ) -> Result<Connection, UpstreamError> {
        let (stream, traffic) = MeteredStream::new(stream, slot);
        let (sender, driver) =
            builder().handshake(TokioIo::new(stream)).await.map_err(UpstreamError::Exchange)?;
        let deadline = Rc::new(pool.ticker.deadline());
        let driver = Box::pin(driver);
        let keep_alive = Cell::default();
        let pool = Rc::downgrade(pool);
        Ok(Connection { sender, driver, traffic, deadline, keep_alive, body: None, pool })
    }

    /// Sends a request and waits for the head of its response.
    pub(in crate::upstream) async fn exchange(
        mut self,
        mut request: Request<RequestBody>,
        upstream: &Upstream,
    ) -> Result<(Response<Incoming>, Connection), Failure> {
        request.body_mut().attach(Timing::new(&self.deadline, upstream));
        let body_state = request.body().state();
        let read_before = self.traffic.bytes_read();
        self.traffic.await_head();
        let sending = self.sender.try_send_request(request);
        let mut sending = pin!(sending);
        self.deadline.set(upstream.response_timeout);

        let outcome = poll_fn(|context| {
            // The connection is what produces the response, in this same task: the response itself
            // needs no waker, and one would only wake this task a second time.
            let closed = self.poll_drive(context).is_ready();
            let mut without_waker = Context::from_waker(Waker::noop());
            if let Poll::Ready(result) = sending.as_mut().poll(&mut without_waker) {
                return Poll::Ready(Some(result));
            }
            // The deadline runs from the last progress of the request's body, see `RequestBody`.
            let is_spoilt = self.traffic.is_unsound(read_before);
            let passed = self.deadline.poll_passed(context);
            if closed || passed || is_spoilt { Poll::Ready(None) } else { Poll::Pending }
        });
        let outcome = outcome.await;
        let is_unanswered = self.traffic.bytes_read() == read_before && !body_state.has_failed();
        let is_late = self.deadline.has_passed();
        let failure = |error, unsent: Option<Box<Request<RequestBody>>>| {
            let is_stale = !is_late && (is_unanswered || unsent.is_some());
            Failure { error, unsent, is_unanswered, is_stale }
        };
        let ended = match outcome {
            Some(Ok(response)) if is_unsound(&response) || self.traffic.is_unsound(read_before) => {
                return Err(failure(UpstreamError::Unsound, None));
            }
            Some(Ok(response)) => {
                body_state.set_answered();
                self.keep_alive.set(keep_alive(&response, upstream));
                self.body = Some(body_state);
                return Ok((response, self));
            }
            Some(Err(error)) => Some(error),
            None if self.traffic.is_unsound(read_before) => {
                return Err(failure(UpstreamError::Unsound, None));
            }
            None if is_late => {
                return Err(failure(body_state.timeout(), None));
            }
            None => {
                // With the connection goes its end of the queue, and a request that it never took
                // comes back.
                drop(self);
                let mut without_waker = Context::from_waker(Waker::noop());
                match sending.as_mut().poll(&mut without_waker) {
                    Poll::Ready(Err(error)) => Some(error),
                    _ => None,
                }
            }
        };
        let Some(mut error) = ended else { return Err(failure(UpstreamError::Unsound, None)) };
        let unsent = error.take_message().map(Box::new);
        Err(failure(body_state.blame(error.into_error()), unsent))
    }

    /// Reads and writes as much as can be. Ready means that the connection is closed.
    pub(in crate::upstream) fn poll_drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.driver.as_mut().poll(context).map(drop)
    }

    /// Whether the client has broken off the body that it sends.
    pub(in crate::upstream) fn client_has_failed(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.has_failed())
    }

    /// Whether the server has closed it while it was unused.
    pub(in crate::upstream) fn is_closed(&mut self) -> bool {
        self.poll_drive(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Gives the connection back once its response was read to the end, or closes it if it cannot
    /// be used again.
    pub(in crate::upstream) fn release(mut self) {
        self.deadline.clear();
        // Lets hyper see the end of the message and drop this task's waker: else the next request
        // on the connection would wake this task.
        self.body = None;
        if !self.is_closed()
            && self.sender.is_ready()
            && let Some(pool) = self.pool.upgrade()
        {
            let keep_alive = self.keep_alive.get();
            pool.keep(self, keep_alive);
        }
    }
}

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// How long the connection of a response may be kept: as the policy says, and a second less than
/// the server does, who would close it under the next request.
fn keep_alive(response: &Response<Incoming>, upstream: &Upstream) -> Duration {
    match response.headers().get(&KEEP_ALIVE).and_then(promised) {
        Some(promised) => upstream.keep_alive.min(promised.saturating_sub(SAFETY)),
        None => upstream.keep_alive,
    }
}

const SAFETY: Duration = Duration::from_secs(1);

/// `Keep-Alive: timeout=5, max=100`, as RFC 2068 section 19.7.1 had it and servers still say it.
fn promised(value: &HeaderValue) -> Option<Duration> {
    let mut parameters = value.to_str().ok()?.split(',');
    parameters.find_map(|parameter| {
        let (name, seconds) = parameter.trim().split_once('=')?;
        let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
        is_timeout.then(|| seconds.trim().parse().ok().map(Duration::from_secs))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promise_of_a_server_is_read() {
        for (value, seconds) in [
            ("timeout=5", Some(5)),
            ("max=100, Timeout = 15", Some(15)),
            ("timeout=0", Some(0)),
            ("timeout=", None),
            ("timeout=-1", None),
            ("timeout=99999999999999999999", None),
            ("max=3", None),
            ("", None),
        ] {
            let promised = promised(&HeaderValue::from_static(value));
            assert_eq!(promised, seconds.map(Duration::from_secs), "{value:?}");
        }
    }
}
